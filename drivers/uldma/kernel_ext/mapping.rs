// SPDX-License-Identifier: GPL-2.0

//! One address space of mappings per device, so that one call reaches them in all processes.

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

unsafe extern "C" {
    fn uldma_mapping_inode_new() -> *mut bindings::inode;
    fn uldma_mapping_inode_put(inode: *mut bindings::inode);
}

/// An `address_space` that belongs to no file system.
///
/// # Invariants
///
/// `inode` is a reference to an inode that this object owns.
pub(crate) struct SharedMapping {
    inode: NonNull<bindings::inode>,
}

// SAFETY: An inode reference may be used and put from any thread.
unsafe impl Send for SharedMapping {}
// SAFETY: All methods may be called from many threads at once.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Creates an address space without mappings.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: May be called from process context, as every probe is.
        let inode = from_err_ptr(unsafe { uldma_mapping_inode_new() })?;
        // INVARIANT: The shim returned a reference that is ours.
        Ok(Self {
            inode: NonNull::new(inode).ok_or(ENOMEM)?,
        })
    }

    /// The raw address space, for `file->f_mapping`.
    pub(super) fn as_raw(&self) -> *mut bindings::address_space {
        // SAFETY: By the type invariant the inode is alive; `i_mapping` never changes after set-up.
        unsafe { (*self.inode.as_ptr()).i_mapping }
    }

    /// Removes all pages that user mappings have of file bytes `[start, start + len)`.
    ///
    /// Later accesses fault. Sleeps; must not be called with a lock held that is taken before
    /// `mmap_lock`.
    pub(crate) fn zap(&self, start: u64, len: u64) {
        let (Ok(start), Ok(len)) = (i64::try_from(start), i64::try_from(len)) else {
            return;
        };
        if len > 0 {
            // SAFETY: The address space lives as long as the inode; `even_cows` has no effect on
            // shared mappings.
            unsafe { bindings::unmap_mapping_range(self.as_raw(), start, len, 1) };
        }
    }

    /// Removes all pages from all mappings.
    pub(crate) fn zap_all(&self) {
        // SAFETY: As in `zap`; a length of 0 means up to the end.
        unsafe { bindings::unmap_mapping_range(self.as_raw(), 0, 0, 1) };
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own a reference. No file uses the address space any
        // more, since each open file keeps its device's state, and with it this object, alive.
        unsafe { uldma_mapping_inode_put(self.inode.as_ptr()) };
    }
}
