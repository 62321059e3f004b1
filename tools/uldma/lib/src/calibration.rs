// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures the time of a wake-up over a link, after the handshake of its two sides.
//!
//! Both sides sleep in turns until the other one rings. A doorbell takes a longer path than a
//! timer's interrupt: ten times as long between emulated machines. The first rounds do not count,
//! since processors that were busy until then wake up in a tenth of the time. Of the other rounds
//! the lower quartile counts: a round takes longer when another program has the processor. A side
//! whose peer does not participate continues without a result.

use std::time::{Duration, Instant};

use crate::link::Link;
use crate::ring::{layout, Inbound, Outbound};
use crate::ticks;

/// Number of rounds.
const ROUNDS: u64 = 12;
/// Number of first rounds that do not count if there are more.
const WARM_UP: usize = 4;
/// Limit of the measurement's time, if the caller's deadline is not earlier.
pub(crate) const LIMIT: Duration = Duration::from_millis(100);

/// Returns the ticks of a wake-up, if the peer participates before `deadline`. Exactly one of the
/// sides has to be `first`.
pub(crate) fn measure<L: Link>(link: &L, first: bool, deadline: Instant) -> Option<u64> {
    let deadline = deadline.min(Instant::now() + LIMIT);
    let mut wakeups = Vec::new();
    let mut rang = None;
    for round in 1..=ROUNDS {
        if first {
            rang = Some(ring(link, round)?);
        }
        if !rung(link, round, deadline) {
            break;
        }
        wakeups.extend(rang.map(|rang| ticks::since(rang) / 2));
        if !first {
            rang = Some(ring(link, round)?);
        }
    }
    usual(wakeups)
}

/// Returns the lower quartile of the rounds; none without rounds.
fn usual(mut rounds: Vec<u64>) -> Option<u64> {
    if rounds.len() > WARM_UP {
        rounds.drain(..WARM_UP);
    }
    lower_quartile(rounds)
}

/// Returns a value that a quarter of these do not exceed.
fn lower_quartile(mut wakeups: Vec<u64>) -> Option<u64> {
    wakeups.sort_unstable();
    wakeups.get(wakeups.len() / 4).copied()
}

/// Rings the peer for a round. Returns the time.
fn ring<L: Link>(link: &L, round: u64) -> Option<u64> {
    link.outbound().publish(layout::ROUND, round);
    let now = ticks::now();
    link.ring().ok().map(|()| now)
}

/// Sleeps until the peer has rung for that round; returns false when the deadline is reached first.
fn rung<L: Link>(link: &L, round: u64, deadline: Instant) -> bool {
    loop {
        let seen = link.rings();
        if link.inbound().acquire(layout::ROUND) >= round {
            return true;
        }
        if Instant::now() >= deadline || link.wait(seen, deadline).is_err() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback;

    #[test]
    fn both_sides_learn_how_long_the_other_takes() {
        let (here, there) = loopback::pair(64);
        let later = Instant::now() + Duration::from_secs(20);
        let far = std::thread::spawn(move || measure(&there, false, later));
        let near = measure(&here, true, later);
        let far = far.join().unwrap();
        for took in [near, far] {
            assert!(took.is_some_and(|took| took < ticks::of(LIMIT)), "{took:?}");
        }
    }

    #[test]
    fn neither_a_short_round_nor_a_long_one_decides() {
        assert_eq!(usual(vec![]), None);
        assert_eq!(usual(vec![7]), Some(7));
        assert_eq!(
            usual(vec![5, 5, 5, 5, 9_000, 100, 10, 110, 5_000, 130]),
            Some(100)
        );
    }

    #[test]
    fn a_peer_that_takes_no_part_costs_little_time() {
        let (here, _there) = loopback::pair(64);
        let start = Instant::now();
        assert_eq!(measure(&here, true, start), None);
        assert_eq!(measure(&here, true, start + 2 * LIMIT), None);
        let took = start.elapsed();
        assert!(took >= LIMIT, "{took:?}");
    }

    #[test]
    fn a_peer_that_has_answered_before_it_was_rung_makes_a_wakeup_short() {
        let (here, there) = loopback::pair(64);
        there.publish(layout::ROUND, u64::MAX);
        let took = measure(&here, true, Instant::now() + LIMIT);
        assert!(took.is_some_and(|took| took < ticks::of(LIMIT)), "{took:?}");
    }
}
