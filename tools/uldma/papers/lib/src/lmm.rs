// SPDX-License-Identifier: MIT OR Apache-2.0

//! The locked memory manager under the names of the paper (§2.1).
//!
//! | paper | here | otherwise |
//! | --- | --- | --- |
//! | `lmm_lock_area(IN start, IN length, OUT la_handle)` | [`lmm_lock_area`] | [`Device::register`] and others |
//! | `lmm_unlock_area(IN la_handle)` | [`lmm_unlock_area`] | [`uldma::Region::unregister`], or drop |
//! | `lmm_get_pages(IN la_handle, OUT pages)` | [`lmm_get_pages`] | [`uldma::Region::pages`] |
//! | "a list \[of\] consecutive page blocks" | [`lmm_get_blocks`] | [`uldma::Region::blocks`] |
//! | `lmm_cleanup()` | [`lmm_cleanup`] | [`Device::cleanup`], or close |
//!
//! Parameters that the paper passes OUT are returned. The paper's kernel has one manager; here each
//! device has one. Memory is locked for reading and writing by the device, as the paper knows no
//! rights.

use uldma::region::{Block, Borrowed};
use uldma::{Access, Device, Result};

/// A locked area. It can be named in transfers, and is unlocked when it is dropped.
pub type LaHandle = Borrowed;

/// Locks the pages of a range, and returns a handle to the locked area. The same range may be
/// locked again, as may overlapping ones: each call returns a new handle.
///
/// # Errors
///
/// [`Error::System`](uldma::Error::System): ENOMEM when the limit would be exceeded, ENOSPC when
/// the device's table is full, EDQUOT when this user's share of it is used up, EFAULT when the
/// addresses are not mapped for reading and writing.
///
/// # Safety
///
/// The requirements of [`Device::register_at`].
pub unsafe fn lmm_lock_area(device: &Device, start: u64, length: u64) -> Result<LaHandle> {
    // SAFETY: the caller keeps the same promise.
    unsafe { device.register_at(start, length, Access::ReadWrite) }
}

/// Unlocks an area. Pages that another area covers stay locked.
///
/// # Errors
///
/// [`Error::System`](uldma::Error::System): ETIMEDOUT when the device does not answer; the region
/// has ended, and its pages stay pinned.
pub fn lmm_unlock_area(la_handle: LaHandle) -> Result<()> {
    la_handle.unregister()
}

/// Returns the bus addresses of an area's pages, in order.
///
/// # Errors
///
/// [`Error::System`](uldma::Error::System): EPERM without CAP_SYS_ADMIN.
pub fn lmm_get_pages(la_handle: &LaHandle) -> Result<Vec<u64>> {
    let pages = la_handle.pages()?;
    pages.map(|page| page.map(|page| page.address)).collect()
}

/// Returns the runs of pages of an area that are consecutive for the device, for a scatter/gather
/// list. The paper has the function but does not name it.
///
/// # Errors
///
/// [`Error::System`](uldma::Error::System): EPERM without CAP_SYS_ADMIN.
pub fn lmm_get_blocks(la_handle: &LaHandle) -> Result<Vec<Block>> {
    la_handle.blocks()?.collect()
}

/// Unlocks all areas of this process that were locked through `device`. Remaining handles are
/// dropped as usual.
///
/// # Errors
///
/// [`Error::System`](uldma::Error::System): ETIMEDOUT when the device does not answer (the regions
/// have ended, and their pages stay pinned), ENODEV when it has been removed.
pub fn lmm_cleanup(device: &Device) -> Result<()> {
    device.cleanup()
}
