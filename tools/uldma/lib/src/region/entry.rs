// SPDX-License-Identifier: MIT OR Apache-2.0

//! Entries of the table of regions and imports, which regions and imports own.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::region::miss::Miss;
use crate::sys;
use crate::sys::uapi;

/// Access rights of the device, or of the peer, to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading: the memory can be a source of transfers.
    Read,
    /// Writing: the memory can be a destination.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Decodes flags of the user interface; none for no right.
    pub(crate) fn from_flags(flags: u32) -> Option<Self> {
        match (
            flags & uapi::ULDMA_ACCESS_READ != 0,
            flags & uapi::ULDMA_ACCESS_WRITE != 0,
        ) {
            (true, true) => Some(Self::ReadWrite),
            (true, false) => Some(Self::Read),
            (false, true) => Some(Self::Write),
            (false, false) => None,
        }
    }

    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Read => uapi::ULDMA_ACCESS_READ,
            Self::Write => uapi::ULDMA_ACCESS_WRITE,
            Self::ReadWrite => uapi::ULDMA_ACCESS_READ | uapi::ULDMA_ACCESS_WRITE,
        }
    }

    /// Returns true if it includes reading.
    pub fn reads(self) -> bool {
        self.flags() & uapi::ULDMA_ACCESS_READ != 0
    }

    /// Returns true if it includes writing.
    pub fn writes(self) -> bool {
        self.flags() & uapi::ULDMA_ACCESS_WRITE != 0
    }
}

/// One entry of the open file's table of regions and imports; unregistered on drop.
#[derive(Debug)]
pub struct Entry {
    pub(crate) device: Device,
    pub(crate) handle: u32,
    pub(crate) index: u32,
    pub(crate) access: Access,
    pub(crate) length: u64,
    /// Offset of the first byte in shadow space.
    pub(crate) first: u64,
    pub(crate) shadow_offset: u64,
    pub(crate) shadow_length: u64,
    /// The entry is unregistered already.
    pub(crate) ended: AtomicBool,
}

impl Entry {
    pub(crate) fn register(
        device: &Device,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        Self::enter(device, address, length, access, (0, 0)).map_err(|errno| {
            let pinned = device.query().ok().map(|query| query.mm_pinned);
            // Memory that is pinned already needs no further charge.
            let charge = device.charge(address, length, access).ok();
            let needed = charge.map_or(length, |charge| charge.charge);
            Error::registration(length, needed, pinned, errno)
        })
    }

    /// Registers addresses, whose pages are not pinned.
    pub(crate) fn register_optimistic(
        device: &Device,
        address: u64,
        length: u64,
        access: Access,
        miss: Miss,
    ) -> Result<Self> {
        Self::enter(device, address, length, access, miss.flags())
            .map_err(|errno| Error::system(format!("register {length} bytes unpinned"), errno))
    }

    fn enter(
        device: &Device,
        address: u64,
        length: u64,
        access: Access,
        (flags, limit_us): (u32, u32),
    ) -> std::result::Result<Self, Errno> {
        let argument = uapi::uldma_region_register {
            flags: access.flags() | flags,
            limit_us,
            addr: address,
            length,
            ..Default::default()
        };
        let answer = sys::region_register(device.as_fd(), argument)?;
        Ok(Self {
            device: device.clone(),
            handle: answer.out_handle,
            index: answer.out_index,
            access,
            length,
            first: address.checked_rem(device.page_size()).unwrap_or(0),
            shadow_offset: answer.out_shadow_offset,
            shadow_length: answer.out_shadow_length,
            ended: AtomicBool::new(false),
        })
    }

    /// Unregisters the entry; later calls have no effect.
    pub(crate) fn end(&self) -> std::result::Result<(), Errno> {
        if self.ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let answer = sys::region_unregister(self.device.as_fd(), sys::handle(self.handle));
        self.device.events().forget(self.handle);
        match answer {
            // A clean-up has ended it before, or all regions ended with the device. Handles are
            // never reused.
            Ok(_) | Err(Errno::ENOENT | Errno::ENODEV) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // If this fails, closing the file ends it; until then the pages stay pinned, so that the
        // device never writes to pages that were reused.
        let _ = self.end();
    }
}
