// SPDX-License-Identifier: GPL-2.0

//! Messages that a peer or a program can cause as often as it likes: `dev_*_ratelimited()`.
//!
//! C header: `include/linux/ratelimit.h`. Each kind of message has a limit of its own, by the kernel's
//! usual interval and burst, and the kernel says how many were left out.

use kernel::prelude::*;

unsafe extern "C" {
    fn uldma_ratelimit(kind: c_uint) -> bool;
}

/// Kinds of messages, as many as `ULDMA_RATELIMITED`.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A bus address was not answered.
    BusAddress,
    /// The device gives tickets that cannot be.
    Ticket,
    /// A program guesses keys.
    Keys,
    /// The device does not answer.
    Sick,
    /// The device answers again.
    Well,
}

/// Whether a message of this kind may be printed now.
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
