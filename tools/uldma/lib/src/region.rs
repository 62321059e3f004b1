// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions: memory that is pinned for the device.

pub(crate) mod blocks;
pub(crate) mod charge;
pub(crate) mod chunk;
pub(crate) mod entry;
pub(crate) mod exchange;
pub(crate) mod export;
pub(crate) mod info;
pub(crate) mod locked_memory;
pub(crate) mod miss;
pub(crate) mod shadow;

use std::ops::Range;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::Memory;
use crate::region::entry::{Access, Entry};

pub use crate::sys::memlock::Memlock;
pub use blocks::{Block, Blocks};
pub use charge::Charge;
pub use info::RegionInfo;
pub use locked_memory::LockedMemory;
pub use miss::Miss;
pub use shadow::ShadowAddress;

/// Memory that a transfer can name: a region of this process, or an import of a peer's.
pub trait Registered: sealed::Registered {
    /// Bytes.
    fn length(&self) -> u64 {
        self.entry().length
    }

    /// Returns the rights of transfers.
    fn access(&self) -> Access {
        self.entry().access
    }

    /// Returns the index in the device's region table.
    fn index(&self) -> u32 {
        self.entry().index
    }

    /// Returns the handle, which identifies it in events and ioctls.
    fn handle(&self) -> u32 {
        self.entry().handle
    }

    /// Queries its current state: pages, rights, and stale bytes.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT after [`Device::cleanup`], ENODEV when the device has been
    /// removed.
    fn query(&self) -> Result<RegionInfo> {
        RegionInfo::query(self.entry())
    }
}

pub(crate) mod sealed {
    use super::Entry;

    /// Restricts implementations of [`super::Registered`] to this crate.
    pub trait Registered {
        #[doc(hidden)]
        fn entry(&self) -> &Entry;
    }
}

/// A registered buffer: pinned, named by transfers, and changed by them at any time.
#[derive(Debug)]
pub struct Region {
    // Fields drop in this order: the registration must end before the memory is unmapped.
    entry: Entry,
    buffer: Buffer,
}

impl Device {
    /// Pins the buffer and registers it with the device. Its pages are charged to RLIMIT_MEMLOCK.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the limit would be exceeded ([`Error::hint`] names limit, use
    /// and need), ENOSPC when the device's table is full, EDQUOT when this user's share of it is
    /// used up. The buffer is freed.
    pub fn register(&self, buffer: Buffer, access: Access) -> Result<Region> {
        let address = buffer.as_ptr() as u64;
        let entry = Entry::register(self, address, buffer.len() as u64, access)?;
        Ok(Region { entry, buffer })
    }

    /// Registers a part of memory that the caller keeps. The caller may unmap it while it is
    /// registered: the region refers to the pages that are mapped now, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the part does not exist; [`Error::System`]: ENOMEM when the limit
    /// would be exceeded, ENOSPC when the device's table is full, EDQUOT when this user's share of
    /// it is used up, EOPNOTSUPP when this kind of memory cannot be pinned.
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

    /// Registers a part of memory without pinning it. The device accesses what is in memory; a transfer
    /// ends before the first page that is not, or waits for it, as `miss` says. The addresses refer to
    /// what is mapped there at each time.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the part does not exist; [`Error::System`]: EOPNOTSUPP when the device has no
    /// optimistic entries, EINVAL for a limit of [`Miss`] that is 0 or too long, ENOSPC when its table is full, EDQUOT when this user's share of it is used
    /// up.
    pub fn register_optimistic(
        &self,
        memory: &Memory,
        part: Range<u64>,
        access: Access,
        miss: Miss,
    ) -> Result<Borrowed> {
        let (start, length) = memory.locate(&part)?;
        let entry = Entry::register_optimistic(self, start, length, access, miss)?;
        Ok(Borrowed { entry })
    }

    /// Registers the memory that is mapped at `start`, until the result is dropped. Nothing is
    /// borrowed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the limit would be exceeded, ENOSPC when the device's table
    /// is full, EDQUOT when this user's share of it is used up, EFAULT when the addresses are not
    /// mapped with the rights that `access` needs.
    ///
    /// # Safety
    ///
    /// Until the registration has ended, the device may read (or write, depending on `access`)
    /// these pages whenever a transfer, here or at the peer, names them. During that time, no
    /// reference to bytes that transfers write may be in use, and none of those bytes may belong to
    /// code that does not expect changes.
    pub unsafe fn register_at(&self, start: u64, length: u64, access: Access) -> Result<Borrowed> {
        let entry = Entry::register(self, start, length, access)?;
        Ok(Borrowed { entry })
    }

    /// Registers borrowed memory, of any alignment, for as long as `work` runs.
    ///
    /// While `work` runs, the memory is the device's: neither the caller nor `work` can access it.
    /// Aborts the process if the registration cannot be ended.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the limit would be exceeded, ENOSPC when the device's table
    /// is full, EDQUOT when this user's share of it is used up.
    pub fn with_registered<R>(
        &self,
        memory: &mut [u8],
        access: Access,
        work: impl FnOnce(&Borrowed) -> R,
    ) -> Result<R> {
        let address = memory.as_mut_ptr() as u64;
        self.with_entry(address, memory.len() as u64, access, work)
    }

    /// Registers borrowed memory for reading by the device, until the result is dropped. The device
    /// may read its pages for as long, also after they were changed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: as for [`Device::with_registered`].
    pub(crate) fn register_readable(&self, memory: &[u8]) -> Result<Borrowed> {
        let address = memory.as_ptr() as u64;
        let entry = Entry::register(self, address, memory.len() as u64, Access::Read)?;
        Ok(Borrowed { entry })
    }

    /// Registers memory that the caller has borrowed as `access` needs it.
    fn with_entry<R>(
        &self,
        address: u64,
        length: u64,
        access: Access,
        work: impl FnOnce(&Borrowed) -> R,
    ) -> Result<R> {
        /// Ends the registration when `work` returns or panics.
        struct End(Borrowed);

        impl Drop for End {
            fn drop(&mut self) {
                if self.0.entry.end().is_err() {
                    // The caller would access memory that the device may still write.
                    std::process::abort();
                }
            }
        }

        let entry = Entry::register(self, address, length, access)?;
        let end = End(Borrowed { entry });
        Ok(work(&end.0))
    }
}

impl Region {
    /// Copies `source` into the region at `offset`. If a transfer writes the same bytes at the same
    /// time, the result is a mixture.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let offset = self.check(offset, source.len())?;
        self.buffer.mapping().write(offset, source);
        Ok(())
    }

    /// Copies from the region at `offset` into `target`. Bytes that a transfer writes at the same
    /// time may be old or new.
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

    /// Returns the bus addresses of the region, as runs of pages that are consecutive for the
    /// device.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM without CAP_SYS_ADMIN.
    pub fn blocks(&self) -> Result<Blocks<'_>> {
        Blocks::merged(&self.entry)
    }

    /// Returns the bus addresses of the region, one block for each page.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM without CAP_SYS_ADMIN.
    pub fn pages(&self) -> Result<Blocks<'_>> {
        Blocks::pages(&self.entry)
    }

    /// Ends the registration, once no transfer can access the memory any more, and returns the
    /// buffer.
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

/// A registration of memory that the caller keeps: see [`Device::with_registered`],
/// [`Device::register_memory`] and [`Device::register_at`].
#[derive(Debug)]
pub struct Borrowed {
    entry: Entry,
}

impl Borrowed {
    /// Returns the bus addresses of the region, as runs of consecutive pages.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM without CAP_SYS_ADMIN.
    pub fn blocks(&self) -> Result<Blocks<'_>> {
        Blocks::merged(&self.entry)
    }

    /// Returns the bus addresses of the region, one block for each page.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM without CAP_SYS_ADMIN.
    pub fn pages(&self) -> Result<Blocks<'_>> {
        Blocks::pages(&self.entry)
    }

    /// Ends the registration, once no transfer can touch the memory any more.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ETIMEDOUT when the device does not answer; the region has ended, and its
    /// pages stay pinned.
    pub fn unregister(self) -> Result<()> {
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
