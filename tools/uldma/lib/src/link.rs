// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a channel runs over: a pair of segments and a doorbell.

use std::time::{Duration, Instant};

use std::os::fd::AsFd;

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
    /// [`Error::LinkDown`] when the link goes down meanwhile, and those of the device.
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
        let handle = self.inbound.handle();
        let links = self.device.events().snapshot().links;
        let mut link_changed = false;
        let woken = self
            .device
            .events()
            .wait(self.device.as_fd(), deadline, |now| {
                now.doorbells(handle) != seen || now.links != links
            })?;
        let now = self.device.events().snapshot();
        if now.links != links || Instant::now() >= deadline {
            // Down now, or down and up again: the segments belong to the link that was.
            let query = self.device.query()?;
            link_changed = !query.link_up || query.link_generation != self.generation;
        }
        if link_changed {
            return Err(Error::LinkDown);
        }
        Ok(woken && now.doorbells(handle) != seen)
    }
}

/// The longest sleep without another look.
///
/// Before it sleeps, each side says so and looks once more; on a coherent window one of the two
/// sides always notices the other. Where stores of both directions can pass each other on their
/// way (a real non-coherent link), neither may notice, and this bounds the delay.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);
