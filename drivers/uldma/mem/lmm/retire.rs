// SPDX-License-Identifier: GPL-2.0

//! Retiring of stale areas: no new pin uses them, and the ranges that have them are reported.
//!
//! A pinned range can have many areas, and an area can be part of many ranges. So stale areas are
//! collected first, and then each range counts once, by binary search, how many of its pages went
//! stale.

use kernel::prelude::*;

use crate::kernel_ext::{
    list::List,
    sort::sort_by_key, //
};

use super::{
    pinned_range::Part,
    range::PageRange,
    space::SpaceState, //
};

/// Stale pages with one pin id.
#[derive(Clone, Copy)]
struct StaleRun {
    pin_id: u64,
    range: PageRange,
    /// Number of pages of all earlier runs.
    before: usize,
}

/// Stale pages that were not reported. Runs are disjoint and, once sorted, in the order of pin ids
/// and addresses.
pub(super) struct Stale {
    gone: List<StaleRun>,
    /// The smallest range with all stale pages.
    hull: Option<PageRange>,
}

impl Default for Stale {
    fn default() -> Self {
        Self {
            gone: List::Empty,
            hull: None,
        }
    }
}

impl Stale {
    /// Adds pages. The first run needs no memory.
    fn add(&mut self, pin_id: u64, range: PageRange) -> Result {
        match self.gone.last_mut() {
            Some(last) if last.pin_id == pin_id && last.range.end == range.start => {
                last.range.end = range.end;
            }
            _ => self.gone.push(StaleRun {
                pin_id,
                range,
                before: 0,
            })?,
        }
        self.hull = Some(range.hull(self.hull));
        Ok(())
    }

    fn sort(&mut self) {
        sort_by_key(&mut self.gone, |gone| (gone.pin_id, gone.range.start));
        let mut before = 0;
        for gone in self.gone.iter_mut() {
            gone.before = before;
            before += gone.range.len();
        }
    }

    /// Returns the number of stale pages of a part; calls `step` for each comparison. The runs have
    /// to be sorted.
    fn pages_of(&self, part: &Part, step: impl Fn()) -> usize {
        let order = |gone: &StaleRun, page: usize| {
            step();
            (gone.pin_id, page).cmp(&(part.pin_id, part.range.start))
        };
        let first = self
            .gone
            .partition_point(|gone| order(gone, gone.range.end).is_le());
        let after = self.gone.partition_point(|gone| {
            step();
            (gone.pin_id, gone.range.start) < (part.pin_id, part.range.end)
        });
        let Some(last) = after.checked_sub(1).and_then(|last| self.gone.get(last)) else {
            return 0;
        };
        let Some(first) = self.gone.get(first..after).and_then(<[StaleRun]>::first) else {
            return 0;
        };
        let all = last.before + last.range.len() - first.before;
        let outside = part.range.start.saturating_sub(first.range.start)
            + last.range.end.saturating_sub(part.range.end);
        all - outside
    }
}

impl SpaceState {
    /// Retires a stale area: no new pin uses it. [`SpaceState::report_stale`] reports it to its ranges.
    pub(super) fn retire(&mut self, stale: &mut Stale, pin_id: u64, range: PageRange) {
        self.map.retire(pin_id, range.start);
        if stale.add(pin_id, range).is_err() {
            self.report_stale(stale);
            // The collection is empty again, so there is room.
            let _ = stale.add(pin_id, range);
        }
    }

    /// Reports stale pages to the ranges that have them.
    pub(super) fn report_stale(&mut self, stale: &mut Stale) {
        if let Some(hull) = stale.hull {
            stale.sort();
            for record in self.records.values_mut() {
                let parts = record.parts_in(&hull);
                let pages = parts.map(|part| stale.pages_of(part, || ())).sum();
                record.went_stale(pages);
            }
        }
        *stale = Stale::default();
    }
}

#[kunit_tests(uldma_lmm_retire)]
mod tests {
    use core::cell::Cell;

    use super::*;

    fn range(start: usize, end: usize) -> PageRange {
        PageRange { start, end }
    }

    fn part(pin_id: u64, start: usize, end: usize) -> Part {
        Part {
            pin_id,
            range: range(start, end),
            first: 0,
        }
    }

    #[test]
    fn pages_are_counted_as_one_by_one() -> Result {
        let mut stale = Stale::default();
        // Not in the order of lineages; the third goes on where the second ends.
        let gone = [(7, 2, 4), (5, 6, 8), (5, 8, 9), (7, 12, 20), (5, 30, 31)];
        for (pin_id, start, end) in gone {
            stale.add(pin_id, range(start, end))?;
        }
        assert_eq!(stale.gone.len(), 4);
        assert_eq!(stale.hull, Some(range(2, 31)));
        stale.sort();
        for pin_id in 4..9 {
            for start in 0..33 {
                for end in start + 1..34 {
                    let is_gone = |page: &usize| {
                        let mut gone = gone.iter();
                        gone.any(|&(of, from, to)| of == pin_id && (from..to).contains(page))
                    };
                    let want = (start..end).filter(is_gone).count();
                    let got = stale.pages_of(&part(pin_id, start, end), || ());
                    assert_eq!(got, want);
                }
            }
        }
        Ok(())
    }

    /// Every other page went stale, and many ranges have all of them.
    #[test]
    fn a_lock_takes_no_step_for_each_area() -> Result {
        const AREAS: usize = 1024;
        const LOCKS: usize = 100;
        let mut stale = Stale::default();
        for number in 0..AREAS {
            stale.add(1, range(2 * number, 2 * number + 1))?;
        }
        stale.sort();
        let steps = Cell::new(0);
        for _ in 0..LOCKS {
            let step = || steps.set(steps.get() + 1);
            let got = stale.pages_of(&part(1, 0, 2 * AREAS), step);
            assert_eq!(got, AREAS);
        }
        // Two searches, each of which halves what is left.
        let halves = usize::try_from(AREAS.ilog2())? + 1;
        assert!(steps.get() <= LOCKS * 2 * halves);
        Ok(())
    }
}
