// SPDX-License-Identifier: GPL-2.0

//! The pace at which doorbells of segments are forwarded.
//!
//! A pass wakes the programs of all segments that a doorbell may be for, and peers decide how often
//! they ring. So each pass is followed by a pause, in which doorbells are only recorded; the next
//! pass forwards them as one. The pause is a multiple of the cost of the pass, so that passes take
//! a bounded share of a CPU. It is at least as long as two programs need that wake each other, so
//! that a peer cannot keep a program running, and programs that answer each other are not delayed.

use kernel::prelude::*;

/// Ratio of a pause to the pass before it.
const PART: i64 = 4;
/// Wake-ups between two doorbells of a segment if the other side answers each.
const WAKEUPS: i64 = 2;
/// Maximum pause, even if the pass was preempted for a long time: 100 ms.
const LONGEST: i64 = 100_000_000;

/// The time of the next pass; all times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: i64,
}

impl Pace {
    /// Returns the remaining time of the pause, if any.
    pub(super) fn pause(&self, now: i64) -> Option<i64> {
        let left = self.next.saturating_sub(now);
        (left > 0).then_some(left)
    }

    /// Notes a pass from `began` to `ended`, where a wake-up costs `wakeup`.
    pub(super) fn passed(&mut self, began: i64, ended: i64, wakeup: i64) {
        let cost = ended.saturating_sub(began).saturating_mul(PART);
        let pause = cost.max(wakeup.saturating_mul(WAKEUPS)).min(LONGEST);
        self.next = ended.saturating_add(pause);
    }
}

#[kunit_tests(uldma_progress_pace)]
mod tests {
    use super::*;

    /// Passes within `time`, where the doorbell rings all the time and a pass takes `cost`.
    fn storm(time: i64, cost: i64, wakeup: i64) -> i64 {
        let (mut pace, mut now, mut passes) = (Pace::default(), 0, 0);
        while now < time {
            now += pace.pause(now).unwrap_or(0);
            pace.passed(now, now + cost, wakeup);
            now += cost;
            passes += 1;
        }
        passes
    }

    #[test]
    fn the_first_ring_is_passed_on_at_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(7), None);
        pace.passed(10, 20, 100);
        assert_eq!(pace.pause(20), Some(200));
        assert_eq!(pace.pause(219), Some(1));
        assert_eq!(pace.pause(220), None);
    }

    #[test]
    fn a_storm_takes_a_part_of_the_time() {
        let (time, cost) = (1_000_000, 1000);
        assert!(storm(time, cost, 1) * cost <= time / PART);
        assert!(storm(time, 1, 1000) <= time / (WAKEUPS * 1000) + 1);
    }

    #[test]
    fn answered_rings_are_not_delayed() {
        let (mut pace, mut now) = (Pace::default(), 0);
        for _ in 0..100 {
            assert_eq!(pace.pause(now), None);
            pace.passed(now, now + 10, 100);
            // The program is woken and answers, and so does the other.
            now += 10 + WAKEUPS * 100;
        }
    }
}
