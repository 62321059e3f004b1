// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts how often caches of translations would have had a page entry that the engine looks up.
//!
//! The device has no such cache, so there is nothing to keep in step. What is counted are caches in which each
//! entry can be anywhere, and from which the one goes that was looked up least recently. The smaller of two
//! such caches never has what the larger one has not. So one list in the order of the look-ups serves caches
//! of all sizes at once: an entry is in those that are larger than its distance from the front.
//!
//! A translation that has changed is a miss, as it would be in a cache that the driver has kept in step. It
//! keeps its place meanwhile.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

/// Number of the sizes that are counted at once, each twice that before.
const MOST_SIZES: u32 = 8;

/// What was counted of the look-ups of one node's page entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlbReport {
    /// Look-ups of all.
    pub lookups: u64,
    /// Those of pages that were missing.
    pub missing: u64,
    /// Those that a cache would have had, by its entries.
    pub hits: BTreeMap<usize, u64>,
}

/// An entry, and its neighbours in the list.
#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: u32,
    /// Its translation, unless that was found to be missing since then.
    page: Option<u64>,
    /// The smallest size that has it.
    level: usize,
    before: usize,
    behind: usize,
}

/// No slot.
const NONE: usize = usize::MAX;

/// A size.
#[derive(Clone, Copy, Debug)]
struct Size {
    entries: usize,
    hits: u64,
    /// The last slot that a cache of this size has, if it is full.
    last: usize,
}

/// The entries that were looked up most recently, in this order.
#[derive(Clone, Debug)]
pub struct Tlb {
    slots: Vec<Slot>,
    places: HashMap<u32, usize>,
    /// The ends of the list.
    first: usize,
    last: usize,
    /// In increasing order.
    sizes: Vec<Size>,
    lookups: u64,
    missing: u64,
}

impl Tlb {
    /// Counts for a cache of `entries` entries, and for some that are a half, a quarter and so on of it.
    pub fn new(entries: usize) -> Self {
        let sizes = (0..MOST_SIZES).rev().map(|shift| entries >> shift);
        let size = |entries| Size {
            entries,
            hits: 0,
            last: NONE,
        };
        Self {
            slots: Vec::new(),
            places: HashMap::new(),
            first: NONE,
            last: NONE,
            sizes: sizes.filter(|it| *it > 0).map(size).collect(),
            lookups: 0,
            missing: 0,
        }
    }

    /// Counts a look-up of an entry, whose page is at this address, or missing.
    pub fn look_up(&mut self, entry: u32, page: Option<u64>) {
        self.lookups += 1;
        let found = self.places.get(&entry).copied();
        let Some(page) = page else {
            self.missing += 1;
            if let Some(slot) = found.and_then(|place| self.slots.get_mut(place)) {
                slot.page = None;
            }
            return;
        };
        let Some(place) = found else {
            return self.enter(entry, page);
        };
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        let level = slot.level;
        if slot.page.replace(page) == Some(page) {
            for size in self.sizes.iter_mut().skip(level) {
                size.hits += 1;
            }
        }
        self.advance(place);
    }

    /// What was counted.
    pub fn report(&self) -> TlbReport {
        TlbReport {
            lookups: self.lookups,
            missing: self.missing,
            hits: self.sizes.iter().map(|it| (it.entries, it.hits)).collect(),
        }
    }

    /// Enters what no size has, in place of the last entry if there is no room.
    fn enter(&mut self, entry: u32, page: u64) {
        // The largest size is full, or there is room.
        let full = self.sizes.last().map_or(NONE, |size| size.last);
        if let Some(slot) = self.slots.get_mut(full) {
            let old = std::mem::replace(&mut slot.entry, entry);
            slot.page = Some(page);
            self.places.remove(&old);
            self.places.insert(entry, full);
            return self.advance(full);
        }
        let place = self.slots.len();
        self.slots.push(Slot {
            entry,
            page: Some(page),
            level: self.sizes.len(),
            before: NONE,
            behind: NONE,
        });
        self.places.insert(entry, place);
        self.put_first(place);
        // It has come in front of all others, and made a size full, if there are so many now.
        if let Some(size) = self.sizes.iter_mut().find(|it| it.entries == place + 1) {
            size.last = self.last;
        }
    }

    /// Moves an entry to the front.
    fn advance(&mut self, place: usize) {
        let Some(Slot {
            before,
            behind,
            level,
            ..
        }) = self.slots.get(place).copied()
        else {
            return;
        };
        if before == NONE {
            return;
        }
        if let Some(size) = self.sizes.get_mut(level).filter(|it| it.last == place) {
            size.last = before;
        }
        if let Some(slot) = self.slots.get_mut(before) {
            slot.behind = behind;
        }
        match self.slots.get_mut(behind) {
            Some(slot) => slot.before = before,
            None => self.last = before,
        }
        self.put_first(place);
    }

    /// Puts what is in no list to the front. The last entries of sizes that did not have it leave these.
    fn put_first(&mut self, place: usize) {
        let first = std::mem::replace(&mut self.first, place);
        match self.slots.get_mut(first) {
            Some(slot) => slot.before = place,
            None => self.last = place,
        }
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        (slot.before, slot.behind) = (NONE, first);
        let smaller = std::mem::replace(&mut slot.level, 0);
        for (level, size) in self.sizes.iter_mut().enumerate().take(smaller) {
            if let Some(leaving) = self.slots.get_mut(size.last) {
                leaving.level = level + 1;
                size.last = leaving.before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache of one size, without any list that is shared.
    struct Plain {
        size: usize,
        /// The most recent one is the last.
        entries: Vec<(u32, Option<u64>)>,
        hits: u64,
    }

    impl Plain {
        fn look_up(&mut self, entry: u32, page: Option<u64>) {
            let place = self.entries.iter().position(|it| it.0 == entry);
            match (place, page) {
                (Some(place), None) => self.entries[place].1 = None,
                (None, None) => {}
                (place, page) => {
                    let old = place.map(|place| self.entries.remove(place).1);
                    self.hits += u64::from(old == Some(page));
                    self.entries.push((entry, page));
                    if self.entries.len() > self.size {
                        self.entries.remove(0);
                    }
                }
            }
        }
    }

    fn hits(tlb: &Tlb) -> Vec<u64> {
        tlb.report().hits.into_values().collect()
    }

    #[test]
    fn a_loop_that_does_not_fit_misses_always() {
        let mut tlb = Tlb::new(4);
        for entry in [0, 1, 2].repeat(3) {
            tlb.look_up(entry, Some(7));
        }
        let expected = TlbReport {
            lookups: 9,
            missing: 0,
            hits: BTreeMap::from([(1, 0), (2, 0), (4, 6)]),
        };
        assert_eq!(tlb.report(), expected);
    }

    #[test]
    fn what_has_changed_is_missed_once() {
        let mut tlb = Tlb::new(1);
        for page in [
            Some(1),
            Some(1),
            Some(2),
            Some(2),
            None,
            None,
            Some(2),
            Some(2),
        ] {
            tlb.look_up(5, page);
        }
        assert_eq!((hits(&tlb), tlb.report().missing), (vec![3], 2));
    }

    #[test]
    fn there_are_eight_sizes_at_most() {
        let sizes = |entries| {
            Tlb::new(entries)
                .report()
                .hits
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(8192), [64, 128, 256, 512, 1024, 2048, 4096, 8192]);
        assert_eq!(sizes(2), [1, 2]);
    }

    proptest! {
        #[test]
        fn all_sizes_are_as_if_each_were_alone(
            shift in 0u32..5,
            lookups in prop::collection::vec((0u32..24, prop::option::weighted(0.9, 0u64..2)), 0..300),
        ) {
            let mut tlb = Tlb::new(1 << shift);
            let plain = |shift| Plain { size: 1usize << shift, entries: Vec::new(), hits: 0 };
            let mut all: Vec<_> = (0..=shift).map(plain).collect();
            for (entry, page) in lookups {
                tlb.look_up(entry, page);
                all.iter_mut().for_each(|it| it.look_up(entry, page));
                let expected: Vec<_> = all.iter().map(|it| it.hits).collect();
                prop_assert_eq!(hits(&tlb), expected);
            }
        }
    }
}
