// SPDX-License-Identifier: MIT OR Apache-2.0

//! Round trips of messages, beside those of a bare cache line over the same segments.

use uldma::measure::Clock;

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{Peer, Request};
use crate::timing::times;

/// Round trips of each kind at most.
const COUNT: u32 = 10_000;
/// Round trips from which the time of many is foreseen.
const WARM_UP: u32 = 100;
/// Nanoseconds that those of each kind may take: where both nodes share one processor, each round trip
/// waits for the host's scheduler.
const TIME: f64 = 5e9;
/// Bytes of a message.
const SIZE: u32 = 8;

/// Bare words, messages, bare words again.
pub(crate) fn measure(peer: &mut Peer, figures: &mut Figures) -> Result<(), Failure> {
    let clock = Clock::start();
    let bare = raw(peer, &clock, WARM_UP)?;
    let bare = fitting(&clock, &bare);
    let count = messages(peer, &clock, WARM_UP)?;
    let count = fitting(&clock, &count);
    let mut floor = raw(peer, &clock, bare)?;
    let ring = messages(peer, &clock, count)?;
    floor.extend(raw(peer, &clock, bare)?);

    let (ring, floor) = (times(&clock, &ring, 1), times(&clock, &floor, 1));
    figures.add(
        "ring.rtt.p50",
        ring.median(),
        "ns",
        Some(floor.median()),
        None,
    );
    figures.add(
        "ring.rtt.p99",
        ring.quantile(0.99),
        "ns",
        Some(floor.quantile(0.99)),
        None,
    );
    Ok(())
}

/// How many round trips like these take [`TIME`], if that is fewer than [`COUNT`].
fn fitting(clock: &Clock, ticks: &[u64]) -> u32 {
    let mean = ticks.iter().sum::<u64>() as f64 * clock.rate() / ticks.len().max(1) as f64;
    ((TIME / mean.max(1.0)) as u32).clamp(1, COUNT)
}

fn raw(peer: &mut Peer, clock: &Clock, count: u32) -> Result<Vec<u64>, Failure> {
    peer.ask(&Request::Raw { count })?;
    Ok(peer.channel.raw_ping(count, clock, peer.timeout)?)
}

fn messages(peer: &mut Peer, clock: &Clock, count: u32) -> Result<Vec<u64>, Failure> {
    peer.ask(&Request::Ping { size: SIZE, count })?;
    Ok(peer
        .channel
        .ping(&[0x5a; SIZE as usize], count, clock, peer.timeout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_round_trips_are_few() {
        let clock = Clock::start();
        let ticks = |nanoseconds: f64| vec![(nanoseconds / clock.rate()) as u64; 8];
        assert_eq!(fitting(&clock, &ticks(500.0)), COUNT);
        assert!((45..=55).contains(&fitting(&clock, &ticks(1e8))));
        assert_eq!(fitting(&clock, &ticks(1e12)), 1);
    }
}
