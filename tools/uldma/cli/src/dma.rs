// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma dma`: copies memory to memory on this node, and checks every byte.

use std::time::Instant;

use serde::Serialize;
use uldma::measure::{Clock, Tracer};
use uldma::{Access, Buffer, Device, Region, Spin, Started};

use crate::args::{Common, Dma, LocalMethod};
use crate::failure::{Failure, Kind, Result};
use crate::output::{self, or_dash};
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Default, Serialize)]
struct Report {
    schema_version: u32,
    method: &'static str,
    bytes: u64,
    count: u32,
    seconds: f64,
    mb_per_s: f64,
    /// Of the first transfer's initiations (kernel: of all), waits not included.
    syscalls: Option<u64>,
    mmio_loads: Option<u64>,
    mmio_stores: Option<u64>,
    initiations: u64,
    verified: bool,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, verb: &Dma) -> Result<()> {
    if verb.size == 0 || verb.count == 0 {
        return Err(Failure::new(
            Kind::Failed,
            "--size and --count must not be zero",
        ));
    }
    let length = usize::try_from(verb.size)
        .map_err(|_| Failure::new(Kind::Failed, "--size is more than this machine can address"))?;
    let device = common.open()?;
    let mut pattern = Buffer::new(length)?;
    fill(&mut pattern);
    let check = pattern.to_vec();
    let source = device.register(pattern, Access::Read)?;
    let destination = device.register(Buffer::new(length)?, Access::Write)?;

    let mut report = match verb.method {
        LocalMethod::ExtendedShadow => {
            extended_shadow(common, verb, &device, &source, &destination)?
        }
        LocalMethod::Kernel => kernel(common, verb, &device, &source, &destination)?,
    };
    report.schema_version = SCHEMA_VERSION;
    report.bytes = verb.size * u64::from(verb.count);
    report.count = verb.count;
    report.mb_per_s = output::megabytes_per_second(report.bytes, report.seconds);
    report.verified = destination.unregister()?[..] == check[..];
    output::print(common.json, &report, |report| {
        format!(
            "{} x {} bytes by {}: {:.6} s, {:.1} MB/s; {} system calls, {} MMIO stores, {} MMIO \
             loads for {} initiations; {}",
            report.count,
            report.bytes / u64::from(report.count),
            report.method,
            report.seconds,
            report.mb_per_s,
            or_dash(report.syscalls),
            or_dash(report.mmio_stores),
            or_dash(report.mmio_loads),
            report.initiations,
            if report.verified {
                "all bytes right"
            } else {
                "BYTES DIFFER"
            },
        )
    })?;
    if report.verified {
        Ok(())
    } else {
        Err(Failure::new(
            Kind::Mismatch,
            "the destination does not hold the source's bytes",
        ))
    }
}

fn extended_shadow(
    common: &Common,
    verb: &Dma,
    device: &Device,
    source: &Region,
    destination: &Region,
) -> Result<Report> {
    let context = device.context()?;
    let (from, to) = (context.shadow(source)?, context.shadow(destination)?);
    let wait = (Spin::MEASURE, common.timeout);
    let before = context.stats()?;

    let mut started = Started::new();
    let clock = Clock::start();
    let mut ticks = 0;
    let mut syscalls = None;
    for round in 0..verb.count {
        // The first one is watched from outside.
        let tracer = if round == 0 {
            Tracer::attach().map_err(warn).ok()
        } else {
            None
        };
        let mut start = 0;
        let mut initiate = || {
            start = clock.ticks();
            context.start(&mut started, (&from, 0), (&to, 0), verb.size, wait)
        };
        let watched = match tracer {
            Some(tracer) => {
                let (result, watched) = tracer.watch(initiate);
                result?;
                Some(watched)
            }
            None => {
                initiate()?;
                None
            }
        };
        context.finish(&mut started, wait)?;
        ticks += clock.ticks() - start;
        if let Some(watched) = watched {
            syscalls = watched.count().map_err(warn).ok().map(|count| count.total);
        }
    }
    let seconds = ticks as f64 * clock.rate() / 1e9;
    let counted = context.stats()?.since(&before);
    Ok(Report {
        method: "extended-shadow",
        seconds,
        syscalls,
        mmio_loads: Some(counted.loads()),
        mmio_stores: Some(counted.stores()),
        initiations: started.initiations,
        ..Default::default()
    })
}

fn kernel(
    common: &Common,
    verb: &Dma,
    device: &Device,
    source: &Region,
    destination: &Region,
) -> Result<Report> {
    let most = device.query()?.max_transfer.max(1);
    let start = Instant::now();
    let (mut syscalls, mut initiations) = (0, 0);
    for _ in 0..verb.count {
        let mut offset = 0;
        while offset < verb.size {
            let bytes = most.min(verb.size - offset);
            let before = uldma::calls();
            let ticket = device.dma((source, offset), (destination, offset), bytes)?;
            syscalls += uldma::calls() - before;
            initiations += 1;
            device.dma_wait(ticket, common.timeout)?;
            offset += bytes;
        }
    }
    Ok(Report {
        method: "kernel",
        seconds: start.elapsed().as_secs_f64(),
        syscalls: Some(syscalls),
        initiations,
        ..Default::default()
    })
}

/// A tracer that cannot be had costs the proof, not the transfer.
pub(crate) fn warn(error: uldma::Error) {
    eprintln!("uldma: {error}: system calls are not counted");
}

/// Bytes of which no two neighbouring words or pages are the same.
fn fill(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}
