// SPDX-License-Identifier: GPL-2.0

//! Segments by place, so that no search passes those of other places.
//!
//! Peers and interrupts name segments by doorbell, by the node whose section they are in, and by where
//! they begin there. The doorbell follows from the beginning, so one order serves all three.

use core::ops::ControlFlow;

use kernel::{
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

use crate::hw::SegmentDoorbells;

/// The place of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Its doorbell bit.
    doorbell: u32,
    /// The node whose section it is in.
    node: u32,
    /// Its first byte in the section.
    offset: usize,
    /// Tells apart those that are attached to the same one.
    number: u64,
}

impl Place {
    /// Returns the place of segment `number` at byte `offset` of the section of `node`.
    pub(super) fn new(node: u32, offset: usize, number: u64) -> Self {
        Self {
            doorbell: SegmentDoorbells::of_page(offset >> PAGE_SHIFT).bits(),
            node,
            offset,
            number,
        }
    }
}

/// Memory for one segment.
pub(super) struct Room<T>(RBTreeNodeReservation<Place, T>);

impl<T> Room<T> {
    /// Allocates it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Segments `T` by place.
pub(super) struct ByPlace<T>(RBTree<Place, T>);

impl<T> ByPlace<T> {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }

    /// Adds a segment.
    pub(super) fn insert(&mut self, room: Room<T>, place: Place, segment: T) {
        self.0.insert(room.0.into_node(place, segment));
    }

    /// Removes a segment.
    pub(super) fn remove(&mut self, place: &Place) {
        self.0.remove(place);
    }

    /// Calls `each` with the segments from `first` on until it breaks.
    fn scan(&mut self, first: Place, mut each: impl FnMut(&Place, &T) -> ControlFlow<()>) {
        let mut next = self.0.cursor_lower_bound_mut(&first);
        while let Some(cursor) = next {
            let (place, segment) = cursor.current();
            if each(place, segment).is_break() {
                return;
            }
            next = cursor.move_next();
        }
    }

    /// Calls `each` with the segments at byte `offset` of the section of `node`.
    pub(super) fn at(&mut self, node: u32, offset: usize, mut each: impl FnMut(&T)) {
        self.scan(Place::new(node, offset, 0), |place, segment| {
            if (place.node, place.offset) != (node, offset) {
                return ControlFlow::Break(());
            }
            each(segment);
            ControlFlow::Continue(())
        });
    }

    /// Calls `each` with the segments in the section of `node`.
    pub(super) fn of_node(&mut self, node: u32, mut each: impl FnMut(&T)) {
        self.of_doorbells(SegmentDoorbells::ALL, Some(node), &mut each);
    }

    /// Calls `each` with the segments of which one of `doorbells` is the doorbell.
    pub(super) fn rung(&mut self, doorbells: SegmentDoorbells, mut each: impl FnMut(&T)) {
        self.of_doorbells(doorbells, None, &mut each);
    }

    fn of_doorbells(
        &mut self,
        doorbells: SegmentDoorbells,
        node: Option<u32>,
        each: &mut impl FnMut(&T),
    ) {
        let mut left = doorbells.bits();
        while left != 0 {
            let doorbell = left & left.wrapping_neg();
            left &= !doorbell;
            let first = Place {
                doorbell,
                node: node.unwrap_or(0),
                offset: 0,
                number: 0,
            };
            self.scan(first, |place, segment| {
                if place.doorbell != doorbell || node.is_some_and(|node| place.node != node) {
                    return ControlFlow::Break(());
                }
                each(segment);
                ControlFlow::Continue(())
            });
        }
    }
}

#[kunit_tests(uldma_segment_places)]
mod tests {
    use kernel::page::PAGE_SIZE;

    use super::*;

    /// Pages after which the same doorbell comes again.
    const AGAIN: usize = 31;

    fn places() -> Result<ByPlace<u64>> {
        let mut places = ByPlace::new();
        for (number, (node, page)) in [(0, 40), (1, 40), (1, 41), (1, 40), (2, 40), (1, 40 + AGAIN)]
            .into_iter()
            .enumerate()
        {
            let number = u64::try_from(number)?;
            let place = Place::new(node, page * PAGE_SIZE, number);
            places.insert(Room::new()?, place, number);
        }
        Ok(places)
    }

    /// Returns the sum of `1 << number` of the segments that `search` finds.
    fn found(search: impl FnOnce(&mut dyn FnMut(&u64))) -> u64 {
        let mut found = 0;
        search(&mut |number| found |= 1 << number);
        found
    }

    #[test]
    fn all_at_one_place_are_found_and_no_others() -> Result {
        let mut places = places()?;
        for (node, page, expected) in [
            (1, 40, 0b1010),
            (1, 40 + AGAIN, 0b100000),
            (0, 40, 0b1),
            (0, 41, 0),
            (3, 40, 0),
        ] {
            let at = found(|each| places.at(node, page * PAGE_SIZE, each));
            assert_eq!(at, expected);
        }
        places.remove(&Place::new(1, 40 * PAGE_SIZE, 3));
        assert_eq!(found(|each| places.at(1, 40 * PAGE_SIZE, each)), 0b10);
        Ok(())
    }

    #[test]
    fn a_node_has_its_own() -> Result {
        let mut places = places()?;
        let mut of_node = |node| found(|each| places.of_node(node, each));
        assert_eq!(of_node(0), 0b1);
        assert_eq!(of_node(1), 0b101110);
        assert_eq!(of_node(2), 0b10000);
        assert_eq!(of_node(3), 0);
        Ok(())
    }

    #[test]
    fn a_doorbell_has_its_own() -> Result {
        let mut places = places()?;
        let mut rung = |doorbells| found(|each| places.rung(doorbells, each));
        assert_eq!(rung(SegmentDoorbells::of_page(40)), 0b111011);
        assert_eq!(rung(SegmentDoorbells::of_page(41)), 0b100);
        assert_eq!(rung(SegmentDoorbells::of_page(42)), 0);
        assert_eq!(rung(SegmentDoorbells::ALL), 0b111111);
        Ok(())
    }
}
