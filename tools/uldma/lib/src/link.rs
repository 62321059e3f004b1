// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a channel runs over: a pair of segments and a doorbell.

use std::time::{Duration, Instant};

use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::ring::{Inbound, Outbound};
use crate::window::{InboundSegment, OutboundSegment};
use crate::{Device, Error, Result};

/// Two halves of memory, and a way to wake the peer and to be woken.
pub trait Link {
    /// What the peer writes.
    type In: Inbound;
    /// What the peer reads.
    type Out: Outbound;

    /// This side's memory.
    fn inbound(&self) -> &Self::In;

    /// The peer's memory.
    fn outbound(&self) -> &Self::Out;

    /// Wakes the peer.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn ring(&self) -> Result<()>;

    /// How often the peer rang so far.
    fn rings(&self) -> u64;

    /// Sleeps until the peer has rung more often than `seen`; false when the deadline comes first.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`] when the link goes down meanwhile, [`Error::Closed`] when the peer's
    /// process ends, and those of the device. After any of them, [`Link::outbound`] must not be
    /// touched any more: that memory may be gone.
    fn wait(&self, seen: u64, deadline: Instant) -> Result<bool>;
}

/// A pair of window segments between the two nodes.
#[derive(Debug)]
pub struct WindowLink {
    // The attachment ends before the segment, and both before the device is closed.
    outbound: OutboundSegment,
    inbound: InboundSegment,
    device: Device,
    /// Link generation under which the segments were made.
    generation: u32,
}

impl WindowLink {
    pub(crate) fn new(
        device: &Device,
        inbound: InboundSegment,
        outbound: OutboundSegment,
    ) -> Result<Self> {
        let generation = device.query()?.link_generation;
        Ok(Self {
            outbound,
            inbound,
            device: device.clone(),
            generation,
        })
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
        self.outbound.ring_doorbell()
    }

    fn rings(&self) -> u64 {
        self.device
            .events()
            .snapshot()
            .doorbells(self.inbound.handle())
    }

    fn wait(&self, seen: u64, deadline: Instant) -> Result<bool> {
        let (handle, attached) = (self.inbound.handle(), self.outbound.handle());
        let before = self.device.events().snapshot();
        self.device
            .events()
            .wait(self.device.as_fd(), deadline, |now| {
                now.doorbells(handle) != seen
                    || now.doorbells(attached) != before.doorbells(attached)
                    || now.links != before.links
            })?;
        let now = self.device.events().snapshot();
        if now.links != before.links || Instant::now() >= deadline {
            // Down now, or down and up again: the segments belong to the link that was.
            let query = self.device.query()?;
            if !query.link_up || query.link_generation != self.generation {
                return Err(Error::LinkDown);
            }
        }
        if now.doorbells(attached) != before.doorbells(attached) {
            // Something changed about the peer's segment, perhaps that it is gone.
            match self.ring() {
                Err(error) if error.errno() == Some(Errno::ESTALE) => return Err(Error::Closed),
                other => other?,
            }
        }
        Ok(now.doorbells(handle) != seen)
    }
}

/// The longest sleep without another look.
///
/// Before it sleeps, each side says so and looks once more; on a coherent window one of the two
/// sides always notices the other. Where stores of both directions can pass each other on their
/// way (a real non-coherent link), neither may notice, and this bounds the delay.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);
