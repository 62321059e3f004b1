// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory to register: present, of a known page size, private or shared.
//!
//! Every page is written to before anything is timed, for uldma and its rivals alike. The
//! paper must have done so, too: its machine needs longer to clear a page than the 1.3 us per page of its
//! tables.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::rc::Rc;

use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{madvise, mmap, mmap_anonymous, munmap, MapFlags, MmapAdvise, ProtFlags};
use uldma::memory::Kind;
use uldma::Memory;

use crate::failure::Failure;

/// Bytes of a page on x86-64.
pub(crate) const PAGE: usize = 4096;
/// Bytes of a huge page there.
const HUGE_PAGE: usize = 2 << 20;

/// Whole pages that are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first one.
    base: NonNull<c_void>,
    count: usize,
}

impl Range {
    /// Address of the first byte.
    pub(crate) fn address(self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// The same as a pointer. The device may change the memory at any time.
    pub(crate) fn base(self) -> NonNull<c_void> {
        self.base
    }

    /// How many pages.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// How many bytes.
    pub(crate) fn length(self) -> usize {
        self.count * PAGE
    }

    /// Pages `from..to`, which must be some of the range's.
    pub(crate) fn pages(self, from: usize, to: usize) -> Self {
        assert!(from < to && to <= self.count, "{from}..{to} of {self:?}");
        Self {
            // SAFETY: the page is one of the range, as was just checked.
            base: unsafe { self.base.byte_add(from * PAGE) },
            count: to - from,
        }
    }

    /// Page `number`, which must be one of the range's.
    pub(crate) fn page(self, number: usize) -> Self {
        self.pages(number, number + 1)
    }

    /// Advises the kernel on the size of pages. If it cannot follow, the pages are of another size.
    fn advise(self, advice: MmapAdvise) {
        // SAFETY: the range is mapped, by a `Memory` or a `Repeated`, which promise nothing about
        // its bytes; no advice that is given here changes them.
        let _ = unsafe { madvise(self.base, self.length(), advice) };
    }
}

fn failed(errno: nix::errno::Errno) -> Failure {
    Failure::Io("memory to register", errno.into())
}

/// A kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Private, of 4 KiB.
    Private,
    /// Of a System V segment, as the paper has it; these have 4 KiB.
    Shared,
    /// Private, of 2 MiB if the machine has any, and aligned to these.
    Huge,
}

/// Memory in which every page is present.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    memory: Rc<Memory>,
    range: Range,
}

impl Subject {
    /// `count` pages.
    pub(crate) fn new(pages: Pages, count: usize) -> Result<Self, Failure> {
        let length = count * PAGE;
        let (kind, mapped) = match pages {
            Pages::Private => (Kind::Private, length),
            Pages::Shared => (Kind::SysV, length),
            // Whole huge pages, wherever the first one begins.
            Pages::Huge => (
                Kind::Private,
                length.next_multiple_of(HUGE_PAGE) + HUGE_PAGE,
            ),
        };
        let memory = Memory::new(kind, mapped as u64)?;
        let base = std::ptr::with_exposed_provenance_mut(memory.address() as usize);
        let whole = Range {
            base: NonNull::new(base).ok_or(failed(nix::errno::Errno::EFAULT))?,
            count: mapped / PAGE,
        };
        let range = match pages {
            Pages::Private => {
                whole.advise(MmapAdvise::MADV_NOHUGEPAGE);
                whole
            }
            Pages::Shared => whole,
            Pages::Huge => {
                whole.advise(MmapAdvise::MADV_HUGEPAGE);
                let skip = whole.base.as_ptr().align_offset(HUGE_PAGE) / PAGE;
                whole.pages(skip, skip + count)
            }
        };
        for offset in (0..mapped).step_by(PAGE) {
            memory.write(offset as u64, &[1])?;
        }
        let memory = Rc::new(memory);
        Ok(Self { memory, range })
    }

    /// The pages.
    pub(crate) fn range(&self) -> Range {
        self.range
    }

    /// The library's object; the range is all of it, except with huge pages.
    pub(crate) fn memory(&self) -> &Rc<Memory> {
        &self.memory
    }
}

/// Shared memory that is mapped many times, one mapping after the other: many addresses that can
/// be locked, few frames.
#[derive(Debug)]
pub(crate) struct Repeated(Range);

impl Repeated {
    /// `times` mappings of `length` bytes, whole pages.
    pub(crate) fn new(length: usize, times: usize) -> Result<Self, Failure> {
        let size = |length| NonZeroUsize::new(length).ok_or(failed(nix::errno::Errno::EINVAL));
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let file = memfd_create("uldma-bench", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
        nix::unistd::ftruncate(&file, length as i64).map_err(failed)?;
        let all = length * times;
        // SAFETY: the kernel chooses unused addresses.
        let base = unsafe { mmap_anonymous(None, size(all)?, both, MapFlags::MAP_PRIVATE) };
        let repeated = Self(Range {
            base: base.map_err(failed)?,
            count: all / PAGE,
        });
        for part in 0..times {
            let pages = length / PAGE;
            let range = repeated.0.pages(part * pages, (part + 1) * pages);
            let address = NonZeroUsize::new(range.base.as_ptr() as usize);
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: this part of the range is ours, and nothing uses it yet.
            unsafe { mmap(address, size(length)?, both, flags, &file, 0) }.map_err(failed)?;
        }
        for page in 0..repeated.0.count {
            // SAFETY: the page is of our mapping, to which no reference exists.
            unsafe { repeated.0.page(page).base.cast::<u8>().write_volatile(1) };
        }
        Ok(repeated)
    }

    /// All of it.
    pub(crate) fn range(&self) -> Range {
        self.0
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        // SAFETY: the range is ours and goes with us.
        let _ = unsafe { munmap(self.0.base, self.0.length()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_pages() {
        for pages in [Pages::Private, Pages::Shared, Pages::Huge] {
            let subject = Subject::new(pages, 3).unwrap();
            let range = subject.range();
            assert_eq!((range.count(), range.length()), (3, 3 * PAGE), "{pages:?}");
            let part = range.pages(1, 3);
            assert_eq!(part.address(), range.address() + PAGE as u64);
            assert_eq!(part.page(1), range.page(2));
        }
        let huge = Subject::new(Pages::Huge, 1).unwrap();
        assert_eq!(huge.range().address() % HUGE_PAGE as u64, 0);
    }

    #[test]
    fn repeated_memory_has_few_frames() {
        let repeated = Repeated::new(2 * PAGE, 3).unwrap();
        assert_eq!(repeated.range().count(), 6);
        let byte = |page| repeated.range().page(page).base().cast::<u8>();
        // SAFETY: both pages are mapped, and no references to them exist.
        let seen = unsafe {
            byte(1).write_volatile(7);
            byte(5).read_volatile()
        };
        assert_eq!(seen, 7);
    }
}
