// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory whose pages come and go, and ways to register it.

use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};
use nix::libc::mincore;
use nix::sys::mman::{madvise, mprotect, MmapAdvise, ProtFlags};
use serde::{Deserialize, Serialize};
use uldma::memory::Kind;
use uldma::region::{Borrowed, Miss};
use uldma::{Access, Device, Memory};

use crate::failure::Failure;

/// Bytes of a page on x86-64.
pub(super) const PAGE: usize = 4096;

/// Limit of the time for which a transfer waits for a page: none is to meet it.
const LIMIT: Duration = Duration::from_secs(2);

/// A way to register memory. A mode of optimistic regions is one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// All pages are pinned.
    Pinned,
    /// None is, and what is missing is an exception at once.
    AtOnce,
    /// None is, and a transfer waits for what is missing if that needs no I/O.
    LookUp,
    /// None is, and a transfer waits for what is missing.
    PageIn,
}

impl Way {
    /// The first one is what the others are compared with.
    pub(super) const ALL: [Self; 4] = [Self::Pinned, Self::AtOnce, Self::LookUp, Self::PageIn];
    /// Those that differ where no page is missed: the modes do not.
    pub(super) const WITHOUT_MISSES: [Self; 2] = [Self::Pinned, Self::AtOnce];

    /// Returns the name in figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::AtOnce => "at-once",
            Self::LookUp => "look-up",
            Self::PageIn => "page-in",
        }
    }

    /// Returns true if a transfer waits for a page that is missing.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::LookUp | Self::PageIn)
    }

    /// Registers all pages.
    pub(super) fn register(self, device: &Device, pages: &Pages) -> Result<Borrowed, Failure> {
        let (memory, access) = (&pages.0, Access::ReadWrite);
        let all = 0..memory.length();
        let miss = match self {
            Self::Pinned => return Ok(device.register_memory(memory, all, access)?),
            Self::AtOnce => Miss::Exception,
            Self::LookUp => Miss::LookUp(LIMIT),
            Self::PageIn => Miss::PageIn(LIMIT),
        };
        Ok(device.register_optimistic(memory, all, access, miss)?)
    }
}

/// What memory is behind pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    /// The process's own.
    Private,
    /// A file in memory: what is not mapped stays in the page cache.
    Cached,
    /// A disk on which each access takes time.
    Disk,
    /// A disk that is fast.
    FastDisk,
}

impl Origin {
    /// Returns the disk.
    fn disk(self) -> Option<&'static str> {
        match self {
            Self::Private | Self::Cached => None,
            Self::Disk => Some("/dev/vda"),
            Self::FastDisk => Some("/dev/vdb"),
        }
    }
}

/// How pages are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Loss {
    /// They stay mapped, but the device may not use what it knew of them.
    Protected,
    /// They are mapped no more, and stay in the page cache.
    Unmapped,
    /// They are written to swap.
    Swapped,
    /// They are mapped no more, and not in the page cache either.
    Dropped,
}

/// Pages of 4 KiB.
pub(super) struct Pages(Memory, Option<File>);

impl Pages {
    /// Maps so many private ones, none of which is there yet.
    pub(super) fn new(count: usize) -> Result<Self, Failure> {
        Self::of(Origin::Private, count)
    }

    /// Maps so many, none of which is there yet.
    pub(super) fn of(origin: Origin, count: usize) -> Result<Self, Failure> {
        let length = (count * PAGE) as u64;
        let pages = match origin.disk() {
            None if origin == Origin::Private => Self(Memory::new(Kind::Private, length)?, None),
            None => Self(Memory::new(Kind::Memfd, length)?, None),
            Some(disk) => {
                let file = File::options().read(true).write(true).open(disk);
                let file = file.map_err(|error| Failure::Io(disk, error))?;
                let memory = Memory::of_file(&file, length, true)?;
                let pages = Self(memory, Some(file));
                pages.lose(Loss::Dropped)?;
                pages
            }
        };
        pages.advise(0..count, MmapAdvise::MADV_NOHUGEPAGE)?;
        Ok(pages)
    }

    /// Takes all of them away in this manner.
    pub(super) fn lose(&self, how: Loss) -> Result<(), Failure> {
        let all = 0..self.count();
        match how {
            Loss::Protected => self.protect(all),
            Loss::Unmapped => self.discard(all),
            Loss::Swapped => {
                drop_caches()?;
                self.page_out()
            }
            Loss::Dropped => {
                self.discard(all)?;
                let unused = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
                let file = self.1.iter();
                let mut dropped = file.map(|file| posix_fadvise(file, 0, 0, unused));
                dropped.try_for_each(|it| it.map_err(failed))
            }
        }
    }

    /// Returns how many.
    pub(super) fn count(&self) -> usize {
        self.0.length() as usize / PAGE
    }

    /// Writes to each of these pages something that no other one has.
    pub(super) fn touch(&self, range: Range<usize>) -> Result<(), Failure> {
        for number in range {
            self.0
                .write((number * PAGE) as u64, &(number as u64 + 1).to_le_bytes())?;
        }
        Ok(())
    }

    /// Reads something of each of these pages, and returns how many were not in memory before.
    pub(super) fn read(&self, range: Range<usize>) -> Result<u64, Failure> {
        let (address, length) = self.locate(&range)?;
        let mut are_there = vec![0; range.len()];
        // SAFETY: the range is mapped by a `Memory`, and the vector has a byte for each page.
        let result = unsafe { mincore(address.as_ptr(), length, are_there.as_mut_ptr()) };
        Errno::result(result).map_err(failed)?;
        for number in range {
            self.0.read((number * PAGE) as u64, &mut [0; 8])?;
        }
        let absent = are_there.iter().filter(|it| **it & 1 == 0);
        Ok(absent.count() as u64)
    }

    /// Pins a page, until the result is dropped.
    pub(super) fn pin(&self, device: &Device, page: usize) -> Result<Borrowed, Failure> {
        let part = (page * PAGE) as u64..((page + 1) * PAGE) as u64;
        Ok(device.register_memory(&self.0, part, Access::Read)?)
    }

    /// Gives these pages up.
    pub(super) fn discard(&self, range: Range<usize>) -> Result<(), Failure> {
        self.advise(range, MmapAdvise::MADV_DONTNEED)
    }

    /// Has the kernel write all pages to swap.
    pub(super) fn page_out(&self) -> Result<(), Failure> {
        self.advise(0..self.count(), MmapAdvise::MADV_PAGEOUT)
    }

    /// Makes these pages read-only and writable again: they stay, and no device may use what it knew of
    /// them.
    fn protect(&self, range: Range<usize>) -> Result<(), Failure> {
        let (address, length) = self.locate(&range)?;
        for flags in [
            ProtFlags::PROT_READ,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        ] {
            // SAFETY: the range is mapped by a `Memory`, which lends no references, and this thread does not
            // write to it in between.
            unsafe { mprotect(address, length, flags) }.map_err(failed)?;
        }
        Ok(())
    }

    fn advise(&self, range: Range<usize>, advice: MmapAdvise) -> Result<(), Failure> {
        let (address, length) = self.locate(&range)?;
        // SAFETY: the range is mapped by a `Memory`, which promises nothing about its bytes.
        unsafe { madvise(address, length, advice) }.map_err(failed)
    }

    fn locate(&self, range: &Range<usize>) -> Result<(NonNull<c_void>, usize), Failure> {
        let part = (range.start * PAGE) as u64..(range.end * PAGE) as u64;
        let (start, length) = self.0.locate(&part)?;
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(start as usize));
        Ok((start.ok_or(failed(Errno::EFAULT))?, length as usize))
    }
}

/// Has the kernel drop what it keeps of files. Before, it puts pages that have come a while ago to its lists: it
/// takes none away that is not on one.
fn drop_caches() -> Result<(), Failure> {
    let written = std::fs::write("/proc/sys/vm/drop_caches", "1");
    written.map_err(|error| Failure::Io("caches of files", error))
}

fn failed(errno: Errno) -> Failure {
    Failure::Io("memory that comes and goes", errno.into())
}

/// Returns a counter of /proc/vmstat.
pub(super) fn vmstat(name: &str) -> f64 {
    let all = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    field(&all, name).unwrap_or_default()
}

/// Returns the pages that are pinned: of this process (`VmPin`), and of the machine.
pub(super) fn pinned() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let own = field(&status, "VmPin:").unwrap_or_default() * 1024.0 / PAGE as f64;
    let machine = vmstat("nr_foll_pin_acquired") - vmstat("nr_foll_pin_released");
    (own, machine)
}

/// Returns the number after a name, at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> Option<f64> {
    let words = text.lines().map(|line| line.split_whitespace());
    let mut found = words.filter_map(|mut words| {
        let is_wanted = words.next() == Some(name);
        words.next().filter(|_| is_wanted)
    });
    found.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let pages = Pages::new(4).unwrap();
        let first = |number: usize| {
            let mut bytes = [0; 8];
            pages.0.read((number * PAGE) as u64, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        pages.touch(0..4).unwrap();
        pages.lose(Loss::Protected).unwrap();
        assert_eq!((first(0), first(3)), (1, 4));
        pages.discard(1..4).unwrap();
        assert_eq!((first(0), first(3)), (1, 0));
        assert!(pages.discard(3..5).is_err());
    }

    #[test]
    fn what_is_in_the_page_cache_stays() {
        let pages = Pages::of(Origin::Cached, 2).unwrap();
        pages.touch(0..2).unwrap();
        pages.lose(Loss::Unmapped).unwrap();
        let mut bytes = [0; 8];
        pages.0.read(PAGE as u64, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 2);
    }

    #[test]
    fn what_is_not_there_is_counted() {
        let pages = Pages::new(3).unwrap();
        pages.touch(1..2).unwrap();
        assert_eq!(pages.read(0..3).unwrap(), 2);
    }

    #[test]
    fn fields_have_their_whole_name() {
        let text = "all_of 7\nall 12\nVmPin:\t      16 kB\n";
        assert_eq!(field(text, "all"), Some(12.0));
        assert_eq!(field(text, "VmPin:"), Some(16.0));
        assert_eq!(field(text, "none"), None);
    }
}
