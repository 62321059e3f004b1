// SPDX-License-Identifier: GPL-2.0

//! Pages that are mapped in a process and that nothing pins.
//!
//! A [`Watcher`] of the addresses vouches for what the driver does with such a page: it ends each use
//! before it returns from the notification of a change, for only then the page may become another's.
//!
//! C header: `include/linux/hmm.h`; `kernel_ext/hmm.c` wraps what is `static inline`, or takes locks.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

use super::{
    dma::{
        self,
        Use, //
    },
    mmu_notifier::{
        IntervalNotifier,
        Watcher, //
    },
};

unsafe extern "C" {
    fn uldma_hmm_snapshot(
        notifier: *mut bindings::mmu_interval_notifier,
        start: c_ulong,
        end: c_ulong,
        entries: *mut c_ulong,
        seq: *mut c_ulong,
    ) -> c_int;
    fn uldma_hmm_page(entry: c_ulong) -> *mut bindings::page;
    fn uldma_hmm_is_usable(entry: c_ulong, write: bool) -> bool;
    fn uldma_hmm_fault_minor(
        notifier: *mut bindings::mmu_interval_notifier,
        address: c_ulong,
        write: bool,
        is_mapped: bool,
    ) -> c_int;
    fn uldma_hmm_fault_major(
        notifier: *mut bindings::mmu_interval_notifier,
        address: c_ulong,
        write: bool,
    ) -> c_int;
    fn uldma_page_accessed(page: *mut bindings::page, written: bool);
}

/// What was mapped at up to `N` pages.
pub(crate) struct Snapshot<const N: usize> {
    seq: c_ulong,
    entries: [c_ulong; N],
    count: usize,
}

impl<const N: usize> Snapshot<N> {
    /// Finds what is mapped at `count` pages from address `start` on, which `notifier` watches. Takes
    /// `mmap_lock`, and waits for changes that have begun, both as long as the process likes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than `N` pages, `ESRCH` if the address space has ended, `EBUSY` if it changes.
    pub(crate) fn take<W: Watcher>(
        notifier: &IntervalNotifier<W>,
        start: usize,
        count: usize,
    ) -> Result<Self> {
        if count > N {
            return Err(EINVAL);
        }
        let (mut seq, mut entries) = (0, [0; N]);
        let end = start + count * PAGE_SIZE;
        // SAFETY: The notifier is inserted, and there is an entry for each page.
        to_result(unsafe {
            uldma_hmm_snapshot(
                notifier.as_raw(),
                start,
                end,
                entries.as_mut_ptr(),
                &raw mut seq,
            )
        })?;
        Ok(Self {
            seq,
            entries,
            count,
        })
    }

    /// Returns the numbers of pages that are not mapped, or with `for_write` not writable, and whether
    /// there is one.
    pub(crate) fn lacking(&self, for_write: bool) -> impl Iterator<Item = (usize, bool)> + '_ {
        // SAFETY: This reads the entry only.
        let is_usable = |entry: c_ulong, write| unsafe { uldma_hmm_is_usable(entry, write) };
        let entries = self.entries.iter().take(self.count).copied();
        let lacking = entries
            .enumerate()
            .filter(move |(_, entry)| !is_usable(*entry, for_write));
        lacking.map(move |(number, entry)| (number, is_usable(entry, false)))
    }

    /// Calls `enter` with `locked` and the pages, unless a change of `notifier`'s addresses has begun
    /// since the snapshot. Returns whether it was called.
    ///
    /// `locked` is what a lock protects that the watcher takes for each notification. So a change that
    /// begins after this check is notified after `enter`.
    pub(crate) fn if_current<W: Watcher, T>(
        &self,
        notifier: &IntervalNotifier<W>,
        locked: &mut T,
        enter: impl FnOnce(&mut T, &mut dyn Iterator<Item = Option<Mapped<'_>>>),
    ) -> bool {
        // This is `mmu_interval_read_retry()`.
        // SAFETY: The notifier is inserted, and the field is read at once.
        let now = unsafe { (&raw const (*notifier.as_raw()).invalidate_seq).read_volatile() };
        if now != self.seq {
            return false;
        }
        let entries = self.entries.iter().take(self.count);
        enter(locked, &mut entries.map(|entry| Mapped::of(*entry)));
        true
    }
}

/// How far the driver goes to have a page mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No I/O: the page is in the page cache, or has to be copied for its writer.
    Minor,
    /// Whatever it takes.
    Major,
}

impl Fault {
    /// Has the page at `address`, which `notifier` watches, mapped, and with `for_write` writable. A page
    /// that `is_mapped` only has to become so. Takes `mmap_lock`; a major fault waits without it.
    ///
    /// # Errors
    ///
    /// `EFAULT` if nothing is mapped there; `EPERM` if the process may not access it so; `EAGAIN` if the
    /// page is not in memory; `ESRCH` if the address space has ended; `ENOMEM`.
    pub(crate) fn map<W: Watcher>(
        self,
        notifier: &IntervalNotifier<W>,
        address: usize,
        for_write: bool,
        is_mapped: bool,
    ) -> Result {
        let notifier = notifier.as_raw();
        // SAFETY: The notifier is inserted.
        to_result(unsafe {
            match self {
                Self::Minor => uldma_hmm_fault_minor(notifier, address, for_write, is_mapped),
                Self::Major => uldma_hmm_fault_major(notifier, address, for_write),
            }
        })
    }
}

/// A page that is mapped in a process now.
#[derive(Clone, Copy)]
pub(crate) struct Mapped<'a> {
    page: Page,
    /// True if the process can write it without a fault.
    pub(crate) is_writable: bool,
    _now: PhantomData<&'a ()>,
}

impl Mapped<'_> {
    fn of(entry: c_ulong) -> Option<Self> {
        // SAFETY: The entry is of a snapshot, and no change has begun since.
        let page = unsafe { uldma_hmm_page(entry) };
        Some(Self {
            page: Page(NonNull::new(page)?),
            // SAFETY: This reads the entry only.
            is_writable: unsafe { uldma_hmm_is_usable(entry, true) },
            _now: PhantomData,
        })
    }

    /// Maps the page for a device, which may write it if the process can and `may_write`.
    ///
    /// # Errors
    ///
    /// `EREMOTEIO` if the device cannot access the page without bouncing, or the address space of the
    /// IOMMU is full.
    pub(crate) fn map(&self, dev: &Device<Bound>, may_write: bool) -> Result<DmaMapping> {
        let how = match may_write && self.is_writable {
            true => Use::Write,
            false => Use::Read,
        };
        // SAFETY: The page is allocated as long as it is mapped in the process, and the
        // owner of the mapping ends it before.
        let address = unsafe { dma::map(dev, self.page.0.as_ptr(), 1, how) }?;
        Ok(DmaMapping {
            page: self.page,
            address,
            how,
        })
    }
}

/// A page without a reference to it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Page(NonNull<bindings::page>);

// SAFETY: A page belongs to no thread.
unsafe impl Send for Page {}

/// A DMA mapping of a page that is mapped in a process. The watcher of its address
/// [ends](DmaMapping::end) it before it returns from a notification of a change.
pub(crate) struct DmaMapping {
    page: Page,
    /// Bus address.
    pub(crate) address: DmaAddress,
    how: Use,
}

impl DmaMapping {
    /// True if the device may write the page.
    pub(crate) fn is_writable(&self) -> bool {
        self.how == Use::Write
    }

    /// Returns true if it is of the page `mapped`.
    pub(crate) fn is_of(&self, mapped: &Mapped<'_>) -> bool {
        self.page == mapped.page
    }

    /// Notes for the memory manager that the device has accessed the page.
    pub(crate) fn accessed(&self) {
        // SAFETY: The page is mapped in the process as long as there is this mapping.
        unsafe { uldma_page_accessed(self.page.0.as_ptr(), false) };
    }

    /// Ends the mapping, which the device does not use any more. Notes for the memory manager whether
    /// the device has accessed the page, and written it.
    pub(crate) fn end(self, dev: &Device<Bound>, accessed: bool, written: bool) {
        dma::unmap_pinned(dev, self.address, self.how);
        if accessed || written {
            // SAFETY: The page is mapped in the process until the watcher has returned.
            unsafe { uldma_page_accessed(self.page.0.as_ptr(), written) };
        }
    }
}
