// SPDX-License-Identifier: MIT OR Apache-2.0

//! Throughput of transfers into a region of the peer.

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Access, Buffer, Context, Device, Import, Region, Shadow, Spin, Started};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{Peer, Request};
use crate::timing::{throughput, times, Times};

const LARGE: u64 = 16 << 20;
const SMALL: u64 = 1 << 20;
const LARGE_ROUNDS: u32 = 25;
const SMALL_ROUNDS: u32 = 60;

/// 16 MiB and 1 MiB, started at user level, and 16 MiB started by the kernel.
pub(crate) fn measure(
    device: &Device,
    peer: &mut Peer,
    floor: Option<f64>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let name = peer.ask_name(&Request::Region { bytes: LARGE })?;
    let import = device.import(name, Access::Write, peer.timeout)?;
    let mut buffer = Buffer::new(LARGE as usize)?;
    buffer.fill(0xa5);
    let region = device.register(buffer, Access::Read)?;

    let context = device.context()?;
    let ends = (context.shadow(&region)?, context.shadow(&import)?);
    let (_, large) = shadow(&context, &ends, LARGE, LARGE_ROUNDS, peer.timeout)?;
    let large = throughput(LARGE, large.median());
    figures.add("dma.16m.throughput", large, "MB/s", floor, None);

    let (start, small) = shadow(&context, &ends, SMALL, SMALL_ROUNDS, peer.timeout)?;
    let (start, total) = (start.median(), small.median());
    figures.add(
        "dma.1m.throughput",
        throughput(SMALL, total),
        "MB/s",
        floor,
        None,
    );
    figures.add(
        "dma.1m.initiation_share",
        start / total.max(1.0),
        "1",
        None,
        None,
    );

    let kernel = through_kernel(device, &region, &import, peer.timeout)?;
    let kernel = throughput(LARGE, kernel.median());
    figures.add("dma.16m.kernel.throughput", kernel, "MB/s", floor, None);
    Ok(())
}

/// Times of the start alone, and of start and wait together.
fn shadow(
    context: &Context,
    ends: &(Shadow<'_>, Shadow<'_>),
    bytes: u64,
    rounds: u32,
    timeout: Duration,
) -> Result<(Times, Times), Failure> {
    let wait = (Spin::MEASURE, timeout);
    let clock = Clock::start();
    let (mut starts, mut totals) = (Vec::new(), Vec::new());
    // The first one meets pages that nobody has touched yet; it does not count.
    for round in 0..=rounds {
        let mut started = Started::new();
        let before = clock.ticks();
        context.start(&mut started, (&ends.0, 0), (&ends.1, 0), bytes, wait)?;
        let between = clock.ticks();
        context.finish(&mut started, wait)?;
        if round > 0 {
            starts.push(between - before);
            totals.push(clock.ticks() - before);
        }
    }
    Ok((times(&clock, &starts, 1), times(&clock, &totals, 1)))
}

fn through_kernel(
    device: &Device,
    region: &Region,
    import: &Import,
    timeout: Duration,
) -> Result<Times, Failure> {
    let clock = Clock::start();
    let mut samples = Vec::new();
    for _ in 0..LARGE_ROUNDS {
        let before = clock.ticks();
        let ticket = device.dma((region, 0), (import, 0), LARGE)?;
        device.dma_wait(ticket, timeout)?;
        samples.push(clock.ticks() - before);
    }
    Ok(times(&clock, &samples, 1))
}
