// SPDX-License-Identifier: GPL-2.0

//! Streaming DMA mappings of pages, and pages that a device and user space share.

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::{
        DataDirection,
        DmaAddress, //
    },
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    uaccess::UserPtr, //
};

use super::{
    errno::eremoteio,
    gup::PinnedPages, //
};

unsafe extern "C" {
    fn uldma_dma_mapping_error(dev: *mut bindings::device, addr: DmaAddress) -> c_int;
    fn uldma_dma_need_unmap(dev: *mut bindings::device) -> bool;
    fn uldma_contiguous_pages(pages: *const *mut bindings::page, count: c_ulong) -> c_ulong;
    fn uldma_page_to_pfn(page: *mut bindings::page) -> c_ulong;
    fn uldma_page_address(page: *mut bindings::page) -> *mut c_void;
    fn uldma_copy_from_user(to: *mut c_void, from: *const c_void, count: c_ulong) -> c_ulong;
    fn uldma_copy_to_user(to: *mut c_void, from: *const c_void, count: c_ulong) -> c_ulong;
    fn uldma_dma_wmb();
}

/// A page must not be bounced: the device and the process have to see the same memory. This is
/// `DMA_ATTR_REQUIRE_COHERENT` of `include/linux/dma-mapping.h`.
const ATTRS: c_ulong = bindings::DMA_ATTR_REQUIRE_COHERENT as c_ulong;

fn as_raw(dev: &Device<Bound>) -> *mut bindings::device {
    // CAST: `Device` is `#[repr(transparent)]` over `Opaque<struct device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// Orders writes to memory that the device reads: what comes before is visible first.
pub(crate) fn wmb() {
    // SAFETY: A barrier may be used anywhere.
    unsafe { uldma_dma_wmb() };
}

/// The use of mapped memory by a device, as an IOMMU enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

impl From<Use> for DataDirection {
    fn from(how: Use) -> Self {
        match how {
            Use::Read => Self::ToDevice,
            Use::Write => Self::Bidirectional,
        }
    }
}

/// Returns false if a mapping for `dev` is an address and nothing else, so that it need not end.
/// Otherwise it ends as it was made, page by page.
pub(crate) fn needs_unmapping(dev: &Device<Bound>) -> bool {
    // SAFETY: The device is bound.
    unsafe { uldma_dma_need_unmap(as_raw(dev)) }
}

/// Maps `count` pages from `page` on for a bound device.
///
/// # Errors
///
/// `EREMOTEIO` if the device cannot access a page without bouncing, or the address space of the
/// IOMMU is full.
///
/// # Safety
///
/// `page` must be the first of `count` pages that are one block of physical memory and stay
/// allocated until they are unmapped.
pub(super) unsafe fn map(
    dev: &Device<Bound>,
    page: *mut bindings::page,
    count: usize,
    how: Use,
) -> Result<DmaAddress> {
    // SAFETY: The device is bound, and the pages are valid by the safety requirement.
    let addr = unsafe {
        bindings::dma_map_page_attrs(
            as_raw(dev),
            page,
            0,
            count * PAGE_SIZE,
            DataDirection::from(how).into(),
            ATTRS,
        )
    };
    // SAFETY: `addr` came from a mapping function for this device.
    if unsafe { uldma_dma_mapping_error(as_raw(dev), addr) } != 0 {
        return Err(eremoteio());
    }
    Ok(addr)
}

/// Returns how many of `pages` are one block of physical memory with the first; 0 for no pages.
fn contiguous(pages: &[*mut bindings::page]) -> usize {
    if pages.is_empty() {
        return 0;
    }
    // CAST: An `unsigned long` has the size of a `usize`.
    // SAFETY: These are pointers to pages, at least one.
    unsafe { uldma_contiguous_pages(pages.as_ptr(), pages.len() as c_ulong) as usize }
}

/// Maps all `pages` for the device, and passes the addresses to `each`, which has to store them:
/// an address, and the number of pages from there on.
///
/// If mappings [need to end](needs_unmapping), each is of one page, since the pages may end one by
/// one. Otherwise it is of a block of physical memory.
///
/// The caller unmaps them by [`unmap_pinned`], for the same use, before `pages` is dropped and
/// before the device is unbound, also those that were passed to `each` before an error. Otherwise
/// they are leaked, which `DMA_API_DEBUG` reports; that is safe as long as the device does not know
/// the address.
pub(crate) fn map_pinned(
    dev: &Device<Bound>,
    pages: &PinnedPages,
    how: Use,
    mut each: impl FnMut(DmaAddress, usize) -> Result,
) -> Result {
    let one_by_one = needs_unmapping(dev);
    let mut left = pages.as_raw_slice();
    while let Some(page) = left.first() {
        let count = if one_by_one { 1 } else { contiguous(left) };
        // SAFETY: Pinned pages stay allocated, and these are one block.
        let address = unsafe { map(dev, *page, count, how) }?;
        let result = each(address, count);
        if result.is_err() && one_by_one {
            unmap_pinned(dev, address, how);
        }
        result?;
        left = left.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Ends a mapping that [`SharedPage::map`] made.
pub(crate) fn unmap(dev: &Device<Bound>, addr: DmaAddress) {
    unmap_pinned(dev, addr, Use::Write);
}

/// Ends a mapping of one page that [`map_pinned`] made for this use.
pub(crate) fn unmap_pinned(dev: &Device<Bound>, addr: DmaAddress, how: Use) {
    // SAFETY: The device is bound. Unmapping an address that is not mapped is a bug which the DMA
    // layer tolerates and `DMA_API_DEBUG` reports.
    unsafe {
        bindings::dma_unmap_page_attrs(
            as_raw(dev),
            addr,
            PAGE_SIZE,
            DataDirection::from(how).into(),
            ATTRS,
        );
    }
}

/// A zeroed page that a device shares with the kernel and with user space.
pub(crate) struct SharedPage {
    page: Page,
}

impl SharedPage {
    /// Allocates a page.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            page: Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?,
        })
    }

    /// Copies the bytes of another page, which may be written at the same time.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        // SAFETY: Both pages are valid and, being no high memory, have addresses. A byte that is
        // written meanwhile is copied before or after that.
        unsafe {
            let from = uldma_page_address(other.page.as_ptr());
            bindings::memcpy(uldma_page_address(self.page.as_ptr()), from, PAGE_SIZE);
        }
    }

    /// Maps the page for the device to write; to be ended by [`unmap`] before `self` is dropped.
    pub(crate) fn map(&self, dev: &Device<Bound>) -> Result<DmaAddress> {
        // SAFETY: The page is allocated as long as `self`.
        unsafe { map(dev, self.page.as_ptr(), 1, Use::Write) }
    }

    /// Returns the frame number of the page.
    pub(crate) fn pfn(&self) -> usize {
        // SAFETY: The page is valid.
        unsafe { uldma_page_to_pfn(self.page.as_ptr()) }
    }

    /// Reads the u64 at byte `offset`, which the device may be writing.
    pub(crate) fn read_u64(&self, offset: usize) -> Result<u64> {
        if offset % size_of::<u64>() != 0 || offset >= PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: The page is valid and, being no high memory, has an address.
        let base = unsafe { uldma_page_address(self.page.as_ptr()) }.cast::<u8>();
        // SAFETY: The offset is aligned and inside of the page. A concurrent write by the device
        // is not a data race, as the read is volatile and of a size that is read at once.
        Ok(unsafe { base.add(offset).cast::<u64>().read_volatile() })
    }

    /// Writes the u64 at byte `offset`, which user space may be reading.
    pub(crate) fn write_u64(&self, offset: usize, value: u64) -> Result {
        if offset % size_of::<u64>() != 0 || offset >= PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: As in `read_u64`.
        let base = unsafe { uldma_page_address(self.page.as_ptr()) }.cast::<u8>();
        // SAFETY: As in `read_u64`.
        unsafe { base.add(offset).cast::<u64>().write_volatile(value) };
        Ok(())
    }

    /// Copies `length` bytes of the current process to the page, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for bytes outside of the page, `EFAULT` for memory that cannot be read; some bytes
    /// may have been copied then.
    pub(crate) fn copy_from_user(&self, offset: usize, from: UserPtr, length: usize) -> Result {
        let to = self.bytes(offset, length)?;
        // CAST: An `unsigned long` has the size of a `usize`.
        // SAFETY: The bytes are in the page. They are reached by pointers only, so what the device
        // writes there meanwhile is a matter of its order, as with `write_u64`.
        let left = unsafe { uldma_copy_from_user(to, from.as_const_ptr(), length as c_ulong) };
        if left != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Copies `length` bytes of the page, from byte `offset` on, to the current process.
    ///
    /// # Errors
    ///
    /// `EINVAL` for bytes outside of the page, `EFAULT` for memory that cannot be written; some
    /// bytes may have been copied then.
    pub(crate) fn copy_to_user(&self, offset: usize, to: UserPtr, length: usize) -> Result {
        let from = self.bytes(offset, length)?;
        // CAST: An `unsigned long` has the size of a `usize`.
        // SAFETY: As in `copy_from_user`.
        let left = unsafe { uldma_copy_to_user(to.as_mut_ptr(), from, length as c_ulong) };
        if left != 0 {
            return Err(EFAULT);
        }
        Ok(())
    }

    /// Returns the address of `length` bytes at `offset`, which the page has.
    fn bytes(&self, offset: usize, length: usize) -> Result<*mut c_void> {
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if end > PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: The page is valid and, being no high memory, has an address.
        let base = unsafe { uldma_page_address(self.page.as_ptr()) };
        Ok(base.wrapping_byte_add(offset))
    }
}

#[kunit_tests(uldma_dma)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_where_memory_does() -> Result {
        let page = Page::alloc_page(GFP_KERNEL)?;
        let first = page.as_ptr();
        // Pages of a block follow each other in the array of all pages.
        let (second, third) = (first.wrapping_add(1), first.wrapping_add(2));
        assert_eq!(contiguous(&[]), 0);
        assert_eq!(contiguous(&[first]), 1);
        assert_eq!(contiguous(&[first, second, third]), 3);
        assert_eq!(contiguous(&[first, second, second]), 2);
        assert_eq!(contiguous(&[first, first]), 1);
        assert_eq!(contiguous(&[third, second, first]), 1);
        Ok(())
    }
}
