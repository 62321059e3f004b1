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
//! A call that changes pages has a [`Turn`] at their memories, without a lock: it may wait for the
//! device, and only calls on the same memories and their end wait for it.
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
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex,
        UniqueArc, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    kernel_ext::{
        accounting,
        changes::Changes,
        dma::SharedPage,
        mapping::SharedMapping,
        vma::{
            Fault,
            FaultError, //
        },
        wait::EndedBy, //
    },
    mem::{
        charge::Charge,
        lmm::{
            range::pages_to_bytes,
            space::Space, //
        },
        own_pages,
        tpt::{
            NewPages,
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
mod turn;

use pages::Pages;
pub(crate) use turn::Turn;

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

/// Timeout of the wait for other calls on the same memory. Each of them waits for the device, within a
/// limit.
const TURN: Delta = Delta::from_secs(10);

/// One memory.
struct Memory {
    pages: Pages<Arc<SharedPage>>,
    range: MmapRange,
    /// Pays for the copies that there can be: one for each page that is sent.
    copies: accounting::Charge,
    /// True while a call has its turn.
    is_taken: bool,
    /// True once the memory ends, so that no call gets a turn.
    ends: bool,
}

/// The exchangeable memories of one open file, by the first of their page entries.
#[pin_data]
pub(crate) struct Exchange {
    #[pin]
    memories: Mutex<RBTree<u32, Memory>>,
    /// Changes when a turn ends.
    #[pin]
    turns: Changes,
}

/// A memory before [`Exchange::add`]: what a process pays for, which may make that process sleep.
pub(crate) struct NewMemory {
    pages: Pages<Arc<SharedPage>>,
    entered: KVVec<Arc<SharedPage>>,
    charge: Arc<Charge>,
    copies: accounting::Charge,
    room: RBTreeNodeReservation<u32, Memory>,
}

impl NewMemory {
    /// Allocates a memory of `count` zeroed pages.
    ///
    /// # Errors
    ///
    /// Those of [`own_pages::allocate`].
    pub(crate) fn allocate((space, mm): (&Space, &MmWithUser), count: usize) -> Result<Self> {
        let copies = accounting::Charge::new(mm, 0)?;
        let mut pages = Pages::with_capacity(count)?;
        let (entered, charge) = own_pages::allocate((space, mm), count, |page| pages.push(page))?;
        Ok(Self {
            pages,
            entered,
            charge,
            copies,
            room: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
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
            turns <- Changes::new(),
        });
        Arc::pin_init(exchange, GFP_KERNEL)
    }

    /// Adds `new`, which `open_file` can map at the range that is returned, and the page entries of
    /// which belong to `space`. It ends with [`Exchange::remove`].
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a table is full; `EREMOTEIO` if the device cannot access a page; `ENOMEM`;
    /// `ENODEV` if the device is unbound.
    pub(crate) fn add(
        self: &Arc<Self>,
        (dev, tpt, offsets): (&Device<Bound>, &Tpt, &MmapOffsets),
        (open_file, space): (u64, &Space),
        new: NewMemory,
    ) -> Result<(PageRun, MmapRange)> {
        let count = new.entered.len();
        let run = tpt.add_own_pages(dev, new.entered, new.charge, space.id())?;
        let backing = Backing::Memory(self.clone(), run.first);
        let range = offsets
            .add(open_file, count, backing, true)
            // No region has named the entries, so the device has not read them.
            .inspect_err(|_| tpt.forget_pages(dev, &run))?;
        let memory = Memory {
            pages: new.pages,
            range,
            copies: new.copies,
            is_taken: false,
            ends: false,
        };
        let mut memories = self.memories.lock();
        memories.insert(new.room.into_node(run.first, memory));
        Ok((run, range))
    }

    /// Ends memory `memory`: accesses to its mappings fail with SIGBUS from now on. The pages stay
    /// allocated until the device cannot access them any more.
    ///
    /// Waits for the end of a turn, in which a call waits for nothing but the device, within a
    /// limit.
    pub(crate) fn remove(&self, memory: u32, offsets: &MmapOffsets) {
        let removed = loop {
            // Before the check, so that no change is missed.
            let seen = self.turns.count();
            {
                let mut memories = self.memories.lock();
                match memories.get_mut(&memory).filter(|it| it.is_taken) {
                    Some(taken) => taken.ends = true,
                    None => break memories.remove(&memory),
                }
            }
            self.turns.wait(seen, TURN, EndedBy::Nothing);
        };
        if let Some(memory) = &removed {
            offsets.remove(memory.range);
        }
        // Pages may be freed only now that they are not mapped any more.
        drop(removed);
    }

    /// Ends all memories. No new ones are made, since the device is unbound.
    pub(crate) fn remove_all(&self, offsets: &MmapOffsets) {
        let first = || {
            let memories = self.memories.lock();
            let first = memories.cursor_front()?;
            Some(*first.current().0)
        };
        while let Some(memory) = first() {
            self.remove(memory, offsets);
        }
    }

    /// Returns the turn at `parts`, unless another call has one of their memories.
    ///
    /// # Errors
    ///
    /// `ENOENT` for a memory that has ended, or ends.
    pub(crate) fn try_turn<const N: usize>(&self, parts: [Part; N]) -> Result<Option<Turn<'_, N>>> {
        let mut memories = self.memories.lock();
        for part in &parts {
            let memory = part.of(&mut memories)?;
            if memory.ends {
                return Err(ENOENT);
            }
            if memory.is_taken {
                return Ok(None);
            }
        }
        for part in &parts {
            part.of(&mut memories)?.is_taken = true;
        }
        Ok(Some(Turn::new(self, parts)))
    }

    /// Returns the turn that `attempt` gets by [`Exchange::try_turn`], which is called again when other
    /// turns have ended. Only a fatal signal ends the wait for these: after a stop the kernel would
    /// make the call anew, and the time of the wait would begin anew.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` after [`TURN`]; `EINTR` on a fatal signal; the errors of `attempt`.
    pub(crate) fn turn<'a, const N: usize>(
        &self,
        attempt: impl Fn() -> Result<Option<Turn<'a, N>>>,
    ) -> Result<Turn<'a, N>> {
        let begun: Instant<Monotonic> = Instant::now();
        loop {
            // Before the attempt, so that no change is missed.
            let seen = self.turns.count();
            if let Some(turn) = attempt()? {
                return Ok(turn);
            }
            let left = TURN - begun.elapsed();
            if left <= Delta::ZERO {
                return Err(ETIMEDOUT);
            }
            if !self.turns.wait(seen, left, EndedBy::Death) {
                return Err(EINTR);
            }
        }
    }

    /// Calls `f` with the memory of `part`.
    fn with<R>(&self, part: &Part, f: impl FnOnce(&mut Memory) -> Result<R>) -> Result<R> {
        f(part.of(&mut self.memories.lock())?)
    }

    /// Returns room for the copies that `part` has now.
    ///
    /// # Errors
    ///
    /// `ENOENT` for a memory that has ended, `EINVAL` for pages outside of it; `ENOMEM`.
    pub(crate) fn room_for_copies(&self, part: &Part) -> Result<NewPages> {
        let copied = self.with(part, |memory| memory.pages.copied(part.pages.clone()))?;
        // Without the lock, since the caller may wait for its memory.
        NewPages::with_capacity(copied)
    }

    /// Returns true if a fault is a write to a page that is being sent: the program gets a copy.
    fn needs_copy(&self, memory: u32, start: usize, fault: &Fault<'_>) -> bool {
        let mut memories = self.memories.lock();
        let Some(memory) = memories.get_mut(&memory).filter(|_| fault.is_write()) else {
            return false;
        };
        let page = memory.range.place(start, fault.page());
        let page = page.and_then(|number| memory.pages.get_mut(number));
        page.is_some_and(|page| !page.is_writable())
    }

    /// Ends the turn at `parts`.
    fn end_turn(&self, parts: &[Part]) {
        let mut memories = self.memories.lock();
        for part in parts {
            if let Ok(memory) = part.of(&mut memories) {
                memory.is_taken = false;
            }
        }
        drop(memories);
        self.turns.notify();
    }
}

/// Allocates a page for a copy, for which the caller pays.
fn spare_page() -> Result<UniqueArc<SharedPage>> {
    Ok(UniqueArc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?)
}

impl Memories for Exchange {
    fn fault(
        &self,
        memory: u32,
        start: usize,
        mapping: &SharedMapping,
        fault: &Fault<'_>,
    ) -> Result<(), FaultError> {
        // Before the lock, since the caller may wait for its memory.
        let spare = match self.needs_copy(memory, start, fault) {
            true => Some(spare_page().map_err(|_| FaultError::Memory)?),
            false => None,
        };
        let mut memories = self.memories.lock();
        let memory = memories.get_mut(&memory).ok_or(FaultError::Bus)?;
        // A memory that has ended leaves its number to another one, but not its range.
        let page = memory
            .range
            .place(start, fault.page())
            .ok_or(FaultError::Bus)?;
        let found = memory.pages.get_mut(page).ok_or(FaultError::Bus)?;
        // Without a spare page, since the send has only just begun, the program faults again.
        let copied = spare.is_some_and(|mut copy| {
            found.replace(|page| {
                copy.copy_from(page);
                copy.into()
            })
        });
        let near = memory.range.places(start, fault.around());
        if fault.is_mapped() {
            // Its neighbours are likely to be mapped for reading only, too, and to be written next.
            memory.zap(mapping, near.clone());
        } else if copied {
            memory.zap(mapping, page..page + 1);
        }
        memory.insert(start, page, fault)?;
        // Calls zap many pages at a time, and a program uses many of them. Those that cannot be
        // inserted now fault. A program that writes would fault again on a page that is being sent.
        for near in near.filter(|near| *near != page) {
            let neighbour = memory.pages.get_mut(near);
            if neighbour.is_some_and(|it| it.is_writable() || !fault.is_write()) {
                let _ = memory.insert(start, near, fault);
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Maps a page, in the mapping of a fault whose file pages begin at `start`.
    fn insert(&mut self, start: usize, page: usize, fault: &Fault<'_>) -> Result<(), FaultError> {
        let found = self.pages.get_mut(page).ok_or(FaultError::Bus)?;
        let pfn = found.page().pfn();
        if found.is_writable() {
            fault.insert_writable(start + page, pfn)
        } else {
            fault.insert(start + page, pfn)
        }
    }

    /// Removes pages from all mappings.
    fn zap(&self, mapping: &SharedMapping, pages: Range<usize>) {
        let start = self.range.offset() + pages_to_bytes(pages.start);
        mapping.zap(start, pages_to_bytes(pages.len()));
    }
}
