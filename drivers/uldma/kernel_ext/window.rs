// SPDX-License-Identifier: GPL-2.0

//! Memory that nodes share: a PCI BAR, or memory of this machine.
//!
//! `pci::Bar` maps uncached; on x86 that would also force every user mapping of the same range to
//! be uncached (`arch/x86/mm/pat/memtype.c`), which costs an order of magnitude in bandwidth. So
//! the caller says how a BAR is mapped: write-combining, unless the two are to be compared.

use core::{
    alloc::Layout,
    ptr::NonNull, //
};

use kernel::{
    alloc::{
        allocator::Vmalloc,
        Allocator,
        NumaNode, //
    },
    bindings,
    device::Bound,
    devres::Devres,
    ffi::c_void,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    pci,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    page_list::PageList,
    pci::as_raw,
    vma::Caching, //
};

unsafe extern "C" {
    fn uldma_raw_readq(addr: *const c_void) -> u64;
    fn uldma_raw_writeq(value: u64, addr: *mut c_void);
    fn uldma_mb();
    fn uldma_wmb();
    fn uldma_rmb();
    fn uldma_memset_io(addr: *mut c_void, value: c_int, count: usize);
    fn uldma_window_copy_to(to: *mut c_void, from: *const c_void, count: usize);
    fn uldma_window_copy_from(to: *mut c_void, from: *const c_void, count: usize);
}

/// Orders all earlier reads and writes, also of windows, before all later ones.
pub(crate) fn full_fence() {
    // SAFETY: A barrier may be used anywhere.
    unsafe { uldma_mb() };
}

/// Memory that is mapped for the kernel as a whole, and that other nodes read and write at any
/// time.
///
/// # Invariants
///
/// `base` is a mapping of `len` bytes, which is ours and lives as long as this object.
pub(crate) struct Window {
    base: NonNull<c_void>,
    len: usize,
    backing: Backing,
}

/// The memory of a window.
enum Backing {
    /// A BAR, whose region is ours.
    Bar {
        pdev: ARef<pci::Device>,
        bar: c_int,
        first_frame: usize,
    },
    /// An allocation of this layout.
    Memory(Layout),
}

// SAFETY: A mapping may be used from any thread.
unsafe impl Send for Window {}
// SAFETY: All accesses are volatile or by functions that allow for others, and may happen from many
// threads at once.
unsafe impl Sync for Window {}

impl Window {
    /// Requests and maps BAR `bar`, all of it; it is released when the device is unbound. With
    /// [`Caching::WriteCombine`] stores may be combined, otherwise it is uncached.
    pub(crate) fn of_bar(
        pdev: &pci::Device<Bound>,
        bar: u32,
        name: &'static CStr,
        caching: Caching,
    ) -> Result<Devres<Self>> {
        let len = usize::try_from(pdev.resource_len(bar)?)?;
        let start = usize::try_from(pdev.resource_start(bar)?)?;
        let bar = c_int::try_from(bar)?;
        // SAFETY: The device is valid, `resource_len` accepted `bar`, `name` is static.
        let ret =
            unsafe { bindings::pci_request_region(as_raw(pdev), bar, name.as_char_ptr().cast()) };
        if ret != 0 {
            return Err(EBUSY);
        }
        // SAFETY: As above, and the region is ours.
        let base = unsafe {
            match caching {
                Caching::WriteCombine => bindings::pci_iomap_wc(as_raw(pdev), bar, 0),
                Caching::Normal | Caching::Uncached => bindings::pci_iomap(as_raw(pdev), bar, 0),
            }
        };
        let Some(base) = NonNull::new(base) else {
            // SAFETY: The region was requested just now.
            unsafe { bindings::pci_release_region(as_raw(pdev), bar) };
            return Err(ENOMEM);
        };
        let backing = Backing::Bar {
            pdev: (&**pdev).into(),
            bar,
            first_frame: start >> PAGE_SHIFT,
        };
        // INVARIANT: Region and mapping were just made.
        let this = Self { base, len, backing };
        Devres::new(pdev.as_ref(), this)
    }

    /// Allocates `len` bytes of memory, all zero.
    pub(crate) fn of_memory(len: usize) -> Result<Self> {
        let layout = Layout::from_size_align(len, PAGE_SIZE).map_err(|_| EINVAL)?;
        if len == 0 || len % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let base = Vmalloc::alloc(layout, GFP_KERNEL | __GFP_ZERO, NumaNode::NO_NODE)?;
        // INVARIANT: The memory was just allocated.
        Ok(Self {
            base: base.cast(),
            len,
            backing: Backing::Memory(layout),
        })
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of the frame with byte `offset`.
    pub(crate) fn frame(&self, offset: usize) -> Result<usize> {
        let addr = self.range(offset, 1)?;
        Ok(match self.backing {
            Backing::Bar { first_frame, .. } => first_frame + (offset >> PAGE_SHIFT),
            // SAFETY: By the type invariant this is an address in an allocation of `vmalloc`.
            Backing::Memory(_) => unsafe { bindings::vmalloc_to_pfn(addr) },
        })
    }

    /// Address of `count` bytes at `offset`.
    pub(super) fn range(&self, offset: usize, count: usize) -> Result<*mut c_void> {
        let end = offset.checked_add(count).ok_or(EINVAL)?;
        if end > self.len {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the mapping has `len` bytes, so this stays inside.
        Ok(unsafe { self.base.as_ptr().byte_add(offset) })
    }

    /// Address of the aligned u64 at `offset`.
    fn word(&self, offset: usize) -> Result<*mut c_void> {
        if offset % size_of::<u64>() != 0 {
            return Err(EINVAL);
        }
        self.range(offset, size_of::<u64>())
    }

    /// Reads a u64 with acquire ordering, in the byte order in which it stands there.
    pub(crate) fn acquire64(&self, offset: usize) -> Result<u64> {
        let addr = self.word(offset)?;
        // SAFETY: `word` checked the range.
        let value = unsafe { uldma_raw_readq(addr) };
        // SAFETY: A barrier may be used anywhere.
        unsafe { uldma_rmb() };
        Ok(value)
    }

    /// Writes a u64 as it is, without a conversion of its byte order.
    pub(crate) fn write64(&self, offset: usize, value: u64) -> Result {
        let addr = self.word(offset)?;
        // SAFETY: `word` checked the range.
        unsafe { uldma_raw_writeq(value, addr) };
        Ok(())
    }

    /// Writes a u64 like [`Window::write64`]; it becomes visible after all earlier writes.
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
        let addr = self.range(offset, count)?;
        // SAFETY: `range` checked the range.
        unsafe { uldma_memset_io(addr, 0, count) };
        Ok(())
    }

    /// Copies `length` bytes from byte `from` of `pages` to `offset`; may sleep.
    ///
    /// Values that are published afterwards become visible after them.
    pub(crate) fn copy_in(
        &self,
        offset: usize,
        pages: &PageList,
        from: usize,
        length: usize,
    ) -> Result {
        let window = self.range(offset, length)?;
        pages.for_each_part(from, length, |at, part| {
            // SAFETY: `range` checked the range, which the parts add up to; the part is memory.
            unsafe { uldma_window_copy_to(window.byte_add(at), part.as_ptr().cast(), part.len()) };
        })
    }

    /// Copies `length` bytes from `offset` to byte `to` of `pages`; may sleep.
    ///
    /// They are read after values that were acquired before.
    pub(crate) fn copy_out(
        &self,
        offset: usize,
        pages: &PageList,
        to: usize,
        length: usize,
    ) -> Result {
        let window = self.range(offset, length)?;
        pages.for_each_part(to, length, |at, part| {
            // SAFETY: As in `copy_in`.
            unsafe {
                uldma_window_copy_from(part.as_ptr().cast(), window.byte_add(at), part.len())
            };
        })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        match &self.backing {
            Backing::Bar { pdev, bar, .. } => {
                let pdev = core::ptr::from_ref(&**pdev).cast_mut().cast();
                // SAFETY: By the type invariant mapping and region are ours; `Devres` drops this
                // before the device is gone.
                unsafe {
                    bindings::pci_iounmap(pdev, self.base.as_ptr());
                    bindings::pci_release_region(pdev, *bar);
                }
            }
            // SAFETY: By the type invariant the memory is ours, and has this layout.
            Backing::Memory(layout) => unsafe { Vmalloc::free(self.base.cast(), *layout) },
        }
    }
}
