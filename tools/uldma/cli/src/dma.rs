// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma dma`: copies memory to memory on this node, and checks every byte.

use serde::Serialize;
use uldma::measure::Clock;
use uldma::region::Registered;
use uldma::transfer::Started;
use uldma::{Access, Buffer, Context, ContextOptions, Device, Method, Region, Spin};
use uldma_papers::tracer::Tracer;

use crate::args::{Common, Dma};
use crate::failure::{complain, Failure, Kind, Result};
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
    /// Of the first transfer's initiations, waits not included.
    syscalls: Option<u64>,
    mmio_loads: Option<u64>,
    mmio_stores: Option<u64>,
    initiations: u64,
    /// Of these, how many the kernel started.
    by_kernel: u64,
    /// Number of restarted initiations.
    retries: u64,
    bad_keys: Option<u64>,
    verified: bool,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Dma) -> Result<()> {
    let device = common.open()?;
    let length = usize::try_from(args.size)
        .map_err(|_| Failure::new(Kind::Failed, "--size is more than this machine can address"))?;
    // All pages of a region have to be mapped out, so its size is rounded up.
    let page = usize::try_from(device.query()?.page_size)
        .unwrap_or(1)
        .max(1);
    let whole = match args.method {
        Method::Shrimp1 => length.next_multiple_of(page),
        _ => length,
    };
    let (read, write) = rights(args.method);
    let mut pattern = Buffer::new(whole)?;
    fill(&mut pattern);
    let check = pattern[..length].to_vec();
    let source = device.register(pattern, read)?;
    let destination = device.register(Buffer::new(whole)?, write)?;

    let mut report = transfer(common, args, &device, &source, &destination)?;
    report.schema_version = SCHEMA_VERSION;
    report.bytes = args.size * u64::from(args.count);
    report.count = args.count;
    report.mb_per_s = output::megabytes_per_second(report.bytes, report.seconds);
    report.verified = destination.unregister()?[..length] == check[..];
    output::print(common.json, &report, |report| {
        format!(
            "{} x {} bytes by {}: {:.6} s, {:.1} MB/s; {} system calls, {} MMIO stores, {} MMIO \
             loads for {} initiations{}; {}",
            report.count,
            report.bytes / u64::from(report.count),
            report.method,
            report.seconds,
            report.mb_per_s,
            or_dash(report.syscalls),
            or_dash(report.mmio_stores),
            or_dash(report.mmio_loads),
            report.initiations,
            disturbances(report),
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

/// Describes restarts and transfers by another method, if there are any.
fn disturbances(report: &Report) -> String {
    let mut text = String::new();
    if report.by_kernel > 0 && report.method != Method::Kernel.name() {
        text += &format!(", {} of them by the kernel instead", report.by_kernel);
    }
    if report.retries > 0 {
        text += &format!(", {} restarted", report.retries);
    }
    text
}

/// Returns the rights of source and destination: some methods store to the source's addresses, or
/// load from the destination's.
fn rights(method: Method) -> (Access, Access) {
    match method {
        Method::Key => (Access::ReadWrite, Access::Write),
        Method::Repeated5 => (Access::Read, Access::ReadWrite),
        _ => (Access::Read, Access::Write),
    }
}

/// Maps pages out, if the method requires it.
fn map_out(context: &Context, source: &Region, destination: &Region, page: u64) -> Result<()> {
    if context.method() == Method::Shrimp1 {
        let pages = u32::try_from(source.length() / page)
            .map_err(|_| Failure::new(Kind::Failed, "--size is too large to be mapped out"))?;
        context.map_out((source, 0), Some((destination, 0)), pages)?;
    }
    Ok(())
}

/// Starts all transfers, and waits for each.
fn transfer(
    common: &Common,
    args: &Dma,
    device: &Device,
    source: &Region,
    destination: &Region,
) -> Result<Report> {
    let options = ContextOptions {
        or_kernel: true,
        ..Default::default()
    };
    let context = device.context_with(args.method, options)?;
    map_out(&context, source, destination, device.query()?.page_size)?;
    let (from, to) = (context.shadow(source)?, context.shadow(destination)?);
    let wait = (Spin::Adaptive, common.timeout);
    // The kernel's accesses are its own business.
    let stats = || match context.method() {
        Method::Kernel => Ok(None),
        _ => context.stats().map(Some),
    };
    let before = stats()?;

    let mut started = Started::new();
    let clock = Clock::start();
    let mut ticks = 0;
    let mut syscalls = None;
    for round in 0..args.count {
        // The first one is watched from outside.
        let tracer = if round == 0 {
            Tracer::attach().map_err(warn).ok()
        } else {
            None
        };
        let mut start = 0;
        let mut initiate = || {
            start = clock.ticks();
            context.start(&mut started, (&from, 0), (&to, 0), args.size, wait)
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
    let counted = stats()?.zip(before);
    let counted = counted.map(|(now, before)| now.since(&before));
    Ok(Report {
        method: args.method.name(),
        seconds,
        syscalls,
        mmio_loads: counted.map(|counted| counted.loads()),
        mmio_stores: counted.map(|counted| counted.stores()),
        initiations: started.initiations,
        by_kernel: started.by_kernel,
        retries: context.disturbances().attempts,
        bad_keys: counted.map(|counted| counted.bad_keys),
        ..Default::default()
    })
}

/// Reports that the system calls are not counted; the transfer itself is not affected.
pub(crate) fn warn(error: uldma::Error) {
    complain(format!("uldma: {error}: system calls are not counted"));
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
