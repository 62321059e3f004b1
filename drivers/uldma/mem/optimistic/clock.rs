// SPDX-License-Identifier: GPL-2.0

//! Which pages go where more are entered than may be: nearly those that the device has not accessed for the
//! longest time.
//!
//! A hand goes from entry to entry, of all areas of the device, again and again. It takes the device's mark
//! off a page that was accessed since it came by, and takes a page without a mark out. Address space of an
//! IOMMU is scarce, and each page that is entered takes some.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::{
    hw::Hw,
    kernel_ext::mmu_notifier::IntervalNotifier,
    mem::lmm::{
        device_access::DeviceAccess,
        space::Space, //
    }, //
};

use super::{
    area::Area,
    Optimistic, //
};

/// Of this many parts of the entries, one space has one at most.
const PARTS: usize = 4;

/// The least limit: each part has room for the pages of one miss.
const LEAST: usize = PARTS * super::fill::MOST_PAGES;

/// How often the hand comes by before it heeds no mark any more.
const HEEDING: usize = 2;

/// The pages that are entered, and the hand.
pub(super) struct Clock {
    /// Maximum number of pages that are entered.
    limit: usize,
    entered: Atomic<usize>,
    /// The page entry that is next.
    hand: Atomic<u32>,
    evicted: Atomic<u64>,
}

/// Room for pages that are about to be entered. What is left when it is dropped is room for others.
pub(super) struct Room<'a> {
    clock: &'a Clock,
    of_space: &'a Atomic<usize>,
    left: usize,
}

impl Room<'_> {
    /// Uses the room of a page, until [`Clock::give_back`].
    pub(super) fn use_one(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.clock.give_back(self.of_space, self.left);
    }
}

/// Whose pages go.
#[derive(Clone, Copy)]
enum Victims<'a> {
    All,
    Of(&'a Space),
}

impl Victims<'_> {
    fn has(&self, area: &IntervalNotifier<Area>) -> bool {
        match self {
            Self::All => true,
            Self::Of(space) => core::ptr::eq(*space, &raw const *area.watcher().space),
        }
    }
}

impl Clock {
    /// Creates one without pages, and with room for `limit`, if that is enough to work with.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(LEAST),
            entered: Atomic::new(0),
            hand: Atomic::new(0),
            evicted: Atomic::new(0),
        }
    }

    /// Pages that are entered, and their maximum.
    pub(super) fn entered(&self) -> (usize, usize) {
        (self.entered.load(Relaxed), self.limit)
    }

    /// Pages that were taken out to make room.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Takes the room of `count` pages of a space, which has those `of_space`, if there is some.
    fn try_take<'a>(&'a self, of_space: &'a Atomic<usize>, count: usize) -> Result<Room<'a>, bool> {
        let room = Room {
            clock: self,
            of_space,
            left: count,
        };
        // What does not fit is given back.
        let own = of_space.fetch_add(count, Relaxed) + count;
        let all = self.entered.fetch_add(count, Relaxed) + count;
        if own > self.limit / PARTS {
            return Err(true);
        }
        if all > self.limit {
            return Err(false);
        }
        Ok(room)
    }

    /// Gives back the room of `count` pages.
    pub(super) fn give_back(&self, of_space: &Atomic<usize>, count: usize) {
        of_space.fetch_sub(count, Relaxed);
        self.entered.fetch_sub(count, Relaxed);
    }
}

impl Optimistic {
    /// Takes the room of `count` pages of `space`. Takes out pages for that, its own where it has its part.
    /// The caller holds no lock of an area.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no page goes; `ETIMEDOUT` and `EIO` if the device does not answer.
    pub(super) fn take_room<'a>(
        &'a self,
        (device, hw): (&DeviceAccess<'_>, Hw<'_>),
        space: &'a Space,
        count: usize,
    ) -> Result<Room<'a>> {
        let of_space = &space.filler().entered;
        let mut rounds = 0;
        loop {
            let victims = match self.clock.try_take(of_space, count) {
                Ok(room) => return Ok(room),
                Err(true) => Victims::Of(space),
                Err(false) => Victims::All,
            };
            let hand = self.clock.hand.load(Relaxed);
            let Some((area, from)) = self.area_from(hand, victims) else {
                if rounds > HEEDING {
                    return Err(EBUSY);
                }
                rounds += 1;
                self.clock.hand.store(0, Relaxed);
                continue;
            };
            let area = area.watcher();
            let (evicted, next) = area.evict((device, hw), from, count, rounds < HEEDING)?;
            // As in `count_ended`.
            self.clock.evicted.fetch_add(evicted as u64, Relaxed);
            self.clock.hand.store(area.index_of(next), Relaxed);
        }
    }

    /// Returns the first area of `victims` with page entries from `hand` on, and the page's number in it.
    fn area_from(
        &self,
        hand: u32,
        victims: Victims<'_>,
    ) -> Option<(IntervalNotifier<Area>, usize)> {
        let mut areas = self.areas.lock();
        let mut cursor = areas.cursor_lower_bound_mut(&hand)?;
        loop {
            let (_, area) = cursor.current();
            if victims.has(area) {
                return Some((area.clone(), area.watcher().number_from(hand)));
            }
            cursor = cursor.move_next()?;
        }
    }
}

#[kunit_tests(uldma_optimistic_clock)]
mod tests {
    use super::*;

    #[test]
    fn a_space_has_its_part() {
        let clock = Clock::new(4 * LEAST);
        let (own, other) = (Atomic::new(0), Atomic::new(0));
        for _ in 0..LEAST {
            let Ok(mut room) = clock.try_take(&own, 1) else {
                panic!("no room");
            };
            room.use_one();
        }
        assert_eq!(clock.try_take(&own, 1).err(), Some(true));
        assert!(clock.try_take(&other, LEAST).is_ok());
        assert_eq!(clock.entered(), (LEAST, 4 * LEAST));
        clock.give_back(&own, 2);
        assert!(clock.try_take(&own, 2).is_ok());
        assert_eq!(clock.try_take(&own, 3).err(), Some(true));
        assert_eq!(own.load(Relaxed), LEAST - 2);
    }

    #[test]
    fn all_together_have_the_limit() {
        let clock = Clock::new(0);
        let spaces = [const { Atomic::new(0) }; PARTS + 1];
        let part = LEAST / PARTS;
        let mut rooms = spaces.iter().map(|space| clock.try_take(space, part));
        for _ in 0..PARTS {
            let Some(Ok(room)) = rooms.next() else {
                panic!("no room");
            };
            core::mem::forget(room);
        }
        assert!(matches!(rooms.next(), Some(Err(false))));
        assert_eq!(clock.entered(), (LEAST, LEAST));
    }
}
