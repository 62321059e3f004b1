// SPDX-License-Identifier: GPL-2.0

//! The pin cache: unpinned ranges whose pages stay pinned, as they are likely to be pinned again.
//!
//! A range in the cache is a pinned range like any other: a new pin of the same memory finds its
//! areas in the map. [`evict`](super::evict) has what adds and evicts ranges.

use kernel::{
    page::PAGE_SHIFT,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    pinned_range::PinnedRange,
    range::PageRange,
    reclaim::Reclaimable, //
};

/// Limits of the pin cache of one address space.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) locks: usize,
    pub(crate) bytes: usize,
}

/// The pin cache of one address space.
pub(super) struct Cache {
    /// The ranges by the time when they were added.
    locks: RBTree<u64, PinnedRange>,
    count: usize,
    clock: u64,
    limits: Limits,
    /// Has the number of pages of all ranges; a page counts once for each range.
    reclaimable: Arc<Reclaimable>,
    /// Number of pages in all pin caches of the device.
    total: Arc<Atomic<usize>>,
}

impl Cache {
    pub(super) fn new(
        limits: Limits,
        reclaimable: Arc<Reclaimable>,
        total: Arc<Atomic<usize>>,
    ) -> Self {
        Self {
            locks: RBTree::new(),
            count: 0,
            clock: 0,
            limits,
            reclaimable,
            total,
        }
    }

    /// Returns the number of ranges.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of pages of all ranges; a page counts once for each range.
    pub(super) fn pages(&self) -> usize {
        self.reclaimable.pages.load(Relaxed)
    }

    /// Returns true if the cache exceeds its limits.
    pub(super) fn is_full(&self) -> bool {
        self.count > self.limits.locks || self.pages() > self.limits.bytes >> PAGE_SHIFT
    }

    /// Returns true if an empty cache would have room for `range`.
    pub(super) fn can_take(&self, range: PageRange) -> bool {
        self.limits.locks > 0 && range.len() <= self.limits.bytes >> PAGE_SHIFT
    }

    /// Adds a range.
    pub(super) fn put(
        &mut self,
        pinned: PinnedRange,
        room: RBTreeNodeReservation<u64, PinnedRange>,
    ) {
        let pages = pinned.range().len();
        self.clock += 1;
        self.count += 1;
        self.reclaimable.pages.fetch_add(pages, Relaxed);
        self.total.fetch_add(pages, Relaxed);
        self.locks.insert(room.into_node(self.clock, pinned));
    }

    /// Removes the range that was added at `time`.
    pub(super) fn take(&mut self, time: u64) -> Option<PinnedRange> {
        let pinned = self.locks.remove(&time)?;
        let pages = pinned.range().len();
        self.count -= 1;
        self.reclaimable.pages.fetch_sub(pages, Relaxed);
        self.total.fetch_sub(pages, Relaxed);
        Some(pinned)
    }

    /// Returns the time of the oldest range for which `condition` is true.
    pub(super) fn find(&self, condition: impl Fn(&PinnedRange) -> bool) -> Option<u64> {
        let mut locks = self.locks.iter();
        locks.find_map(|(time, pinned)| condition(pinned).then_some(*time))
    }
}
