// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory to move, and a context to move it by, for any method.

use std::time::Duration;

use uldma::region::ShadowAddress;
use uldma::transfer::{ContextStats, Initiated, Order};
use uldma::{Access, Buffer, Context, ContextOptions, Device, Method, Region, Spin, Ticket};

use crate::failure::Failure;

/// Pages of each side: successive operations are to and from different ones.
pub(crate) const PAGES: usize = 50;
/// Bytes of each transfer: as few as make sense, since only the start is measured.
const BYTES: u64 = 64;

/// Returns the rights that source and destination need.
fn rights(method: Method) -> (Access, Access) {
    match method {
        Method::Key => (Access::ReadWrite, Access::Write),
        Method::Repeated5 => (Access::Read, Access::ReadWrite),
        Method::FetchAdd => (Access::ReadWrite, Access::ReadWrite),
        _ => (Access::Read, Access::Write),
    }
}

/// Transfers to measure, and their memory and context.
pub(crate) struct Subject<'a> {
    context: &'a Context,
    /// Source and destination of each operation of a batch.
    places: Vec<(ShadowAddress<'a>, ShadowAddress<'a>)>,
    /// Transfers that were started and not waited for.
    started: Vec<Initiated>,
    /// The last one of a batch that went by the queue.
    queued: Option<Ticket>,
    timeout: Duration,
}

/// Calls `work` with a subject.
pub(crate) fn with<R>(
    number: u32,
    method: Method,
    options: ContextOptions,
    timeout: Duration,
    work: impl FnOnce(&mut Subject<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    // Each subject has a context, and an open file has only one.
    let device = Device::open(number)?;
    let page = device.query()?.page_size;
    let length = PAGES * usize::try_from(page).unwrap_or(4096);
    let (read, write) = rights(method);
    let source = device.register(Buffer::new(length)?, read)?;
    let destination = device.register(Buffer::new(length)?, write)?;
    let context = device.context_with(method, options)?;
    if method == Method::Shrimp1 {
        map_out(&context, &source, &destination)?;
    }
    let (from, to) = (context.shadow(&source)?, context.shadow(&destination)?);
    let places = (0..PAGES as u64)
        .map(|number| Ok((from.at(number * page)?, to.at(number * page)?)))
        .collect::<uldma::Result<_>>()?;
    let mut subject = Subject {
        context: &context,
        places,
        started: Vec::with_capacity(PAGES),
        queued: None,
        timeout,
    };
    work(&mut subject)
}

fn map_out(context: &Context, source: &Region, destination: &Region) -> uldma::Result<()> {
    context.map_out((source, 0), Some((destination, 0)), PAGES as u32)
}

impl<'a> Subject<'a> {
    /// The context.
    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// Starts one operation of each page. This is what is timed.
    #[inline]
    pub(crate) fn batch(&mut self) -> uldma::Result<()> {
        if self.context.method() == Method::FetchAdd {
            for (word, _) in &self.places {
                self.context.fetch_add(*word)?;
            }
            return Ok(());
        }
        for &(from, to) in &self.places {
            self.started.push(self.context.dma(from, to, BYTES)?);
        }
        Ok(())
    }

    /// The same by the queue, all submitted at once; nothing for other methods. Timed, too.
    #[inline]
    pub(crate) fn queue_batch(&mut self) -> uldma::Result<()> {
        let Some(queue) = self.context.queue() else {
            return Ok(());
        };
        for &(from, to) in &self.places {
            let ticket = queue.copy(from, to, BYTES, Order::NONE)?;
            self.queued = Some(ticket);
        }
        queue.submit();
        Ok(())
    }

    /// Starts one operation, of page `number`, and does not wait for it.
    #[inline]
    pub(crate) fn one(&mut self, number: usize) -> uldma::Result<Initiated> {
        let (from, to) = self.places[number % self.places.len()];
        self.context.dma(from, to, BYTES)
    }

    /// Waits for all transfers; returns how many of them the kernel had to start.
    pub(crate) fn wait(&mut self) -> uldma::Result<u64> {
        let mut by_kernel = 0;
        for transfer in self.started.drain(..) {
            by_kernel += u64::from(transfer.via == Method::Kernel);
            self.context
                .dma_wait(transfer, Spin::Adaptive, self.timeout)?;
        }
        if let Some(last) = self.queued.take() {
            self.context.wait(last, Spin::Adaptive, self.timeout)?;
        }
        Ok(by_kernel)
    }

    /// Returns the device's counters; none without a context.
    pub(crate) fn stats(&self) -> uldma::Result<Option<ContextStats>> {
        match self.context.method() {
            Method::Kernel => Ok(None),
            _ => self.context.stats().map(Some),
        }
    }
}
