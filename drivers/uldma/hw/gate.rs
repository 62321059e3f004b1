// SPDX-License-Identifier: GPL-2.0

//! The gate in front of a device's hardware.

use kernel::sync::Arc;

use crate::kernel_ext::gate;

use super::{
    Hardware,
    Hw, //
};

/// A gate that unbinding closes. A caller that has entered may use the hardware.
pub(crate) type Gate = gate::Gate<Arc<dyn Hardware>>;

/// Proof that the device stays bound, and the right to use its hardware.
pub(crate) type GateGuard<'a> = gate::GateGuard<'a, Arc<dyn Hardware>>;

/// Keeps a gate open, as long as the device is bound.
pub(crate) type GateKeeper<'bound> = gate::GateKeeper<'bound, Arc<dyn Hardware>>;

impl GateGuard<'_> {
    /// Returns the hardware.
    pub(crate) fn hw(&self) -> Hw<'_> {
        Hw::new(self.dev(), &**self.behind())
    }
}
