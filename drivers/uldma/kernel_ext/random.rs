// SPDX-License-Identifier: GPL-2.0

//! Cryptographically secure random numbers.

use core::num::Wrapping;

use kernel::{
    bindings,
    prelude::*, //
};

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

/// A sequence of numbers that an observer of some cannot tell from random ones, and which cost less.
///
/// Each is SipHash of a counter with a random key, as in `net/core/secure_seq.c`.
pub(crate) struct Sequence {
    key: bindings::siphash_key_t,
    next: Wrapping<u64>,
}

impl Sequence {
    /// Creates a sequence with a key of its own.
    pub(crate) fn new() -> Self {
        Self {
            key: bindings::siphash_key_t {
                key: [u64(), u64()],
            },
            next: Wrapping(0),
        }
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.next += 1;
        // SAFETY: The key is only read.
        unsafe { bindings::siphash_1u64(self.next.0, &raw const self.key) }
    }
}

#[kunit_tests(uldma_random)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_sequence_differ_from_each_other_and_from_others() {
        let (mut one, mut other) = (Sequence::new(), Sequence::new());
        let numbers = [one.next(), one.next(), other.next(), other.next()];
        for (place, number) in numbers.iter().enumerate() {
            assert!(!numbers.iter().skip(place + 1).any(|later| later == number));
        }
    }
}
