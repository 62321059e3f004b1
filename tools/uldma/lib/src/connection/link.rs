// SPDX-License-Identifier: MIT OR Apache-2.0

//! The links that channels use: a pair of segments and a doorbell.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::errno::Errno;

use crate::connection::{Connection, Offer};
use crate::device::event::Counts;
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::ring::{Geometry, Inbound, Outbound, Violation};
use crate::wait::{ticks, wakeup};
use crate::window::{InboundSegment, OutboundSegment};

/// A pair of segments, with a doorbell in each direction.
pub trait Link {
    /// Memory that the peer writes.
    type In: Inbound;
    /// Memory that the peer reads.
    type Out: Outbound;

    /// This side's memory.
    fn inbound(&self) -> &Self::In;

    /// The peer's memory.
    fn outbound(&self) -> &Self::Out;

    /// Wakes the peer.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`] when the link goes down, [`Error::Closed`] when the peer's process ends,
    /// [`Error::System`] of the device.
    fn ring(&self) -> Result<()>;

    /// Returns how often the peer has rung.
    fn rings(&self) -> u64;

    /// Sleeps until the peer has rung more than `seen` times; returns false when the deadline is
    /// reached first.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`] when the link goes down, [`Error::Closed`] when the peer's process ends,
    /// [`Error::System`] of the device. After any of them, [`Link::outbound`] must not be accessed
    /// any more: its memory may be unmapped.
    fn wait(&self, seen: u64, deadline: Instant) -> Result<bool>;

    /// Returns the ticks that a thread which sleeps takes to run after the peer has rung.
    fn wakeup(&self) -> u64 {
        wakeup::cost()
    }
}

/// A link that poll() can wait for, together with other files.
pub trait Pollable: Link {
    /// Makes [`Pollable::fd`] report rings. To be called before waiting.
    ///
    /// # Errors
    ///
    /// [`Error::System`] of eventfd().
    fn open(&self) -> Result<()>;

    /// Returns the file that poll() waits on, once [`Pollable::open`] was called.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns true if rings are reported as POLLPRI, false for POLLIN.
    fn is_urgent(&self) -> bool;

    /// Counts the rings that [`Pollable::fd`] reports, without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`] when the link goes down, [`Error::Closed`] when the peer's process ends,
    /// [`Error::System`] of the device.
    fn collect(&self) -> Result<()>;
}

/// A pair of window segments between two nodes.
#[derive(Debug)]
pub struct WindowLink {
    // The attachment ends before the segment, both before the connection, and all before the device
    // is closed.
    outbound: OutboundSegment,
    inbound: InboundSegment,
    /// The connection over which the link was made, if any.
    connection: Option<Connection>,
    device: Device,
    peer: Peer,
    /// Generation of the link to the peer in which the segments were created.
    generation: u32,
    /// Counts of events about links, and of ends of the peer's segment, that were handled.
    seen: SeenCounts,
    /// What [`Link::wakeup`] returns.
    wakeup: u64,
}

#[derive(Debug, Default)]
struct SeenCounts {
    links: AtomicU64,
    ends: AtomicU64,
}

impl WindowLink {
    pub(crate) fn new(
        device: &Device,
        peer: Peer,
        inbound: InboundSegment,
        outbound: OutboundSegment,
    ) -> Result<Self> {
        let counts = device.events().snapshot();
        let seen = SeenCounts {
            links: AtomicU64::new(counts.links),
            // The end may have been reported already.
            ends: AtomicU64::new(0),
        };
        let link = device.link_to(peer)?;
        // The driver measures each link once, and may not have done so yet.
        let doorbell = ticks::of(link.doorbell).min(wakeup::most());
        Ok(Self {
            outbound,
            inbound,
            connection: None,
            device: device.clone(),
            peer,
            generation: link.generation,
            seen,
            wakeup: doorbell.max(wakeup::cost()),
        })
    }

    /// Makes the link of the rings of a connection. Returns it with the ring that this side writes, and
    /// that which it reads; none if the connection has no rings.
    ///
    /// # Errors
    ///
    /// [`Error::Violation`] when the other side names a ring that cannot be, [`Error::Range`] when this side
    /// has offered one; [`Error::System`]: ENOTCONN,
    /// ENODEV, EBUSY when the connection has such a link already, EDQUOT.
    pub(crate) fn of_connection(
        connection: &Connection,
    ) -> Result<Option<(Self, (Geometry, Geometry))>> {
        let (device, info) = (connection.device(), connection.query()?);
        let capacities = info.offer.capacity().zip(connection.offer().capacity());
        let (Some((out, own)), 1..) = (capacities, info.offer.ring_length) else {
            return Ok(None);
        };
        let within = |capacity, offer: &Offer| {
            Geometry::of(capacity).filter(|ring| offer.ring_length >= ring.length())
        };
        let out = within(out, &info.offer).ok_or(Violation::Handshake)?;
        let own = within(own, connection.offer()).ok_or_else(|| Error::capacity(own))?;
        let Some((inbound, outbound)) = device.rings()? else {
            return Ok(None);
        };
        let link = Self::new(device, Peer::node(info.node), inbound, outbound)?;
        Ok(Some((link, (out, own))))
    }

    /// Keeps the connection over which the link was made for as long as the link lives.
    pub(crate) fn with(mut self, connection: Connection) -> Self {
        self.connection = Some(connection);
        self
    }

    /// Returns the connection over which the link was made, if any.
    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Handles events other than rings of the peer.
    fn check(&self, now: &Counts, idle: bool) -> Result<()> {
        let changed = |seen: &AtomicU64, now: u64| seen.swap(now, Ordering::Relaxed) != now;
        if changed(&self.seen.links, now.links) || idle {
            self.check_link()?;
        }
        if changed(&self.seen.ends, now.ends(self.outbound.handle())) {
            // Fails, unless another segment with the same handle has ended.
            self.ring()?;
        }
        Ok(())
    }

    /// Checks that the link is still in the generation in which the segments were created.
    fn check_link(&self) -> Result<()> {
        // The link is down now, or was: the segments belong to the former generation.
        let link = self.device.link_to(self.peer)?;
        if !link.link_up || link.generation != self.generation {
            return Err(Error::LinkDown);
        }
        Ok(())
    }
}

impl Link for WindowLink {
    type In = InboundSegment;
    type Out = OutboundSegment;

    #[inline]
    fn inbound(&self) -> &InboundSegment {
        &self.inbound
    }

    #[inline]
    fn outbound(&self) -> &OutboundSegment {
        &self.outbound
    }

    fn ring(&self) -> Result<()> {
        let rung = self.outbound.ring_doorbell();
        match rung.as_ref().map_err(Error::errno) {
            // The peer's segment has ended: with the link, or with its process.
            Err(Some(Errno::ESTALE)) => {
                self.check_link()?;
                Err(Error::Closed)
            }
            // The link is down, and the segment has not ended yet.
            Err(Some(Errno::ENOTCONN)) => Err(Error::LinkDown),
            _ => rung,
        }
    }

    fn rings(&self) -> u64 {
        self.device
            .events()
            .snapshot()
            .doorbells(self.inbound.handle())
    }

    fn wait(&self, seen: u64, deadline: Instant) -> Result<bool> {
        let (handle, attached) = (self.inbound.handle(), self.outbound.handle());
        let happened = |now: &Counts| {
            now.doorbells(handle) != seen
                || now.ends(attached) != self.seen.ends.load(Ordering::Relaxed)
                || now.links != self.seen.links.load(Ordering::Relaxed)
        };
        let events = self.device.events();
        events.wait(self.device.as_fd(), deadline.into(), happened)?;
        let now = events.snapshot();
        self.check(&now, Instant::now() >= deadline)?;
        Ok(now.doorbells(handle) != seen)
    }

    fn wakeup(&self) -> u64 {
        self.wakeup
    }
}

impl Pollable for WindowLink {
    fn open(&self) -> Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn is_urgent(&self) -> bool {
        self.connection.is_some()
    }

    fn collect(&self) -> Result<()> {
        self.device.events().collect(self.device.as_fd())
    }
}
