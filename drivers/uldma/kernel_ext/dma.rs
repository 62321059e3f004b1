// SPDX-License-Identifier: GPL-2.0

//! Streaming DMA mappings of single pages, and pages that a device and user space share.

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
    prelude::*, //
};

use super::{
    errno::eremoteio,
    gup::PinnedPages, //
};

unsafe extern "C" {
    fn uldma_dma_mapping_error(dev: *mut bindings::device, addr: DmaAddress) -> c_int;
    fn uldma_page_to_pfn(page: *mut bindings::page) -> c_ulong;
    fn uldma_page_address(page: *mut bindings::page) -> *mut c_void;
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

/// Maps `page` for a bound device.
///
/// # Errors
///
/// `EREMOTEIO` if the device cannot access the page without bouncing, or the address space of the
/// IOMMU is full.
///
/// # Safety
///
/// `page` must be a page that stays allocated until it is unmapped.
unsafe fn map(dev: &Device<Bound>, page: *mut bindings::page, how: Use) -> Result<DmaAddress> {
    // SAFETY: The device is bound, and `page` is valid by the safety requirement.
    let addr = unsafe {
        bindings::dma_map_page_attrs(
            as_raw(dev),
            page,
            0,
            PAGE_SIZE,
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

/// Maps all `pages` for the device, one by one, and passes the addresses to `each`, which has to
/// store them.
///
/// The caller unmaps them by [`unmap_pinned`], for the same use, before `pages` is dropped and
/// before the device is unbound, also those that were passed to `each` before an error. Otherwise
/// they are leaked, which `DMA_API_DEBUG` reports; that is safe as long as the device does not know
/// the address.
pub(crate) fn map_pinned(
    dev: &Device<Bound>,
    pages: &PinnedPages,
    how: Use,
    mut each: impl FnMut(DmaAddress) -> Result,
) -> Result {
    for page in pages.as_raw_slice() {
        // SAFETY: A pinned page stays allocated.
        let address = unsafe { map(dev, *page, how) }?;
        each(address).inspect_err(|_| unmap_pinned(dev, address, how))?;
    }
    Ok(())
}

/// Ends a mapping that [`SharedPage::map`] made.
pub(crate) fn unmap(dev: &Device<Bound>, addr: DmaAddress) {
    unmap_pinned(dev, addr, Use::Write);
}

/// Ends a mapping that [`map_pinned`] made for this use.
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

    /// Maps the page for the device to write; to be ended by [`unmap`] before `self` is dropped.
    pub(crate) fn map(&self, dev: &Device<Bound>) -> Result<DmaAddress> {
        // SAFETY: The page is allocated as long as `self`.
        unsafe { map(dev, self.page.as_ptr(), Use::Write) }
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
}
