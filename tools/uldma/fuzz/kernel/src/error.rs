// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors by their numbers.

use std::num::TryFromIntError;

/// A negated errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(i32);

/// A result whose error is an errno.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Device or resource busy.
pub const EBUSY: Error = Error(-16);
/// Invalid argument.
pub const EINVAL: Error = Error(-22);
/// Transport endpoint is not connected.
pub const ENOTCONN: Error = Error(-107);

impl Error {
    /// The error of a negated errno.
    pub const fn from_errno(errno: i32) -> Self {
        Self(errno)
    }
}

impl From<TryFromIntError> for Error {
    fn from(_: TryFromIntError) -> Self {
        EINVAL
    }
}
