// SPDX-License-Identifier: MIT OR Apache-2.0

//! A memory of the driver whose pages can be exchanged.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::{uapi, Mapping};

/// Exchangeable memory, mapped once. It ends with [`Area::end`], or with the open file.
#[derive(Debug)]
pub(crate) struct Area {
    handle: u32,
    index: u32,
    mapping: Mapping,
}

/// A part of exchangeable memory, for calls of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'area> {
    pub(crate) area: &'area Area,
    /// The first byte.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// Pages whose last send has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub(crate) pages: u64,
    /// Of these, pages that the program has written meanwhile.
    pub(crate) copied: u64,
}

impl Area {
    /// Creates an area of no device, on which all calls of the driver fail.
    #[cfg(test)]
    pub(super) fn of_no_device(length: u64) -> std::result::Result<Self, Errno> {
        Ok(Self {
            handle: 1,
            index: 1,
            mapping: Mapping::anonymous(length)?,
        })
    }

    /// Creates and maps `length` bytes, which must be whole pages.
    pub(crate) fn create(fd: BorrowedFd<'_>, length: u64) -> Result<Self> {
        let argument = uapi::uldma_exchange_create {
            length,
            ..Default::default()
        };
        let created = sys::exchange_create(fd, argument)
            .map_err(|errno| Error::registration(length, length, None, errno))?;
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapping = Mapping::shared(fd, created.out_offset, length, both).map_err(|errno| {
            // The first error is the one to report.
            let _ = sys::region_unregister(fd, sys::handle(created.out_handle));
            Error::system("map exchangeable memory", errno)
        })?;
        Ok(Self {
            handle: created.out_handle,
            index: created.out_index,
            mapping,
        })
    }

    /// Returns the index in the device's region table.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(super) fn length(&self) -> u64 {
        self.mapping.length() as u64
    }

    /// Returns the offset of memory that lies in the area.
    pub(super) fn offset_of(&self, address: usize, length: usize) -> Option<u64> {
        let offset = address.checked_sub(self.mapping.base().as_ptr() as usize)?;
        let room = self.mapping.length().checked_sub(offset)?;
        (length <= room).then_some(offset as u64)
    }

    /// Ends the memory: the device reaches it no more, and accesses to it raise SIGBUS.
    pub(crate) fn end(&self, fd: BorrowedFd<'_>) {
        // This fails after the device has been removed, and if the device does not answer. Then the
        // pages stay until the file is closed.
        let _ = sys::region_unregister(fd, sys::handle(self.handle));
    }
}

impl Part<'_> {
    fn range(&self) -> uapi::uldma_exchange_range {
        uapi::uldma_exchange_range {
            handle: self.area.handle,
            offset: self.offset,
            length: self.length,
            ..Default::default()
        }
    }

    /// Begins a send: what is written from now on goes to copies of the pages.
    ///
    /// # Errors
    ///
    /// EBUSY if a page was copied and its earlier sends have not ended; ENOMEM or EPERM if
    /// RLIMIT_MEMLOCK has no room for copies.
    pub(crate) fn protect(&self, fd: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        repeated(|| sys::exchange_protect(fd, self.range())).map(drop)
    }

    /// Ends a send.
    ///
    /// # Errors
    ///
    /// EREMOTEIO if the device cannot reach a copy, ETIMEDOUT if it does not answer; both can be
    /// repeated. ENODEV after the device has been removed.
    pub(crate) fn release(&self, fd: BorrowedFd<'_>) -> std::result::Result<Released, Errno> {
        repeated(|| sys::exchange_release(fd, self.range())).map(|range| Released {
            pages: range.out_pages.into(),
            copied: range.out_copied.into(),
        })
    }

    /// Exchanges the pages with as many of `other` at `offset`. All are whole pages.
    ///
    /// # Errors
    ///
    /// EBUSY if a page is being sent; EINVAL for bytes that are no whole pages; ETIMEDOUT if the
    /// device does not answer; ENODEV after the device has been removed.
    pub(crate) fn swap(
        &self,
        fd: BorrowedFd<'_>,
        other: &Area,
        offset: u64,
    ) -> std::result::Result<(), Errno> {
        let argument = uapi::uldma_exchange_swap {
            handle: self.area.handle,
            offset: self.offset,
            other: other.handle,
            other_offset: offset,
            length: self.length,
            ..Default::default()
        };
        repeated(|| sys::exchange_swap(fd, argument)).map(drop)
    }
}

/// Repeats a call until no signal ends it while it waits for its turn.
fn repeated<T>(call: impl Fn() -> std::result::Result<T, Errno>) -> std::result::Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}
