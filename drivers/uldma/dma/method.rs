// SPDX-License-Identifier: GPL-2.0

//! Initiation methods, as `enum uldma_method` of the user interface numbers them.
//!
//! How each works is the device's business; here is what the driver has to do for one.

use kernel::{
    pr_warn_once,
    prelude::*, //
};

use crate::{
    kernel_ext::errno::eopnotsupp,
    params,
    uapi, //
};

/// An initiation method that the device has, and that the administrator allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method(u32);

/// The methods of `offered`, the device's, that a context may have.
pub(crate) fn allowed(offered: u32) -> u32 {
    match params::insecure_methods() {
        true => offered,
        false => offered & !uapi::ULDMA_METHODS_INSECURE,
    }
}

impl Method {
    /// Descriptors in memory, which is how the kernel's own queue works, too.
    pub(crate) const QUEUE: Self = Self(uapi::ULDMA_METHOD_QUEUE);

    /// Decodes a number, given the bit mask of methods that the device has.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` when the device does not have it, `EPERM` when it is not secure and not
    /// allowed.
    pub(crate) fn from_number(number: u32, offered: u32) -> Result<Self> {
        let bit = 1u32.checked_shl(number).unwrap_or(0);
        if bit & offered == 0 {
            return Err(eopnotsupp());
        }
        if bit & allowed(offered) == 0 {
            pr_warn_once!("initiation methods that are not secure need insecure_methods=1\n");
            return Err(EPERM);
        }
        Ok(Self(number))
    }

    /// The bit of the method in a mask.
    pub(crate) fn bit(self) -> u32 {
        1 << self.0
    }

    /// Whether a context needs a key.
    pub(crate) fn needs_key(self) -> bool {
        self.0 == uapi::ULDMA_METHOD_KEY
    }

    /// Whether a context needs a page of descriptors.
    pub(crate) fn needs_queue(self) -> bool {
        self.0 == uapi::ULDMA_METHOD_QUEUE
    }

    /// Whether the device has to be told who runs.
    pub(crate) fn needs_sched_notify(self) -> bool {
        self.bit() & uapi::ULDMA_METHODS_SCHED_NOTIFY != 0
    }
}
