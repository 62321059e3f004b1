// SPDX-License-Identifier: GPL-2.0

//! How long a peer that ended its session has to wait for the next.
//!
//! The end of a session costs this node: connections are reset, mappings lead nowhere, programs are
//! told. A peer that restarts once is met again at once. One that ends sessions again and again, or
//! breaks the rules, waits twice as long each time, up to a limit; after a quiet time all is forgotten.

use kernel::prelude::*;

const MS: i64 = 1_000_000;
/// The first penalty of a peer that ends sessions too often, in nanoseconds.
const FLAPPING: i64 = 100 * MS;
/// The first penalty of a peer that breaks the rules.
const VIOLATION: i64 = 1000 * MS;
/// So long after its last penalty a peer begins anew.
const QUIET: i64 = 10_000 * MS;

/// The penalties of one peer; all times are nanoseconds of one clock.
#[derive(Debug)]
pub(super) struct Backoff {
    /// No penalty is longer.
    longest: i64,
    /// The last penalty, zero for a first end; none after a quiet time.
    penalty: Option<i64>,
    until: i64,
}

impl Backoff {
    /// Those of a peer that has had none; `longest` is as long as one can be.
    pub(super) fn new(longest: i64) -> Self {
        Self {
            longest,
            penalty: None,
            until: 0,
        }
    }

    /// Whether the peer still has to wait.
    pub(super) fn is_penalty(&self, now: i64) -> bool {
        self.penalty.is_some() && now < self.until
    }

    /// The peer ended its session; whether it has to wait.
    pub(super) fn flapped(&mut self, now: i64) -> bool {
        let penalty = self.recent(now).map_or(0, |last| last.max(FLAPPING));
        self.punish(now, penalty)
    }

    /// The peer broke the rules.
    pub(super) fn violated(&mut self, now: i64) {
        let last = self.recent(now).unwrap_or(0);
        self.punish(now, last.max(VIOLATION));
    }

    /// Twice the last penalty, if that was not long ago.
    fn recent(&self, now: i64) -> Option<i64> {
        let is_recent = now.saturating_sub(self.until) < QUIET;
        self.penalty.filter(|_| is_recent).map(|last| 2 * last)
    }

    fn punish(&mut self, now: i64, penalty: i64) -> bool {
        let penalty = penalty.min(self.longest);
        self.penalty = Some(penalty);
        self.until = now.saturating_add(penalty);
        penalty > 0
    }
}

#[kunit_tests(uldma_link_backoff)]
mod tests {
    use super::*;

    const LONGEST: i64 = 4000 * MS;

    #[test]
    fn a_restart_costs_nothing() {
        let mut backoff = Backoff::new(LONGEST);
        assert!(!backoff.is_penalty(0));
        assert!(!backoff.flapped(MS));
        assert!(!backoff.is_penalty(MS));
        // So does the next after a quiet time.
        assert!(!backoff.flapped(MS + QUIET));
    }

    #[test]
    fn flapping_costs_more_each_time() {
        let (mut backoff, mut now) = (Backoff::new(LONGEST), MS);
        assert!(!backoff.flapped(now));
        for penalty in [1, 2, 4, 8, 16, 32, 40, 40] {
            assert!(backoff.flapped(now));
            assert!(backoff.is_penalty(now + penalty * FLAPPING - 1));
            assert!(!backoff.is_penalty(now + penalty * FLAPPING));
            now += penalty * FLAPPING;
        }
        now += QUIET;
        assert!(!backoff.flapped(now));
    }

    #[test]
    fn flapping_for_ever_is_bounded() {
        let (mut backoff, mut now, mut sessions) = (Backoff::new(LONGEST), 0, 0);
        while now < 60_000 * MS {
            backoff.flapped(now);
            while backoff.is_penalty(now) {
                now += MS;
            }
            sessions += 1;
        }
        assert!(sessions <= 8 + 60_000 * MS / LONGEST);
    }

    #[test]
    fn violations_are_never_free() {
        let mut backoff = Backoff::new(LONGEST);
        backoff.violated(0);
        assert!(backoff.is_penalty(VIOLATION - 1));
        assert!(!backoff.is_penalty(VIOLATION));
        backoff.violated(VIOLATION);
        assert!(backoff.is_penalty(3 * VIOLATION - 1));
        backoff.violated(3 * QUIET);
        assert!(!backoff.is_penalty(3 * QUIET + VIOLATION));
    }
}
