// SPDX-License-Identifier: GPL-2.0

//! How often a consumer of doorbells answers those that have nothing behind them.
//!
//! The masks of vectors bound the interrupts by the passes of their consumers, but not the passes: a peer
//! that rings for nothing would have one follow another. So these take a part of a processor's time at
//! most. A few in a row are free, since honest peers ring for what was found without them.

use kernel::{
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

use crate::{
    kernel_ext::wakeup,
    link::TICK, //
};

/// Ratio of the time between two passes to what one costs.
const PART: i64 = 8;
/// Passes in a row that are free.
const FREE: i64 = 8;

/// Returns the time between two passes for nothing. Each costs about one wake-up, so they take at most
/// 1/`PART` of a processor's time.
pub(crate) fn period() -> Delta {
    Delta::from_nanos(wakeup::cost().as_nanos().saturating_mul(PART)).min(TICK)
}

/// The passes of one consumer for nothing.
pub(crate) struct Throttle {
    born: Instant<Monotonic>,
    /// When all passes are paid for, in nanoseconds since `born`.
    paid: Atomic<i64>,
}

impl Throttle {
    /// Creates the state of a consumer that has made no pass.
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            paid: Atomic::new(0),
        }
    }

    /// Notes a pass for nothing.
    pub(crate) fn charge(&self) {
        let now = self.born.elapsed().as_nanos();
        // Of two at the same time, one may be forgotten.
        let paid = pay(self.paid.load(Relaxed), now, period().as_nanos());
        self.paid.store(paid, Relaxed);
    }

    /// Returns the time until the next doorbell is answered, if there were too many.
    pub(crate) fn left(&self) -> Option<Delta> {
        let now = self.born.elapsed().as_nanos();
        let left = left(self.paid.load(Relaxed), now, period().as_nanos());
        (left > 0).then_some(Delta::from_nanos(left))
    }
}

/// Returns when a pass at time `now` is paid for, where all before are at `paid`.
fn pay(paid: i64, now: i64, period: i64) -> i64 {
    paid.max(now).saturating_add(period)
}

/// Returns the time until the next pass, where all before are paid for at `paid`.
fn left(paid: i64, now: i64, period: i64) -> i64 {
    paid - now - FREE.saturating_mul(period)
}

#[kunit_tests(uldma_link_throttle)]
mod tests {
    use super::*;

    const PERIOD: i64 = 1000;

    /// Returns the passes within `time` of a peer that rings all the time.
    fn passes(time: i64) -> i64 {
        let (mut paid, mut now, mut count) = (0, 0, 0);
        while now < time {
            paid = pay(paid, now, PERIOD);
            now += left(paid, now, PERIOD).max(1);
            count += 1;
        }
        count
    }

    #[test]
    fn a_storm_takes_a_part_of_the_time() {
        assert!(passes(100 * PERIOD) <= 100 + FREE + 1);
    }

    #[test]
    fn a_few_are_free() {
        let mut paid = 0;
        for _ in 0..FREE {
            paid = pay(paid, 0, PERIOD);
            assert!(left(paid, 0, PERIOD) <= 0);
        }
        paid = pay(paid, 0, PERIOD);
        assert_eq!(left(paid, 0, PERIOD), PERIOD);
        // After a while they are again.
        assert!(left(paid, PERIOD, PERIOD) <= 0);
    }
}
