// SPDX-License-Identifier: MIT OR Apache-2.0

//! Round trips of messages, beside those of a bare cache line over the same segments.

use uldma::measure::Clock;

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{Peer, Request};
use crate::timing::times;

const COUNT: u32 = 10_000;
const WARM_UP: u32 = 500;
/// Bytes of a message.
const SIZE: u32 = 8;

/// Bare words, messages, bare words again.
pub(crate) fn measure(peer: &mut Peer, figures: &mut Figures) -> Result<(), Failure> {
    let clock = Clock::start();
    raw(peer, &clock, WARM_UP)?;
    messages(peer, &clock, WARM_UP)?;
    let mut floor = raw(peer, &clock, COUNT)?;
    let ring = messages(peer, &clock, COUNT)?;
    floor.extend(raw(peer, &clock, COUNT)?);

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
