// SPDX-License-Identifier: GPL-2.0

//! Cryptographically secure random numbers.

use kernel::bindings;

/// Returns 64 random bits.
pub(crate) fn u64() -> u64 {
    // SAFETY: May be called from any context.
    unsafe { bindings::get_random_u64() }
}

/// Returns 32 random bits.
pub(crate) fn u32() -> u32 {
    // SAFETY: May be called from any context.
    unsafe { bindings::get_random_u32() }
}
