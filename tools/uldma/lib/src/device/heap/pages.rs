// SPDX-License-Identifier: MIT OR Apache-2.0

//! The free pages of an area, as runs.

use std::ops::Range;

/// Free pages: runs in ascending order, which neither overlap nor touch.
#[derive(Debug)]
pub(super) struct Pages {
    count: u64,
    free: Vec<Range<u64>>,
}

impl Pages {
    /// Creates `count` pages, all free.
    pub(super) fn new(count: u64) -> Self {
        Self {
            count,
            free: std::iter::once(0..count).collect(),
        }
    }

    /// Returns true if all pages are free.
    pub(super) fn are_free(&self) -> bool {
        let free: u64 = self.free.iter().map(|run| run.end - run.start).sum();
        free == self.count
    }

    /// Takes `count` pages, not zero, that follow one another, if there are as many.
    pub(super) fn take(&mut self, count: u64) -> Option<Range<u64>> {
        let fits = |run: &Range<u64>| run.end - run.start >= count;
        let at = self.free.iter().position(fits)?;
        let run = self.free.get_mut(at)?;
        let taken = run.start..run.start + count;
        run.start = taken.end;
        if run.is_empty() {
            self.free.remove(at);
        }
        Some(taken)
    }

    /// Gives back pages that were taken.
    pub(super) fn give(&mut self, pages: Range<u64>) {
        let at = self.free.partition_point(|run| run.start < pages.start);
        self.free.insert(at, pages);
        self.free.dedup_by(|next, run| {
            let touch = run.end == next.start;
            if touch {
                run.end = next.end;
            }
            touch
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_there_is_not_taken() {
        let mut pages = Pages::new(4);
        assert_eq!(pages.take(5), None);
        assert_eq!(pages.take(3), Some(0..3));
        assert_eq!(pages.take(2), None);
        assert!(!pages.are_free());
        pages.give(0..3);
        assert!(pages.are_free());
        assert_eq!(pages.take(4), Some(0..4));
        assert_eq!(pages.take(1), None);
    }

    proptest! {
        /// No page is in two runs, and all pages are one run when all were given back.
        #[test]
        fn each_page_is_taken_once(steps in prop::collection::vec((any::<bool>(), 1u64..9, 0usize..9), 1..60)) {
            let mut pages = Pages::new(40);
            let mut taken: Vec<Range<u64>> = Vec::new();
            for (take, count, at) in steps {
                if take {
                    if let Some(run) = pages.take(count) {
                        prop_assert!(run.end <= 40 && run.end - run.start == count);
                        for other in &taken {
                            prop_assert!(run.end <= other.start || other.end <= run.start);
                        }
                        taken.push(run);
                    }
                } else if !taken.is_empty() {
                    pages.give(taken.remove(at % taken.len()));
                }
                prop_assert_eq!(pages.are_free(), taken.is_empty());
            }
            for run in taken {
                pages.give(run);
            }
            prop_assert_eq!(pages.take(40), Some(0..40));
        }
    }
}
