// SPDX-License-Identifier: GPL-2.0

//! The cost of a doorbell as the messages of connections show it.
//!
//! What a doorbell costs depends on what else the machines do, so a measurement between idle nodes
//! holds for idle nodes. This module follows the cost in use, by the four times of PTP's peer delay:
//! a node notes when it rings a peer and when the next message of that peer arrives; the peer adds
//! to that message the time for which it was awake before, its *turnaround*. The rest is one
//! wake-up of the peer if this node polled meanwhile, and one of each if the peer had to ring it.
//! The clocks of the two nodes need not agree.
//!
//! A peer can report any turnaround. So [`followed`](crate::kernel_ext::wakeup::followed) bounds a
//! sample, and the result.

use kernel::prelude::*;

/// Maximum turnaround in nanoseconds, 100 ms. Clocks of two nodes differ by up to 100 ppm in their
/// rates, which this makes at most 10 us.
const LONGEST: u64 = 100_000_000;

/// The times of the messages between this node and one peer; all are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Turnaround {
    /// When this node rang the peer, unless the peer has sent a message since.
    rang: Option<i64>,
    /// When the peer's doorbell woke this node, until it has looked for messages.
    woken: Option<i64>,
    /// When the doorbell woke this node of which the next message to the peer tells.
    rung: Option<i64>,
}

impl Turnaround {
    /// Notes that this node rang the peer at time `now`.
    pub(super) fn rang(&mut self, now: i64) {
        self.rang = Some(now);
    }

    /// Notes that this node slept until a doorbell woke it at time `now`.
    pub(super) fn woken(&mut self, now: i64) {
        self.woken = Some(now);
    }

    /// Returns the turnaround for the next message to the peer, or 0 if the peer did not wake this
    /// node.
    pub(super) fn next(&self, now: i64) -> u64 {
        let since = self.rung.map_or(0, |rung| now.saturating_sub(rung));
        let turnaround = u64::try_from(since).ok();
        turnaround.filter(|it| *it <= LONGEST).unwrap_or(0)
    }

    /// Notes that the peer was told.
    pub(super) fn told(&mut self) {
        self.rung = None;
    }

    /// Notes that no message of the peer is here.
    pub(super) fn found_none(&mut self) {
        self.woken = None;
    }

    /// Notes a message with the `turnaround` of the peer. Returns the cost of a doorbell that it
    /// shows, if any.
    pub(super) fn received(&mut self, now: i64, turnaround: u64) -> Option<i64> {
        let woken = self.woken.take();
        self.rung = woken.or(self.rung);
        let rang = self.rang.take()?;
        let turnaround = match turnaround {
            1..=LONGEST => i64::try_from(turnaround).ok()?,
            _ => return None,
        };
        let awaking = now.saturating_sub(rang).saturating_sub(turnaround);
        let wakeups = if woken.is_some() { 2 } else { 1 };
        // The peer was awake already if nothing is left.
        (awaking > 0).then_some(awaking / wakeups)
    }
}

#[kunit_tests(uldma_link_turnaround)]
mod tests {
    use super::*;

    /// Two nodes with clocks of their own, where a doorbell costs 700 and its way back 300.
    struct Pair {
        near: Turnaround,
        far: Turnaround,
    }

    const OFFSET: i64 = 1_000_000;

    impl Pair {
        fn new() -> Self {
            Self {
                near: Turnaround::default(),
                far: Turnaround::default(),
            }
        }

        /// The near node rings the far one at time 0, which answers `later` than it wakes up.
        fn ring(&mut self, later: i64) -> u64 {
            self.near.rang(0);
            self.far.woken(OFFSET + 700);
            assert_eq!(self.far.received(OFFSET + 700, 0), None);
            let now = OFFSET + 700 + later;
            let turnaround = self.far.next(now);
            // There was no room for the message.
            assert_eq!(self.far.next(now), turnaround);
            self.far.told();
            turnaround
        }
    }

    #[test]
    fn a_node_that_polls_sees_the_wakeup_of_the_peer() {
        let mut pair = Pair::new();
        let turnaround = pair.ring(50);
        assert_eq!(turnaround, 50);
        assert_eq!(pair.near.received(750, turnaround), Some(700));
        // The next one is not for that doorbell.
        assert_eq!(pair.far.next(OFFSET + 900), 0);
        assert_eq!(pair.near.received(1000, 50), None);
    }

    #[test]
    fn a_node_that_sleeps_sees_half_of_both_wakeups() {
        let mut pair = Pair::new();
        let turnaround = pair.ring(5000);
        pair.near.woken(6000);
        assert_eq!(pair.near.received(6000, turnaround), Some(500));
    }

    #[test]
    fn a_doorbell_of_another_peer_is_none_of_this_one() {
        let mut pair = Pair::new();
        let turnaround = pair.ring(50);
        pair.near.woken(400);
        pair.near.found_none();
        assert_eq!(pair.near.received(750, turnaround), Some(700));
    }

    #[test]
    fn the_last_doorbell_counts() {
        let mut pair = Pair::new();
        pair.near.rang(0);
        pair.far.woken(OFFSET + 700);
        assert_eq!(pair.far.received(OFFSET + 700, 0), None);
        // The far node slept again without an answer, and so did the near one.
        pair.near.rang(10_000);
        pair.far.woken(OFFSET + 10_700);
        assert_eq!(pair.far.received(OFFSET + 10_700, 0), None);
        let turnaround = pair.far.next(OFFSET + 10_701);
        assert_eq!(pair.near.received(10_701, turnaround), Some(700));
    }

    #[test]
    fn a_peer_that_lies_shows_nothing() {
        for turnaround in [0, LONGEST + 1, u64::MAX, 5000] {
            let mut near = Turnaround::default();
            near.rang(0);
            assert_eq!(near.received(5000, turnaround), None);
        }
    }
}
