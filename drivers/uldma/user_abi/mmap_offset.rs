// SPDX-License-Identifier: GPL-2.0

//! Offsets for mmap: file ranges of a device, and the pages that back them.
//!
//! Each range belongs to one open file and is unique in the device, so that removing a range finds
//! all its mappings. Faults insert pages under the lock of the ranges, so that none is inserted
//! after its range was removed. A [memory](Memories) inserts its pages under its own lock.
//!
//! Locks are taken in this order: 1. `mmap_lock` 2. `ranges`.

use core::ops;

use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    hw::{
        layout::Run,
        DevicePage,
        Hardware, //
    },
    kernel_ext::{
        chardev::MappingRights,
        dma::SharedPage,
        list::List,
        mapping::SharedMapping,
        vma::{
            Caching,
            Fault,
            FaultError,
            Notify,
            Served, //
        }, //
    },
    params,
    user_abi::status_page::StatusPage, //
};

/// File pages for ranges, which are allocated one after the other. A page is never reused, since a
/// process can keep a mapping of a removed range.
const PAGES: ops::Range<usize> = 1..1 << 50;

/// Memories that serve the faults of their mappings themselves.
pub(crate) trait Memories: Send + Sync {
    /// Inserts the page of the fault, and pages around it, of memory `memory` that the range from
    /// file page `start` on was added for. Its mappings are zapped at `mapping`.
    ///
    /// The lock of the ranges is not held, so the memory may have ended, and another one may have
    /// its number. Ranges are not used again.
    fn fault(
        &self,
        memory: u32,
        start: usize,
        mapping: &SharedMapping,
        fault: &Fault<'_>,
    ) -> Result<(), FaultError>;
}

/// The pages that back a range.
pub(crate) enum Backing {
    /// Shadow pages of a region, for the context of the open file.
    Shadow(List<Run>),
    /// Registers of the context of the open file.
    Context,
    /// A status page.
    Status(Arc<StatusPage>),
    /// A page of descriptors.
    Queue(Arc<SharedPage>),
    /// A range of the own section of the window: node and byte offset.
    Inbound(u32, usize),
    /// A range of the section of a peer, and a page to replace it when it is revoked.
    Outbound(u32, usize, Arc<SharedPage>),
    /// A page for stores after the range was revoked, so that the end of the peer does not kill a
    /// writer.
    Sink(Arc<SharedPage>),
    /// The memory of this number, whose pages change while they are mapped.
    Memory(Arc<dyn Memories>, u32),
}

impl Backing {
    fn caching(&self, hw: &dyn Hardware) -> Caching {
        match self {
            Self::Shadow(_) | Self::Context => Caching::Uncached,
            Self::Status(_) | Self::Queue(_) | Self::Sink(_) | Self::Memory(..) => Caching::Normal,
            Self::Inbound(..) | Self::Outbound(..) if hw.geometry().window_cached => {
                Caching::Normal
            }
            Self::Inbound(..) | Self::Outbound(..) => params::window_caching(),
        }
    }

    fn notify(&self) -> Notify {
        match self {
            Self::Memory(..) => Notify::Writes,
            _ => Notify::Missing,
        }
    }

    /// Returns true if the pages depend on the context of the open file.
    fn is_of_context(&self) -> bool {
        matches!(self, Self::Shadow(_) | Self::Context)
    }

    /// Replaces a range of a peer by the page for stores.
    fn sink(&mut self) {
        if let Self::Outbound(_, _, page) = self {
            *self = Self::Sink(page.clone());
        }
    }

    /// Returns the frame of page `number`, which is the same as long as the context is.
    fn frame(&self, number: usize, context: Option<u32>, hw: &dyn Hardware) -> Option<usize> {
        match self {
            Self::Shadow(runs) => {
                let number = u32::try_from(number).ok()?;
                let after = runs.partition_point(|run| run.page <= number);
                let run = runs.get(after.checked_sub(1)?)?;
                let entry = run.first.checked_add(number - run.page)?;
                let context = context?;
                hw.frame(DevicePage::Shadow { context, entry })
            }
            Self::Context => hw.frame(DevicePage::Context(context?)),
            Self::Status(page) => Some(page.pfn()),
            Self::Inbound(node, offset) | Self::Outbound(node, offset, _) => {
                let offset = offset + (number << PAGE_SHIFT);
                hw.frame(DevicePage::Window(*node, offset))
            }
            Self::Queue(page) | Self::Sink(page) => Some(page.pfn()),
            Self::Memory(..) => None,
        }
    }
}

struct Range {
    pages: usize,
    open_file: u64,
    backing: Backing,
    writable: bool,
}

struct Ranges {
    by_page: RBTree<usize, Range>,
    /// The context of each open file with a virtual context; none while that is detached.
    contexts: RBTree<u64, Option<u32>>,
    /// First page of the next range.
    next: usize,
    /// The memory of the range that was removed last, for the next one.
    spare: Option<RBTreeNodeReservation<usize, Range>>,
}

/// All ranges of one device.
#[pin_data]
pub(crate) struct MmapOffsets {
    mapping: SharedMapping,
    #[pin]
    ranges: Mutex<Ranges>,
}

/// A range that can be mapped, until [`MmapOffsets::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmapRange {
    first: usize,
    pages: usize,
}

impl MmapRange {
    /// Returns the place in the range of file page `page`, if the range begins at `start`.
    pub(crate) fn place(&self, start: usize, page: usize) -> Option<usize> {
        let place = page.checked_sub(start)?;
        (start == self.first && place < self.pages).then_some(place)
    }

    /// Returns the numbers of those file pages that [have a place](Self::place).
    pub(crate) fn places(&self, start: usize, pages: ops::Range<usize>) -> ops::Range<usize> {
        if start != self.first {
            return 0..0;
        }
        let place = |page: usize| page.saturating_sub(start).min(self.pages);
        place(pages.start)..place(pages.end)
    }

    /// The `mmap()` offset of the range.
    pub(crate) fn offset(&self) -> u64 {
        (self.first as u64) << PAGE_SHIFT
    }

    /// Bytes of the range.
    pub(crate) fn length(&self) -> u64 {
        (self.pages as u64) << PAGE_SHIFT
    }
}

impl MmapOffsets {
    /// Creates an empty set of ranges.
    pub(crate) fn new() -> Result<impl PinInit<Self, Error>> {
        let mapping = SharedMapping::new()?;
        let ranges = Ranges {
            by_page: RBTree::new(),
            contexts: RBTree::new(),
            next: PAGES.start,
            spare: None,
        };
        Ok(try_pin_init!(Self {
            mapping,
            ranges <- new_mutex!(ranges, "uldma::MmapOffsets::ranges"),
        }))
    }

    /// The address space of all mappings.
    pub(crate) fn mapping(&self) -> &SharedMapping {
        &self.mapping
    }

    /// Adds a range of `pages` pages for `open_file`.
    pub(crate) fn add(
        &self,
        open_file: u64,
        pages: usize,
        backing: Backing,
        writable: bool,
    ) -> Result<MmapRange> {
        let range = Range {
            pages,
            open_file,
            backing,
            writable,
        };
        let mut ranges = self.ranges.lock();
        let first = ranges.next;
        let next = first.checked_add(pages).ok_or(ENOSPC)?;
        if next > PAGES.end {
            return Err(ENOSPC);
        }
        let node = match ranges.spare.take() {
            Some(spare) => spare,
            None => RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        };
        ranges.next = next;
        ranges.by_page.insert(node.into_node(first, range));
        Ok(MmapRange { first, pages })
    }

    /// Revokes a range of a peer's section, whose mmap range stays until it is removed. When this
    /// returns, stores do not reach the peer.
    pub(crate) fn revoke(&self, range: MmapRange) {
        let mut ranges = self.ranges.lock();
        if let Some(found) = ranges.by_page.get_mut(&range.first) {
            found.backing.sink();
        }
        drop(ranges);
        self.mapping.zap(range.offset(), range.length());
    }

    /// Removes a range: accesses to mappings of it fail with SIGBUS from now on.
    pub(crate) fn remove(&self, range: MmapRange) {
        let removed = self.ranges.lock().by_page.remove_node(&range.first);
        self.mapping.zap(range.offset(), range.length());
        // Backing pages may be freed only now that they are not mapped any more.
        if let Some(spare) = removed.map(RBTreeNode::into_reservation) {
            self.ranges.lock().spare = Some(spare);
        }
    }

    /// Adds a context of `open_file`, detached until [`MmapOffsets::move_context`].
    pub(crate) fn add_context(&self, open_file: u64) -> Result {
        let node = RBTreeNode::new(open_file, None, GFP_KERNEL_ACCOUNT)?;
        self.ranges.lock().contexts.insert(node);
        Ok(())
    }

    /// Sets the context of `open_file`, if it was added. Between two contexts it has to be set to
    /// none.
    pub(crate) fn move_context(&self, open_file: u64, context: Option<u32>) {
        if let Some(found) = self.ranges.lock().contexts.get_mut(&open_file) {
            *found = context;
        }
        // While detached nothing was mapped.
        if context.is_none() {
            self.zap_context(open_file);
        }
    }

    /// Removes the context of `open_file`, and unmaps all its shadow pages.
    pub(crate) fn remove_context(&self, open_file: u64) {
        self.ranges.lock().contexts.remove(&open_file);
        // Ranges stay valid for a later context; accesses fault meanwhile.
        self.zap_context(open_file);
    }

    /// Unmaps all pages of `open_file` that depend on its context.
    fn zap_context(&self, open_file: u64) {
        // Finds the next range anew each time, since zapping must not happen under the lock.
        let mut next = 0;
        while let Some(range) = self.of_context_from(open_file, next) {
            self.mapping.zap(range.offset(), range.length());
            next = range.first + range.pages;
        }
    }

    /// Returns the first range from file page `from` on that depends on the context of `open_file`.
    fn of_context_from(&self, open_file: u64, from: usize) -> Option<MmapRange> {
        let mut ranges = self.ranges.lock();
        let mut cursor = ranges.by_page.cursor_lower_bound_mut(&from)?;
        loop {
            let (first, range) = cursor.current();
            if range.open_file == open_file && range.backing.is_of_context() {
                return Some(MmapRange {
                    first: *first,
                    pages: range.pages,
                });
            }
            cursor = cursor.move_next()?;
        }
    }

    /// Checks a new mapping of `open_file`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the pages are not inside of one range of the open file, `ENXIO` for shadow pages
    /// without a context.
    pub(crate) fn check(
        &self,
        open_file: u64,
        hw: &dyn Hardware,
        first: usize,
        pages: usize,
    ) -> Result<MappingRights> {
        let ranges = self.ranges.lock();
        let (start, range) = ranges.containing(first).ok_or(EINVAL)?;
        let end = first.checked_add(pages).ok_or(EINVAL)?;
        if range.open_file != open_file || end > start + range.pages {
            return Err(EINVAL);
        }
        if matches!(range.backing, Backing::Shadow(_)) && ranges.contexts.get(&open_file).is_none()
        {
            return Err(ENXIO);
        }
        Ok(MappingRights {
            caching: range.backing.caching(hw),
            writable: range.writable,
            notify: range.backing.notify(),
        })
    }

    /// Serves a fault of `open_file`, or returns `Later` if its context has to be attached first.
    pub(crate) fn fault(
        &self,
        open_file: u64,
        hw: &dyn Hardware,
        fault: &Fault<'_>,
    ) -> Result<Served, FaultError> {
        let ranges = self.ranges.lock();
        let (start, range) = ranges.containing(fault.page()).ok_or(FaultError::Bus)?;
        if range.open_file != open_file {
            return Err(FaultError::Bus);
        }
        if let Backing::Memory(memories, memory) = &range.backing {
            let (memories, memory) = (memories.clone(), *memory);
            // The memory has a lock of its own.
            drop(ranges);
            memories.fault(memory, start, &self.mapping, fault)?;
            return Ok(Served::Now);
        }
        let context = match ranges.contexts.get(&open_file) {
            Some(None) if range.backing.is_of_context() => return Ok(Served::Later),
            Some(context) => *context,
            None => None,
        };
        let frame = range.backing.frame(fault.page() - start, context, hw);
        fault.insert(fault.page(), frame.ok_or(FaultError::Bus)?)?;
        Ok(Served::Now)
    }
}

impl Ranges {
    /// Returns the range that contains file page `page`.
    fn containing(&self, page: usize) -> Option<(usize, &Range)> {
        let found = match self.by_page.cursor_lower_bound(&page) {
            Some(cursor) if *cursor.current().0 == page => return self.at(page),
            Some(cursor) => cursor.peek_prev().map(|(first, _)| *first),
            None => self.by_page.cursor_back().map(|cursor| *cursor.current().0),
        }?;
        self.at(found)
            .filter(|(first, range)| page < first + range.pages)
    }

    fn at(&self, first: usize) -> Option<(usize, &Range)> {
        Some((first, self.by_page.get(&first)?))
    }
}

#[kunit_tests(uldma_mmap_range)]
mod tests {
    use super::*;

    /// A fault may come late: its memory has ended, and another one has its number.
    #[test]
    fn pages_of_an_earlier_range_have_no_place() {
        let range = MmapRange {
            first: 10,
            pages: 4,
        };
        assert_eq!(range.place(10, 10), Some(0));
        assert_eq!(range.place(10, 13), Some(3));
        assert_eq!(range.place(10, 14), None);
        assert_eq!(range.place(10, 9), None);
        assert_eq!(range.place(6, 10), None);
        assert_eq!(range.place(6, 8), None);
        assert_eq!(range.places(10, 11..13), 1..3);
        assert_eq!(range.places(10, 8..16), 0..4);
        assert!(range.places(10, 14..16).is_empty());
        assert!(range.places(6, 10..12).is_empty());
    }
}
