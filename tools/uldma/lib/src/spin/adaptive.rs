// SPDX-License-Identifier: MIT OR Apache-2.0

//! A polling policy that knows when the other side sleeps.
//!
//! A waiter that has just rung the other side's doorbell gets no answer before that side is awake.
//! So it polls either longer than a wake-up, or not at all: for two wake-ups, and if that fails it
//! sleeps at once the next four times, then polls for four wake-ups, and so on up to sixteen. So a
//! pair of waiters that are both asleep polls again from the second message on; such waits take
//! less than twice the time of the best choice; and where the other side cannot run while this one
//! polls, it polls rarely. All other waits are those of [`AdaptivePoll`].

use crate::adaptive_poll::AdaptivePoll;

/// Decides when to stop polling. All times are ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adaptive {
    policy: AdaptivePoll,
    wakeup: u64,
    /// The awaited message is the answer to a doorbell.
    rang: bool,
    /// Polling time after a ring, in wake-ups.
    attempt: u64,
    /// Waits after a ring until it polls in one again.
    skip: u64,
}

impl Adaptive {
    /// First and largest polling time after a ring, in wake-ups.
    const SHORTEST: u64 = 2;
    const LONGEST: u64 = 16;

    /// Creates the policy, where sleeping and waking takes `wakeup`.
    pub(super) fn new(wakeup: u64) -> Self {
        Self {
            policy: AdaptivePoll::new(),
            wakeup,
            rang: false,
            attempt: Self::SHORTEST,
            skip: 0,
        }
    }

    /// Begins a wait. `rang` is true if it is for an answer of a side whose doorbell was just rung.
    pub(super) fn begin(&mut self, rang: bool) {
        self.rang = rang;
    }

    /// Returns the polling time.
    pub(super) fn limit(&self) -> u64 {
        match (self.rang, self.skip) {
            (false, _) => self.policy.limit(self.wakeup),
            (true, 0) => self.wakeup.saturating_mul(self.attempt),
            (true, _) => 0,
        }
    }

    pub(super) fn found(&mut self, polled: u64) {
        if self.rang {
            self.policy.found_at_once();
            self.attempt = Self::SHORTEST;
        } else {
            self.policy.found(polled, self.wakeup);
        }
    }

    #[inline(always)]
    pub(super) fn found_at_once(&mut self) {
        self.policy.found_at_once();
    }

    pub(super) fn slept(&mut self, polled: u64) {
        match (self.rang, self.skip) {
            (false, _) => self.policy.slept(polled, self.wakeup),
            (true, 0) => {
                self.skip = 2 * self.attempt;
                self.attempt = match 2 * self.attempt {
                    longer if longer <= Self::LONGEST => longer,
                    _ => Self::SHORTEST,
                };
            }
            (true, _) => self.skip -= 1,
        }
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
