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
//! Locks are taken in this order: 1. `OpenFile::objects` 2. `mmap_lock` 3. `memories` 4. the locks
//! of the memory manager for zapping, and those that its notifiers take.

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
    kernel_ext::{
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

/// One memory.
struct Memory {
    /// The pages that the program maps.
    pages: KVVec<Arc<SharedPage>>,
    range: MmapRange,
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
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut entered = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            if kernel::current!().signal_pending() {
                return Err(EINTR);
            }
            let page = Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?;
            entered.push(page.clone(), GFP_KERNEL_ACCOUNT)?;
            pages.push(page, GFP_KERNEL_ACCOUNT)?;
        }
        let run = tpt.add_own_pages(dev, entered, charge, space.id())?;
        let backing = Backing::Memory(self.clone(), run.first);
        let result = offsets
            .add(open_file, count, backing, true)
            .and_then(|range| {
                let memory = Memory { pages, range };
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
}

impl Memories for Exchange {
    fn fault(
        &self,
        memory: u32,
        page: usize,
        mapping: &SharedMapping,
        fault: &Fault<'_>,
    ) -> Result<(), FaultError> {
        let mut memories = self.memories.lock();
        let memory = memories.get_mut(&memory).ok_or(FaultError::Bus)?;
        let found = memory.pages.get(page).ok_or(FaultError::Bus)?;
        if fault.is_mapped() {
            memory.zap(mapping, page, 1);
        }
        fault.insert_writable(found.pfn())
    }
}

impl Memory {
    /// Removes `count` pages from page `first` on from all mappings.
    fn zap(&self, mapping: &SharedMapping, first: usize, count: usize) {
        let start = self.range.offset() + pages_to_bytes(first);
        mapping.zap(start, pages_to_bytes(count));
    }
}
