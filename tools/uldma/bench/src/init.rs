// SPDX-License-Identifier: MIT OR Apache-2.0

//! What it costs to start a transfer: at user level, through the kernel, and a bare system call.

use std::time::Duration;

use uldma::measure::{Clock, Tracer};
use uldma::{Access, Buffer, Context, Device, Region, Shadow, Spin, Ticket};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Initiations in one batch: half of what a context's queue holds.
const BATCH: u32 = 32;
const BATCHES: u32 = 30;
const NOPS_PER_BATCH: u32 = 100;
/// Bytes of each transfer: as few as make sense, since only the start is measured.
const BYTES: u64 = 64;

/// An ioctl that does nothing.
pub(crate) fn nop(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let clock = Clock::start();
    let mut samples = Vec::new();
    for _ in 0..200 {
        let before = clock.ticks();
        for _ in 0..NOPS_PER_BATCH {
            device.nop()?;
        }
        samples.push(clock.ticks() - before);
    }
    let median = times(&clock, &samples, NOPS_PER_BATCH).median();
    figures.add("syscall.nop.time", median, "ns", None, None);
    Ok(())
}

/// Starts of transfers between two regions of this process.
pub(crate) fn measure(
    device: &Device,
    timeout: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let source = device.register(Buffer::new(4096)?, Access::Read)?;
    let destination = device.register(Buffer::new(4096)?, Access::Write)?;
    let kernel = through_kernel(device, &source, &destination, timeout)?;
    let nop = figures.get("syscall.nop.time");

    let context = device.context()?;
    let (from, to) = (context.shadow(&source)?, context.shadow(&destination)?);
    // Pages are mapped at the first touch; that happens once, and here.
    let mut tickets = Vec::with_capacity(BATCH as usize);
    start(&context, &from, &to, 1, &mut tickets)?;
    wait(&context, &mut tickets, timeout)?;

    let clock = Clock::start();
    let mut samples = Vec::new();
    let before = context.stats()?;
    for _ in 0..BATCHES {
        let start_ticks = clock.ticks();
        start(&context, &from, &to, BATCH, &mut tickets)?;
        samples.push(clock.ticks() - start_ticks);
        wait(&context, &mut tickets, timeout)?;
    }
    let counted = context.stats()?.since(&before);
    let median = times(&clock, &samples, BATCH).median();
    let started = counted.initiations.max(1) as f64;
    figures.add(
        "init.extended-shadow.time",
        median,
        "ns",
        None,
        Some(kernel),
    );
    let loads = counted.loads() as f64 / started;
    figures.add(
        "init.extended-shadow.mmio_loads",
        loads,
        "count",
        None,
        None,
    );
    let stores = counted.stores() as f64 / started;
    figures.add(
        "init.extended-shadow.mmio_stores",
        stores,
        "count",
        None,
        None,
    );

    match Tracer::attach() {
        Ok(tracer) => {
            let (result, count) = tracer.count(|| start(&context, &from, &to, BATCH, &mut tickets));
            result?;
            wait(&context, &mut tickets, timeout)?;
            let each = count?.total as f64 / f64::from(BATCH);
            figures.add("init.extended-shadow.syscalls", each, "count", None, None);
        }
        Err(error) => eprintln!("uldma-bench: system calls are not counted: {error}"),
    }
    figures.add("init.kernel.time", kernel, "ns", nop, None);
    Ok(())
}

fn start(
    context: &Context,
    from: &Shadow<'_>,
    to: &Shadow<'_>,
    count: u32,
    tickets: &mut Vec<Ticket>,
) -> uldma::Result<()> {
    for _ in 0..count {
        tickets.push(context.initiate(from.at(0)?, to.at(0)?, BYTES)?);
    }
    Ok(())
}

fn wait(context: &Context, tickets: &mut Vec<Ticket>, timeout: Duration) -> uldma::Result<()> {
    for ticket in tickets.drain(..) {
        context.wait(ticket, Spin::TRANSFER, timeout)?;
    }
    Ok(())
}

/// Median nanoseconds of the system call that starts a transfer.
fn through_kernel(
    device: &Device,
    source: &Region,
    destination: &Region,
    timeout: Duration,
) -> Result<f64, Failure> {
    let clock = Clock::start();
    let mut samples = Vec::new();
    for _ in 0..100 {
        let before = clock.ticks();
        let ticket = device.dma((source, 0), (destination, 0), BYTES)?;
        samples.push(clock.ticks() - before);
        device.dma_wait(ticket, timeout)?;
    }
    Ok(times(&clock, &samples, 1).median())
}
