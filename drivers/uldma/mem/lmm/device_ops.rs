// SPDX-License-Identifier: GPL-2.0

//! What spaces need of the device that they are used with.

use kernel::sync::Arc;

use crate::{
    hw::Hardware,
    kernel_ext::gate::Gate,
    mem::tpt::Tpt, //
};

use super::space::Space;

/// Where a space finds what locking needs.
pub(crate) trait DeviceOps: Send + Sync {
    /// What locking needs.
    fn access(&self) -> DeviceAccess<'_>;

    /// Keeps a space with memory that the device did not let go of until it is unbound. Returns the
    /// one that was kept before, for `space` to keep.
    fn keep(&self, space: Arc<Space>) -> Option<Arc<Space>>;
}

/// What locking needs of the device.
pub(crate) struct DeviceAccess<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) hw: &'a dyn Hardware,
}
