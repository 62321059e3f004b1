// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of other destinations (the paper, section 2.4): with SHRIMP-1 the kernel has to map a
//! page out to each new destination, with SHRIMP-2 a store names it.

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Access, Buffer, Context, ContextOptions, Device, Method, Region, Spin};

use super::subject::PAGES;
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Numbers of destinations that transfers from one page take turns in.
const DESTINATIONS: [u32; 5] = [1, 2, 4, 8, 16];
/// The one with the kernel's help, and the same without.
const METHODS: [Method; 2] = [Method::Shrimp1, Method::Shrimp2Abort];
const BATCHES: usize = 20;
const BYTES: u64 = 64;

/// One source page, and as many destination pages as wanted.
struct Sender {
    context: Context,
    source: Region,
    destinations: Region,
    page: u64,
    timeout: Duration,
}

impl Sender {
    fn new(number: u32, method: Method, timeout: Duration) -> Result<Self, Failure> {
        let device = Device::open(number)?;
        let page = device.query()?.page_size;
        let bytes = |pages: u32| usize::try_from(u64::from(pages) * page).unwrap_or(4096);
        let most = DESTINATIONS.last().copied().unwrap_or(1);
        let source = device.register(Buffer::new(bytes(1))?, Access::Read)?;
        let destinations = device.register(Buffer::new(bytes(most))?, Access::Write)?;
        let options = ContextOptions {
            no_data: true,
            ..Default::default()
        };
        let context = device.context_with(method, options)?;
        Ok(Self {
            context,
            source,
            destinations,
            page,
            timeout,
        })
    }

    /// Makes the page's data go to this destination from now on.
    fn remap(&self, destination: u32) -> Result<(), Failure> {
        let to = Some((&self.destinations, destination));
        Ok(self.context.map_out((&self.source, 0), to, 1)?)
    }

    /// Starts [`PAGES`] transfers to so many destinations in turn. Returns its time in ticks, and
    /// the number of system calls.
    fn batch(&self, destinations: u32, clock: &Clock) -> Result<(u64, u64), Failure> {
        let context = &self.context;
        let (from, to) = (
            context.shadow(&self.source)?,
            context.shadow(&self.destinations)?,
        );
        let places = (0..destinations)
            .map(|number| to.at(u64::from(number) * self.page))
            .collect::<uldma::Result<Vec<_>>>()?;
        let (from, mut started) = (from.at(0)?, Vec::with_capacity(PAGES));
        let maps_out = context.method() == Method::Shrimp1;
        let mut mapped = 0;
        if maps_out {
            self.remap(mapped)?;
        }
        let (calls, before) = (uldma::measure::calls(), clock.ticks());
        for (number, place) in (0..destinations)
            .cycle()
            .zip(places.iter().cycle())
            .take(PAGES)
        {
            if maps_out && number != mapped {
                self.remap(number)?;
                mapped = number;
            }
            started.push(context.dma(from, *place, BYTES)?);
        }
        let (ticks, calls) = (clock.ticks() - before, uldma::measure::calls() - calls);
        for transfer in started {
            context.dma_wait(transfer, Spin::Adaptive, self.timeout)?;
        }
        Ok((ticks, calls))
    }
}

/// Adds `destinations.METHOD.N.time` and `.syscalls` of each initiation, and `map_out.time`, the
/// part of it that is spent in the kernel.
pub(crate) fn measure(
    number: u32,
    timeout: Duration,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let clock = Clock::start();
    for method in METHODS {
        let sender = Sender::new(number, method, timeout)?;
        for destinations in DESTINATIONS {
            // Pages are mapped at the first touch.
            sender.batch(destinations, &clock)?;
            let (mut samples, mut calls) = (Vec::new(), 0);
            for _ in 0..BATCHES {
                let (ticks, made) = sender.batch(destinations, &clock)?;
                samples.push(ticks);
                calls += made;
            }
            let name = format!("destinations.{method}.{destinations}");
            let median = times(&clock, &samples, PAGES as u32).median();
            figures.add(format!("{name}.time"), median, "ns");
            let each = calls as f64 / (BATCHES * PAGES) as f64;
            figures.add(format!("{name}.syscalls"), each, "count");
        }
        if method == Method::Shrimp1 {
            map_out(&sender, &clock, figures)?;
        }
    }
    Ok(())
}

fn map_out(sender: &Sender, clock: &Clock, figures: &mut Figures) -> Result<(), Failure> {
    let mut samples = Vec::new();
    for _ in 0..BATCHES {
        let before = clock.ticks();
        for number in 0..PAGES as u32 {
            sender.remap(number % 2)?;
        }
        samples.push(clock.ticks() - before);
    }
    let median = times(clock, &samples, PAGES as u32).median();
    figures.add("map_out.time", median, "ns");
    Ok(())
}
