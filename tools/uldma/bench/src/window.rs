// SPDX-License-Identifier: MIT OR Apache-2.0

//! Throughput of plain stores into the peer's window.

use uldma::measure::Clock;
use uldma::Device;

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{Peer, Request};
use crate::timing::{throughput, times};

const MOST: u64 = 4 << 20;
const ROUNDS: u32 = 25;

/// Stores as much as half of what is free in the window, 4 MiB at most.
pub(crate) fn measure(
    device: &Device,
    peer: &mut Peer,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let query = device.query()?;
    // The peer's half is as large as ours, and as full.
    let free = query.window_size.saturating_sub(query.window_used);
    let bytes = MOST.min(free / 2).max(4096);
    let name = peer.ask_name(&Request::Segment { bytes })?;
    let segment = device.attach_segment(name, peer.timeout)?;
    let source = vec![0x5a; segment.length()];
    let clock = Clock::start();
    let mut samples = Vec::new();
    for round in 0..=ROUNDS {
        let before = clock.ticks();
        segment.write(0, &source)?;
        if round > 0 {
            samples.push(clock.ticks() - before);
        }
    }
    let median = times(&clock, &samples, 1).median();
    let value = throughput(source.len() as u64, median);
    figures.add("window.store.throughput", value, "MB/s", None, None);
    Ok(())
}
