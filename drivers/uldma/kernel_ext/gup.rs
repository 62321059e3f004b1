// SPDX-License-Identifier: GPL-2.0

//! Pinning of user pages for as long as devices use them.

use core::mem::MaybeUninit;

use kernel::{
    bindings,
    mm::{
        virt::{
            flags,
            VmaRef, //
        },
        MmWithUser,
        MmapReadGuard, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    }, //
};

use super::{
    errno::{
        eopnotsupp,
        eremoteio, //
    },
    shared_pins::{
        Key,
        SharedPins, //
    }, //
};

unsafe extern "C" {
    fn uldma_page_to_pfn(page: *mut bindings::page) -> c_ulong;
    fn uldma_vma_file_is_settled(mm: *mut bindings::mm_struct, addr: *mut c_ulong) -> bool;
    fn uldma_untagged_addr(addr: u64) -> u64;
    fn uldma_page_is_behind(
        vma: *mut bindings::vm_area_struct,
        addr: c_ulong,
        page: *mut bindings::page,
    ) -> bool;
    fn uldma_mark_dirty_now(page: *mut bindings::page) -> bool;
}

/// Number of pages per call; bounds the time between two checks for pending signals.
const BATCH: usize = 512;

/// Number of pages that one call checks.
const LOOK_BATCH: usize = 32;

/// Pages that were pinned together, by `FOLL_LONGTERM`.
///
/// # Invariants
///
/// Each is a page on which a pin is held, by the one [`PinnedPages`] whose range contains it, or by
/// the [`SharedPins`] of that object on behalf of all that have entered the page.
#[derive(Clone)]
enum PinSet {
    /// A single page, the most frequent case, needs no allocation.
    One(*mut bindings::page),
    Many(Arc<KVVec<*mut bindings::page>>),
}

impl PinSet {
    fn pages(&self) -> &[*mut bindings::page] {
        match self {
            Self::One(page) => core::slice::from_ref(page),
            Self::Many(pages) => pages,
        }
    }

    /// Returns true if both are the same pins.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Many(pages), Self::Many(others)) => Arc::ptr_eq(pages, others),
            // A single page cannot be split.
            _ => false,
        }
    }
}

// SAFETY: Pins belong to no thread.
unsafe impl Send for PinSet {}
// SAFETY: Shared references only read the page pointers.
unsafe impl Sync for PinSet {}

/// Pinned user pages; dropping it unpins them.
///
/// # Invariants
///
/// `[first, first + count)` is inside of `set`, and no other object of the set has pages in
/// it.
pub(crate) struct PinnedPages {
    set: PinSet,
    first: usize,
    count: usize,
    /// Number in the address space of the first page of the set.
    base: usize,
    /// True if the device may have written to the pages, and they have to be marked as dirty.
    writable: bool,
    /// The table that the pages were entered into, all of them; none if the pins are this object's.
    shared: Option<Arc<SharedPins>>,
}

impl PinnedPages {
    /// Pins `count` pages from the page-aligned address `start` of the current process, whose
    /// address space is `mm`; faults them in, and breaks copy-on-write first.
    ///
    /// Sleeps, and takes `mmap_lock`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if a page is not mapped with the requested rights, `EOPNOTSUPP` if it is of a kind
    /// that cannot be pinned, `EINTR` on a fatal signal, `ENOMEM`. Nothing is pinned then.
    pub(crate) fn pin(mm: &MmWithUser, start: usize, count: usize, writable: bool) -> Result<Self> {
        let mut flags = bindings::FOLL_LONGTERM;
        if writable {
            flags |= bindings::FOLL_WRITE;
        }
        if count == 1 {
            let page = pin_one(start, flags).map_err(|err| explain(mm, start, flags, err))?;
            // INVARIANT: This is a set of one page that no other object has.
            return Ok(Self {
                set: PinSet::One(page),
                first: 0,
                count,
                base: start >> PAGE_SHIFT,
                writable,
                shared: None,
            });
        }
        let pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut pages = UniqueArc::new(pages, GFP_KERNEL_ACCOUNT)?;
        let result = loop {
            let done = pages.len();
            if done == count {
                break Ok(());
            }
            if let Err(err) = pin_more(&mut pages, start, count, flags) {
                break Err(explain(mm, start + done * PAGE_SIZE, flags, err));
            }
        };
        // INVARIANT: These are all pages of a set that no other object has.
        let this = Self {
            first: 0,
            count: pages.len(),
            set: PinSet::Many(pages.into()),
            base: start >> PAGE_SHIFT,
            writable,
            shared: None,
        };
        result.map(|()| this)
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The raw pages.
    pub(super) fn as_raw_slice(&self) -> &[*mut bindings::page] {
        let end = self.first + self.count;
        self.set.pages().get(self.first..end).unwrap_or_default()
    }

    /// Returns the frame number of page `index`.
    pub(crate) fn pfn(&self, index: usize) -> Option<usize> {
        let page = self.as_raw(index)?;
        // SAFETY: By the type invariant this is a page that cannot go away.
        Some(unsafe { uldma_page_to_pfn(page) })
    }

    /// The raw page `index`.
    pub(super) fn as_raw(&self, index: usize) -> Option<*mut bindings::page> {
        self.as_raw_slice().get(index).copied()
    }

    /// Notes that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Marks the pages as dirty if the device may have written to them, without waiting. Returns true if
    /// nothing is left to mark.
    pub(crate) fn mark_dirty_now(&self) -> bool {
        let mut pages = self.as_raw_slice().iter();
        // SAFETY: By the type invariant these are pages that cannot go away.
        !self.writable || pages.all(|page| unsafe { uldma_mark_dirty_now(*page) })
    }

    /// Notes that the pages are marked as dirty, and are so until they are unpinned.
    pub(crate) fn set_clean(&mut self) {
        self.writable = false;
    }

    /// Moves the pages from `at` on into an object of their own.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let at = at.min(self.count);
        // INVARIANT: The range is divided between the two.
        let tail = Self {
            set: self.set.clone(),
            first: self.first + at,
            count: self.count - at,
            base: self.base,
            writable: self.writable,
            shared: self.shared.clone(),
        };
        self.count = at;
        tail
    }

    /// Returns true if `next` was split off from this, and follows.
    pub(crate) fn can_join(&self, next: &Self) -> bool {
        self.set.is_same(&next.set)
            && self.first + self.count == next.first
            && self.writable == next.writable
            && self.is_shared() == next.is_shared()
    }

    /// Joins `next`, which [can be joined](Self::can_join); otherwise unpins it.
    pub(crate) fn join(&mut self, mut next: Self) {
        if self.can_join(&next) {
            // INVARIANT: The range moves from one to the other.
            self.count += core::mem::take(&mut next.count);
        }
    }

    /// Returns true if the pages were entered into a table of shared pins.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Enters the pages into `table`, and ends the pins of those that it has already. `charge` is
    /// called before each page is entered, with true if the table takes its pin over.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `charge`. Only the pages that were entered are left then.
    pub(crate) fn share(
        &mut self,
        table: &Arc<SharedPins>,
        mut charge: impl FnMut(bool) -> Result,
    ) -> Result {
        let mut result = Ok(());
        let mut index = 0;
        while index < self.count {
            let key = self.key(index).ok_or(EINVAL);
            match key.and_then(|key| table.enter(key, &mut charge)) {
                Ok(true) => (),
                Ok(false) => self.unpin_one(index),
                Err(err) => {
                    drop(self.split_off(index));
                    result = Err(err);
                }
            }
            index += 1;
        }
        // INVARIANT: All pages that are left are in the table.
        self.shared = Some(table.clone());
        result
    }

    /// Enters the pages into `table` with their pins, unless they are in it. The table's memory is
    /// charged to no caller, since the caller holds the lock of an address space.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing has changed then.
    pub(crate) fn share_with_pins(&mut self, table: &Arc<SharedPins>) -> Result {
        if self.is_shared() {
            return Ok(());
        }
        let mut rooms = KVVec::with_capacity(self.count, GFP_KERNEL)?;
        for _ in 0..self.count {
            rooms.push(SharedPins::reserve()?, GFP_KERNEL)?;
        }
        for index in 0..self.count {
            if let (Some(key), Some(room)) = (self.key(index), rooms.pop()) {
                table.enter_with_pin(key, room);
            }
        }
        // INVARIANT: All pages are in the table; each had a key and room.
        self.shared = Some(table.clone());
        Ok(())
    }

    /// Returns the key of page `index` in a table of shared pins.
    fn key(&self, index: usize) -> Option<Key> {
        Some((self.base + self.first + index, self.pfn(index)?))
    }

    /// Ends the pin of page `index`.
    fn unpin_one(&self, index: usize) {
        if let Some(mut page) = self.as_raw(index) {
            // SAFETY: The callers have a pin of the page, which ends here.
            unsafe { bindings::unpin_user_pages(&raw mut page, 1) };
        }
    }

    /// Unpins the pages. Returns the number of pins that ended: of shared pages, those that no
    /// other object uses.
    pub(crate) fn unpin(&mut self) -> usize {
        let ended = match self.shared.take() {
            Some(table) => self.leave(&table),
            None => {
                self.unpin_all();
                self.count
            }
        };
        // INVARIANT: The object has no pages any more.
        self.count = 0;
        ended
    }

    /// Releases the pages in `table`, and ends the pins that this returns.
    fn leave(&self, table: &SharedPins) -> usize {
        let mut ended = 0;
        for index in 0..self.count {
            let (Some(page), Some(key)) = (self.as_raw(index), self.key(index)) else {
                continue;
            };
            if self.writable {
                // SAFETY: The table has a pin of the page as long as it is not released.
                unsafe { bindings::set_page_dirty_lock(page) };
            }
            if table.release(key) {
                self.unpin_one(index);
                ended += 1;
            }
        }
        ended
    }

    /// Ends the pins of the pages, which no table has.
    fn unpin_all(&self) {
        let pages = self.as_raw_slice();
        if pages.is_empty() {
            return;
        }
        // SAFETY: By the type invariants each of these pages has a pin of ours, which ends here. The
        // array is only read.
        unsafe {
            bindings::unpin_user_pages_dirty_lock(
                pages.as_ptr().cast_mut(),
                pages.len() as c_ulong,
                self.writable,
            );
        }
    }

    /// Compares the pages from `from` up to `to` with those that are mapped from the page-aligned
    /// address `start` on in `mm`. Returns if the first one is the same, and the number of the
    /// first page for which the result differs, or `to`.
    ///
    /// Faults nothing in: an address without a page counts as the page that a fault would bring.
    /// `lock` is the `mmap_lock` of `mm`.
    pub(crate) fn compare(
        &self,
        (mm, lock): (&MmWithUser, &MmapReadGuard<'_>),
        start: usize,
        from: usize,
        to: usize,
    ) -> (bool, usize) {
        let mut first = None;
        let mut index = from;
        while index < to.min(self.count) {
            let address = start + (index - from) * PAGE_SIZE;
            let vma = lock.vma_lookup(address);
            let mut found = [core::ptr::null_mut(); LOOK_BATCH];
            let wanted = (to - index).min(LOOK_BATCH);
            // SAFETY: There is room for `wanted` pointers, and `mmap_lock` is held.
            let got = unsafe {
                bindings::pin_user_pages_remote(
                    mm.as_raw(),
                    address,
                    wanted as c_ulong,
                    bindings::FOLL_NOFAULT | bindings::FOLL_FORCE,
                    found.as_mut_ptr(),
                    core::ptr::null_mut(),
                )
            };
            let got = usize::try_from(got).unwrap_or(0).min(LOOK_BATCH);
            let mut end = None;
            // One page more if nothing was found.
            for number in 0..got.max(1) {
                let same = if number < got {
                    self.as_raw(index + number) == found.get(number).copied()
                } else {
                    vma.is_some_and(|vma| self.is_behind(vma, address, index))
                };
                if *first.get_or_insert(same) != same {
                    end = Some(index + number);
                    break;
                }
            }
            // SAFETY: The first `got` pages have just been pinned.
            unsafe { bindings::unpin_user_pages(found.as_mut_ptr(), got as c_ulong) };
            if let Some(end) = end {
                return (first.unwrap_or(false), end);
            }
            index += got.max(1);
        }
        (first.unwrap_or(false), to)
    }

    /// Returns true if a fault at `address` of `vma`, where no page is mapped, would bring page
    /// `index`.
    fn is_behind(&self, vma: &VmaRef, address: usize, index: usize) -> bool {
        let Some(page) = self.as_raw(index) else {
            return false;
        };
        // SAFETY: The VMA is valid, and by the type invariant the page is.
        unsafe { uldma_page_is_behind(vma.as_ptr(), address, page) }
    }
}

/// Returns `addr` without the tag bits of the architecture.
pub(crate) fn untagged(addr: u64) -> u64 {
    // SAFETY: May be called for any address.
    unsafe { uldma_untagged_addr(addr) }
}

/// Returns the first address from `start` up to `end` at which a file is mapped whose invalidate
/// lock or inode lock is held, so that pages may be removed from it after they were unmapped.
/// Removals that begin later invalidate again.
pub(crate) fn first_locked_file(mm: &MmWithUser, start: usize, end: usize) -> Option<usize> {
    let mut address = start;
    while address < end {
        let mut next = address;
        // SAFETY: The address space has users; any address will do.
        if !unsafe { uldma_vma_file_is_settled(mm.as_raw(), &mut next) } {
            return Some(address);
        }
        address = next;
    }
    None
}

/// Pins up to as many pages from `start` on as fit into `room`. Returns their number.
fn pin_some(
    start: usize,
    room: &mut [MaybeUninit<*mut bindings::page>],
    flags: u32,
) -> Result<usize> {
    let (count, room) = (room.len() as c_int, room.as_mut_ptr().cast());
    // SAFETY: There is room for `count` pointers; the function may be called for any address from
    // process context.
    let got = unsafe { bindings::pin_user_pages_fast(start, count, flags, room) };
    match usize::try_from(got) {
        Ok(0) => Err(EFAULT),
        Ok(got) => Ok(got),
        Err(_) => Err(Error::from_errno(got)),
    }
}

/// Pins the page at `start`.
fn pin_one(start: usize, flags: u32) -> Result<*mut bindings::page> {
    let mut page = MaybeUninit::uninit();
    pin_some(start, core::slice::from_mut(&mut page), flags)?;
    // SAFETY: At least one pointer was written, and there is room for one only.
    Ok(unsafe { page.assume_init() })
}

/// Adds up to [`BATCH`] of the `count` pages from `start` on to those that `pages` has.
fn pin_more(
    pages: &mut KVVec<*mut bindings::page>,
    start: usize,
    count: usize,
    flags: u32,
) -> Result {
    let done = pages.len();
    let batch = (count - done).min(BATCH);
    let offset = done.checked_mul(PAGE_SIZE).ok_or(EOVERFLOW)?;
    let address = start.checked_add(offset).ok_or(EOVERFLOW)?;
    let room = pages.spare_capacity_mut().get_mut(..batch);
    let got = pin_some(address, room.ok_or(EINVAL)?, flags)?;
    // SAFETY: The first `got` of the pointers were written.
    unsafe { pages.inc_len(got) };
    Ok(())
}

/// Distinguishes memory that cannot be pinned for this use from unmapped memory.
fn explain(mm: &MmWithUser, address: usize, gup_flags: u32, err: Error) -> Error {
    // DAX and peer-to-peer memory return this.
    if err == eremoteio() || err == eopnotsupp() {
        return eopnotsupp();
    }
    if err != EFAULT {
        return err;
    }
    let writable = gup_flags & bindings::FOLL_WRITE != 0;
    let vma_flags = {
        let lock = mm.mmap_read_lock();
        lock.vma_lookup(address).map_or(0, |vma| vma.flags())
    };
    if vma_flags & (flags::IO | flags::PFNMAP) != 0 {
        return eopnotsupp();
    }
    if !writable || vma_flags & (flags::WRITE | flags::SHARED) != flags::WRITE | flags::SHARED {
        return EFAULT;
    }
    // The process may write to the file. If only pinning for reading works, the kind of file is the
    // reason.
    match PinnedPages::pin(mm, address, 1, false) {
        Ok(_) => eopnotsupp(),
        Err(_) => EFAULT,
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        self.unpin();
    }
}
