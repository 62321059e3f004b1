// SPDX-License-Identifier: GPL-2.0

//! Pinning of user pages for as long as a device uses them.

use kernel::{
    bindings,
    mm::MmWithUser,
    page::PAGE_SIZE,
    prelude::*, //
};

unsafe extern "C" {
    fn uldma_page_to_pfn(page: *mut bindings::page) -> c_ulong;
}

/// Pages asked for in one call; bounds the time between two looks at pending signals.
const BATCH: usize = 512;

/// User pages, pinned by `FOLL_LONGTERM`.
///
/// # Invariants
///
/// Each element of `pages` is null or a page on which this object holds one pin.
pub(crate) struct PinnedPages {
    pages: KVVec<*mut bindings::page>,
    /// Whether the device may have written to the pages, so that they are dirty.
    writable: bool,
}

// SAFETY: Pins belong to no thread.
unsafe impl Send for PinnedPages {}
// SAFETY: Shared references only read the page pointers.
unsafe impl Sync for PinnedPages {}

impl PinnedPages {
    /// Pins `count` pages from the page-aligned address `start` of the current process, whose
    /// address space is `_mm`; faults them in, and breaks copy-on-write first.
    ///
    /// Sleeps, and takes `mmap_lock`.
    ///
    /// # Errors
    ///
    /// `EFAULT` when a page is not mapped with the right asked for or is of a kind that cannot be
    /// pinned, `EINTR` on a fatal signal, `ENOMEM`. Nothing is pinned then.
    pub(crate) fn pin(
        _mm: &MmWithUser,
        start: usize,
        count: usize,
        writable: bool,
    ) -> Result<Self> {
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            writable,
        };
        let mut flags = bindings::FOLL_LONGTERM;
        if writable {
            flags |= bindings::FOLL_WRITE;
        }
        while this.pages.len() < count {
            let done = this.pages.len();
            let batch = (count - done).min(BATCH);
            let offset = done.checked_mul(PAGE_SIZE).ok_or(EOVERFLOW)?;
            let address = start.checked_add(offset).ok_or(EOVERFLOW)?;
            // SAFETY: There is room for `count` pointers, so for `batch` more; the function may
            // be called for any address from process context.
            let got = unsafe {
                bindings::pin_user_pages_fast(
                    address,
                    batch as c_int,
                    flags,
                    this.pages.as_mut_ptr().add(done),
                )
            };
            let got = match usize::try_from(got) {
                Ok(0) => return Err(EFAULT),
                Ok(got) => got,
                Err(_) => return Err(Error::from_errno(got)),
            };
            // SAFETY: The first `got` of the pointers were written.
            // INVARIANT: Each of them came with a pin that is ours.
            unsafe { this.pages.inc_len(got) };
        }
        Ok(this)
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Frame number of page `index`; none where it was taken out.
    pub(crate) fn pfn(&self, index: usize) -> Option<usize> {
        let page = self.as_raw(index)?;
        // SAFETY: By the type invariant this is a page that cannot go away.
        Some(unsafe { uldma_page_to_pfn(page) })
    }

    /// The raw page `index`; none where it was taken out.
    pub(super) fn as_raw(&self, index: usize) -> Option<*mut bindings::page> {
        self.pages
            .get(index)
            .copied()
            .filter(|page| !page.is_null())
    }

    /// Remembers that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Moves pages `[from, from + count)` out into an object of their own.
    ///
    /// Their places are left empty, and keep their numbers.
    pub(crate) fn take(&mut self, from: usize, count: usize) -> Result<Self> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let end = from.checked_add(count).ok_or(EINVAL)?;
        for slot in self.pages.get_mut(from..end).ok_or(EINVAL)? {
            // INVARIANT: The pin moves with the pointer; `drop` skips null pointers.
            pages.push(core::mem::replace(slot, core::ptr::null_mut()), GFP_KERNEL)?;
        }
        Ok(Self {
            pages,
            writable: self.writable,
        })
    }

    /// Moves the pages from `at` on into an object of their own.
    pub(crate) fn split_off(&mut self, at: usize) -> Result<Self> {
        let count = self.pages.len().checked_sub(at).ok_or(EINVAL)?;
        let tail = self.take(at, count)?;
        self.pages.truncate(at);
        Ok(tail)
    }

    /// Length of the run of physically consecutive pages from `first` on.
    fn run(&self, first: usize) -> usize {
        let Some(start) = self.pfn(first) else {
            return 0;
        };
        (first + 1..self.pages.len())
            .take_while(|&i| self.pfn(i) == Some(start + (i - first)))
            .count()
            + 1
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        let mut first = 0;
        while first < self.pages.len() {
            let Some(page) = self.as_raw(first) else {
                first += 1;
                continue;
            };
            let run = self.run(first);
            // SAFETY: By the type invariant each of these physically consecutive pages has a pin
            // of ours, which ends here.
            unsafe { bindings::unpin_user_page_range_dirty_lock(page, run, self.writable) };
            first += run;
        }
    }
}
