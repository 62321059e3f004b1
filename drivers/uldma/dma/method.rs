// SPDX-License-Identifier: GPL-2.0

//! Initiation methods, as `enum uldma_method` of the user interface numbers them.
//!
//! The device implements them; this module defines the requirements of each on the driver.

use kernel::{
    pr_warn_once,
    prelude::*, //
};

use crate::{
    kernel_ext::errno::eopnotsupp,
    params,
    uapi, //
};

/// An initiation method that the device supports and the administrator allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method(u32);

/// Returns the methods of `offered`, those of the device, that a context may use.
pub(crate) fn allowed(offered: u32) -> u32 {
    if params::insecure_methods() {
        offered
    } else {
        offered & !uapi::ULDMA_METHODS_INSECURE
    }
}

impl Method {
    /// Descriptors in memory, which the kernel's queues use, too.
    pub(crate) const QUEUE: Self = Self(uapi::ULDMA_METHOD_QUEUE);

    /// Decodes a number, given the bit mask of methods that the device supports.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device does not support it, `EPERM` if it is insecure and not allowed.
    pub(crate) fn from_number(number: u32, offered: u32) -> Result<Self> {
        let bit = 1u32.checked_shl(number).unwrap_or(0);
        if bit & offered == 0 {
            return Err(eopnotsupp());
        }
        if bit & allowed(offered) == 0 {
            pr_warn_once!(
                "insecure initiation methods need the module parameter insecure_methods=1\n"
            );
            return Err(EPERM);
        }
        Ok(Self(number))
    }

    /// Returns the bit of the method in a mask.
    pub(crate) fn bit(self) -> u32 {
        1 << self.0
    }

    /// Returns true if a context needs a key.
    pub(crate) fn needs_key(self) -> bool {
        self.0 == uapi::ULDMA_METHOD_KEY
    }

    /// Returns true if a context needs a page of descriptors.
    pub(crate) fn needs_queue(self) -> bool {
        self.0 == uapi::ULDMA_METHOD_QUEUE
    }

    /// Returns true if the device has to be notified of context switches.
    pub(crate) fn needs_sched_notify(self) -> bool {
        self.bit() & uapi::ULDMA_METHODS_SCHED_NOTIFY != 0
    }
}
