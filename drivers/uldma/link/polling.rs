// SPDX-License-Identifier: GPL-2.0

//! Adaptive polling in the kernel's units of time, by [`AdaptivePoll`].

use kernel::{
    prelude::*,
    time::Delta, //
};

use crate::link::adaptive_poll::AdaptivePoll;

/// The polling of one waiter, or of several for the same event.
pub(crate) struct Polling(AdaptivePoll);

impl Polling {
    /// Creates the state of a waiter that has not waited yet.
    pub(crate) fn new() -> Self {
        Self(AdaptivePoll::new())
    }

    /// Begins a wait. `rang` is true if it is for the answer of a peer whose doorbell was just rung.
    pub(crate) fn begin(&mut self, rang: bool) {
        self.0.begin(rang);
    }

    /// Returns how long to poll, at most `most`, where a sleep and a wake-up cost `wakeup`.
    pub(crate) fn limit(&self, wakeup: Delta, most: Delta) -> Delta {
        let limit = self.0.limit(wakeup.as_nanos().unsigned_abs());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Delta::from_nanos(limit).min(most)
    }

    /// Notes for how long the waiter polled, and whether the event came; `wakeup` is as before.
    pub(crate) fn note(&mut self, wakeup: Delta, polled: Delta, found: bool) {
        let wakeup = wakeup.as_nanos().unsigned_abs();
        let polled = polled.as_nanos().unsigned_abs();
        if found {
            self.0.found(polled, wakeup);
        } else {
            self.0.slept(polled, wakeup);
        }
    }
}

#[kunit_tests(uldma_polling)]
mod tests {
    use super::*;

    const MOST: Delta = Delta::from_secs(10);
    const WAKEUP: Delta = Delta::from_millis(1);

    #[test]
    fn polling_in_vain_is_shortened_and_success_restores_it() {
        let mut polling = Polling::new();
        assert_eq!(polling.limit(WAKEUP, MOST), WAKEUP);
        polling.note(WAKEUP, WAKEUP, false);
        assert_eq!(polling.limit(WAKEUP, MOST), Delta::from_micros(750));
        polling.note(WAKEUP, Delta::from_micros(10), true);
        assert_eq!(polling.limit(WAKEUP, MOST), WAKEUP);
    }

    #[test]
    fn the_administrator_bounds_it() {
        let polling = Polling::new();
        let short = Delta::from_micros(50);
        assert_eq!(polling.limit(WAKEUP, short), short);
        assert_eq!(polling.limit(WAKEUP, Delta::ZERO), Delta::ZERO);
        assert_eq!(polling.limit(MOST * 2, MOST), MOST);
    }
}
