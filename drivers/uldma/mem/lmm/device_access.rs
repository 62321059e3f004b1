// SPDX-License-Identifier: GPL-2.0

//! The parts of the device that pinning uses.

use crate::{
    hw::Hardware,
    kernel_ext::gate::Gate,
    mem::tpt::Tpt, //
};

/// The parts of the device that pinning uses.
pub(crate) struct DeviceAccess<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) hw: &'a dyn Hardware,
}
