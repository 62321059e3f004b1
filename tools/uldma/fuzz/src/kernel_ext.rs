// SPDX-License-Identifier: MIT OR Apache-2.0

//! What of the driver's module of this name the decoders need.

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
}

/// Orders accesses to the window.
pub(crate) mod window {
    use std::sync::atomic::{fence, Ordering};

    /// All before comes before all after.
    pub(crate) fn full_fence() {
        fence(Ordering::SeqCst);
    }
}
