// SPDX-License-Identifier: MIT OR Apache-2.0

//! The locked memory manager by the names of the paper (§2.1), for those who come from there.
//!
//! | paper | here | otherwise |
//! | --- | --- | --- |
//! | `lmm_lock_area(IN start, IN length, OUT la_handle)` | [`lmm_lock_area`] | [`Device::register`] and others |
//! | `lmm_unlock_area(IN la_handle)` | [`lmm_unlock_area`] | [`crate::Region::unregister`], or drop |
//! | `lmm_get_pages(IN la_handle, OUT pages)` | [`lmm_get_pages`] | [`crate::Region::pages`] |
//! | "a list \[of\] consecutive page blocks" | [`lmm_get_blocks`] | [`crate::Region::blocks`] |
//! | `lmm_cleanup()` | [`lmm_cleanup`] | [`Device::cleanup`], or close |
//!
//! What the paper passes OUT is returned; the manager, of which the paper's kernel has one, is
//! the device's. Memory is locked for reading and writing by the device, as the paper knows no
//! rights.

use crate::{Access, Block, Borrowed, Device, Result};

/// A locked area. It can be named in transfers, and is unlocked when it is dropped.
pub type LaHandle = Borrowed;

/// Locks the pages that a range touches, and returns a handle to it. The same range may be locked
/// again, as may overlapping ones: each call returns a handle of its own.
///
/// # Errors
///
/// As [`Device::register_at`].
///
/// # Safety
///
/// As [`Device::register_at`].
pub unsafe fn lmm_lock_area(device: &Device, start: u64, length: u64) -> Result<LaHandle> {
    // SAFETY: the caller keeps the same promise.
    unsafe { device.register_at(start, length, Access::ReadWrite) }
}

/// Unlocks an area. Pages that another area covers stay locked.
///
/// # Errors
///
/// As [`Borrowed::unregister`].
pub fn lmm_unlock_area(la_handle: LaHandle) -> Result<()> {
    la_handle.unregister()
}

/// The bus addresses of an area's pages, in order.
///
/// # Errors
///
/// As [`Borrowed::pages`]: EPERM without CAP_SYS_ADMIN.
pub fn lmm_get_pages(la_handle: &LaHandle) -> Result<Vec<u64>> {
    let pages = la_handle.pages()?;
    pages.map(|page| page.map(|page| page.address)).collect()
}

/// The runs of pages of an area that are consecutive for the device, as a scatter/gather list
/// needs them. The paper has the function and does not name it.
///
/// # Errors
///
/// As [`lmm_get_pages`].
pub fn lmm_get_blocks(la_handle: &LaHandle) -> Result<Vec<Block>> {
    la_handle.blocks()?.collect()
}

/// Unlocks all areas of this process that were locked through `device`. Handles that are still
/// there are dropped as usual.
///
/// # Errors
///
/// As [`Device::cleanup`].
pub fn lmm_cleanup(device: &Device) -> Result<()> {
    device.cleanup()
}
