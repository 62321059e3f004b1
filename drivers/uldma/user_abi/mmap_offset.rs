// SPDX-License-Identifier: GPL-2.0

//! What processes can map: file ranges of a device, and the device pages behind them.
//!
//! Every range belongs to one open file and is unique in the device, so that removing one range
//! reaches all its mappings. Pages are put in by faults, under the lock that guards the ranges, so
//! that none can slip in after a range was removed.
//!
//! Lock order: `mmap_lock`, then `ranges`. Nothing that takes `mmap_lock` is called under `ranges`.

use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
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
            Served, //
        }, //
    },
    user_abi::status_page::StatusPage, //
};

/// File pages that ranges are taken from, one after the other: a number is never used twice, since
/// a process can keep a mapping of a range that is gone.
const PAGES: core::ops::Range<usize> = 1..1 << 50;

/// What is behind a range.
pub(crate) enum Backing {
    /// Shadow pages of a region, seen through the open file's context.
    Shadow(List<Run>),
    /// The registers of the open file's context.
    Context,
    /// A status page.
    Status(Arc<StatusPage>),
    /// A page of descriptors.
    Queue(Arc<SharedPage>),
    /// A part of the own section of the window: its node, and the byte offset.
    Inbound(u32, usize),
    /// A part of the section of a peer, and a page to take its place when the peer takes the part
    /// back.
    Outbound(u32, usize, Arc<SharedPage>),
    /// A page for stores that lead nowhere, so that the peer's end does not kill who is still
    /// writing.
    Sink(Arc<SharedPage>),
}

impl Backing {
    fn caching(&self, hw: &dyn Hardware) -> Caching {
        match self {
            Self::Shadow(_) | Self::Context => Caching::Uncached,
            Self::Status(_) | Self::Queue(_) | Self::Sink(_) => Caching::Normal,
            Self::Inbound(..) | Self::Outbound(..) if hw.geometry().window_cached => {
                Caching::Normal
            }
            Self::Inbound(..) | Self::Outbound(..) => Caching::WriteCombine,
        }
    }

    /// Whether this is seen through the open file's context.
    fn is_of_context(&self) -> bool {
        matches!(self, Self::Shadow(_) | Self::Context)
    }

    /// Lets an outbound part lead nowhere.
    fn sink(&mut self) {
        if let Self::Outbound(_, _, page) = self {
            *self = Self::Sink(page.clone());
        }
    }

    /// Frame of page `number`.
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
    /// The context of each open file that has one; none while the device has no registers for it.
    contexts: RBTree<u64, Option<u32>>,
    /// First page of the next range.
    next: usize,
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
        let node = kernel::rbtree::RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut ranges = self.ranges.lock();
        let first = ranges.next;
        let next = first.checked_add(pages).ok_or(ENOSPC)?;
        if next > PAGES.end {
            return Err(ENOSPC);
        }
        ranges.next = next;
        ranges.by_page.insert(node.into_node(first, range));
        Ok(MmapRange { first, pages })
    }

    /// Takes a part of a peer's section away from behind a range, which stays until it is
    /// removed; stores lead nowhere when this returns.
    pub(crate) fn revoke(&self, range: MmapRange) {
        let mut ranges = self.ranges.lock();
        if let Some(found) = ranges.by_page.get_mut(&range.first) {
            found.backing.sink();
        }
        drop(ranges);
        self.mapping.zap(range.offset(), range.length());
    }

    /// Removes a range: touching a mapping of it is a bus error from now on.
    pub(crate) fn remove(&self, range: MmapRange) {
        let removed = self.ranges.lock().by_page.remove(&range.first);
        self.mapping.zap(range.offset(), range.length());
        // Pages of the content may only go now that nobody has them mapped.
        drop(removed);
    }

    /// Lets `open_file` have a context, through which its shadow pages are seen, once
    /// [`MmapOffsets::move_context`] has said which.
    pub(crate) fn add_context(&self, open_file: u64) -> Result {
        let node = RBTreeNode::new(open_file, None, GFP_KERNEL_ACCOUNT)?;
        self.ranges.lock().contexts.insert(node);
        Ok(())
    }

    /// Says which context `open_file` has from now on, if [`MmapOffsets::add_context`] let it have any: another
    /// one only after none.
    pub(crate) fn move_context(&self, open_file: u64, context: Option<u32>) {
        if let Some(found) = self.ranges.lock().contexts.get_mut(&open_file) {
            *found = context;
        }
        // Without a context nothing was mapped.
        if context.is_none() {
            self.zap_context(open_file);
        }
    }

    /// Takes the context of `open_file` away, and with it all shadow pages.
    pub(crate) fn remove_context(&self, open_file: u64) {
        self.ranges.lock().contexts.remove(&open_file);
        // Ranges stay valid for a later context; who touches a page faults in the meantime.
        self.zap_context(open_file);
    }

    /// Empties all mappings of `open_file` that are seen through its context.
    fn zap_context(&self, open_file: u64) {
        // The next range is looked up anew each time, since zapping cannot happen under the lock.
        let mut next = 0;
        while let Some(range) = self.of_context_from(open_file, next) {
            self.mapping.zap(range.offset(), range.length());
            next = range.first + range.pages;
        }
    }

    /// The first range from file page `from` on that is seen through the context of `open_file`.
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

    /// Checks a mapping that `open_file` wants to make.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the pages are not inside of one range of the open file, `ENXIO` for shadow pages
    /// while it has no context.
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
        })
    }

    /// Serves a fault of `open_file`; later when it has to get registers for its context before.
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
        let context = match ranges.contexts.get(&open_file) {
            Some(None) if range.backing.is_of_context() => return Ok(Served::Later),
            Some(context) => *context,
            None => None,
        };
        let frame = range.backing.frame(fault.page() - start, context, hw);
        fault.insert(frame.ok_or(FaultError::Bus)?)?;
        Ok(Served::Now)
    }
}

impl Ranges {
    /// The range that file page `page` is in.
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
