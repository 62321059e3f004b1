// SPDX-License-Identifier: GPL-2.0

//! Adaptive polling in the kernel's units of time, by [`AdaptivePoll`].

use kernel::{
    prelude::*,
    time::Delta, //
};

use crate::{
    kernel_ext::wakeup,
    link::adaptive_poll::AdaptivePoll, //
};

/// The polling of one waiter, or of several for the same event.
pub(crate) struct Polling {
    policy: AdaptivePoll,
    /// Cost of a sleep and a wake-up in nanoseconds.
    wakeup: u64,
}

impl Polling {
    /// Creates the state of a waiter that has not waited yet.
    pub(crate) fn new() -> Self {
        Self::with(wakeup::cost().as_nanos().unsigned_abs())
    }

    fn with(wakeup: u64) -> Self {
        let policy = AdaptivePoll::new();
        Self { policy, wakeup }
    }

    /// Returns how long to poll, at most `most`.
    pub(crate) fn limit(&self, most: Delta) -> Delta {
        let limit = i64::try_from(self.policy.limit(self.wakeup)).unwrap_or(i64::MAX);
        Delta::from_nanos(limit).min(most)
    }

    /// Notes for how long the waiter polled, and whether the event came.
    pub(crate) fn note(&mut self, polled: Delta, found: bool) {
        let polled = polled.as_nanos().unsigned_abs();
        if found {
            self.policy.found(polled, self.wakeup);
        } else {
            self.policy.slept(polled, self.wakeup);
        }
    }
}

#[kunit_tests(uldma_polling)]
mod tests {
    use super::*;

    const MOST: Delta = Delta::from_secs(10);

    #[test]
    fn polling_in_vain_is_shortened_and_success_restores_it() {
        let mut polling = Polling::with(1_000_000);
        assert_eq!(polling.limit(MOST), Delta::from_millis(1));
        polling.note(Delta::from_millis(1), false);
        assert_eq!(polling.limit(MOST), Delta::from_micros(750));
        polling.note(Delta::from_micros(10), true);
        assert_eq!(polling.limit(MOST), Delta::from_millis(1));
    }

    #[test]
    fn the_administrator_bounds_it() {
        let polling = Polling::with(1_000_000);
        assert_eq!(
            polling.limit(Delta::from_micros(50)),
            Delta::from_micros(50)
        );
        assert_eq!(polling.limit(Delta::ZERO), Delta::ZERO);
        assert_eq!(Polling::with(u64::MAX).limit(MOST), MOST);
    }
}
