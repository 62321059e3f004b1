// SPDX-License-Identifier: GPL-2.0

//! Plain values as `zerocopy` knows them, for the `kernel` crate's functions, which have traits of
//! their own for that.

use kernel::transmute::{
    AsBytes,
    FromBytes, //
};

/// A plain value.
#[repr(transparent)]
pub(crate) struct Plain<T>(pub(crate) T);

// SAFETY: Any bytes are a `T`, and it has no interior mutability, as `zerocopy` has checked.
unsafe impl<T: zerocopy::FromBytes + zerocopy::Immutable> FromBytes for Plain<T> {}

// SAFETY: A `T` has no uninitialized bytes and no interior mutability, as `zerocopy` has checked.
unsafe impl<T: zerocopy::IntoBytes + zerocopy::Immutable> AsBytes for Plain<T> {}
