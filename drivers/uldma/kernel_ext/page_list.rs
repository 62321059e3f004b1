// SPDX-License-Identifier: GPL-2.0

//! Bytes of user memory that the kernel accesses outside of the process.

use core::{
    ops::Range,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    ffi::c_void,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::gup::PinnedPages;

unsafe extern "C" {
    fn uldma_get_page(page: *mut bindings::page);
    fn uldma_put_page(page: *mut bindings::page);
    fn uldma_page_address(page: *mut bindings::page) -> *mut c_void;
    fn uldma_cond_resched();
}

/// A range of bytes and its pages.
///
/// The pages stay allocated as long as this object, even after they were unpinned. Charging and
/// writing back is up to the owner of the pins.
///
/// # Invariants
///
/// Each page has a reference of ours. `first + length` bytes fit into the pages.
pub(crate) struct PageList {
    pages: KVVec<*mut bindings::page>,
    /// Byte offset in the first page.
    first: usize,
    length: usize,
}

// SAFETY: References to pages belong to no thread.
unsafe impl Send for PageList {}
// SAFETY: Shared references only read the page pointers; what is in the pages is accessed by
// functions that allow for others.
unsafe impl Sync for PageList {}

impl PageList {
    /// Takes references to `length` bytes from byte `first` of the first page on, in parts of
    /// pinned pages. The list is charged to no caller, since callers hold the lock of an address space.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the parts have a different number of pages, or are outside of the pinned pages;
    /// `ENOMEM`.
    pub(crate) fn new<'a>(
        first: usize,
        length: usize,
        parts: impl Iterator<Item = (&'a PinnedPages, Range<usize>)>,
    ) -> Result<Self> {
        let end = first.checked_add(length).ok_or(EINVAL)?;
        if first >= PAGE_SIZE {
            return Err(EINVAL);
        }
        let count = end.div_ceil(PAGE_SIZE);
        // INVARIANT: There are no pages yet, and no bytes.
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL)?,
            first: 0,
            length: 0,
        };
        for (pinned, range) in parts {
            for page in pinned.as_raw_slice().get(range).ok_or(EINVAL)? {
                if this.pages.len() == count {
                    return Err(EINVAL);
                }
                this.pages.push(*page, GFP_KERNEL)?;
                // SAFETY: A pinned page stays allocated. The page is in the list, whose drop ends
                // this reference.
                unsafe { uldma_get_page(*page) };
            }
        }
        if this.pages.len() != count {
            return Err(EINVAL);
        }
        // INVARIANT: There are as many pages as the bytes need.
        this.first = first;
        this.length = length;
        Ok(this)
    }
    /// Returns the location of byte `at`, and the length of the rest of its page.
    fn part(&self, at: usize) -> Result<NonNull<[u8]>> {
        let at = self.first + at;
        let page = *self.pages.get(at >> PAGE_SHIFT).ok_or(EINVAL)?;
        // SAFETY: By the type invariant this is a page.
        let start = unsafe { uldma_page_address(page) };
        // There is no high memory where addresses have 64 bits.
        let start = NonNull::new(start.cast::<u8>()).ok_or(EFAULT)?;
        let inside = at % PAGE_SIZE;
        // SAFETY: The offset is inside of the page.
        let start = unsafe { start.add(inside) };
        Ok(NonNull::slice_from_raw_parts(start, PAGE_SIZE - inside))
    }

    /// Passes the parts of `length` bytes from byte `from` on to `each`, with their offsets from
    /// there. Their addresses are valid while it runs.
    ///
    /// May sleep. Others may read and write the parts at the same time.
    pub(super) fn for_each_part(
        &self,
        from: usize,
        length: usize,
        mut each: impl FnMut(usize, NonNull<[u8]>),
    ) -> Result {
        let end = from.checked_add(length).ok_or(EINVAL)?;
        if end > self.length {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < length {
            let part = self.part(from + done)?;
            let count = part.len().min(length - done);
            each(done, NonNull::slice_from_raw_parts(part.cast(), count));
            done += count;
            // SAFETY: This may sleep.
            unsafe { uldma_cond_resched() };
        }
        Ok(())
    }

    /// Copies `length` bytes from byte `from` on to byte `at` of `to`; may sleep.
    ///
    /// If both are the same pages, each byte that is copied is one that the source had at some
    /// time.
    pub(crate) fn copy_to(&self, from: usize, to: &Self, at: usize, length: usize) -> Result {
        let end = from.checked_add(length).ok_or(EINVAL)?;
        if end > self.length {
            return Err(EINVAL);
        }
        let mut result = Ok(());
        to.for_each_part(at, length, |start, target| {
            let copied = self.for_each_part(from + start, target.len(), |inside, source| {
                // SAFETY: The sources of a target add up to it, and both are memory. `memmove`
                // allows for both being the same.
                unsafe {
                    let target = target.cast::<u8>().add(inside);
                    bindings::memmove(target.as_ptr().cast(), source.as_ptr().cast(), source.len());
                }
            });
            result = result.and(copied);
        })?;
        result
    }
}

impl Drop for PageList {
    fn drop(&mut self) {
        for page in &self.pages {
            // SAFETY: By the type invariant the reference is ours.
            unsafe { uldma_put_page(*page) };
        }
    }
}
