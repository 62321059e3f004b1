// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions: memory that is pinned and that the device may reach.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use crate::export::Export;
use crate::{sys, uapi, Blocks, Buffer, Device, Error, Memory, Name, RegionInfo, Result};

/// What the device, or the peer, may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it: it is a source of transfers.
    Read,
    /// Write it: it is a destination.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// The right that flags of the user interface stand for; none for neither.
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

    /// It includes reading.
    pub fn reads(self) -> bool {
        self.flags() & uapi::ULDMA_ACCESS_READ != 0
    }

    /// It includes writing.
    pub fn writes(self) -> bool {
        self.flags() & uapi::ULDMA_ACCESS_WRITE != 0
    }
}

/// What a transfer can name: a region of this process, or an import of the peer's.
pub trait Registered: sealed::Registered {
    /// Bytes.
    fn length(&self) -> u64 {
        self.entry().length
    }

    /// What transfers may do with it.
    fn access(&self) -> Access {
        self.entry().access
    }

    /// Index in the device's region table.
    fn index(&self) -> u32 {
        self.entry().index
    }

    /// What events and the kernel's calls name it by.
    fn handle(&self) -> u32 {
        self.entry().handle
    }

    /// Asks the kernel what it is now: pages, rights, and how much of it went stale.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT after [`Device::cleanup`], ENODEV when the device is gone.
    fn query(&self) -> Result<RegionInfo> {
        RegionInfo::query(self.entry())
    }
}

pub(crate) mod sealed {
    use super::Entry;

    /// Keeps [`super::Registered`] to this crate.
    pub trait Registered {
        #[doc(hidden)]
        fn entry(&self) -> &Entry;
    }
}

/// One entry of the open file's table of regions and imports, ended on drop.
#[derive(Debug)]
pub struct Entry {
    pub(crate) device: Device,
    pub(crate) handle: u32,
    pub(crate) index: u32,
    pub(crate) access: Access,
    pub(crate) length: u64,
    /// Shadow byte that stands for the first byte.
    pub(crate) first: u64,
    pub(crate) shadow_offset: u64,
    pub(crate) shadow_length: u64,
    /// There is nothing left to do on drop.
    pub(crate) ended: AtomicBool,
}

impl Entry {
    pub(crate) fn register(
        device: &Device,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        let argument = uapi::uldma_region_register {
            flags: access.flags(),
            addr: address,
            length,
            ..Default::default()
        };
        let answer = sys::region_register(device.as_fd(), argument).map_err(|errno| {
            let pinned = device.query().ok().map(|query| query.mm_pinned);
            // What is locked already needs no room.
            let charge = device.charge(address, length, access).ok();
            let needed = charge.map_or(length, |charge| charge.charge);
            Error::registration(length, needed, pinned, errno)
        })?;
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

    fn end(&self) -> std::result::Result<(), Errno> {
        if self.ended.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let answer = sys::region_unregister(self.device.as_fd(), sys::handle(self.handle));
        self.device.events().forget(self.handle);
        match answer {
            // A clean-up has ended it before, or with the device, all regions have ended. A handle
            // never names anything else than what it was given out for.
            Ok(_) | Err(Errno::ENOENT | Errno::ENODEV) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // If this fails, closing the file ends it; until then the pages stay pinned, so that the
        // device never writes to memory of somebody else.
        let _ = self.end();
    }
}

/// A registered buffer: pinned, known to the device, and changing whenever a transfer says so.
#[derive(Debug)]
pub struct Region {
    // Fields drop in this order: the registration ends before the memory goes.
    entry: Entry,
    buffer: Buffer,
}

impl Device {
    /// Pins the buffer and makes it known to the device. Its pages are charged to RLIMIT_MEMLOCK.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the limit would be exceeded ([`Error::hint`] says limit, use
    /// and need), ENOSPC when the device's table is full, EDQUOT when this user's share of it is
    /// used up. The buffer is freed.
    pub fn register(&self, buffer: Buffer, access: Access) -> Result<Region> {
        let address = buffer.as_ptr() as u64;
        let entry = Entry::register(self, address, buffer.len() as u64, access)?;
        Ok(Region { entry, buffer })
    }

    /// Registers a part of memory that the caller keeps, and may unmap while it is registered: the
    /// region means the pages that are mapped now, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when there is no such part, otherwise as [`Device::register`]. EOPNOTSUPP
    /// says that this kind of memory cannot be pinned.
    pub fn register_memory(
        &self,
        memory: &Memory,
        part: Range<u64>,
        access: Access,
    ) -> Result<Borrowed> {
        let (start, length) = memory.locate(&part)?;
        let entry = Entry::register(self, start, length, access)?;
        Ok(Borrowed { entry })
    }

    /// Registers whatever is mapped at `start`, until the result is dropped. Nothing is borrowed.
    ///
    /// # Errors
    ///
    /// As [`Device::register`]; EFAULT when the addresses are not mapped with the rights that
    /// `access` needs.
    ///
    /// # Safety
    ///
    /// Until the registration has ended, the device may read (or write, as `access` says) these
    /// pages whenever a transfer, here or at the peer, says so: for as long, no reference to bytes
    /// that transfers write may be in use, and none of those bytes may belong to anybody who does
    /// not expect it.
    pub unsafe fn register_at(&self, start: u64, length: u64, access: Access) -> Result<Borrowed> {
        let entry = Entry::register(self, start, length, access)?;
        Ok(Borrowed { entry })
    }

    /// Registers borrowed memory, of any alignment, for as long as `work` runs.
    ///
    /// While `work` runs, the memory is the device's: neither the caller nor `work` can see it.
    /// Aborts the process in the unheard-of case that the registration cannot be ended.
    ///
    /// # Errors
    ///
    /// As [`Device::register`].
    pub fn with_registered<R>(
        &self,
        memory: &mut [u8],
        access: Access,
        work: impl FnOnce(&Borrowed) -> R,
    ) -> Result<R> {
        /// Ends the registration when `work` returns or panics.
        struct End(Borrowed);

        impl Drop for End {
            fn drop(&mut self) {
                if self.0.entry.end().is_err() {
                    // The caller is about to see memory that the device may still write.
                    std::process::abort();
                }
            }
        }

        let address = memory.as_mut_ptr() as u64;
        let entry = Entry::register(self, address, memory.len() as u64, access)?;
        let end = End(Borrowed { entry });
        Ok(work(&end.0))
    }
}

impl Region {
    /// Copies `source` into the region at `offset`. A transfer that writes the same bytes
    /// meanwhile mixes with it.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let offset = self.check(offset, source.len())?;
        self.buffer.mapping().write(offset, source);
        Ok(())
    }

    /// Copies from the region at `offset` into `target`. Bytes that a transfer writes meanwhile
    /// may be old or new.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let offset = self.check(offset, target.len())?;
        self.buffer.mapping().read(offset, target);
        Ok(())
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize> {
        let size = self.buffer.len();
        match usize::try_from(offset) {
            Ok(start) if start <= size && length <= size - start => Ok(start),
            _ => Err(Error::Range {
                offset,
                length: length as u64,
                size: size as u64,
            }),
        }
    }

    /// Offers the region to the peer under a name, until the result is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EEXIST when the name is taken, EACCES when the region gives less,
    /// ENOTCONN when there is no peer.
    pub fn export(&self, name: Name, access: Access) -> Result<Export<'_>> {
        Export::new(&self.entry, name, access)
    }

    /// The bus addresses of the region: runs of pages that are consecutive for the device.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM without CAP_SYS_ADMIN.
    pub fn blocks(&self) -> Result<Blocks<'_>> {
        Blocks::merged(&self.entry)
    }

    /// The same, one block for each page.
    ///
    /// # Errors
    ///
    /// As [`Region::blocks`].
    pub fn pages(&self) -> Result<Blocks<'_>> {
        Blocks::pages(&self.entry)
    }

    /// Ends the registration, once no transfer can touch the memory any more, and gives the
    /// buffer back.
    ///
    /// # Errors
    ///
    /// [`Error::System`]; the buffer is freed (its pages stay pinned until the device is closed).
    pub fn unregister(self) -> Result<Buffer> {
        let Self { entry, buffer } = self;
        entry
            .end()
            .map_err(|errno| Error::system("unregister a region", errno))?;
        Ok(buffer)
    }
}

impl sealed::Registered for Region {
    fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl Registered for Region {}

/// A registration of memory that somebody else keeps: see [`Device::with_registered`],
/// [`Device::register_memory`] and [`Device::register_at`].
#[derive(Debug)]
pub struct Borrowed {
    entry: Entry,
}

impl Borrowed {
    /// As [`Region::export`].
    ///
    /// # Errors
    ///
    /// As [`Region::export`].
    pub fn export(&self, name: Name, access: Access) -> Result<Export<'_>> {
        Export::new(&self.entry, name, access)
    }

    /// As [`Region::blocks`].
    ///
    /// # Errors
    ///
    /// As [`Region::blocks`].
    pub fn blocks(&self) -> Result<Blocks<'_>> {
        Blocks::merged(&self.entry)
    }

    /// As [`Region::pages`].
    ///
    /// # Errors
    ///
    /// As [`Region::blocks`].
    pub fn pages(&self) -> Result<Blocks<'_>> {
        Blocks::pages(&self.entry)
    }

    /// Ends the registration, once no transfer can touch the memory any more.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ETIMEDOUT when the device does not answer; the region is gone, and its
    /// pages stay pinned.
    pub fn unregister(self) -> Result<()> {
        self.end()
    }

    /// The same for those who cannot give it away; does nothing the second time.
    pub(crate) fn end(&self) -> Result<()> {
        self.entry
            .end()
            .map_err(|errno| Error::system("unregister a region", errno))
    }
}

impl sealed::Registered for Borrowed {
    fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl Registered for Borrowed {}
