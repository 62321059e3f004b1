// SPDX-License-Identifier: GPL-2.0

//! User mappings of device memory, or of pages of the driver, that are filled by faults.
//!
//! `kernel::mm::virt` can insert pages at `mmap` time only. A mapping that is filled by faults can
//! be emptied at any time ([`SharedMapping::zap`]), and later accesses fault again.
//!
//! [`SharedMapping::zap`]: super::mapping::SharedMapping::zap

use core::ops::Range;

use kernel::{
    bindings,
    fs::File,
    mm::virt::{
        flags,
        vm_flags_t,
        VmaNew, //
    },
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::aref::ARef, //
};

use super::wait::EndedBy;

unsafe extern "C" {
    fn uldma_alloc_page_table(vmf: *mut bindings::vm_fault) -> c_int;
    fn uldma_release_fault_lock(vmf: *mut bindings::vm_fault);
    fn uldma_vma_set_caching(vma: *mut bindings::vm_area_struct, caching: u32);
    fn uldma_insert_writable(
        vma: *mut bindings::vm_area_struct,
        address: c_ulong,
        pfn: c_ulong,
    ) -> bindings::vm_fault_t;
}

/// The cache mode of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Caching {
    /// As other memory.
    Normal = 0,
    /// Not at all: each access reaches the device, in order.
    Uncached = 1,
    /// Stores may be combined.
    WriteCombine = 2,
}

/// The accesses of which a mapping notifies its owner by faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// Those for which no page is inserted. The mapping is one object: it cannot be split or moved.
    Missing,
    /// Writes to pages that are inserted for reading, too. Faults come by file page, so the mapping
    /// may be split and moved.
    Writes,
}

/// A mapping that is being made by `mmap`.
pub(crate) struct NewMapping<'a> {
    vma: &'a VmaNew,
}

impl<'a> NewMapping<'a> {
    pub(super) fn new(vma: &'a VmaNew) -> Self {
        Self { vma }
    }

    /// First file page of the mapping.
    pub(crate) fn first_page(&self) -> usize {
        // SAFETY: The VMA is valid while `self` lives.
        unsafe { (*self.vma.as_ptr()).vm_pgoff }
    }

    /// Number of pages.
    pub(crate) fn pages(&self) -> usize {
        (self.vma.end() - self.vma.start()) >> PAGE_SHIFT
    }

    /// Turns the mapping into one of device memory.
    ///
    /// It is shared, cannot grow, is not inherited by `fork()` and not dumped, cannot be executed,
    /// and cannot be written unless `writable`, now or by `mprotect()`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a private mapping, `EACCES` for more rights than allowed.
    pub(super) fn prepare(&self, caching: Caching, writable: bool) -> Result {
        if self.vma.flags() & flags::SHARED == 0 {
            return Err(EINVAL);
        }
        self.vma.try_clear_mayexec().map_err(|_| EACCES)?;
        if !writable {
            self.vma.try_clear_maywrite().map_err(|_| EACCES)?;
        }
        self.vma.set_io();
        self.vma.set_dontexpand();
        self.vma.set_dontcopy();
        self.vma.set_dontdump();
        let set: vm_flags_t = bindings::VM_PFNMAP as vm_flags_t;
        // SAFETY: The VMA is under construction, so no other thread reads its flags, and it is shared
        // and has no pages, so that it may become a PFN mapping.
        unsafe { (*self.vma.as_ptr()).__bindgen_anon_2.vm_flags = self.vma.flags() | set };
        // SAFETY: The VMA is under construction.
        unsafe { uldma_vma_set_caching(self.vma.as_ptr(), caching as u32) };
        Ok(())
    }
}

/// A page fault in a mapping made by [`NewMapping`].
pub(crate) struct Fault<'a> {
    vmf: &'a bindings::vm_fault,
}

/// The result of a fault that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The page was inserted.
    Now,
    /// The page may be available after a wait without `mmap_lock`.
    Later,
}

/// The error of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultError {
    /// There is no such page: SIGBUS.
    Bus,
    /// There is no memory for page tables: the memory manager frees some and retries.
    Memory,
}

impl FaultError {
    pub(super) fn code(self) -> bindings::vm_fault_t {
        match self {
            Self::Bus => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
            Self::Memory => bindings::vm_fault_reason_VM_FAULT_OOM,
        }
    }
}

/// Bytes, aligned, that a fault may map at a time: as many as the memory manager maps of a file by
/// default (`fault_around_bytes`).
const AROUND: usize = 64 << 10;

/// The way in which a fault can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all: the fault cannot be retried.
    None,
    /// Not now, but the caller retries.
    NotNow,
    /// Without the lock.
    Wait(EndedBy),
}

impl<'a> Fault<'a> {
    /// # Safety
    ///
    /// `vmf` must be the argument of a fault handler, of a VMA on which `prepare` succeeded.
    pub(super) unsafe fn from_raw(vmf: *mut bindings::vm_fault) -> Self {
        // SAFETY: The argument of a fault handler is valid while it runs.
        let vmf = unsafe { &*vmf };
        Self { vmf }
    }

    fn vma(&self) -> *mut bindings::vm_area_struct {
        self.vmf.__bindgen_anon_1.vma
    }

    /// The faulting VMA's file.
    pub(super) fn file(&self) -> *mut bindings::file {
        // SAFETY: The VMA of a fault is valid while the fault is handled.
        unsafe { (*self.vma()).vm_file }
    }

    fn has(&self, flag: bindings::fault_flag) -> bool {
        self.vmf.flags & flag != 0
    }

    /// Returns true if this is a retry, after a wait or for other reasons.
    pub(crate) fn is_retry(&self) -> bool {
        self.has(bindings::fault_flag_FAULT_FLAG_TRIED)
    }

    /// Returns how the process may wait. A fault in the kernel ends its wait only on a fatal
    /// signal, since the kernel would retry at once on others, again and again.
    pub(super) fn patience(&self) -> Patience {
        use bindings::*;
        if !self.has(fault_flag_FAULT_FLAG_ALLOW_RETRY) {
            return Patience::None;
        }
        if self.has(fault_flag_FAULT_FLAG_RETRY_NOWAIT) {
            return Patience::NotNow;
        }
        let interruptible = self.has(fault_flag_FAULT_FLAG_INTERRUPTIBLE);
        Patience::Wait(
            match interruptible && self.has(fault_flag_FAULT_FLAG_USER) {
                true => EndedBy::Signals,
                false => EndedBy::Death,
            },
        )
    }

    /// Allocates the page table for the page of the fault, unless there is one. An insertion does that,
    /// too, but under the lock of the frame; the control group of the process can make it sleep there.
    pub(super) fn make_table(&self) -> Result<(), FaultError> {
        // SAFETY: This is the argument of a fault handler, whose VMA is valid, and whose upper tables
        // exist, while the fault is handled.
        match unsafe { uldma_alloc_page_table(core::ptr::from_ref(self.vmf).cast_mut()) } {
            0 => Ok(()),
            _ => Err(FaultError::Memory),
        }
    }

    /// Releases the lock of the fault. The VMA may be freed from here on, so this returns its file,
    /// which stays open until the fault has ended.
    ///
    /// The fault must end with `VM_FAULT_RETRY`.
    pub(super) fn release(self) -> ARef<File> {
        // SAFETY: The VMA keeps its file open until the lock is released; faults use no position.
        let file = unsafe { File::from_raw_file(self.file()) }.into();
        // SAFETY: This is the argument of a fault handler, which has not released the lock before, as
        // that takes the fault.
        unsafe { uldma_release_fault_lock(core::ptr::from_ref(self.vmf).cast_mut()) };
        file
    }

    /// Returns true if this is a fault of a write.
    pub(crate) fn is_write(&self) -> bool {
        self.has(bindings::fault_flag_FAULT_FLAG_WRITE)
    }

    /// Returns true if this is a fault of a write, and a page is mapped at the address, but only
    /// for reading.
    pub(crate) fn is_mapped(&self) -> bool {
        self.has(bindings::fault_flag_FAULT_FLAG_MKWRITE)
    }

    /// Returns the file page of the fault.
    pub(crate) fn page(&self) -> usize {
        self.vmf.__bindgen_anon_1.pgoff
    }

    /// Returns the file pages that share the fault's aligned block of [`AROUND`] bytes and its VMA,
    /// so that they can be inserted, too.
    pub(crate) fn around(&self) -> Range<usize> {
        const PAGES: usize = AROUND.div_ceil(PAGE_SIZE);
        let vma = self.vma();
        // SAFETY: The VMA of a fault is valid, and keeps its place, while the fault is handled.
        let (first, bytes) = unsafe {
            let bounds = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
            ((*vma).vm_pgoff, bounds.vm_end - bounds.vm_start)
        };
        let before = (self.vmf.__bindgen_anon_1.address >> PAGE_SHIFT) % PAGES;
        let start = self.page().saturating_sub(before);
        let end = self.page() + (PAGES - before);
        start.max(first)..end.min(first + (bytes >> PAGE_SHIFT))
    }

    /// Inserts frame `pfn` at file page `page`, which is that of the fault or [around](Self::around)
    /// it, with the rights of the mapping. Where writes are [notified](Notify::Writes), the first
    /// write faults again. A frame that is there already stays.
    ///
    /// The caller must hold the lock under which it found the frame, and must take the same lock to
    /// remove the frame before it zaps the mapping; otherwise a late insertion would survive.
    pub(crate) fn insert(&self, page: usize, pfn: usize) -> Result<(), FaultError> {
        let address = self.address_of(page);
        // SAFETY: We are in a fault handler, and `prepare` made the VMA a shared `VM_PFNMAP`. The
        // function refuses addresses outside of the VMA.
        inserted(unsafe { bindings::vmf_insert_pfn(self.vma(), address, pfn) })
    }

    /// Inserts frame `pfn` as [`Fault::insert`] does, so that writes do not fault if the mapping
    /// may be written.
    pub(crate) fn insert_writable(&self, page: usize, pfn: usize) -> Result<(), FaultError> {
        let address = self.address_of(page);
        // SAFETY: As in `insert`.
        inserted(unsafe { uldma_insert_writable(self.vma(), address, pfn) })
    }

    /// Returns the address of a file page, which is outside of the VMA if the page is.
    fn address_of(&self, page: usize) -> usize {
        let fault = self.vmf.__bindgen_anon_1.address & PAGE_MASK;
        fault.wrapping_add(page.wrapping_sub(self.page()) << PAGE_SHIFT)
    }
}

/// Returns the result of an insertion. A page that another thread has inserted is a success.
fn inserted(ret: bindings::vm_fault_t) -> Result<(), FaultError> {
    match ret {
        bindings::vm_fault_reason_VM_FAULT_NOPAGE => Ok(()),
        bindings::vm_fault_reason_VM_FAULT_OOM => Err(FaultError::Memory),
        _ => Err(FaultError::Bus),
    }
}
