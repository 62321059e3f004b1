// SPDX-License-Identifier: GPL-2.0

//! The backoff of a peer before it begins again what it ended: a session, or an agreement about the
//! network.
//!
//! The end of a session is expensive for this node: connections are reset, mappings are revoked,
//! programs are notified; so is that of an agreement, which drops and allocates what the device
//! receives to. A peer that restarts once is met again at once. For a peer that keeps ending them,
//! or violates the protocol, the backoff doubles each time up to a limit. It is reset after a quiet
//! time.

use kernel::prelude::*;

const MS: i64 = 1_000_000;
/// First backoff of a peer that keeps ending sessions, in nanoseconds.
const FLAPPING: i64 = 100 * MS;
/// First backoff of a peer that violates the protocol.
const VIOLATION: i64 = 1000 * MS;
/// Time after the last backoff when it is reset.
const QUIET: i64 = 10_000 * MS;

/// The backoff of one peer for one thing; all times are nanoseconds of one clock.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Maximum backoff.
    longest: i64,
    /// The last backoff, zero after a first end; none after a quiet time.
    penalty: Option<i64>,
    until: i64,
}

impl Backoff {
    /// Creates the state of a new peer; `longest` is the maximum backoff.
    pub(crate) fn new(longest: i64) -> Self {
        Self {
            longest,
            penalty: None,
            until: 0,
        }
    }

    /// Returns true during a backoff.
    pub(crate) fn is_penalty(&self, now: i64) -> bool {
        self.penalty.is_some() && now < self.until
    }

    /// Notes that the peer ended what it began. Returns true if a backoff follows.
    pub(crate) fn flapped(&mut self, now: i64) -> bool {
        let penalty = self.recent(now).map_or(0, |last| last.max(FLAPPING));
        self.punish(now, penalty)
    }

    /// Notes that the peer violated the protocol.
    pub(crate) fn violated(&mut self, now: i64) {
        let last = self.recent(now).unwrap_or(0);
        self.punish(now, last.max(VIOLATION));
    }

    /// Returns twice the last backoff, unless it was reset.
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
