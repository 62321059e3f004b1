// SPDX-License-Identifier: GPL-2.0

//! Offsets for mmap: file ranges of a device, and the pages that back them.
//!
//! Each range belongs to one open file and is unique in the device, so that removing a range finds
//! all its mappings. Faults insert pages under the lock of the ranges, so that none is inserted
//! after its range was removed. A [memory](Memories) inserts its pages under its own lock.
//!
//! Locks are taken in this order: 1. `mmap_lock` 2. `ranges`. Faults of all processes take `ranges`, so
//! nothing is allocated under it, and no search under it passes ranges of other open files.

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
        gate::Gate,
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
    /// A range of a section of the window: node and byte offset, and a page that replaces it when it is
    /// revoked.
    Window(u32, usize, Option<Arc<SharedPage>>),
    /// A page for accesses after the range was revoked, so that the end of the peer does not kill a
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
            Self::Window(..) if hw.geometry().window_cached => Caching::Normal,
            Self::Window(..) => params::window_caching(),
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

    /// Replaces a range of the window by its page.
    pub(crate) fn sink(&mut self) {
        if let Self::Window(_, _, Some(page)) = self {
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
            Self::Window(node, offset, _) => {
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
    backing: Backing,
    writable: bool,
}

/// The place of a range among those of all open files: a search for one of an open file, or for all that
/// depend on its context, passes no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RangeKey {
    open_file: u64,
    is_of_context: bool,
    first: usize,
}

/// Memory for one range.
pub(crate) struct RangeRoom(RBTreeNodeReservation<RangeKey, Range>);

struct Ranges {
    by_key: RBTree<RangeKey, Range>,
    /// The context of each open file with a virtual context; none while that is detached.
    contexts: RBTree<u64, Option<u32>>,
    /// First page of the next range.
    next: usize,
    /// The memory of the range that was removed last, for the next one.
    spare: Option<RangeRoom>,
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
    key: RangeKey,
    pages: usize,
}

impl MmapRange {
    /// Returns the place in the range of file page `page`, if the range begins at `start`.
    pub(crate) fn place(&self, start: usize, page: usize) -> Option<usize> {
        let place = page.checked_sub(start)?;
        (start == self.key.first && place < self.pages).then_some(place)
    }

    /// Returns the numbers of those file pages that [have a place](Self::place).
    pub(crate) fn places(&self, start: usize, pages: ops::Range<usize>) -> ops::Range<usize> {
        if start != self.key.first {
            return 0..0;
        }
        let place = |page: usize| page.saturating_sub(start).min(self.pages);
        place(pages.start)..place(pages.end)
    }

    /// The `mmap()` offset of the range.
    pub(crate) fn offset(&self) -> u64 {
        (self.key.first as u64) << PAGE_SHIFT
    }

    /// Pages of the range.
    pub(crate) fn pages(&self) -> usize {
        self.pages
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
        Ok(try_pin_init!(Self {
            mapping,
            ranges <- new_mutex!(Ranges::new(), "uldma::MmapOffsets::ranges"),
        }))
    }

    /// The address space of all mappings.
    pub(crate) fn mapping(&self) -> &SharedMapping {
        &self.mapping
    }

    /// Adds a range of `pages` pages for `open_file`.
    ///
    /// The object whose range this is has a share in the ledger.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC` if all file pages are used up.
    pub(crate) fn add(
        &self,
        open_file: u64,
        pages: usize,
        backing: Backing,
        writable: bool,
    ) -> Result<MmapRange> {
        let room = self.room()?;
        self.insert(room, open_file, pages, backing, writable)
    }

    /// Returns room for a range. It is charged to no process, since callers are inside of the gate.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn room(&self) -> Result<RangeRoom> {
        let spare = self.ranges.lock().spare.take();
        match spare {
            Some(room) => Ok(room),
            None => Ok(RangeRoom(RBTreeNodeReservation::new(GFP_KERNEL)?)),
        }
    }

    /// Adds a range as [`MmapOffsets::add`] does, without allocating memory.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all file pages are used up.
    pub(crate) fn insert(
        &self,
        room: RangeRoom,
        open_file: u64,
        pages: usize,
        backing: Backing,
        writable: bool,
    ) -> Result<MmapRange> {
        self.ranges
            .lock()
            .insert(room, open_file, pages, backing, writable)
    }

    /// Revokes a range of the window, whose mmap range stays until it is removed. When this returns, no
    /// access reaches the window.
    pub(crate) fn revoke(&self, range: MmapRange) {
        let mut ranges = self.ranges.lock();
        if let Some(found) = ranges.by_key.get_mut(&range.key) {
            found.backing.sink();
        }
        drop(ranges);
        self.mapping.zap(range.offset(), range.length());
    }

    /// Removes a range: accesses to mappings of it fail with SIGBUS from now on.
    pub(crate) fn remove(&self, range: MmapRange) {
        let removed = self.ranges.lock().by_key.remove_node(&range.key);
        self.mapping.zap(range.offset(), range.length());
        // Backing pages may be freed only now that they are not mapped any more.
        if let Some(spare) = removed.map(RBTreeNode::into_reservation) {
            let before = self.ranges.lock().spare.replace(RangeRoom(spare));
            drop(before);
        }
    }

    /// Adds a context of `open_file`, detached until [`MmapOffsets::set_context`].
    pub(crate) fn add_context(&self, open_file: u64) -> Result {
        let node = RBTreeNode::new(open_file, None, GFP_KERNEL)?;
        self.ranges.lock().contexts.insert(node);
        Ok(())
    }

    /// Sets the context of `open_file`, if it was added. Faults insert no pages of its context while there
    /// is none; those of the last one have to be [unmapped](Self::zap_context) before the next one is set.
    pub(crate) fn set_context(&self, open_file: u64, context: Option<u32>) {
        if let Some(found) = self.ranges.lock().contexts.get_mut(&open_file) {
            *found = context;
        }
    }

    /// Removes the context of `open_file`, and unmaps all its shadow pages.
    pub(crate) fn remove_context(&self, open_file: u64) {
        self.ranges.lock().contexts.remove(&open_file);
        // Ranges stay valid for a later context; accesses fault meanwhile.
        self.zap_context(open_file);
    }

    /// Unmaps all pages of `open_file` that depend on its context. Waits for the locks of its mappings.
    pub(crate) fn zap_context(&self, open_file: u64) {
        // Finds the next range anew each time, since zapping must not happen under the lock.
        let mut next = 0;
        let find = |from| self.ranges.lock().of_context_from(open_file, from);
        while let Some(range) = find(next) {
            self.mapping.zap(range.offset(), range.length());
            next = range.key.first + range.pages;
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
        let (start, range) = ranges.containing(open_file, first).ok_or(EINVAL)?;
        let end = first.checked_add(pages).ok_or(EINVAL)?;
        if end > start + range.pages {
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
    ///
    /// Pages of the device are inserted inside of `gate`. A [memory](Memories), whose process may wait
    /// for a page that it pays for, needs no device: it ends when the device is unbound.
    pub(crate) fn fault(
        &self,
        open_file: u64,
        gate: &Gate,
        fault: &Fault<'_>,
    ) -> Result<Served, FaultError> {
        let ranges = self.ranges.lock();
        let found = ranges.containing(open_file, fault.page());
        let (start, range) = found.ok_or(FaultError::Bus)?;
        if let Backing::Memory(memories, memory) = &range.backing {
            let (memories, memory) = (memories.clone(), *memory);
            // The memory has a lock of its own.
            drop(ranges);
            memories.fault(memory, start, &self.mapping, fault)?;
            return Ok(Served::Now);
        }
        let guard = gate.enter().ok_or(FaultError::Bus)?;
        let context = match ranges.contexts.get(&open_file) {
            Some(None) if range.backing.is_of_context() => return Ok(Served::Later),
            Some(context) => *context,
            None => None,
        };
        let hw: &dyn Hardware = &**guard.behind();
        let frame = range.backing.frame(fault.page() - start, context, hw);
        fault.insert(fault.page(), frame.ok_or(FaultError::Bus)?)?;
        Ok(Served::Now)
    }
}

impl Ranges {
    fn new() -> Self {
        Self {
            by_key: RBTree::new(),
            contexts: RBTree::new(),
            next: PAGES.start,
            spare: None,
        }
    }

    fn insert(
        &mut self,
        room: RangeRoom,
        open_file: u64,
        pages: usize,
        backing: Backing,
        writable: bool,
    ) -> Result<MmapRange> {
        let key = RangeKey {
            open_file,
            is_of_context: backing.is_of_context(),
            first: self.next,
        };
        let next = key.first.checked_add(pages).ok_or(ENOSPC)?;
        if next > PAGES.end {
            return Err(ENOSPC);
        }
        self.next = next;
        let range = Range {
            pages,
            backing,
            writable,
        };
        self.by_key.insert(room.0.into_node(key, range));
        Ok(MmapRange { key, pages })
    }

    /// Returns the range of `open_file` that contains file page `page`.
    fn containing(&self, open_file: u64, page: usize) -> Option<(usize, &Range)> {
        let of_kind = |is_of_context| {
            let key = RangeKey {
                open_file,
                is_of_context,
                first: page,
            };
            let found = match self.by_key.cursor_lower_bound(&key) {
                Some(cursor) if *cursor.current().0 == key => Some(key),
                Some(cursor) => cursor.peek_prev().map(|(before, _)| *before),
                None => self.by_key.cursor_back().map(|cursor| *cursor.current().0),
            }?;
            let range = self.by_key.get(&found)?;
            let is_there = (found.open_file, found.is_of_context) == (open_file, is_of_context)
                && page < found.first + range.pages;
            is_there.then_some((found.first, range))
        };
        of_kind(false).or_else(|| of_kind(true))
    }

    /// Returns the first range of `open_file` from file page `from` on that depends on its context.
    fn of_context_from(&self, open_file: u64, from: usize) -> Option<MmapRange> {
        let cursor = self.by_key.cursor_lower_bound(&RangeKey {
            open_file,
            is_of_context: true,
            first: from,
        })?;
        let (key, range) = cursor.current();
        (key.open_file == open_file && key.is_of_context).then_some(MmapRange {
            key: *key,
            pages: range.pages,
        })
    }
}

#[kunit_tests(uldma_mmap_range)]
mod tests {
    use super::*;

    /// A fault may come late: its memory has ended, and another one has its number.
    #[test]
    fn pages_of_an_earlier_range_have_no_place() {
        let key = RangeKey {
            open_file: 1,
            is_of_context: false,
            first: 10,
        };
        let range = MmapRange { key, pages: 4 };
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

    /// Adds ranges of pages by turns: two of the context of each open file, and one beside it.
    fn ranges(files: &[u64]) -> Result<Ranges> {
        let mut ranges = Ranges::new();
        let kinds: [(fn() -> Backing, usize); 3] = [
            (|| Backing::Context, 2),
            (|| Backing::Window(0, 0, None), 3),
            (|| Backing::Context, 1),
        ];
        for (backing, pages) in kinds {
            for file in files {
                let room = RangeRoom(RBTreeNodeReservation::new(GFP_KERNEL)?);
                ranges.insert(room, *file, pages, backing(), true)?;
            }
        }
        Ok(ranges)
    }

    #[test]
    fn a_search_for_ranges_of_a_context_finds_no_others() -> Result {
        let ranges = ranges(&[1, 2, 3])?;
        let first = |file, from| Some(ranges.of_context_from(file, from)?.key.first);
        for (file, before, after) in [(1, 1, 16), (2, 3, 17), (3, 5, 18)] {
            assert_eq!(first(file, 0), Some(before));
            assert_eq!(first(file, before + 2), Some(after));
            assert_eq!(first(file, after + 1), None);
        }
        assert_eq!(first(0, 0), None);
        assert_eq!(first(4, 0), None);
        Ok(())
    }

    #[test]
    fn an_open_file_finds_its_own_pages_only() -> Result {
        let ranges = ranges(&[1, 2, 3])?;
        let start = |file, page| Some(ranges.containing(file, page)?.0);
        for (file, starts) in [(1, [1, 7, 16]), (2, [3, 10, 17]), (3, [5, 13, 18])] {
            let pages = (0..20).filter(|page| start(file, *page).is_some());
            assert_eq!(pages.count(), 6);
            for (first, last) in starts.into_iter().zip([1, 2, 0]) {
                assert_eq!(start(file, first), Some(first));
                assert_eq!(start(file, first + last), Some(first));
            }
        }
        assert_eq!(start(4, 1), None);
        Ok(())
    }
}
