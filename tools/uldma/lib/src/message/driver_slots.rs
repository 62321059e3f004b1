// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slots of the driver, to which and from which it copies messages: the kernel variant of
//! `COPY_DMA`.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;

use super::options::MessageOptions;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;
use crate::transfer::endpoint::Endpoint;
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::nanoseconds;

/// Slots of one direction of an endpoint.
#[derive(Debug)]
pub(super) struct DriverSlots {
    handle: u32,
    count: u64,
    device: Device,
}

impl DriverSlots {
    /// Creates the slots of `options` for sending.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for slots of more than 1 MiB, ENOMEM beyond `RLIMIT_MEMLOCK`, EDQUOT
    /// when this user has as much registered memory as it may, ENOSPC when a table is full.
    pub(super) fn sending(
        device: &Device,
        endpoint: &Endpoint,
        options: &MessageOptions,
    ) -> Result<Self> {
        Self::new(device, endpoint, options, 0)
    }

    /// Creates the slots of `options` for receiving, all of them posted.
    ///
    /// # Errors
    ///
    /// Those of [`DriverSlots::sending`].
    pub(super) fn receiving(
        device: &Device,
        endpoint: &Endpoint,
        options: &MessageOptions,
    ) -> Result<Self> {
        let slots = Self::new(device, endpoint, options, uapi::ULDMA_MSG_RECEIVE)?;
        endpoint.set_posted(slots.count);
        Ok(slots)
    }

    fn new(
        device: &Device,
        endpoint: &Endpoint,
        options: &MessageOptions,
        flags: u32,
    ) -> Result<Self> {
        let argument = uapi::uldma_msg_slots {
            flags,
            endpoint: endpoint.handle(),
            count: options.slots.into(),
            slot_bytes: (options.slot as u64).next_multiple_of(device.page_size()),
            ..Default::default()
        };
        let made = repeated(|| sys::msg_slots(device.as_fd(), argument));
        let made = made.map_err(|errno| Error::system("create message slots", errno))?;
        Ok(Self {
            handle: made.out_handle,
            count: options.slots.into(),
            device: device.clone(),
        })
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Copies a piece of a message to the next slot, which is free, and sends it by `ticket`.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV after the device has been removed.
    pub(super) fn send(&self, bytes: &[u8], ticket: Ticket, more: bool) -> Result<()> {
        let argument = uapi::uldma_msg_send {
            flags: if more { uapi::ULDMA_DESC_MORE } else { 0 },
            slots: self.handle,
            addr: bytes.as_ptr() as u64,
            length: bytes.len() as u64,
            ticket: ticket.0,
            timeout_ns: nanoseconds(PATIENCE),
            ..Default::default()
        };
        repeated(|| sys::msg_send(self.device.as_fd(), argument))
            .map(drop)
            .map_err(|errno| Error::system("send a message through the driver", errno))
    }

    /// Copies the next message, which has come, to `target`, as far as there is room. Its slot is
    /// posted again.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV after the device has been removed.
    pub(super) fn receive(&self, target: &mut [u8]) -> Result<()> {
        let argument = uapi::uldma_msg_recv {
            slots: self.handle,
            addr: target.as_mut_ptr() as u64,
            length: target.len() as u64,
            timeout_ns: nanoseconds(PATIENCE),
            ..Default::default()
        };
        repeated(|| sys::msg_recv(self.device.as_fd(), argument))
            .map(drop)
            .map_err(|errno| Error::system("receive a message through the driver", errno))
    }
}

/// Of calls that have nothing to wait for but a context that others use.
const PATIENCE: Duration = Duration::from_secs(10);

/// Repeats a call that a signal has ended, which has changed nothing then.
fn repeated<T>(call: impl Fn() -> std::result::Result<T, Errno>) -> std::result::Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

impl Drop for DriverSlots {
    fn drop(&mut self) {
        // Fails only after the device has been removed; closing the file ends the slots, too.
        let _ = sys::region_unregister(self.device.as_fd(), sys::handle(self.handle));
    }
}
