// SPDX-License-Identifier: GPL-2.0

//! Unit tests of the area map, against a model that counts users page by page.

use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation, //
};

use super::{
    map::{
        AreaMap,
        Areas,
        Payload, //
    },
    range::{
        gaps,
        PageRange, //
    }, //
};

/// Pages of the address space that the tests use.
const PAGES: usize = 48;

/// A payload that only knows what it is for.
struct Numbers {
    start: usize,
    count: usize,
}

impl Payload for Numbers {
    fn split_off(&mut self, at: usize) -> Self {
        let tail = Self {
            start: self.start + at,
            count: self.count - at,
        };
        self.count = at;
        tail
    }

    fn can_join(&self, next: &Self) -> bool {
        self.start + self.count == next.start
    }

    fn join(&mut self, next: Self) {
        self.count += next.count;
    }
}

/// A pinned range in the model, and in the map.
struct Lock {
    range: PageRange,
    /// The generation of each page that it holds.
    held: [u32; PAGES],
    parts: KVec<(u64, PageRange)>,
}

/// The map beside a model of it.
struct Model {
    map: AreaMap<Numbers>,
    locks: KVec<Lock>,
    /// Number of times that each page was mapped again.
    generations: [u32; PAGES],
}

fn range(start: usize, end: usize) -> PageRange {
    PageRange { start, end }
}

impl Model {
    fn new(merge: bool) -> Self {
        Self {
            map: AreaMap::new(merge),
            locks: KVec::new(),
            generations: [0; PAGES],
        }
    }

    /// Pins `range` as [`Space`](super::space::Space) does.
    fn pin(&mut self, range: PageRange) -> Result {
        let map = &mut self.map;
        let mut parts: KVec<(u64, PageRange)> = KVec::new();
        // Both ways have to come to the same.
        if map.is_vacant(range) && self.locks.len() % 2 == 0 {
            let pin_id = map.new_pin_id();
            let numbers = Numbers {
                start: range.start,
                count: range.len(),
            };
            let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
            map.insert_held(pin_id, range, numbers, room);
            parts.push((pin_id, range), GFP_KERNEL)?;
            return self.has_pinned(range, parts);
        }
        map.split(range.start)?;
        map.split(range.end)?;
        for (pin_id, area) in map.live(range) {
            match parts.last_mut() {
                Some((last, part)) if *last == pin_id && part.end == area.range.start => {
                    part.end = area.range.end;
                }
                _ => parts.push((pin_id, area.range), GFP_KERNEL)?,
            }
        }
        let mut missing = KVec::new();
        for gap in gaps(range, parts.iter().map(|(_, part)| *part)) {
            missing.push(gap, GFP_KERNEL)?;
        }
        for gap in missing {
            let pin_id = map.new_pin_id();
            let numbers = Numbers {
                start: gap.start,
                count: gap.len(),
            };
            let mut new = Areas::default();
            new.add(pin_id, gap, || Ok(numbers))?;
            map.insert(new);
            parts.push((pin_id, gap), GFP_KERNEL)?;
        }
        for (pin_id, part) in &parts {
            map.hold(*pin_id, *part);
        }
        self.has_pinned(range, parts)
    }

    fn has_pinned(&mut self, range: PageRange, parts: KVec<(u64, PageRange)>) -> Result {
        let lock = Lock {
            range,
            held: self.generations,
            parts,
        };
        Ok(self.locks.push(lock, GFP_KERNEL)?)
    }

    fn unpin(&mut self, index: usize) -> Result {
        let lock = self.locks.remove(index).map_err(|_| EINVAL)?;
        let mut ended = Areas::default();
        for (pin_id, part) in &lock.parts {
            self.map.release(*pin_id, *part, &mut ended);
        }
        for (_, area) in ended.iter() {
            for page in area.range.start..area.range.end {
                let held = lock.held.get(page);
                assert!(self.users(page, held.copied()) == 0);
            }
        }
        Ok(())
    }

    /// The pages of `range` are mapped anew.
    fn change(&mut self, range: PageRange) -> Result {
        let map = &mut self.map;
        map.split(range.start)?;
        map.split(range.end)?;
        let mut stale = KVec::new();
        for (pin_id, area) in map.live(range) {
            stale.push((pin_id, area.range.start), GFP_KERNEL)?;
        }
        for (pin_id, start) in stale {
            map.retire(pin_id, start);
        }
        for generation in self
            .generations
            .iter_mut()
            .skip(range.start)
            .take(range.len())
        {
            *generation += 1;
        }
        Ok(())
    }

    /// Returns how many ranges have generation `generation` of `page`.
    fn users(&self, page: usize, generation: Option<u32>) -> usize {
        let locks = self.locks.iter();
        locks
            .filter(|lock| lock.range.start <= page && page < lock.range.end)
            .filter(|lock| lock.held.get(page).copied() == generation)
            .count()
    }

    /// Compares the map with the model.
    fn check(&self) -> Result {
        let mut covered = 0;
        let mut end = 0;
        for (_, area) in self.map.live(range(0, PAGES)) {
            assert!(area.range.start >= end);
            assert!(area.payload.start == area.range.start);
            assert!(area.payload.count == area.range.len());
            end = area.range.end;
            for page in area.range.start..area.range.end {
                let now = self.generations.get(page).copied();
                assert_eq!(area.users, self.users(page, now));
            }
            covered += area.range.len();
        }
        let locked = (0..PAGES)
            .filter(|&page| self.users(page, self.generations.get(page).copied()) > 0)
            .count();
        assert_eq!(covered, locked);
        for lock in &self.locks {
            for (pin_id, part) in &lock.parts {
                let pages: usize = self
                    .map
                    .areas(*pin_id, *part)
                    .map(|area| area.range.len())
                    .sum();
                assert_eq!(pages, part.len());
            }
        }
        Ok(())
    }

    /// Fails unless the live areas are `want`: start, end and number of users of each.
    fn expect(&self, want: &[(usize, usize, usize)]) -> Result {
        self.check()?;
        let mut want = want.iter();
        for (_, area) in self.map.live(range(0, PAGES)) {
            let found = (area.range.start, area.range.end, area.users);
            assert_eq!(Some(&found), want.next());
        }
        assert!(want.next().is_none());
        Ok(())
    }
}

/// A sequence of numbers that looks random (xorshift).
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    fn range(&mut self) -> PageRange {
        let start = self.below(PAGES);
        range(start, start + 1 + self.below(PAGES - start))
    }
}

#[kunit_tests(uldma_lmm_map)]
mod tests {
    use super::*;

    /// Pins the second range over the first, checks, and unpins both in either order.
    fn check_pair(first: (usize, usize), second: (usize, usize), want: &[(usize, usize, usize)]) {
        for order in [0, 1] {
            let mut model = Model::new(true);
            let (first, second) = (range(first.0, first.1), range(second.0, second.1));
            let result = (|| {
                model.pin(first)?;
                model.pin(second)?;
                model.expect(want)?;
                model.unpin(order)?;
                let left = if order == 0 { second } else { first };
                model.check()?;
                let covered = model.map.live(range(0, PAGES));
                assert_eq!(
                    covered.map(|(_, area)| area.range.len()).sum::<usize>(),
                    left.len()
                );
                model.unpin(0)?;
                model.expect(&[])?;
                assert_eq!(model.map.count(), 0);
                Ok::<(), Error>(())
            })();
            assert_eq!(result, Ok(()));
        }
    }

    #[test]
    fn five_kinds_of_intersection() {
        check_pair((10, 20), (5, 15), &[(5, 10, 1), (10, 15, 2), (15, 20, 1)]);
        check_pair((10, 20), (15, 25), &[(10, 15, 1), (15, 20, 2), (20, 25, 1)]);
        check_pair((10, 20), (12, 18), &[(10, 12, 1), (12, 18, 2), (18, 20, 1)]);
        check_pair((10, 20), (5, 25), &[(5, 10, 1), (10, 20, 2), (20, 25, 1)]);
        check_pair((10, 20), (10, 20), &[(10, 20, 2)]);
    }

    #[test]
    fn thirteen_interval_relations() {
        // Before and after, meets and is met by.
        check_pair((10, 20), (22, 30), &[(10, 20, 1), (22, 30, 1)]);
        check_pair((10, 20), (1, 8), &[(1, 8, 1), (10, 20, 1)]);
        check_pair((10, 20), (20, 30), &[(10, 20, 1), (20, 30, 1)]);
        check_pair((10, 20), (1, 10), &[(1, 10, 1), (10, 20, 1)]);
        // Overlaps and is overlapped by.
        check_pair((10, 20), (19, 30), &[(10, 19, 1), (19, 20, 2), (20, 30, 1)]);
        check_pair((10, 20), (1, 11), &[(1, 10, 1), (10, 11, 2), (11, 20, 1)]);
        // Starts and is started by, finishes and is finished by.
        check_pair((10, 20), (10, 11), &[(10, 11, 2), (11, 20, 1)]);
        check_pair((10, 20), (10, 30), &[(10, 20, 2), (20, 30, 1)]);
        check_pair((10, 20), (19, 20), &[(10, 19, 1), (19, 20, 2)]);
        check_pair((10, 20), (1, 20), &[(1, 10, 1), (10, 20, 2)]);
        // During, contains, equals.
        check_pair((10, 20), (11, 19), &[(10, 11, 1), (11, 19, 2), (19, 20, 1)]);
        check_pair((10, 20), (1, 30), &[(1, 10, 1), (10, 20, 2), (20, 30, 1)]);
        check_pair((10, 20), (10, 20), &[(10, 20, 2)]);
    }

    #[test]
    fn lock_over_areas_and_gaps() -> Result {
        let mut model = Model::new(true);
        model.pin(range(0, 4))?;
        model.pin(range(6, 8))?;
        model.pin(range(2, 7))?;
        let want = [(0, 2, 1), (2, 4, 2), (4, 6, 1), (6, 7, 2), (7, 8, 1)];
        model.expect(&want)?;
        model.unpin(2)?;
        model.expect(&[(0, 4, 1), (6, 8, 1)])
    }

    #[test]
    fn pieces_are_merged_once_nobody_needs_the_edge() -> Result {
        let mut model = Model::new(true);
        model.pin(range(0, 10))?;
        model.pin(range(2, 5))?;
        model.pin(range(0, 2))?;
        model.pin(range(5, 10))?;
        // Equal counts, but the second range has to find its pages.
        model.expect(&[(0, 2, 2), (2, 5, 2), (5, 10, 2)])?;
        model.unpin(1)?;
        model.expect(&[(0, 2, 2), (2, 5, 1), (5, 10, 2)])?;
        model.unpin(1)?;
        model.unpin(1)?;
        model.expect(&[(0, 10, 1)])?;
        assert_eq!(model.map.count(), 1);
        Ok(())
    }

    #[test]
    fn pieces_stay_where_merging_is_off() -> Result {
        let mut model = Model::new(false);
        model.pin(range(0, 10))?;
        model.pin(range(2, 5))?;
        model.unpin(1)?;
        model.expect(&[(0, 2, 1), (2, 5, 1), (5, 10, 1)])?;
        model.unpin(0)?;
        assert_eq!(model.map.count(), 0);
        Ok(())
    }

    #[test]
    fn stale_areas_are_not_used_again() -> Result {
        let mut model = Model::new(true);
        model.pin(range(0, 10))?;
        model.change(range(3, 6))?;
        model.expect(&[(0, 3, 1), (6, 10, 1)])?;
        model.pin(range(0, 10))?;
        model.expect(&[(0, 3, 2), (3, 6, 1), (6, 10, 2)])?;
        model.unpin(0)?;
        model.expect(&[(0, 3, 1), (3, 6, 1), (6, 10, 1)])?;
        model.unpin(0)?;
        assert_eq!(model.map.count(), 0);
        Ok(())
    }

    #[test]
    fn random_sequences() -> Result {
        for (seed, merge) in [(1, true), (2, true), (3, false)] {
            let mut sequence = Sequence(seed * 0x9e37_79b9);
            let mut model = Model::new(merge);
            for _ in 0..1500 {
                let count = model.locks.len();
                match sequence.below(8) {
                    0 => model.change(sequence.range())?,
                    1..=3 if count > 0 => model.unpin(sequence.below(count))?,
                    _ if count < 24 => model.pin(sequence.range())?,
                    _ => model.unpin(sequence.below(count))?,
                }
                model.check()?;
            }
            while !model.locks.is_empty() {
                let count = model.locks.len();
                model.unpin(sequence.below(count))?;
                model.check()?;
            }
            assert_eq!(model.map.count(), 0);
        }
        Ok(())
    }
}
