// SPDX-License-Identifier: GPL-2.0

//! Plain values as `zerocopy` knows them, for functions of the `kernel` crate, which has traits of
//! its own for that.

use kernel::transmute::{
    AsBytes,
    FromBytes, //
};

/// A plain value.
#[repr(transparent)]
pub(crate) struct Plain<T>(pub(crate) T);

impl<T> Plain<T> {
    /// Returns `value` as a plain value.
    pub(crate) fn of(value: &T) -> &Self {
        // SAFETY: The representations are the same, by `repr(transparent)`.
        unsafe { &*core::ptr::from_ref(value).cast() }
    }
}

// SAFETY: Any bytes are a `T`, and it has no interior mutability, as `zerocopy` has checked.
unsafe impl<T: zerocopy::FromBytes + zerocopy::Immutable> FromBytes for Plain<T> {}

// SAFETY: A `T` has no uninitialized bytes and no interior mutability, as `zerocopy` has checked.
unsafe impl<T: zerocopy::IntoBytes + zerocopy::Immutable> AsBytes for Plain<T> {}
