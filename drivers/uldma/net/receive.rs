// SPDX-License-Identifier: GPL-2.0

//! The receiver's side of a queue: it takes frames out of the own range that a peer writes.

use kernel::prelude::*;

use super::{
    counters::Counters,
    frame::{
        self,
        Accepts,
        Header,
        Way, //
    },
    moderation::Moderation,
    range::{
        OwnRange,
        PeerRange, //
    },
    reception::Reception,
    ring::{
        Consumer,
        Counter, //
    }, //
};
use crate::{
    hw::KernelDoorbell,
    kernel_ext::{
        net::{
            napi::Poll,
            net_device::Offloads,
            skb::{
                Offload,
                SkBuff, //
            }, //
        },
        window, //
    },
    link::window_range::WindowRange,
};

/// What this node accepts from all peers.
pub(super) const ACCEPTS: Offloads = Offloads::ALL;

/// The part of the ring that is returned at once, while more is taken.
const RETURNED_PART: u32 = 4;

/// The state of the ring that one peer writes.
pub(super) struct Receive {
    ring: Option<Consumer>,
    max_frame: u32,
    /// The way back to the peer; none before it has a range.
    back: Option<Back>,
    /// Where the engine of the peer moves packets to, if it does.
    reception: Option<KBox<Reception>>,
    /// Buffers that the peer was told of.
    posted: u32,
    /// Blocks that were taken and not returned.
    unreturned: u32,
    /// The peer has to ring.
    asleep: bool,
    /// How long the ring is polled before the peer has to ring.
    moderation: Moderation,
}

/// Where the words for a peer are that it reads, and how it is rung.
#[derive(Clone, Copy)]
pub(super) struct Back {
    /// The range of the peer's section.
    pub(super) range: WindowRange,
    /// The doorbell.
    pub(super) doorbell: KernelDoorbell,
}

/// A frame that was taken.
pub(super) enum Taken {
    /// There is none.
    Nothing,
    /// It was dropped for lack of memory.
    Dropped,
    /// It was dropped, since no node of this driver leaves that to a receiver.
    Refused,
    /// Its packet has not arrived.
    Void,
    Packet(SkBuff, Offload),
}

impl Receive {
    /// Creates the state before there is a ring.
    pub(super) fn new() -> Self {
        Self {
            ring: None,
            max_frame: 0,
            back: None,
            reception: None,
            posted: 0,
            unreturned: 0,
            asleep: true,
            moderation: Moderation::new(),
        }
    }

    /// Begins the ring, or ends it.
    pub(super) fn set_ring(&mut self, ring: Option<Consumer>, max_frame: u32) {
        self.ring = ring;
        self.max_frame = max_frame;
        self.unreturned = 0;
        self.asleep = true;
    }

    /// Begins to write the words for the peer, or ends.
    pub(super) fn set_back(&mut self, back: Option<Back>, own: OwnRange<'_>, peer: u32) -> Result {
        self.back = back;
        self.asleep = true;
        if let (Some(ring), Some(Back { range, .. })) = (&self.ring, back) {
            let to = PeerRange {
                hw: own.hw,
                peer,
                range,
            };
            to.set_asleep(ring.key(), true)?;
            to.publish_consumed(ring.counter())?;
        }
        Ok(())
    }

    /// Begins to receive by the engine. The ring has begun, and there was no reception.
    pub(super) fn set_reception(&mut self, reception: KBox<Reception>) {
        self.posted = 0;
        self.reception = Some(reception);
    }

    /// Ends to receive by the engine. Returns the reception, which has to be ended.
    pub(super) fn take_reception(&mut self) -> Option<KBox<Reception>> {
        self.reception.take()
    }

    /// Posts buffers for the engine of the peer, and tells the peer.
    pub(super) fn post(&mut self, own: OwnRange<'_>, peer: u32) -> Result {
        let (Some(ring), Some(back), Some(reception)) =
            (&self.ring, self.back, &mut self.reception)
        else {
            return Ok(());
        };
        let posted = reception.post();
        if core::mem::replace(&mut self.posted, posted) != posted {
            let to = PeerRange {
                hw: own.hw,
                peer,
                range: back.range,
            };
            let counter = Counter::NONE
                .with(Counter::KEY, ring.key())
                .with(Counter::COUNT, posted);
            to.publish_posted(counter)?;
        }
        Ok(())
    }

    /// Returns the counter of what was consumed; zero without a ring.
    pub(super) fn counter(&self) -> Counter {
        self.ring
            .as_ref()
            .map_or(Counter::NONE, |ring| ring.counter())
    }

    /// Returns the number of blocks that wait.
    fn pending(&self, own: OwnRange<'_>) -> Result<u32> {
        match (&self.ring, self.back) {
            (Some(ring), Some(_)) => ring.pending(own.produced()?),
            _ => Ok(0),
        }
    }

    /// Takes the next frame.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules, `ENODEV`.
    pub(super) fn take(
        &mut self,
        own: OwnRange<'_>,
        poll: &Poll<'_>,
        counters: &Counters,
    ) -> Result<Taken> {
        let pending = self.pending(own)?;
        let Some(ring) = self.ring.as_mut().filter(|_| pending > 0) else {
            return Ok(Taken::Nothing);
        };
        let raw = own.header(ring.block())?;
        let accepts = Accepts {
            offloads: ACCEPTS,
            by_engine: self.reception.as_ref().map_or(0, |it| it.most_bytes()),
        };
        let header = Header::decode(&raw, pending, self.max_frame, accepts)?;
        let is_offered = frame::is_offered(&header.offload);
        let mut skb = match header.way {
            Way::Void(_) => None,
            _ if !is_offered => None,
            _ => poll.alloc(header.bytes_in_frame()).ok(),
        };
        if let Some(skb) = &mut skb {
            own.copy_packet(ring.block(), ring.blocks(), skb)?;
        }
        if let (Way::Engine(split), Some(reception)) = (header.way, &mut self.reception) {
            reception.take(header.bytes.saturating_sub(split), skb.as_mut())?;
            counters.rx_engine.add(1);
        }
        let taken = match (header.way, skb) {
            (Way::Void(_), _) => Taken::Void,
            (_, Some(skb)) => Taken::Packet(skb, header.offload),
            (_, None) if is_offered => Taken::Dropped,
            (_, None) => Taken::Refused,
        };
        let blocks = header.blocks();
        ring.consume(blocks);
        self.unreturned += blocks;
        Ok(taken)
    }

    /// Returns room to the peer, if there is enough of it, or any with `all`.
    pub(super) fn give_room(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        all: bool,
        counters: &Counters,
    ) -> Result {
        let (Some(ring), Some(Back { range, doorbell })) = (&mut self.ring, self.back) else {
            return Ok(());
        };
        let enough = if all {
            1
        } else {
            ring.blocks() / RETURNED_PART
        };
        if self.unreturned < enough {
            return Ok(());
        }
        self.unreturned = 0;
        let to = PeerRange {
            hw: own.hw,
            peer,
            range,
        };
        to.publish_consumed(ring.counter())?;
        window::full_fence();
        if ring.needs_doorbell(own.wanted()?) {
            counters.credits_rung.add(1);
            own.hw.ring(peer, doorbell)?;
        }
        Ok(())
    }

    /// Returns how long the ring is polled before the peer has to ring.
    pub(super) fn moderation(&mut self) -> &mut Moderation {
        &mut self.moderation
    }

    /// Tells the peer whether it has to ring. Returns true if there are frames that it sent before it
    /// could know.
    pub(super) fn set_asleep(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        asleep: bool,
    ) -> Result<bool> {
        if let (Some(ring), Some(Back { range, .. })) = (&self.ring, self.back) {
            if core::mem::replace(&mut self.asleep, asleep) != asleep {
                let to = PeerRange {
                    hw: own.hw,
                    peer,
                    range,
                };
                to.set_asleep(ring.key(), asleep)?;
            }
        }
        window::full_fence();
        Ok(self.pending(own)? > 0)
    }
}
