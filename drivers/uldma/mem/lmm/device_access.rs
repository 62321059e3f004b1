// SPDX-License-Identifier: GPL-2.0

//! The parts of the device that memory uses.

use crate::{
    hw::gate::Gate,
    mem::{
        optimistic::Optimistic,
        tpt::Tpt, //
    }, //
};

/// The parts of the device that memory uses.
pub(crate) struct DeviceAccess<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) optimistic: &'a Optimistic,
}
