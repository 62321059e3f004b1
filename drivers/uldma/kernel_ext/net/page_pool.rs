// SPDX-License-Identifier: GPL-2.0

//! Pools of pages that packets are received into.
//!
//! C header: `include/net/page_pool/types.h`.

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    page::PAGE_SIZE,
    prelude::*, //
};

use super::skb::SkBuff;

unsafe extern "C" {
    fn uldma_page_pool_new(dev: *mut bindings::device, pages: u32) -> *mut c_void;
    fn uldma_page_pool_free(pool: *mut c_void);
    fn uldma_page_pool_alloc(pool: *mut c_void, address: *mut u64) -> *mut c_void;
    fn uldma_page_pool_put(pool: *mut c_void, page: *mut c_void);
    fn uldma_skb_add_page(skb: *mut c_void, pool: *mut c_void, page: *mut c_void, bytes: u32);
    fn uldma_skb_max_pages() -> u32;
}

/// Returns the number of pages that can be appended to a packet without pages.
pub(crate) fn max_pages_of_packet() -> u32 {
    // SAFETY: May be called from anywhere.
    unsafe { uldma_skb_max_pages() }
}

/// A pool of single pages that a device can write.
///
/// Dropping it may sleep. Pages may outlive it, also in packets; their mappings for the device end with
/// it, so it has to be dropped before the device is unbound.
///
/// # Invariants
///
/// The pointer is a pool, which this destroys.
pub(crate) struct PagePool(NonNull<c_void>);

// SAFETY: A pool may be used by any thread; those that allocate take turns by `&mut`.
unsafe impl Send for PagePool {}

impl PagePool {
    /// Creates a pool that keeps up to `pages` free pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>, pages: u32) -> Result<Self> {
        // CAST: `Device` is `#[repr(transparent)]` over `Opaque<struct device>`.
        let dev = core::ptr::from_ref(dev).cast_mut().cast();
        // SAFETY: The device is bound.
        let pool = unsafe { uldma_page_pool_new(dev, pages) };
        // INVARIANT: It was made just now.
        NonNull::new(pool).map(Self).ok_or(ENOMEM)
    }

    /// Allocates a page. Must be called with bottom halves disabled.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn alloc(&mut self) -> Result<PoolPage> {
        let mut address = 0;
        // SAFETY: By the type invariant this is a pool, of which this is the only call.
        let page = unsafe { uldma_page_pool_alloc(self.0.as_ptr(), &mut address) };
        Ok(PoolPage {
            page: NonNull::new(page).ok_or(ENOMEM)?,
            pool: self.0,
            address,
        })
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is a pool, which is destroyed once.
        unsafe { uldma_page_pool_free(self.0.as_ptr()) };
    }
}

/// A page of a pool, mapped for the device; it returns to the pool when this is dropped.
///
/// # Invariants
///
/// `page` is a page of `pool`, the memory of which lives as long as it has pages in use. This has the only
/// reference.
pub(crate) struct PoolPage {
    page: NonNull<c_void>,
    pool: NonNull<c_void>,
    address: DmaAddress,
}

// SAFETY: A page may be used and returned by any thread.
unsafe impl Send for PoolPage {}

impl PoolPage {
    /// Returns the bus address.
    pub(crate) fn address(&self) -> DmaAddress {
        self.address
    }

    /// Appends the first `bytes` bytes to a packet, which returns the page to its pool when it is
    /// freed.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more bytes than a page has.
    pub(crate) fn append_to(self, skb: &mut SkBuff, bytes: u32) -> Result {
        if usize::try_from(bytes)? > PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the page is one of the pool, and its reference is passed on. The
        // packet is borrowed mutably.
        unsafe { uldma_skb_add_page(skb.as_ptr(), self.pool.as_ptr(), self.page.as_ptr(), bytes) };
        core::mem::forget(self);
        Ok(())
    }
}

impl Drop for PoolPage {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the page is one of the pool, and the reference is ours.
        unsafe { uldma_page_pool_put(self.pool.as_ptr(), self.page.as_ptr()) };
    }
}
