// SPDX-License-Identifier: GPL-2.0

//! A PCI BAR with memory semantics, mapped write-combining.
//!
//! `pci::Bar` maps uncached; on x86 that would also force every user mapping of the same range to
//! be uncached (`arch/x86/mm/pat/memtype.c`), which costs an order of magnitude in bandwidth.

use kernel::{
    bindings,
    device::Bound,
    devres::Devres,
    ffi::c_void,
    pci,
    prelude::*,
    sync::aref::ARef, //
};

use super::pci::as_raw;

unsafe extern "C" {
    fn uldma_ioread64(addr: *const c_void) -> u64;
    fn uldma_iowrite64(value: u64, addr: *mut c_void);
    fn uldma_wmb();
    fn uldma_rmb();
    fn uldma_memset_io(addr: *mut c_void, value: c_int, count: usize);
}

/// A whole BAR, requested and mapped.
///
/// # Invariants
///
/// `base` is a mapping of BAR `bar` of `pdev`, `len` bytes long, and the BAR's region is ours.
pub(crate) struct WcBar {
    pdev: ARef<pci::Device>,
    bar: c_int,
    base: *mut c_void,
    len: usize,
}

// SAFETY: An I/O mapping may be used from any thread.
unsafe impl Send for WcBar {}
// SAFETY: All accesses are volatile and may happen from many threads at once.
unsafe impl Sync for WcBar {}

impl WcBar {
    /// Requests and maps BAR `bar`; it is released when the device is unbound.
    pub(crate) fn new(
        pdev: &pci::Device<Bound>,
        bar: u32,
        name: &'static CStr,
    ) -> Result<Devres<Self>> {
        let len = usize::try_from(pdev.resource_len(bar)?)?;
        let bar = c_int::try_from(bar)?;
        // SAFETY: The device is valid, `resource_len` accepted `bar`, `name` is static.
        let ret =
            unsafe { bindings::pci_request_region(as_raw(pdev), bar, name.as_char_ptr().cast()) };
        if ret != 0 {
            return Err(EBUSY);
        }
        // SAFETY: As above, and the region is ours.
        let base = unsafe { bindings::pci_iomap_wc(as_raw(pdev), bar, 0) };
        if base.is_null() {
            // SAFETY: The region was requested just now.
            unsafe { bindings::pci_release_region(as_raw(pdev), bar) };
            return Err(ENOMEM);
        }
        // INVARIANT: Region and mapping were just made.
        let this = Self {
            pdev: (&**pdev).into(),
            bar,
            base,
            len,
        };
        Devres::new(pdev.as_ref(), this)
    }

    /// Address of `size` aligned bytes at `offset`.
    fn at(&self, offset: usize, size: usize) -> Result<*mut c_void> {
        let end = offset.checked_add(size).ok_or(EINVAL)?;
        if end > self.len || offset % size != 0 {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the mapping has `len` bytes, so this stays inside.
        Ok(unsafe { self.base.byte_add(offset) })
    }

    /// Reads a u64, before all that is read after it.
    pub(crate) fn acquire64(&self, offset: usize) -> Result<u64> {
        let addr = self.at(offset, size_of::<u64>())?;
        // SAFETY: `at` checked the range.
        let value = unsafe { uldma_ioread64(addr) };
        // SAFETY: A barrier may be used anywhere.
        unsafe { uldma_rmb() };
        Ok(value)
    }

    /// Writes a u64.
    pub(crate) fn write64(&self, offset: usize, value: u64) -> Result {
        let addr = self.at(offset, size_of::<u64>())?;
        // SAFETY: `at` checked the range.
        unsafe { uldma_iowrite64(value, addr) };
        Ok(())
    }

    /// Writes a u64 that becomes visible after all that was written before it.
    pub(crate) fn publish64(&self, offset: usize, value: u64) -> Result {
        // SAFETY: A barrier may be used anywhere.
        unsafe { uldma_wmb() };
        self.write64(offset, value)?;
        // SAFETY: As above; this one pushes the value out of the write-combining buffer.
        unsafe { uldma_wmb() };
        Ok(())
    }

    /// Sets `count` bytes from `offset` on to zero.
    pub(crate) fn zero(&self, offset: usize, count: usize) -> Result {
        let end = offset.checked_add(count).ok_or(EINVAL)?;
        if end > self.len {
            return Err(EINVAL);
        }
        // SAFETY: The range was checked.
        unsafe { uldma_memset_io(self.base.byte_add(offset), 0, count) };
        Ok(())
    }
}

impl Drop for WcBar {
    fn drop(&mut self) {
        let pdev = core::ptr::from_ref(&*self.pdev).cast_mut().cast();
        // SAFETY: By the type invariant mapping and region are ours; `Devres` drops this before
        // the device is gone.
        unsafe {
            bindings::pci_iounmap(pdev, self.base);
            bindings::pci_release_region(pdev, self.bar);
        }
    }
}
