// SPDX-License-Identifier: GPL-2.0

//! The allocator of this node's section of the window, and the shares that are paid for it.
//!
//! A range lies in the lane of one peer, the only node that can write it. If that peer may still do so
//! when the use of the range ends, the range is *quarantined*: it is freed when the peer has given it
//! back, or has begun a new session, before which it revokes all that it had.

use core::ops::Range;

use kernel::{
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use super::{
    lane::Lane,
    quarantine::{
        Hold,
        Quarantine, //
    },
    window_range::WindowRange, //
};
use crate::{
    hw::{
        layout::MAX_NODES,
        Geometry, //
    },
    kernel_ext::{
        nospec,
        range_alloc::RangeAllocator, //
    },
    user_abi::ledger::{
        Payer,
        Resource,
        Share, //
    }, //
};

/// The payer of a user, and that of the peer if the peer has asked.
pub(crate) type Payers<'a> = (&'a Arc<Payer>, Option<&'a Arc<Payer>>);

/// Allocates ranges of the lanes of the own section.
#[pin_data]
pub(crate) struct WindowAllocator {
    /// Where pages can be allocated, by peer.
    lanes: [Range<usize>; MAX_NODES],
    used: Atomic<usize>,
    #[pin]
    pages_alloc: RangeAllocator,
    #[pin]
    ranges: Mutex<Ranges>,
}

/// An allocated range.
struct Allocated {
    pages: usize,
    /// Those of a user, and perhaps of a peer.
    _shares: (Share, Option<Share>),
    /// Set when it is quarantined.
    hold: Option<Hold>,
}

/// The allocated ranges, by their first pages.
struct Ranges {
    used: RBTree<usize, Allocated>,
    /// Apart from the others, so that a tick passes no range in use.
    quarantined: RBTree<usize, Allocated>,
}

/// Returns the pages of the lane of `peer` that can be allocated; none if there is no such peer.
fn pages_of(geometry: &Geometry, peer: usize) -> Range<usize> {
    let lane = u32::try_from(peer).map_err(|_| EINVAL);
    match lane.and_then(|peer| Lane::inbound(geometry, peer)) {
        Ok(lane) => lane.ranges().start >> PAGE_SHIFT..lane.ranges().end >> PAGE_SHIFT,
        Err(_) => 0..0,
    }
}

impl WindowAllocator {
    /// Creates an allocator for the own section.
    pub(crate) fn new(geometry: &Geometry) -> impl PinInit<Self> {
        Self::of(core::array::from_fn(|peer| pages_of(geometry, peer)))
    }

    fn of(lanes: [Range<usize>; MAX_NODES]) -> impl PinInit<Self> {
        let ranges = Ranges {
            used: RBTree::new(),
            quarantined: RBTree::new(),
        };
        pin_init!(Self {
            lanes,
            used: Atomic::new(0),
            pages_alloc <- RangeAllocator::new(),
            ranges <- new_mutex!(ranges, "uldma::WindowAllocator::ranges"),
        })
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed) << PAGE_SHIFT
    }

    /// Allocates a range of at least `length` bytes that `writer` can write. The first payer pays until
    /// it is freed, and the second too, the peer that has asked for it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero bytes, or no such peer, `ENOSPC` without room, `ENOMEM`, `EDQUOT` beyond the
    /// limits of the user or the peer.
    pub(crate) fn alloc(
        &self,
        writer: u32,
        (payer, peer): Payers<'_>,
        length: u64,
    ) -> Result<WindowRange> {
        let place = usize::try_from(writer)?;
        let lane = nospec::get(&self.lanes, place).ok_or(EINVAL)?.clone();
        let length = usize::try_from(length).map_err(|_| ENOSPC)?;
        let pages = length.div_ceil(PAGE_SIZE);
        if pages == 0 {
            return Err(EINVAL);
        }
        // A range that never fits is not a matter of limits.
        if pages > lane.len() {
            return Err(ENOSPC);
        }
        let share = |payer| Share::new(payer, Resource::Window, pages << PAGE_SHIFT);
        let shares = (share(payer)?, peer.map(share).transpose()?);
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let page = self.pages_alloc.take(pages, lane)?;
        self.used.fetch_add(pages, Relaxed);
        let allocated = Allocated {
            pages,
            _shares: shares,
            hold: None,
        };
        let node = reserved.into_node(page, allocated);
        self.ranges.lock().used.insert(node);
        Ok(WindowRange::of_pages(page, pages))
    }

    /// Frees a range in use, which no peer writes any more.
    pub(crate) fn free(&self, range: WindowRange) {
        // Before the next range can begin there.
        let allocated = self.ranges.lock().used.remove(&range.first_page());
        self.give_back(range.first_page(), allocated);
    }

    /// Ends the use of a range: quarantines it if `hold` returns what its peer holds of it, or frees it.
    ///
    /// `hold` is called under the lock that [`WindowAllocator::peer_began`] takes for each range.
    pub(crate) fn end(&self, range: WindowRange, hold: impl FnOnce() -> Option<Hold>) {
        let allocated = {
            let mut ranges = self.ranges.lock();
            let Ranges { used, quarantined } = &mut *ranges;
            match (hold(), used.get_mut(&range.first_page())) {
                (Some(hold), Some(allocated)) => {
                    allocated.hold = Some(hold);
                    if let Some(node) = used.remove_node(&range.first_page()) {
                        quarantined.insert(node);
                    }
                    return;
                }
                (None, Some(_)) => used.remove(&range.first_page()),
                (_, None) => None,
            }
        };
        self.give_back(range.first_page(), allocated);
    }

    /// Takes back `count` holds of `peer` of the quarantined range at byte `offset`, if there is one.
    pub(crate) fn given_back(&self, peer: u32, offset: usize, count: u32) {
        if offset % PAGE_SIZE == 0 {
            let page = offset >> PAGE_SHIFT;
            let allocated = self.ranges.lock().given_back(peer, page, count);
            self.give_back(page, allocated);
        }
    }

    /// Takes back everything that `peer` holds, since it began a new session.
    pub(crate) fn peer_began(&self, peer: u32) {
        let mut from = 0;
        loop {
            let (page, allocated) = {
                let mut ranges = self.ranges.lock();
                let Some(page) = ranges.next_quarantined(from) else {
                    return;
                };
                (page, ranges.given_back(peer, page, u32::MAX))
            };
            // Without the lock, since the shares have one.
            self.give_back(page, allocated);
            from = page + 1;
        }
    }

    /// Counts a tick for everything that peers hold.
    pub(crate) fn tick(&self) {
        for allocated in self.ranges.lock().quarantined.values_mut() {
            if let Some(hold) = &mut allocated.hold {
                hold.tick();
            }
        }
    }

    /// Adds the quarantined ranges to `held`.
    pub(crate) fn add_to(&self, held: &mut Quarantine) {
        for Allocated { pages, hold, .. } in self.ranges.lock().quarantined.values() {
            if let Some(hold) = hold {
                hold.add_to(held, *pages << PAGE_SHIFT);
            }
        }
    }

    /// Gives the pages of a range that was removed back, then its shares.
    fn give_back(&self, page: usize, allocated: Option<Allocated>) {
        if let Some(allocated) = allocated {
            if self.pages_alloc.give_back(page) {
                self.used.fetch_sub(allocated.pages, Relaxed);
            }
        }
    }
}

impl Ranges {
    /// Takes back holds of the quarantined range at `page`. Removes and returns it if there are none
    /// left.
    fn given_back(&mut self, peer: u32, page: usize, count: u32) -> Option<Allocated> {
        let hold = self.quarantined.get_mut(&page)?.hold.as_mut()?;
        hold.give_back(peer, count);
        if !hold.is_over() {
            return None;
        }
        self.quarantined.remove(&page)
    }

    /// Returns the first page of the first quarantined range from page `from` on.
    fn next_quarantined(&self, from: usize) -> Option<usize> {
        let cursor = self.quarantined.cursor_lower_bound(&from)?;
        Some(*cursor.current().0)
    }
}

#[kunit_tests(uldma_window_alloc)]
mod tests {
    use kernel::sync::Arc;

    use super::*;
    use crate::{
        link::quarantine::{
            Age,
            Held, //
        },
        user_abi::ledger::{
            Amounts,
            Ledger,
            Limits, //
        }, //
    };

    const PAGES: usize = 8;

    struct Section {
        alloc: Pin<KBox<WindowAllocator>>,
        payer: Arc<Payer>,
    }

    impl Section {
        fn new() -> Result<Self> {
            let capacity = Amounts::default().with(Resource::Window, 2 * PAGES * PAGE_SIZE);
            let ledger = Ledger::new(capacity, Limits::new(capacity, Amounts::default(), 2))?;
            let mut lanes = [const { 0..0 }; MAX_NODES];
            (lanes[1], lanes[2]) = (2..2 + PAGES, 12..12 + PAGES);
            Ok(Self {
                alloc: KBox::pin_init(WindowAllocator::of(lanes), GFP_KERNEL)?,
                payer: Payer::new(ledger, 0, false)?,
            })
        }

        fn range(&self, writer: u32) -> Result<WindowRange> {
            self.alloc
                .alloc(writer, (&self.payer, None), PAGE_SIZE as u64)
        }

        fn paid(&self) -> usize {
            self.payer.used().of(Resource::Window)
        }

        fn held(&self, peer: u32) -> Held {
            let mut held = Quarantine::default();
            self.alloc.add_to(&mut held);
            held.of(peer)
        }
    }

    #[test]
    fn a_range_is_free_when_its_peer_has_given_it_back() -> Result {
        let section = Section::new()?;
        let (used, range) = (section.range(1)?, section.range(1)?);
        section.alloc.end(range, || Some(Hold::new(1, 3, Age::NEW)));
        section.alloc.tick();
        let held = section.held(1);
        assert_eq!((held.count, held.bytes, held.ticks), (1, PAGE_SIZE, 1));
        section.alloc.given_back(1, range.offset(), 2);
        // No peer can give back the range of another, another range, or one in use.
        section.alloc.given_back(2, range.offset(), 1);
        section.alloc.given_back(1, range.offset() + 1, 1);
        section.alloc.given_back(1, used.offset(), 1);
        assert_eq!(
            (section.paid(), section.alloc.used()),
            (2 * PAGE_SIZE, 2 * PAGE_SIZE)
        );
        section.alloc.given_back(1, range.offset(), 1);
        assert_eq!(
            (section.paid(), section.alloc.used()),
            (PAGE_SIZE, PAGE_SIZE)
        );
        assert_eq!(section.held(1), Held::default());
        section.alloc.free(used);
        assert_eq!((section.paid(), section.alloc.used()), (0, 0));
        Ok(())
    }

    #[test]
    fn a_new_session_gives_all_ranges_back() -> Result {
        let section = Section::new()?;
        for peer in [1, 2, 1, 1] {
            let range = section.range(peer)?;
            section
                .alloc
                .end(range, || Some(Hold::new(peer, 1, Age::NEW)));
        }
        section.alloc.end(section.range(2)?, || None);
        assert_eq!((section.held(1).count, section.paid()), (3, 4 * PAGE_SIZE));
        section.alloc.peer_began(1);
        assert_eq!((section.held(1).count, section.paid()), (0, PAGE_SIZE));
        section.alloc.peer_began(2);
        assert_eq!((section.paid(), section.alloc.used()), (0, 0));
        Ok(())
    }

    #[test]
    fn a_peer_has_its_own_lane_and_no_more() -> Result {
        let section = Section::new()?;
        for page in 2..2 + PAGES {
            assert_eq!(section.range(1)?.offset(), page * PAGE_SIZE);
        }
        assert_eq!(section.range(1), Err(ENOSPC));
        assert_eq!(section.range(2)?.offset(), 12 * PAGE_SIZE);
        // This node, and what is no node.
        for writer in [0, 7] {
            assert_eq!(section.range(writer), Err(ENOSPC));
        }
        assert_eq!(section.range(8), Err(EINVAL));
        Ok(())
    }
}
