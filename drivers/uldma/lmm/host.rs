// SPDX-License-Identifier: GPL-2.0

//! What spaces need of the device that they are used with.

use kernel::sync::{
    Arc,
    Completion, //
};

use crate::{
    hw::Hardware,
    kernel_ext::gate::Gate,
    tpt::Tpt, //
};

use super::space::Space;

/// Where a space finds what locking needs.
pub(crate) trait Host: Send + Sync {
    /// What locking needs.
    fn locker(&self) -> Locker<'_>;

    /// Keeps a space with memory that the device did not let go of until it is unbound.
    fn keep(&self, space: &Arc<Space>);
}

/// What locking needs of the device.
pub(crate) struct Locker<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) hw: &'a dyn Hardware,
    /// Complete once a device whose gate is closed can touch no memory any more.
    pub(crate) quiet: &'a Completion,
}

/// What the device has to be told when a lock ends.
#[derive(Clone, Copy)]
pub(crate) enum Tell {
    /// This region is retracted, and may be in use.
    Region(u32),
    /// Pages go, if any do.
    Pages,
    /// Nothing: it was told already that what could name the pages is gone.
    Nobody,
    /// All regions of the space are retracted, and may be in use.
    Space,
}
