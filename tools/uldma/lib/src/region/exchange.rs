// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers of exchangeable memory, and slots that messages arrive in.

use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::device::heap::{Area, Block};
use crate::device::Device;
use crate::error::{Error, Result};

/// A buffer of memory whose pages the driver can protect and exchange, for messages without copies
/// (`PEX_DMA`). It begins at a page and has whole pages of its own.
///
/// It reads and writes like a byte slice, until the driver is unbound from the device. No transfer
/// can write to it, as no call names it; what a message was sent from may be changed at once, and
/// what a message is received into changes during the call only.
///
/// It belongs to the open file of its [`Device`]: connections over that device and its clones
/// recognize it by its address. It cannot be registered, and child processes do not have it.
#[derive(Debug)]
pub struct ExchangeBuffer {
    block: Block,
    length: usize,
    device: Device,
}

impl Device {
    /// Allocates a buffer of `length` bytes of exchangeable memory. As with malloc(), its bytes may
    /// be those of a buffer that was dropped before.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for no bytes; ENOMEM beyond RLIMIT_MEMLOCK, to which its pages are
    /// charged; EDQUOT when this user's share of the device's tables is used up, ENOSPC when they
    /// are full; EPERM in a child process.
    pub fn exchangeable(&self, length: usize) -> Result<ExchangeBuffer> {
        if length == 0 {
            return Err(Error::system("allocate 0 bytes", Errno::EINVAL));
        }
        let count = (length as u64).div_ceil(self.page_size());
        let block = self
            .heap()
            .allocate(self.as_fd(), count, self.page_size())?;
        Ok(ExchangeBuffer {
            block,
            length,
            device: self.clone(),
        })
    }
}

impl ExchangeBuffer {
    /// Returns where the buffer begins in the mapping of its area.
    fn start(&self) -> usize {
        // The area is mapped, so its offsets are numbers of this machine.
        (self.block.pages.start * self.device.page_size()) as usize
    }
}

impl Deref for ExchangeBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are in no other buffer, and the device does not write to them, as the
        // library names their area for sending only. Receiving exchanges pages under an exclusive
        // borrow of the bytes.
        unsafe { self.block.area.mapping().part(self.start(), self.length) }
    }
}

impl DerefMut for ExchangeBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively. The device may read the pages for a
        // message, but only those that the driver has protected before: it never reads what is
        // written through this slice meanwhile.
        unsafe {
            self.block
                .area
                .mapping()
                .part_mut(self.start(), self.length)
        }
    }
}

impl AsRef<[u8]> for ExchangeBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for ExchangeBuffer {
    fn drop(&mut self) {
        let device = &self.device;
        device
            .heap()
            .free(device.as_fd(), &mut self.block, device.page_size());
    }
}

/// Exchangeable memory that messages arrive in. No reference to it is made.
#[derive(Debug)]
pub(crate) struct ExchangeSlots {
    area: Area,
    device: Device,
}

impl ExchangeSlots {
    /// Creates slots of `length` bytes together, which must be whole pages.
    pub(crate) fn new(device: &Device, length: u64) -> Result<Self> {
        device.heap().add_slots();
        let area =
            Area::create(device.as_fd(), length).inspect_err(|_| device.heap().remove_slots())?;
        Ok(Self {
            area,
            device: device.clone(),
        })
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        self.area.mapping().length() as u64
    }
}

impl Drop for ExchangeSlots {
    fn drop(&mut self) {
        self.area.end(self.device.as_fd());
        self.device.heap().remove_slots();
    }
}
