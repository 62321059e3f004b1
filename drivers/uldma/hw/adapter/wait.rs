// SPDX-License-Identifier: GPL-2.0

//! Waits for registers of the adapter, each with a time-out.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    io::poll::read_poll_timeout,
    prelude::*, //
};

use super::{
    answer,
    Adapter, //
};
use crate::{
    hw::{
        layout::{
            reg,
            DeviceStatus, //
        },
        registers::{
            ControlBar,
            Registers, //
        },
        wait::{
            self,
            SILENCE, //
        },
        Hw, //
    },
    kernel_ext::wakeup, //
};

impl Adapter {
    /// Waits until `register` has none of the bits of `mask`; bounded.
    ///
    /// A device that does not answer may do DMA, so that counts as a timeout.
    pub(super) fn wait_clear(
        &self,
        dev: &Device<Bound>,
        register: impl Fn() -> Result<u32>,
        mask: u32,
    ) -> Result {
        let ready = || {
            let value = self.answer(dev, &register)?;
            Ok((value & mask == 0).then_some(()))
        };
        wait::until(Hw::new(dev, self), || 0, ready)
    }
}

/// Waits until the device is ready after a reset.
pub(super) fn wait_ready(bar: &ControlBar<'_>) -> Result {
    let value = read_poll_timeout(
        || Ok(bar.read(reg::STATUS)),
        |value| value.contains(DeviceStatus::READY),
        wakeup::cost(),
        SILENCE,
    )?;
    // A device that has left the bus has all bits.
    if answer::is_doubtful(value) {
        return Err(ENODEV);
    }
    Ok(())
}
