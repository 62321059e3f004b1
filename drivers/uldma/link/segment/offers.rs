// SPDX-License-Identifier: GPL-2.0

//! The offers of segments, and the ranges of ended segments that have some outstanding.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::{
    hw::layout::MAX_NODES,
    kernel_ext::nospec,
    link::window_alloc::WindowRange, //
};

/// Offers by peer. For a reader: the outstanding ones. For a writer: one while the mapping is
/// valid.
pub(super) struct Offers([Atomic<u32>; MAX_NODES]);

impl Offers {
    /// Creates those of a reader, or those of a writer that is attached to a segment of `peer`.
    pub(super) fn of(peer: Option<u32>) -> Self {
        let offers = Self([const { Atomic::new(0) }; MAX_NODES]);
        if let Some(peer) = peer {
            offers.set(peer, 1);
        }
        offers
    }

    /// Returns those of `peer`.
    pub(super) fn get(&self, peer: u32) -> u32 {
        let place = usize::try_from(peer).ok();
        let offers = place.and_then(|place| nospec::get(&self.0, place));
        offers.map_or(0, |offers| offers.load(Relaxed))
    }

    /// Sets those of `peer`.
    pub(super) fn set(&self, peer: u32, count: u32) {
        let place = usize::try_from(peer).ok();
        if let Some(offers) = place.and_then(|place| nospec::get(&self.0, place)) {
            offers.store(count, Relaxed);
        }
    }

    /// Returns true if there are none.
    pub(super) fn are_none(&self) -> bool {
        self.0.iter().all(|offers| offers.load(Relaxed) == 0)
    }
}

/// The range of an ended segment, and its outstanding offers.
struct LeavingRange {
    window: WindowRange,
    offers: Offers,
}

/// Memory for one range that is leaving.
pub(super) struct LeavingRoom(RBTreeNodeReservation<usize, LeavingRange>);

impl LeavingRoom {
    /// Allocates it, when the segment is made: its end must not fail.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Ranges of ended segments that are leaving, by first byte.
pub(super) struct Leaving(RBTree<usize, LeavingRange>);

impl Leaving {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }

    /// Adds a range that has the outstanding offers of `ended`.
    pub(super) fn insert(&mut self, room: LeavingRoom, window: WindowRange, ended: &Offers) {
        let offers = Offers(
            ended
                .0
                .each_ref()
                .map(|offers| Atomic::new(offers.load(Relaxed))),
        );
        let range = LeavingRange { window, offers };
        self.0.insert(room.0.into_node(window.offset(), range));
    }

    /// Takes `count` offers to `peer` of the range at `offset` back. Returns the range if there are
    /// none left, to be freed.
    pub(super) fn left(&mut self, peer: u32, offset: usize, count: u32) -> Option<WindowRange> {
        let LeavingRange { window, offers } = self.0.get(&offset)?;
        let window = *window;
        offers.set(peer, offers.get(peer).saturating_sub(count));
        if !offers.are_none() {
            return None;
        }
        self.0.remove(&offset);
        Some(window)
    }

    /// Takes all offers to `peer` back, and calls `free` with each range that has none left.
    pub(super) fn all_left(&mut self, peer: u32, free: impl Fn(WindowRange)) {
        let mut next = 0;
        while let Some(offset) = self.next(next) {
            if let Some(window) = self.left(peer, offset, u32::MAX) {
                free(window);
            }
            next = offset + 1;
        }
    }

    /// Returns the first byte of the first range from byte `from` on.
    fn next(&self, from: usize) -> Option<usize> {
        let cursor = self.0.cursor_lower_bound(&from)?;
        Some(*cursor.current().0)
    }
}

#[kunit_tests(uldma_segment_offers)]
mod tests {
    use core::cell::Cell;

    use kernel::page::PAGE_SIZE;

    use super::*;
    use crate::link::area::CHANNEL_SIZE;

    fn leaving(counts: &[(u32, u32)]) -> Result<(Leaving, KVec<WindowRange>)> {
        let mut leaving = Leaving::new();
        let mut windows = KVec::new();
        for (place, (first, second)) in counts.iter().enumerate() {
            let offset = CHANNEL_SIZE + place * PAGE_SIZE;
            let window = WindowRange::new(offset, PAGE_SIZE).ok_or(EINVAL)?;
            let offers = Offers::of(None);
            offers.set(1, *first);
            offers.set(2, *second);
            leaving.insert(LeavingRoom::new()?, window, &offers);
            windows.push(window, GFP_KERNEL)?;
        }
        Ok((leaving, windows))
    }

    #[test]
    fn a_range_is_free_when_all_peers_have_left() -> Result {
        let (mut leaving, windows) = leaving(&[(2, 1), (1, 0)])?;
        let [first, second] = windows[..] else {
            return Err(EINVAL);
        };
        assert_eq!(leaving.left(1, first.offset(), 5), None);
        assert_eq!(leaving.left(1, second.offset() + 1, 1), None);
        assert_eq!(leaving.left(1, second.offset(), 1), Some(second));
        assert_eq!(leaving.left(2, first.offset(), 1), Some(first));
        assert_eq!(leaving.left(2, first.offset(), 1), None);
        Ok(())
    }

    #[test]
    fn a_peer_leaves_all_ranges_at_once() -> Result {
        let (mut leaving, _) = leaving(&[(1, 0), (3, 1), (7, 0)])?;
        let freed = Cell::new(0);
        leaving.all_left(1, |_| freed.set(freed.get() + 1));
        assert_eq!(freed.get(), 2);
        leaving.all_left(2, |_| freed.set(freed.get() + 1));
        assert_eq!(freed.get(), 3);
        Ok(())
    }
}
