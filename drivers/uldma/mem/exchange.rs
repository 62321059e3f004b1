// SPDX-License-Identifier: GPL-2.0

//! Exchangeable memory: pages of the driver that a program maps and the device can access.
//!
//! A program maps a memory as often as it likes, and parts of it. Pages belong to the memory, not
//! to mappings, which are PFN mappings: nothing else in the kernel can take references to their
//! pages. So the driver can take a page out of all mappings, and put another one there.
//!
//! The memories of one open file have one lock, under which faults insert pages and calls change
//! them. A call changes a memory first and then zaps, both under the lock: a page that a fault
//! inserted before is zapped, and a later fault finds the change.
//!
//! Locks are taken in this order: 1. `OpenFile::objects` 2. `mmap_lock` 3. `Space::state`
//! 4. `memories` 5. the locks of the memory manager for zapping, and those that its notifiers take,
//! of which none of the above is one.

use core::ops::Range;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    mm::MmWithUser,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    hw::Hw,
    kernel_ext::{
        accounting,
        dma::SharedPage,
        mapping::SharedMapping,
        vma::{
            Fault,
            FaultError, //
        }, //
    },
    mem::{
        charge::Charge,
        lmm::{
            range::pages_to_bytes,
            space::Space, //
        },
        tpt::{
            PageRun,
            Tpt, //
        }, //
    },
    user_abi::mmap_offset::{
        Backing,
        Memories,
        MmapOffsets,
        MmapRange, //
    }, //
};

mod pages;

pub(crate) use pages::Ended;
use pages::Pages;

/// Consecutive pages of a memory.
pub(crate) struct Part {
    /// The first page entry of the memory.
    pub(crate) memory: u32,
    pub(crate) pages: Range<usize>,
}

impl Part {
    /// Returns the first page entry of the memory, and the numbers of the pages.
    fn entries(&self) -> Result<(u32, Range<u32>)> {
        let (start, end) = (self.pages.start, self.pages.end);
        Ok((self.memory, u32::try_from(start)?..u32::try_from(end)?))
    }

    /// Returns the memory.
    fn of<'a>(&self, memories: &'a mut RBTree<u32, Memory>) -> Result<&'a mut Memory> {
        memories.get_mut(&self.memory).ok_or(ENOENT)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.memory == other.memory
            && self.pages.start < other.pages.end
            && other.pages.start < self.pages.end
    }
}

/// One memory.
struct Memory {
    pages: Pages<Arc<SharedPage>>,
    range: MmapRange,
    /// Pays for the copies that there can be: one for each page that is sent.
    copies: accounting::Charge,
}

/// The exchangeable memories of one open file, by the first of their page entries.
#[pin_data]
pub(crate) struct Exchange {
    #[pin]
    memories: Mutex<RBTree<u32, Memory>>,
}

impl Exchange {
    /// Creates a set without memories.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let exchange = pin_init!(Self {
            memories <- new_mutex!(RBTree::new(), "uldma::Exchange::memories"),
        });
        Arc::pin_init(exchange, GFP_KERNEL_ACCOUNT)
    }

    /// Creates a memory of `count` zeroed pages, which `open_file` can map at the range that is
    /// returned, and the page entries of which belong to `space`. It ends with [`Exchange::remove`].
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0; `EDQUOT` beyond the limits of the user; `ENOMEM` beyond
    /// `RLIMIT_MEMLOCK` or without memory; `EINTR` if a signal comes; `ENOSPC` if a table is full;
    /// `EREMOTEIO` if the device cannot access a page; `ENODEV` if the device is unbound.
    pub(crate) fn create(
        self: &Arc<Self>,
        (dev, tpt, offsets): (&Device<Bound>, &Tpt, &MmapOffsets),
        (open_file, space, mm): (u64, &Space, &MmWithUser),
        count: usize,
    ) -> Result<(PageRun, MmapRange)> {
        let charge = Charge::new(mm, space.payer(), count, 0)?;
        let copies = accounting::Charge::new(mm, 0)?;
        let mut pages = Pages::with_capacity(count)?;
        let mut entered = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            if kernel::current!().signal_pending() {
                return Err(EINTR);
            }
            let page = Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?;
            entered.push(page.clone(), GFP_KERNEL_ACCOUNT)?;
            pages.push(page)?;
        }
        let run = tpt.add_own_pages(dev, entered, charge, space.id())?;
        let backing = Backing::Memory(self.clone(), run.first);
        let result = offsets
            .add(open_file, count, backing, true)
            .and_then(|range| {
                let memory = Memory {
                    pages,
                    range,
                    copies,
                };
                let node = RBTreeNode::new(run.first, memory, GFP_KERNEL_ACCOUNT);
                let node = node.inspect_err(|_| offsets.remove(range))?;
                self.memories.lock().insert(node);
                Ok(range)
            });
        match result {
            Ok(range) => Ok((run, range)),
            Err(err) => {
                // No region has named the entries, so the device has not read them.
                tpt.forget_pages(dev, &run);
                Err(err)
            }
        }
    }

    /// Ends memory `memory`: accesses to its mappings fail with SIGBUS from now on. The pages stay
    /// allocated until the device cannot access them any more.
    pub(crate) fn remove(&self, memory: u32, offsets: &MmapOffsets) {
        let removed = self.memories.lock().remove(&memory);
        if let Some(memory) = &removed {
            offsets.remove(memory.range);
        }
        // Pages may be freed only now that they are not mapped any more.
        drop(removed);
    }

    /// Calls `f` with the memory of `part`.
    fn with<R>(&self, part: &Part, f: impl FnOnce(&mut Memory) -> Result<R>) -> Result<R> {
        f(part.of(&mut self.memories.lock())?)
    }

    /// Begins a send: writes to the pages go to copies from now on, until [`Exchange::release`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory; `EBUSY` if the device still uses the original of
    /// one, or one is sent too often; `EPERM` if `RLIMIT_MEMLOCK` is 0; `ENOMEM` beyond
    /// `RLIMIT_MEMLOCK`, which has to have room for a copy of each page.
    pub(crate) fn protect(&self, mapping: &SharedMapping, part: &Part) -> Result {
        self.with(part, |memory| {
            let count = memory.pages.check_send(part.pages.clone())?;
            memory.copies.grow(count)?;
            memory.pages.send(part.pages.clone())?;
            // Later faults find the change.
            memory.zap(mapping, part.pages.clone());
            Ok(())
        })
    }

    /// Ends a send: the pages are writable from now on, and where there is a copy, the device uses
    /// it, and the original is freed. The caller does not call for the same memory at the same time.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory, or that are not sent; `ENOMEM`; `EREMOTEIO` if the
    /// device cannot access a copy; `ETIMEDOUT` if it does not answer.
    pub(crate) fn release(
        &self,
        (hw, tpt, mapping): (Hw<'_>, &Tpt, &SharedMapping),
        part: &Part,
    ) -> Result<Ended> {
        let mut copies = KVVec::new();
        self.with(part, |memory| {
            memory.pages.begin_end(part.pages.clone(), |number, page| {
                let copy = (u32::try_from(number)?, page.clone());
                Ok(copies.push(copy, GFP_KERNEL_ACCOUNT)?)
            })
        })?;
        // Without the lock, since this waits for the device.
        let result = if copies.is_empty() {
            Ok(())
        } else {
            tpt.replace_pages(hw, part.memory, &copies)
        };
        self.with(part, |memory| {
            if let Err(err) = result {
                memory.pages.cancel_end(part.pages.clone());
                memory.zap(mapping, part.pages.clone());
                return Err(err);
            }
            let ended = memory.pages.end(part.pages.clone())?;
            drop(memory.copies.split(ended.pages));
            Ok(ended)
        })
    }

    /// Exchanges the pages of two parts, for the program and for the device, which does not use a
    /// page at its former place any more when this returns. The caller does not call for the same
    /// memories at the same time.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of a memory, and for parts that overlap or differ in length;
    /// `EBUSY` if a page is being sent; `ETIMEDOUT` if the device does not answer.
    pub(crate) fn swap(
        &self,
        (hw, tpt, mapping): (Hw<'_>, &Tpt, &SharedMapping),
        one: &Part,
        other: &Part,
    ) -> Result {
        if one.pages.len() != other.pages.len() || one.overlaps(other) {
            return Err(EINVAL);
        }
        for part in [one, other] {
            let check = |memory: &mut Memory| memory.pages.check_mapped(part.pages.clone());
            self.with(part, check)?;
        }
        // Without the lock, since this waits for the device. The program writes to its page until
        // that is replaced, as if it had written before this call.
        tpt.swap_pages(hw, one.entries()?, other.entries()?)?;
        let mut memories = self.memories.lock();
        for (number, place) in one.pages.clone().zip(other.pages.clone()) {
            let page = one.of(&mut memories)?.pages.page(number)?;
            let page = other.of(&mut memories)?.pages.replace(place, page)?;
            one.of(&mut memories)?.pages.replace(number, page)?;
        }
        for part in [one, other] {
            part.of(&mut memories)?.zap(mapping, part.pages.clone());
        }
        Ok(())
    }
}

impl Memories for Exchange {
    fn fault(
        &self,
        memory: u32,
        start: usize,
        mapping: &SharedMapping,
        fault: &Fault<'_>,
    ) -> Result<(), FaultError> {
        // The memory manager leaves marks in place of pages that are zapped, and an insertion there
        // would do nothing, again and again.
        if fault.is_of_userfaultfd() {
            return Err(FaultError::Bus);
        }
        let mut memories = self.memories.lock();
        let memory = memories.get_mut(&memory).ok_or(FaultError::Bus)?;
        // A memory that has ended leaves its number to another one, but not its range.
        let page = memory
            .range
            .place(start, fault.page())
            .ok_or(FaultError::Bus)?;
        let found = memory.pages.get_mut(page).ok_or(FaultError::Bus)?;
        let mut copied = false;
        if fault.is_write() {
            let copied_page = found.write(|page| Ok(Arc::new(page.copy()?, GFP_KERNEL_ACCOUNT)?));
            copied = copied_page.map_err(|_: Error| FaultError::Memory)?;
        }
        let (pfn, writable) = (found.page().pfn(), found.is_writable());
        if copied || fault.is_mapped() {
            memory.zap(mapping, page..page + 1);
        }
        if writable {
            fault.insert_writable(pfn)
        } else {
            fault.insert(pfn)
        }
    }
}

impl Memory {
    /// Removes pages from all mappings.
    fn zap(&self, mapping: &SharedMapping, pages: Range<usize>) {
        let start = self.range.offset() + pages_to_bytes(pages.start);
        mapping.zap(start, pages_to_bytes(pages.len()));
    }
}
