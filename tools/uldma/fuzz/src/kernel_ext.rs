// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the driver's module of this name that the decoders use.

/// Errors that the kernel's prelude lacks.
pub(crate) mod errno {
    use kernel::error::Error;

    /// Operation not supported on transport endpoint.
    pub(crate) fn eopnotsupp() -> Error {
        Error::from_errno(-95)
    }

    /// Protocol error.
    pub(crate) fn eproto() -> Error {
        Error::from_errno(-71)
    }

    /// Protocol wrong type for socket.
    pub(crate) fn eprototype() -> Error {
        Error::from_errno(-91)
    }

    /// Protocol not supported.
    pub(crate) fn eprotonosupport() -> Error {
        Error::from_errno(-93)
    }
}

/// Orders accesses to the window.
pub(crate) mod window {
    use std::sync::atomic::{fence, Ordering};

    /// Orders all earlier accesses before all later ones.
    pub(crate) fn full_fence() {
        fence(Ordering::SeqCst);
    }
}
