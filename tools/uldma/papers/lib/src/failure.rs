// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of system calls that this crate makes itself.

use nix::errno::Errno;
use uldma::Error;

/// Builds the error of a system call.
pub(crate) fn system(action: impl Into<String>, errno: Errno) -> Error {
    Error::System {
        action: action.into(),
        errno,
        hint: None,
    }
}
