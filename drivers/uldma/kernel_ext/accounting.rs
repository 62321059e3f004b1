// SPDX-License-Identifier: GPL-2.0

//! Charging pinned memory to the address space that owns it.
//!
//! The counter is `mm->pinned_vm` (`VmPin` in `/proc/PID/status`), as RDMA and iommufd use it: it
//! is atomic, so charging needs no `mmap_lock` and cannot race at the limit.

use kernel::{
    bindings,
    mm::{
        Mm,
        MmWithUser, //
    },
    page::PAGE_SHIFT,
    prelude::*,
    sync::aref::ARef, //
};

use super::capability::{
    self,
    Capability, //
};

unsafe extern "C" {
    fn uldma_rlimit_memlock() -> c_ulong;
}

fn pinned_vm(mm: &Mm) -> *mut bindings::atomic64_t {
    // SAFETY: `mm_struct` is alive while there is a reference to `Mm`; the field is only pointed at.
    unsafe { &raw mut (*mm.as_raw()).__bindgen_anon_1.pinned_vm }
}

/// Returns the pages that are charged to `mm` now, by any part of the kernel.
pub(crate) fn charged(mm: &Mm) -> usize {
    // SAFETY: The counter is alive as long as `mm`.
    let pages = unsafe { bindings::atomic64_read(pinned_vm(mm)) };
    usize::try_from(pages).unwrap_or(0)
}

/// Bytes that may be charged to the current process's address space; none if there is no limit.
pub(crate) fn limit() -> Option<u64> {
    if capability::has(Capability::IpcLock) {
        return None;
    }
    // SAFETY: May be called from process context.
    u64::try_from(unsafe { uldma_rlimit_memlock() }).ok()
}

/// Pages charged to an address space; dropping it gives them back.
pub(crate) struct Charge {
    mm: ARef<Mm>,
    pages: usize,
}

impl Charge {
    /// Charges `pages` to `mm`, whose limit is the one of the current process.
    ///
    /// # Errors
    ///
    /// `EPERM` when `RLIMIT_MEMLOCK` is 0, `ENOMEM` when it would be exceeded; neither with
    /// `CAP_IPC_LOCK`.
    pub(crate) fn new(mm: &MmWithUser, pages: usize) -> Result<Self> {
        let mut charge = Self {
            mm: (&**mm).into(),
            pages: 0,
        };
        charge.grow(pages)?;
        Ok(charge)
    }

    /// Pages that are charged.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Charges `pages` more, with the errors of [`Charge::new`].
    pub(crate) fn grow(&mut self, pages: usize) -> Result {
        if pages == 0 {
            return Ok(());
        }
        let delta = i64::try_from(pages)?;
        // SAFETY: May be called from process context.
        let limit = unsafe { uldma_rlimit_memlock() } >> PAGE_SHIFT;
        // SAFETY: The counter is alive as long as `self.mm`.
        let total = unsafe { bindings::atomic64_add_return(delta, pinned_vm(&self.mm)) };
        let over = usize::try_from(total).map_or(true, |total| total > limit);
        if over && !capability::capable(Capability::IpcLock) {
            // SAFETY: The counter is alive as long as `self.mm`.
            unsafe { bindings::atomic64_sub(delta, pinned_vm(&self.mm)) };
            return Err(if limit == 0 { EPERM } else { ENOMEM });
        }
        self.pages += pages;
        Ok(())
    }

    /// Takes part in the charge for `pages` pages that another object has charged to the same
    /// address space. The last object that has them ends the charge; the others
    /// [leave](Self::leave) it.
    pub(crate) fn partake(&mut self, pages: usize) {
        self.pages += pages;
    }

    /// Leaves the charge for `pages` pages to others that take part in it.
    pub(crate) fn leave(&mut self, pages: usize) {
        self.pages -= pages.min(self.pages);
    }

    /// Takes over what `other`, of the same address space, is charged.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.pages += core::mem::take(&mut other.pages);
    }

    /// Splits off the charge for `pages` of the pages, or for all if there are fewer.
    pub(crate) fn split(&mut self, pages: usize) -> Self {
        let pages = pages.min(self.pages);
        self.pages -= pages;
        Self {
            mm: self.mm.clone(),
            pages,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Ok(pages) = i64::try_from(self.pages) {
            // SAFETY: The counter is alive as long as `self.mm`, and we added these pages to it.
            unsafe { bindings::atomic64_sub(pages, pinned_vm(&self.mm)) };
        }
    }
}
