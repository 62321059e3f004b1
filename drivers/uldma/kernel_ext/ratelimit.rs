// SPDX-License-Identifier: GPL-2.0

//! Rate limits for messages that a peer or a program can cause: `dev_*_ratelimited()`.
//!
//! C header: `include/linux/ratelimit.h`. Each kind of message has its own limit, with the default
//! interval and burst of the kernel, which logs the number of suppressed messages.

use kernel::prelude::*;

unsafe extern "C" {
    fn uldma_ratelimit(kind: c_uint) -> bool;
}

/// Kinds of messages, as many as `ULDMA_RATELIMITED`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A DMA access of the device failed.
    BusAddress,
    /// The device issued a wrong ticket.
    Ticket,
    /// A program guesses keys.
    Keys,
    /// The device does not answer.
    Sick,
    /// The device answers again.
    Well,
}

/// Returns true if a message of this kind may be printed now.
pub(crate) fn allows(kind: Kind) -> bool {
    // SAFETY: The call takes any number, and can be made in any context.
    unsafe { uldma_ratelimit(kind as c_uint) }
}

/// As `dev_err!`, for messages of the kind `$kind`.
macro_rules! dev_err_ratelimited {
    ($kind:ident, $($message:tt)+) => {
        if $crate::kernel_ext::ratelimit::allows($crate::kernel_ext::ratelimit::Kind::$kind) {
            ::kernel::prelude::dev_err!($($message)+);
        }
    };
}
pub(crate) use dev_err_ratelimited;

/// As `dev_warn!`, for messages of the kind `$kind`.
macro_rules! dev_warn_ratelimited {
    ($kind:ident, $($message:tt)+) => {
        if $crate::kernel_ext::ratelimit::allows($crate::kernel_ext::ratelimit::Kind::$kind) {
            ::kernel::prelude::dev_warn!($($message)+);
        }
    };
}
pub(crate) use dev_warn_ratelimited;

/// As `dev_info!`, for messages of the kind `$kind`.
macro_rules! dev_info_ratelimited {
    ($kind:ident, $($message:tt)+) => {
        if $crate::kernel_ext::ratelimit::allows($crate::kernel_ext::ratelimit::Kind::$kind) {
            ::kernel::prelude::dev_info!($($message)+);
        }
    };
}
pub(crate) use dev_info_ratelimited;
