// SPDX-License-Identifier: GPL-2.0

//! The operations of the device that spaces use.

use kernel::sync::Arc;

use crate::{
    hw::Hardware,
    kernel_ext::gate::Gate,
    mem::tpt::Tpt, //
};

use super::space::Space;

/// Operations of the device of a space.
pub(crate) trait DeviceOps: Send + Sync {
    /// Returns what locking needs.
    fn access(&self) -> DeviceAccess<'_>;

    /// Retains a space until unbind, since the device may still access its memory. Returns the
    /// space that was retained before, which `space` has to retain.
    fn keep(&self, space: Arc<Space>) -> Option<Arc<Space>>;
}

/// The parts of the device that pinning uses.
pub(crate) struct DeviceAccess<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) hw: &'a dyn Hardware,
}
