// SPDX-License-Identifier: MIT OR Apache-2.0

//! The process that measures, and the other node's memory as it sees it.

use std::time::{Duration, Instant};

use uldma::measure::Clock;
use uldma::method::Refusal;
use uldma::region::Registered;
use uldma::transfer::Order as Ordered;
use uldma::{
    Access, Buffer, Context, ContextOptions, Device, Error, Import, Method, Name, Region, Spin,
    Ticket,
};

use super::memory::{Origin, Way, PAGE};
use super::owner::{Counts, Order, Report};
use crate::failure::Failure;
use crate::peer::{receive, send, RemoteProcess};

/// Limit for a transfer, and for a page that is mapped to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pages of the longest transfer.
pub(super) const LONGEST: usize = 64;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// A region of the owner.
pub(super) struct Far {
    pub(super) name: u64,
    import: Import,
}

/// Moves bytes, one transfer at a time, by a queue.
pub(super) struct Mover {
    context: Context,
    own: Region,
    /// The open file, whose regions the transfers can name.
    pub(super) device: Device,
    pub(super) clock: Clock,
}

impl Mover {
    pub(super) fn new(device: &Device) -> Result<Self, Failure> {
        // One open file has one context.
        let device = device.reopen()?;
        let buffer = Buffer::new(LONGEST * PAGE)?;
        Ok(Self {
            context: device.context_with(Method::Queue, ContextOptions::default())?,
            own: device.register(buffer, Access::ReadWrite)?,
            device,
            clock: Clock::start(),
        })
    }

    /// Makes one transfer, and returns its ticks from the initiation until its end is seen, and whether all
    /// pages were there.
    pub(super) fn once(
        &self,
        far: &impl Registered,
        direction: Direction,
        (offset, bytes): (usize, usize),
    ) -> Result<(u64, bool), Failure> {
        let (ticket, before) = self.start(far, direction, (offset, bytes))?;
        let whole = self.end(ticket)?;
        Ok((self.clock.ticks() - before, whole))
    }

    /// Initiates a transfer; returns when it began, too.
    pub(super) fn start(
        &self,
        far: &impl Registered,
        direction: Direction,
        (offset, bytes): (usize, usize),
    ) -> Result<(Ticket, u64), Failure> {
        let none = || Failure::Peer("has a context without a queue".into());
        let queue = self.context.queue().ok_or_else(none)?;
        let (own, far) = (self.context.shadow(&self.own)?, self.context.shadow(far)?);
        let (own, far) = (own.at(0)?, far.at(offset as u64)?);
        let (from, to) = match direction {
            Direction::Read => (far, own),
            Direction::Write => (own, far),
        };
        let before = self.clock.ticks();
        let ticket = queue
            .copy(from, to, bytes as u64, Ordered::NONE)
            .map_err(|refusal| Failure::Uldma(refusal.into()))?;
        queue.submit();
        Ok((ticket, before))
    }

    /// Waits for the end of a transfer; returns whether all pages were there.
    pub(super) fn end(&self, ticket: Ticket) -> Result<bool, Failure> {
        match self.context.wait(ticket, Spin::MEASURE, PATIENCE) {
            Ok(_) => Ok(true),
            Err(Error::Transfer {
                status: Refusal::NotResident,
                ..
            }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Transfers until all pages are there; returns how often they were not.
    pub(super) fn until_whole(
        &self,
        far: &impl Registered,
        direction: Direction,
        place: (usize, usize),
    ) -> Result<u32, Failure> {
        let end = Instant::now() + PATIENCE;
        let mut missed = 0;
        while !self.once(far, direction, place)?.1 {
            missed += 1;
            if Instant::now() > end {
                return Err(Failure::Refused("a page that is mapped did not come"));
            }
        }
        Ok(missed)
    }
}

/// A session with the owner.
pub(super) struct Session<'a> {
    peer: &'a mut RemoteProcess,
    pub(super) mover: Mover,
}

impl<'a> Session<'a> {
    pub(super) fn new(peer: &'a mut RemoteProcess, device: &Device) -> Result<Self, Failure> {
        Ok(Self {
            peer,
            mover: Mover::new(device)?,
        })
    }

    /// Has the owner carry out an order.
    pub(super) fn order(&mut self, order: &Order) -> Result<Report, Failure> {
        self.begin(order)?;
        self.report()
    }

    /// Sends an order, whose report comes later.
    pub(super) fn begin(&mut self, order: &Order) -> Result<(), Failure> {
        send(&mut self.peer.channel, order, self.peer.timeout)
    }

    /// Waits for a report.
    pub(super) fn report(&mut self) -> Result<Report, Failure> {
        match receive(&mut self.peer.channel, self.peer.timeout)? {
            Report::Failed { message } => Err(Failure::Peer(format!("failed: {message}"))),
            report => Ok(report),
        }
    }

    /// Returns the owner's counters.
    pub(super) fn counts(&mut self) -> Result<Counts, Failure> {
        match self.order(&Order::Count)? {
            Report::Counts(counts) => Ok(counts),
            _ => Err(Failure::Peer("told no counters".into())),
        }
    }

    /// Has the owner register private pages, and imports them.
    pub(super) fn open(&mut self, way: Way, pages: usize, touched: bool) -> Result<Far, Failure> {
        self.open_of(Origin::Private, way, pages, touched)
    }

    /// Has the owner register pages of an origin, and imports them.
    pub(super) fn open_of(
        &mut self,
        origin: Origin,
        way: Way,
        pages: usize,
        touched: bool,
    ) -> Result<Far, Failure> {
        let name = Name::random()?;
        self.order(&Order::Open {
            way,
            name: name.get(),
            origin,
            pages,
            touched,
        })?;
        let import = self
            .mover
            .device
            .import(name, Access::ReadWrite, self.peer.timeout)?;
        Ok(Far {
            name: name.get(),
            import,
        })
    }

    /// Has the owner end a region.
    pub(super) fn close(&mut self, far: Far) -> Result<(), Failure> {
        drop(far.import);
        self.order(&Order::Close { name: far.name }).map(drop)
    }
}

impl Far {
    pub(super) fn import(&self) -> &Import {
        &self.import
    }
}
