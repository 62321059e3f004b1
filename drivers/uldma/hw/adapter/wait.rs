// SPDX-License-Identifier: GPL-2.0

//! Waits for the adapter, each with a time-out.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    io::poll::read_poll_timeout,
    prelude::*,
    time::Delta, //
};

use super::{
    Adapter,
    GONE, //
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
    },
    kernel_ext::wakeup, //
};

/// Timeout of requests to the device.
const TIMEOUT: Delta = Delta::from_secs(2);

impl Adapter {
    /// Waits until `register` has none of the bits of `mask`; bounded.
    ///
    /// A device that has left the bus reads as all ones. That is no proof that it does no DMA, so
    /// it counts as a timeout.
    pub(super) fn wait_clear(
        &self,
        dev: &Device<Bound>,
        mut register: impl FnMut() -> Result<u32>,
        mask: u32,
    ) -> Result {
        let mut read = || match register()? {
            // Another waiter has timed out.
            _ if self.health.is_sick() => Err(ETIMEDOUT),
            GONE => Err(self.health.timed_out(dev)),
            value => Ok(value),
        };
        // Most requests are complete already, and reading the time is not free.
        if read().is_ok_and(|value| value & mask == 0) {
            return Ok(());
        }
        self.health.check()?;
        let result = read_poll_timeout(read, |value| value & mask == 0, wakeup::cost(), TIMEOUT);
        match result {
            Err(ETIMEDOUT) if !self.health.is_sick() => Err(self.health.timed_out(dev)),
            result => result.map(drop),
        }
    }
}

/// Waits until the device is ready after a reset.
pub(super) fn wait_ready(bar: &ControlBar<'_>) -> Result {
    let value = read_poll_timeout(
        || Ok(bar.read(reg::STATUS)),
        |value| value.contains(DeviceStatus::READY),
        wakeup::cost(),
        TIMEOUT,
    )?;
    if value.bits() == GONE {
        return Err(ENODEV);
    }
    Ok(())
}
