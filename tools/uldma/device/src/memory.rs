// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a node's host as the device sees it: bus addresses, mapped here because the client
//! passes the file behind them.
//!
//! The guest may change any byte at any time, so nothing here makes a reference to guest memory:
//! single words are accessed atomically and blocks are copied, both by `vm-memory`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{OFlags, SealFlags};

use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, FileOffset, VolatileMemory, VolatileSlice};

use crate::tlb::{Tlb, TlbReport};

/// No memory of the node answers at a bus address, or it does not allow this kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError;

/// Access to words of a node's memory, as the table code needs it.
pub trait Bus {
    /// Loads the little-endian word at a multiple of 8, with acquire ordering.
    fn load64(&self, address: u64) -> Result<u64, BusError>;

    /// Loads consecutive pairs of words: of each pair the first word, the second, and the first
    /// again.
    fn load_pairs(&self, address: u64, pairs: &mut [[u64; 3]]) -> Result<(), BusError> {
        let mut first = address;
        for pair in pairs {
            let second = first.checked_add(8).ok_or(BusError)?;
            *pair = [
                self.load64(first)?,
                self.load64(second)?,
                self.load64(first)?,
            ];
            first = second.checked_add(8).ok_or(BusError)?;
        }
        Ok(())
    }

    /// Returns the bytes of the node's section of the window, which regions can name.
    fn section_size(&self) -> u64 {
        0
    }

    /// Counts that the engine has looked up a page entry, whose page is at this address, or missing.
    fn looked_up(&self, _entry: u32, _page: Option<u64>) {}
}

/// A right to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

/// A range of bus addresses.
#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    /// `None` for a range that was passed without a file: the device cannot access it.
    memory: Option<MmapRegion>,
    readable: bool,
    writable: bool,
}

/// Limit of a node's open files, each for all ranges of that file.
const MAX_FILES: usize = 64;

/// Identity of a file: device, inode, and access mode.
type Identity = (u64, u64, OFlags);

/// All ranges of one node, sorted by address; no two of them overlap.
#[derive(Debug)]
pub struct GuestMemory {
    mappings: Vec<Mapping>,
    /// Limit of the number of ranges.
    limit: usize,
    /// The files behind ranges.
    files: Vec<(Identity, Weak<File>)>,
    /// The node's section of the window, from address 0 on.
    section: Option<Box<GuestMemory>>,
    /// What caches of the node's page entries would have had, if that is counted.
    tlb: Option<Mutex<Tlb>>,
}

impl Default for GuestMemory {
    fn default() -> Self {
        Self::limited(usize::MAX)
    }
}

impl GuestMemory {
    /// Creates a memory map without ranges, and with a limit for them.
    pub fn limited(limit: usize) -> Self {
        Self {
            mappings: Vec::new(),
            limit,
            files: Vec::new(),
            section: None,
            tlb: None,
        }
    }

    /// Lets the device reach the node's section of the window: `size` bytes of a file.
    ///
    /// # Errors
    ///
    /// Those of mapping the file.
    pub fn set_section(&mut self, window: File, offset: u64, size: u64) -> io::Result<()> {
        let mut section = Self::limited(1);
        if let Some(problem) = section.map(0, size, Some((window, offset)), true, true)? {
            return Err(problem);
        }
        self.section = Some(Box::new(section));
        Ok(())
    }

    /// Returns the node's section of the window, whose addresses are the offsets in it.
    pub fn section(&self) -> Option<&Self> {
        self.section.as_deref()
    }

    /// Counts from now on what caches of up to `entries` of the node's page entries would have.
    pub fn count_translations(&mut self, entries: usize) {
        self.tlb = Some(Mutex::new(Tlb::new(entries)));
    }

    /// Returns what was counted, if anything is.
    pub fn translations(&self) -> Option<TlbReport> {
        let tlb = self.tlb.as_ref()?.lock();
        Some(tlb.unwrap_or_else(PoisonError::into_inner).report())
    }

    /// Adds a range. A range without a file, or whose file cannot be mapped, is kept as
    /// unreachable; in the second case the reason is returned.
    ///
    /// # Errors
    ///
    /// `InvalidInput` and `AlreadyExists` for an invalid range, `StorageFull` beyond the limit.
    pub fn map(
        &mut self,
        address: u64,
        size: u64,
        file: Option<(File, u64)>,
        readable: bool,
        writable: bool,
    ) -> io::Result<Option<io::Error>> {
        if self.mappings.len() >= self.limit {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = address
            .checked_add(size)
            .filter(|end| *end > address)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let place = self
            .mappings
            .partition_point(|mapping| mapping.range.end <= address);
        if self
            .mappings
            .get(place)
            .is_some_and(|next| next.range.start < end)
        {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let memory = file.map(|(file, offset)| {
            let file = self.keep(file)?;
            map_file(file, offset, size, writable)
        });
        let (memory, problem) = match memory {
            Some(Ok(memory)) => (Some(memory), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        self.mappings.insert(
            place,
            Mapping {
                range: address..end,
                memory,
                readable,
                writable,
            },
        );
        Ok(problem)
    }

    /// Returns the file behind a range; if other ranges have passed it already, only one is kept
    /// open.
    fn keep(&mut self, file: File) -> io::Result<Arc<File>> {
        let data = file.metadata()?;
        let opened = rustix::fs::fcntl_getfl(&file)? & OFlags::RWMODE;
        let identity = (data.dev(), data.ino(), opened);
        self.files.retain(|(_, file)| file.strong_count() > 0);
        let same = self.files.iter().find(|(other, _)| *other == identity);
        if let Some(kept) = same.and_then(|(_, file)| file.upgrade()) {
            return Ok(kept);
        }
        if self.files.len() >= MAX_FILES {
            return Err(io::Error::other("there are too many files behind memory"));
        }
        let file = Arc::new(file);
        self.files.push((identity, Arc::downgrade(&file)));
        Ok(file)
    }

    /// Removes every range that overlaps the given one; a client never splits a range.
    pub fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        self.mappings
            .retain(|mapping| mapping.range.end <= address || mapping.range.start >= end);
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.mappings.clear();
    }

    /// The memory from `address` on: `length` bytes, or fewer where the range ends.
    pub fn slice(
        &self,
        address: u64,
        length: u64,
        right: Right,
    ) -> Result<VolatileSlice<'_>, BusError> {
        let place = self
            .mappings
            .partition_point(|mapping| mapping.range.end <= address);
        let mapping = self.mappings.get(place).ok_or(BusError)?;
        let allowed = match right {
            Right::Read => mapping.readable,
            Right::Write => mapping.writable,
        };
        let memory = mapping
            .memory
            .as_ref()
            .filter(|_| allowed)
            .ok_or(BusError)?;
        let offset = address.checked_sub(mapping.range.start).ok_or(BusError)?;
        let length = length.min(mapping.range.end - address);
        memory
            .get_slice(offset as usize, length as usize)
            .map_err(|_| BusError)
    }

    /// Copies up to `length` bytes to memory of another node, or of this one. Returns the number of
    /// bytes copied.
    pub fn copy(
        &self,
        source: u64,
        to: &GuestMemory,
        destination: u64,
        length: u64,
    ) -> Result<u64, BusError> {
        let read = self.slice(source, length, Right::Read)?;
        let write = to.slice(destination, read.len() as u64, Right::Write)?;
        // For a read, the host maps pages around the accessed one, but not for a write: reading
        // first saves most of the page faults of memory that is not mapped yet.
        write.copy_to(&mut [0u8]);
        read.copy_to_volatile_slice(write);
        Ok(read.len().min(write.len()) as u64)
    }

    /// Stores a word at a multiple of 8, with release ordering: the guest also sees all earlier
    /// stores.
    pub fn store64(&self, address: u64, value: u64) -> Result<(), BusError> {
        self.slice(address, 8, Right::Write)?
            .store(value.to_le(), 0, Ordering::Release)
            .map_err(|_| BusError)
    }

    /// Stores a word at a multiple of 4; later stores with release ordering come after it.
    pub fn store32(&self, address: u64, value: u32) -> Result<(), BusError> {
        self.slice(address, 4, Right::Write)?
            .store(value.to_le(), 0, Ordering::Relaxed)
            .map_err(|_| BusError)
    }

    /// Stores a byte; later stores with release ordering come after it.
    pub fn store8(&self, address: u64, value: u8) -> Result<(), BusError> {
        self.slice(address, 1, Right::Write)?
            .store(value, 0, Ordering::Relaxed)
            .map_err(|_| BusError)
    }

    /// Atomically updates a word at a multiple of 8, unless `change` returns `None`. Returns the
    /// old value.
    pub fn update64(
        &self,
        address: u64,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, BusError> {
        self.slice(address, 8, Right::Read)?;
        let slice = self.slice(address, 8, Right::Write)?;
        let word = slice.get_atomic_ref::<AtomicU64>(0).map_err(|_| BusError)?;
        let change = |word| change(u64::from_le(word)).map(u64::to_le);
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        let (Ok(old) | Err(old)) = old;
        Ok(u64::from_le(old))
    }

    /// Inverts the lowest bit of a byte, as a device with a broken data path does.
    pub fn invert_bit(&self, address: u64) {
        if let Ok(byte) = self.slice(address, 1, Right::Write) {
            let mut value = [0u8];
            byte.copy_to(&mut value);
            byte.copy_from(&[value[0] ^ 1]);
        }
    }
}

/// Refuses files whose pages can be taken away: an access to such a page would kill this process,
/// and with it the device of all nodes.
fn check_lasting(file: &File) -> io::Result<()> {
    /// `f_type` of huge pages: a page that was given back may not be available again.
    const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;
    let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err(io::Error::other(
            "the file is not sealed against shrinking, as that of memory-backend-memfd,seal=on is",
        ));
    }
    if rustix::fs::fstatfs(file)?.f_type as u32 == HUGETLBFS_MAGIC {
        return Err(io::Error::other("the file is of huge pages"));
    }
    Ok(())
}

fn map_file(file: Arc<File>, offset: u64, size: u64, writable: bool) -> io::Result<MmapRegion> {
    check_lasting(&file)?;
    // An access beyond the end of a mapped file raises SIGBUS.
    let end = offset.checked_add(size);
    if end.is_none_or(|end| end > file.metadata().map_or(0, |data| data.len())) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut protection = libc::PROT_READ;
    if writable {
        protection |= libc::PROT_WRITE;
    }
    MmapRegion::build(
        Some(FileOffset::from_arc(file, offset)),
        usize::try_from(size).map_err(io::Error::other)?,
        protection,
        libc::MAP_SHARED | libc::MAP_NORESERVE,
    )
    .map_err(io::Error::other)
}

/// Loads the word at an offset of a slice, as [`Bus::load64`] does.
fn load(slice: &VolatileSlice<'_>, offset: usize) -> Result<u64, BusError> {
    let word = slice.get_atomic_ref::<AtomicU64>(offset);
    let value = word.map_err(|_| BusError)?.load(Ordering::Acquire);
    Ok(u64::from_le(value))
}

impl Bus for GuestMemory {
    fn load64(&self, address: u64) -> Result<u64, BusError> {
        load(&self.slice(address, 8, Right::Read)?, 0)
    }

    fn section_size(&self) -> u64 {
        let section = self.section().and_then(|section| section.mappings.first());
        section.map_or(0, |mapping| mapping.range.end)
    }

    fn looked_up(&self, entry: u32, page: Option<u64>) {
        if let Some(tlb) = &self.tlb {
            let mut tlb = tlb.lock().unwrap_or_else(PoisonError::into_inner);
            tlb.look_up(entry, page);
        }
    }

    fn load_pairs(&self, address: u64, pairs: &mut [[u64; 3]]) -> Result<(), BusError> {
        let mut address = address;
        let mut pairs = pairs.iter_mut();
        while !pairs.as_slice().is_empty() {
            // Loads all pairs, unless the range ends earlier.
            let length = pairs.len() as u64 * 16;
            let slice = self.slice(address, length, Right::Read)?;
            if slice.len() < 16 {
                return Err(BusError);
            }
            for (offset, pair) in (0..=slice.len() - 16).step_by(16).zip(&mut pairs) {
                let first = load(&slice, offset)?;
                *pair = [first, load(&slice, offset + 8)?, load(&slice, offset)?];
                address = address.checked_add(16).ok_or(BusError)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memfd;

    #[test]
    fn words_and_ends_of_ranges() {
        let mut memory = GuestMemory::default();
        memory
            .map(0x1000, 0x2000, Some((memfd(0x4000), 0x1000)), true, true)
            .unwrap();
        memory.map(0x3000, 0x1000, None, true, true).unwrap();
        memory.store64(0x1008, 7).unwrap();
        assert_eq!(memory.load64(0x1008), Ok(7));
        assert_eq!(memory.load64(0x1004), Err(BusError));
        assert_eq!(memory.load64(0xff8), Err(BusError));
        assert_eq!(memory.load64(0x3000), Err(BusError));
        assert_eq!(memory.load64(u64::MAX - 7), Err(BusError));
        assert_eq!(
            memory.slice(0x2ff0, 0x100, Right::Read).unwrap().len(),
            0x10
        );
        memory.unmap(0x2000, 1);
        assert_eq!(memory.load64(0x1008), Err(BusError));
    }

    #[test]
    fn rights_and_refused_ranges() {
        let mut memory = GuestMemory::default();
        memory
            .map(0x1000, 0x1000, Some((memfd(0x1000), 0)), true, false)
            .unwrap();
        assert_eq!(memory.load64(0x1000), Ok(0));
        assert_eq!(memory.store64(0x1000, 1), Err(BusError));
        assert!(memory.map(0x1800, 0x1000, None, true, true).is_err());
        assert!(memory.map(0x800, 0x1000, None, true, true).is_err());
        assert!(memory.map(0x8000, 0, None, true, true).is_err());
        assert!(memory.map(u64::MAX, 2, None, true, true).is_err());
        // Beyond the end of its file.
        memory
            .map(0x8000, 0x2000, Some((memfd(0x1000), 0)), true, true)
            .unwrap();
        assert_eq!(memory.load64(0x8000), Err(BusError));
        memory.clear();
        assert_eq!(memory.load64(0x1000), Err(BusError));
    }
}
