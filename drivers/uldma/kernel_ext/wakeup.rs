// SPDX-License-Identifier: GPL-2.0

//! The cost of a sleep and a wake-up on this machine, measured when the module is loaded.
//!
//! The measured sleep ends by a timer. An interrupt of a device takes a longer way, above all where the
//! device or the processor is emulated; the link measures its doorbells, and this module bounds
//! what it finds.

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::sort::sort_by_key;

/// The first length; it is doubled until a wake-up takes at most half of it. The time
/// of a shorter sleep is over before the processor sleeps, and nothing is measured.
const SHORTEST: Delta = Delta::from_micros(20);

/// Maximum cost, even if the machine was stopped during the measurement: callers sleep for so long
/// between two reads of a register.
const LONGEST: Delta = Delta::from_millis(20);

/// Minimum cost: a timer with a period of a few costs must leave time between its interrupts.
const LEAST: Delta = Delta::from_micros(1);

/// First rounds of a measurement, which do not count, since processors that were busy until then wake
/// up sooner.
const WARM_UP: usize = 4;
/// Rounds that count.
const COUNTED: usize = 8;

static NANOSECONDS: Atomic<i64> = Atomic::new(LEAST.as_nanos());

/// Sets the cost to `given`, or measures it.
///
/// Sleeps for the time of a few wake-ups.
pub(crate) fn set(given: Option<Delta>) {
    let nanoseconds = given.map_or_else(measure, Delta::as_nanos);
    NANOSECONDS.store(bounded(nanoseconds), Relaxed);
}

/// Returns the nearest cost that a sleep can have, in nanoseconds.
pub(crate) fn bounded(nanoseconds: i64) -> i64 {
    nanoseconds.clamp(LEAST.as_nanos(), LONGEST.as_nanos())
}

/// Returns the time from the end of a sleep until the sleeper runs.
pub(crate) fn cost() -> Delta {
    Delta::from_nanos(NANOSECONDS.load(Relaxed))
}

/// The times of a sleeper that an interrupt wakes again and again.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    taken: usize,
    costs: [i64; COUNTED],
}

impl Rounds {
    /// Adds a round of so many nanoseconds.
    pub(crate) fn add(&mut self, cost: i64) {
        let place = self.taken.checked_sub(WARM_UP);
        if let Some(place) = place.and_then(|place| self.costs.get_mut(place)) {
            *place = cost;
        }
        self.taken += 1;
    }

    /// Returns true if no more rounds are needed.
    pub(crate) fn is_complete(&self) -> bool {
        self.taken >= WARM_UP + COUNTED
    }

    /// Returns the lower quartile, if any round counts: a round takes longer while another program
    /// has the processor.
    pub(crate) fn usual(&self) -> Option<i64> {
        let count = self.taken.saturating_sub(WARM_UP).min(COUNTED);
        let mut costs = self.costs;
        let costs = costs.get_mut(..count)?;
        sort_by_key(costs, |cost| *cost);
        costs.get(count / 4).copied()
    }
}

fn measure() -> i64 {
    let mut length = SHORTEST;
    loop {
        let cost = after_sleeping(length);
        if 2 * cost <= length.as_nanos() || length >= LONGEST {
            return cost;
        }
        length = length + length;
    }
}

/// Returns the nanoseconds by which a sleep of this length lasts longer. This is the median of
/// three, since one may be preempted.
fn after_sleeping(length: Delta) -> i64 {
    let microseconds = c_ulong::try_from(length.as_micros_ceil()).unwrap_or(0);
    let mut sleeps = [0; 3];
    for sleep in &mut sleeps {
        let start: Instant<Monotonic> = Instant::now();
        // SAFETY: Modules are loaded in process context, where sleeping is allowed.
        unsafe {
            bindings::usleep_range_state(
                microseconds,
                microseconds,
                bindings::TASK_UNINTERRUPTIBLE,
            );
        }
        *sleep = start.elapsed().as_nanos() - length.as_nanos();
    }
    let [a, b, c] = sleeps;
    a.max(b).min(c).max(a.min(b))
}

#[kunit_tests(uldma_wakeup)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_first_rounds_nor_a_long_one_decides() {
        let mut rounds = Rounds::default();
        for cost in [10, 10, 10, 10, 704, 703, 702, 701, 1_000_000, 705, 706, 707] {
            assert!(!rounds.is_complete());
            rounds.add(cost);
        }
        assert!(rounds.is_complete());
        assert_eq!(rounds.usual(), Some(703));
        // More rounds change nothing.
        rounds.add(1);
        assert_eq!(rounds.usual(), Some(703));
    }

    #[test]
    fn rounds_that_do_not_count_have_no_result() {
        let mut rounds = Rounds::default();
        for _ in 0..WARM_UP {
            rounds.add(7);
            assert_eq!(rounds.usual(), None);
        }
        rounds.add(9);
        assert_eq!(rounds.usual(), Some(9));
    }

    #[test]
    fn costs_are_bounded() {
        assert_eq!(bounded(i64::MAX), LONGEST.as_nanos());
        assert_eq!(bounded(-1), LEAST.as_nanos());
        assert_eq!(bounded(700_000), 700_000);
    }
}
