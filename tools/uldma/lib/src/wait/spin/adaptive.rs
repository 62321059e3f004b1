// SPDX-License-Identifier: MIT OR Apache-2.0

//! The polling policy of the driver and the library, for a waiter whose wake-ups always cost the same.

use crate::wait::adaptive_poll::AdaptivePoll;

/// Decides when to stop polling. All times are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adaptive {
    policy: AdaptivePoll,
    wakeup: u64,
}

impl Adaptive {
    /// Creates the policy, where sleeping and waking takes `wakeup`.
    pub(super) fn new(wakeup: u64) -> Self {
        Self {
            policy: AdaptivePoll::new(),
            wakeup,
        }
    }

    /// Begins a wait. `rang` is true if it is for an answer of a side whose doorbell was just rung.
    pub(super) fn begin(&mut self, rang: bool) {
        self.policy.begin(rang);
    }

    /// Returns the polling time.
    pub(super) fn limit(&self) -> u64 {
        self.policy.limit(self.wakeup)
    }

    pub(super) fn found(&mut self, polled: u64) {
        self.policy.found(polled, self.wakeup);
    }

    #[inline(always)]
    pub(super) fn found_at_once(&mut self) {
        self.policy.found_at_once();
    }

    pub(super) fn slept(&mut self, polled: u64) {
        self.policy.slept(polled, self.wakeup);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_ring_it_polls_for_longer_than_a_wakeup_or_not_at_all() {
        let mut waiter = Adaptive::new(100);
        waiter.begin(true);
        for attempt in [2, 4, 8, 16, 2] {
            assert_eq!(waiter.limit(), 100 * attempt);
            waiter.slept(100 * attempt);
            for _ in 0..2 * attempt {
                assert_eq!(waiter.limit(), 0);
                waiter.slept(0);
            }
        }
        waiter.found(120);
        assert_eq!(waiter.limit(), 200);
        waiter.begin(false);
        assert_eq!(waiter.limit(), 100);
    }
}
