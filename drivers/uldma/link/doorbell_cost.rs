// SPDX-License-Identifier: GPL-2.0

//! The cost of a doorbell: the time from ringing a peer that sleeps until its driver runs.
//!
//! A timer's interrupt takes a shorter way than a doorbell: where devices are emulated, a tenth of
//! the time or less. So each node measures the doorbell once in each session. While both nodes
//! sleep, it sends a query that no object answers, and sleeps until the doorbell of the answer
//! rings. Half of that time is the cost.
//!
//! A peer decides when it answers. So the cost is at most that which the parameter `wakeup_us` can
//! set, one query is in flight at a time, and a session has a limited number of them.

use kernel::prelude::*;

use crate::kernel_ext::wakeup::Rounds;

/// Maximum number of queries of a session, if other messages disturb rounds.
const TRIES: u32 = 64;

/// The number of the queries; requests of programs have other numbers.
pub(super) const REQUEST: u32 = 0;
/// The name that they ask for, which no object can have.
pub(super) const NAME: u64 = 0;

/// Counters of this node that show if it slept during a round, and if other messages arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Number of times that the node woke up.
    pub(super) wakes: u64,
    /// Number of messages that the peer sent.
    pub(super) received: u64,
}

/// A query in flight.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Nanoseconds.
    sent: i64,
    traffic: Traffic,
}

/// The measurement of one session.
#[derive(Debug, Default)]
pub(super) struct DoorbellCost {
    tries: u32,
    pending: Option<Round>,
    rounds: Rounds,
}

impl DoorbellCost {
    /// Returns true if a query should be sent when both nodes sleep.
    pub(super) fn is_wanted(&self) -> bool {
        self.pending.is_none() && !self.is_over()
    }

    /// Returns true if no more queries will be sent.
    pub(super) fn is_over(&self) -> bool {
        self.rounds.is_complete() || self.tries == TRIES
    }

    /// Notes that the doorbell of a query rang at time `now`.
    pub(super) fn asked(&mut self, now: i64, traffic: Traffic) {
        self.tries += 1;
        self.pending = Some(Round { sent: now, traffic });
    }

    /// Notes the answer to the query, which `traffic` includes. Returns the cost in nanoseconds when
    /// the measurement is over.
    pub(super) fn answered(&mut self, now: i64, traffic: Traffic) -> Option<i64> {
        let round = self.pending.take()?;
        let slept = Traffic {
            wakes: round.traffic.wakes + 1,
            received: round.traffic.received + 1,
        };
        if traffic == slept {
            self.rounds.add(now.saturating_sub(round.sent) / 2);
        }
        self.is_over().then(|| self.rounds.usual()).flatten()
    }
}

#[kunit_tests(uldma_link_doorbell_cost)]
mod tests {
    use super::*;

    /// Measures with a peer that answers each query after twice the `cost` of its number.
    fn measure(cost: impl Fn(u32) -> i64) -> (u32, Option<i64>) {
        let (mut measurement, mut traffic) = (DoorbellCost::default(), Traffic::default());
        let (mut now, mut queries) = (0, 0);
        let mut result = None;
        while measurement.is_wanted() {
            measurement.asked(now, traffic);
            now += 2 * cost(queries);
            queries += 1;
            traffic.wakes += 1;
            traffic.received += 1;
            result = measurement.answered(now, traffic);
        }
        (queries, result)
    }

    #[test]
    fn the_cost_is_half_of_a_round() {
        assert_eq!(measure(|_| 700), (20, Some(700)));
    }

    #[test]
    fn a_round_counts_only_if_the_node_slept_undisturbed() {
        let (mut measurement, before) = (DoorbellCost::default(), Traffic::default());
        let after = |wakes, received| Traffic { wakes, received };
        // The node was awake; it woke up for something else before; another message came.
        for traffic in [after(0, 1), after(2, 1), after(1, 2)] {
            measurement.asked(0, before);
            assert!(!measurement.is_wanted());
            assert_eq!(measurement.answered(1000, traffic), None);
        }
        let mut rounds = 0;
        while measurement.is_wanted() {
            measurement.asked(0, before);
            let result = measurement.answered(1000, after(1, 1));
            rounds += 1;
            assert_eq!(result.is_some(), !measurement.is_wanted());
            // There is no query any more.
            assert_eq!(measurement.answered(1, after(1, 1)), None);
        }
        assert_eq!(rounds, 20);
    }

    #[test]
    fn a_peer_that_disturbs_all_rounds_is_asked_a_limited_number_of_times() {
        let mut measurement = DoorbellCost::default();
        let mut queries = 0;
        while measurement.is_wanted() {
            measurement.asked(0, Traffic::default());
            assert_eq!(measurement.answered(7, Traffic::default()), None);
            queries += 1;
        }
        assert_eq!(queries, TRIES);
    }

    #[test]
    fn a_peer_that_does_not_answer_is_asked_once() {
        let mut measurement = DoorbellCost::default();
        measurement.asked(0, Traffic::default());
        assert!(!measurement.is_wanted());
    }
}
