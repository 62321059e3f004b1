// SPDX-License-Identifier: GPL-2.0

//! The sender's side of a queue: it writes frames into the range of a peer.

use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    counters::Counters,
    engine::{
        Engine,
        Frame, //
    },
    frame::{
        self,
        Header,
        Way,
        SPLIT, //
    },
    range::{
        OwnRange,
        PeerRange, //
    },
    ring::{
        Counter,
        Producer, //
    }, //
};
use crate::{
    hw::{
        Hw,
        KernelDoorbell, //
    },
    kernel_ext::{
        errno::{
            enotconn,
            eproto, //
        },
        net::{
            mapped_skb::MappedSkb,
            net_device::{
                Handle,
                InFlight, //
            },
            skb::{
                Offload,
                SkBuff, //
            }, //
        },
        window, //
    },
    link::window_range::WindowRange,
    params, //
};

/// The way to a peer that takes frames.
pub(super) struct Route {
    pub(super) ring: Producer,
    /// The range of the peer's section.
    pub(super) range: WindowRange,
    /// Bytes of the longest packet that the peer takes.
    pub(super) max_frame: u32,
    /// The doorbell that rings the peer.
    pub(super) doorbell: KernelDoorbell,
    /// The way of large packets, if both nodes have engines.
    pub(super) engine: Option<Engine>,
}

/// A frame that was written, and is not published.
struct Written {
    blocks: u32,
    /// Bytes of the packet.
    bytes: u32,
    /// Bytes that the engine moves.
    moved: u32,
    /// The first packet that the engine moves.
    takes_off: bool,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// The doorbell of the peer rang.
    pub(super) rang: bool,
    /// The engine begins to move packets.
    pub(super) takes_off: bool,
}

/// The state of a queue for one peer.
pub(super) struct Transmit {
    route: Option<Route>,
    /// What the peer has to consume before this node sends on, as it was told.
    wanted: Option<Counter>,
    /// Bytes of blocks that are on their way.
    in_flight: InFlight,
    /// The stack sends no packets of this queue until fewer are.
    limited: bool,
    /// The stack sends no packets of this queue until there is room.
    stopped: bool,
    /// The peer made no room within the deadline: packets are dropped until it does.
    stalled: bool,
    /// When the peer has made room last, or the queue has stopped.
    waits_since: Instant<Monotonic>,
}

/// A queue of the stack.
#[derive(Clone, Copy)]
pub(super) struct StackQueue<'a> {
    pub(super) handle: Handle<'a>,
    pub(super) number: u32,
}

/// What happens to the queue of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Unchanged,
    Stop,
    Wake,
}

/// A packet to be sent.
pub(super) enum Packet<'a> {
    /// One that others have, too.
    Shared(&'a SkBuff),
    /// One that is there for this queue alone; taken out if the engine moves it.
    Own(&'a mut Option<SkBuff>),
}

impl Packet<'_> {
    fn skb(&self) -> Result<&SkBuff> {
        match self {
            Self::Shared(skb) => Ok(skb),
            Self::Own(place) => place.as_ref().ok_or(EINVAL),
        }
    }
}

impl Route {
    fn to<'a>(&self, own: OwnRange<'a>, peer: u32) -> PeerRange<'a> {
        PeerRange {
            hw: own.hw,
            peer,
            range: self.range,
        }
    }

    /// Returns the block of a frame of `blocks` blocks, for which there is room.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is none, `EPROTO` if the peer breaks the rules.
    fn place(&mut self, own: OwnRange<'_>, blocks: u32) -> Result<(u32, u32)> {
        if self.ring.room() < blocks {
            self.ring.consumed(own.consumed()?)?;
            if self.ring.room() < blocks {
                return Err(EBUSY);
            }
        }
        Ok((self.ring.block(), self.ring.blocks()))
    }

    /// Writes a packet to the ring.
    fn write(&mut self, own: OwnRange<'_>, peer: u32, skb: &SkBuff) -> Result<Written> {
        let bytes = skb.len();
        let blocks = frame::blocks(bytes);
        let place = self.place(own, blocks)?;
        self.to(own, peer).write_frame(place, Way::Ring, skb)?;
        self.ring.produce(blocks);
        Ok(Written {
            blocks,
            bytes,
            moved: 0,
            takes_off: false,
        })
    }

    /// Has the engine move a packet, of which the first bytes are written to the ring; none if it is to
    /// go by the ring as a whole.
    fn write_by_engine(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        packet: &mut Option<SkBuff>,
    ) -> Result<Option<Written>> {
        let (Some(engine), Some(least)) = (&mut self.engine, params::network_engine()) else {
            return Ok(None);
        };
        let bytes = packet.as_ref().map_or(0, SkBuff::len);
        let moved = bytes.saturating_sub(SPLIT);
        if bytes < least || moved == 0 || !engine.takes(moved, own.posted()?, self.ring.key())? {
            return Ok(None);
        }
        let blocks = frame::blocks(SPLIT);
        let (block, of) = self.place(own, blocks)?;
        let (Some(engine), Some(skb)) = (&mut self.engine, packet.take()) else {
            return Ok(None);
        };
        // What is written is overwritten if the packet goes by the ring after all.
        let to = PeerRange {
            hw: own.hw,
            peer,
            range: self.range,
        };
        let written = to.write_frame((block, of), Way::Engine(SPLIT), &skb);
        let mapped = match written {
            Ok(_) => MappedSkb::new(own.hw.dev(), skb, SPLIT),
            Err(err) => {
                *packet = Some(skb);
                return Err(err);
            }
        };
        let mut mapped = match mapped {
            Ok(mapped) => Some(mapped),
            Err((_, skb)) => {
                *packet = Some(skb);
                return Ok(None);
            }
        };
        let ticket = engine
            .queue()
            .submit(own.hw, engine.endpoint(), &mut mapped);
        let Ok(ticket) = ticket else {
            *packet = mapped.and_then(|mapped| mapped.unmap(own.hw.dev()));
            return Ok(None);
        };
        let from = self.ring.produced();
        self.ring.produce(blocks);
        let frame = Frame {
            ticket,
            block,
            from,
            to: self.ring.produced(),
            bytes,
            split: SPLIT,
        };
        Ok(Some(Written {
            blocks,
            bytes,
            moved,
            takes_off: engine.sent(frame),
        }))
    }
}

impl Transmit {
    /// Creates the state of a queue without a peer.
    pub(super) fn new() -> Self {
        Self {
            route: None,
            wanted: None,
            in_flight: InFlight::default(),
            limited: false,
            stopped: false,
            stalled: false,
            waits_since: Instant::now(),
        }
    }

    /// Begins to send on `route`, or ends.
    pub(super) fn set_route(&mut self, route: Option<Route>) -> Flow {
        self.route = route;
        self.wanted = None;
        self.stalled = false;
        self.resume()
    }

    /// Returns the count of bytes that are on their way, which the caller resets.
    pub(super) fn reset_in_flight(&mut self) -> &mut InFlight {
        self.limited = false;
        &mut self.in_flight
    }

    /// Returns the route.
    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Returns true if this node waits for room.
    pub(super) fn waits(&self) -> bool {
        self.wanted.is_some()
    }

    /// Tells the stack about `sent` bytes, and about those that have arrived.
    fn account(&mut self, queue: StackQueue<'_>, sent: u32) {
        let (Some(route), false) = (&mut self.route, self.stalled) else {
            return;
        };
        let completed = frame::bytes_of_blocks(route.ring.take_completed());
        let consumed = route.ring.consumed_blocks();
        let engine = route.engine.as_mut();
        let moved = engine.map_or(0, |engine| engine.consumed(consumed));
        let completed = completed.saturating_add(moved);
        if sent > 0 || completed > 0 {
            let StackQueue { handle, number } = queue;
            self.limited = handle.sent(number, &mut self.in_flight, sent, completed);
        }
    }

    fn resume(&mut self) -> Flow {
        if core::mem::replace(&mut self.stopped, false) {
            Flow::Wake
        } else {
            Flow::Unchanged
        }
    }

    /// Writes a packet for `peer`, and rings its doorbell if it sleeps. The bytes count in `queue`,
    /// unless that is none; only then may the engine move the packet, and take it.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` without a peer, `EMSGSIZE` if the packet is too long for it, `EBUSY` without room,
    /// `EINVAL` for an offload that is not offered, `EPROTO` if the peer breaks the rules, `ENODEV`.
    pub(super) fn send(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        queue: Option<StackQueue<'_>>,
        packet: Packet<'_>,
        counters: &Counters,
    ) -> Result<Sent> {
        let route = self.route.as_mut().ok_or_else(enotconn)?;
        let bytes = packet.skb()?.len();
        if !(frame::SHORTEST..=route.max_frame).contains(&bytes) {
            return Err(EMSGSIZE);
        }
        let written = match packet {
            Packet::Shared(skb) => route.write(own, peer, skb)?,
            Packet::Own(place) => match route.write_by_engine(own, peer, place)? {
                Some(written) => {
                    counters.tx_engine.add(1);
                    written
                }
                None => route.write(own, peer, place.as_ref().ok_or(EINVAL)?)?,
            },
        };
        counters.tx_packets.add(1);
        counters.tx_bytes.add(written.bytes.into());
        if let Some(queue) = queue {
            let sent = frame::bytes_of_blocks(written.blocks).saturating_add(written.moved);
            // Before the peer can consume it.
            self.account(queue, sent);
        }
        Ok(Sent {
            rang: self.publish(own, peer, counters)?,
            takes_off: written.takes_off,
        })
    }

    /// Publishes the frames whose packets are there, and rings the peer's doorbell if it sleeps. Returns
    /// true if it rang.
    fn publish(&mut self, own: OwnRange<'_>, peer: u32, counters: &Counters) -> Result<bool> {
        let Some(route) = &mut self.route else {
            return Ok(false);
        };
        let limit = route.engine.as_ref().and_then(Engine::limit);
        let limit = limit.unwrap_or(route.ring.produced());
        let Some(produced) = route.ring.publish(limit) else {
            return Ok(false);
        };
        route.to(own, peer).publish_produced(produced)?;
        window::full_fence();
        if own.is_asleep(route.ring.key())? {
            // The peer may have taken earlier frames, and slept again.
            route.ring.consumed(own.consumed()?)?;
            if route.ring.needs_doorbell() {
                counters.doorbells_rung.add(1);
                own.hw.ring(peer, route.doorbell)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Publishes the frames whose packets the engine has moved, and passes over those that it could
    /// not move for `limit`. Returns true if the peer's doorbell rang.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules, `ENODEV`.
    pub(super) fn land(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        limit: Delta,
        counters: &Counters,
    ) -> Result<bool> {
        let Some(route) = &mut self.route else {
            return Ok(false);
        };
        let to = route.to(own, peer);
        let Some(engine) = &mut route.engine else {
            return Ok(false);
        };
        engine.queue().reap(own.hw.dev());
        while let Some((frame, arrived)) = engine.land(limit) {
            if !arrived {
                counters.tx_engine_failed.add(1);
                counters.tx_dropped.add(1);
                let void = Header {
                    bytes: frame.bytes,
                    way: Way::Void(frame.split),
                    offload: Offload::default(),
                };
                to.write_header(frame.block, &void)?;
            }
        }
        self.publish(own, peer, counters)
    }

    /// Returns the time until [`Transmit::land`] is to be called again; none if the engine moves
    /// nothing.
    pub(super) fn next_landing(&self) -> Option<Delta> {
        self.route.as_ref()?.engine.as_ref()?.next_poll()
    }

    /// Returns true if the engine moves packets.
    pub(super) fn flies(&self) -> bool {
        let engine = self.route.as_ref().and_then(|route| route.engine.as_ref());
        engine.is_some_and(Engine::flies)
    }

    /// Returns true if there is room for each packet that the stack may send.
    fn has_room(&self) -> bool {
        let mut route = self.route.iter();
        route.all(|route| route.ring.room() >= frame::blocks(route.max_frame))
    }

    /// Returns true if the stack may send the longest packet.
    fn is_open(&self) -> bool {
        self.has_room() && !self.limited
    }

    /// Polls what the peer has consumed.
    fn refresh(&mut self, own: OwnRange<'_>, queue: StackQueue<'_>) -> Result {
        if let Some(route) = &mut self.route {
            if route.ring.consumed(own.consumed()?)? {
                self.waits_since = Instant::now();
                self.stalled = false;
            }
        }
        self.account(queue, 0);
        Ok(())
    }

    /// Tells the peer what this node waits for.
    fn want(&mut self, hw: Hw<'_>, peer: u32, wanted: Option<Counter>) -> Result {
        if let Some(route) = &self.route {
            if core::mem::replace(&mut self.wanted, wanted) != wanted {
                let range = route.range;
                let to = PeerRange { hw, peer, range };
                to.publish_wanted(wanted.unwrap_or(Counter::NONE))?;
            }
        }
        Ok(())
    }

    /// Returns the counter to wait for, which leaves room for several packets.
    fn next_wanted(&self) -> Option<Counter> {
        let route = self.route.as_ref()?;
        Some(route.ring.wanted(frame::blocks(route.max_frame)))
    }

    /// Returns true if the peer has not consumed all.
    fn has_in_flight(&self) -> bool {
        let mut route = self.route.iter();
        route.any(|route| route.ring.in_flight() > 0)
    }

    /// Returns true if the peer has consumed what this node waits for.
    fn has_wanted(&self) -> bool {
        match (&self.route, self.wanted) {
            (Some(route), Some(wanted)) => route.ring.has(wanted),
            _ => true,
        }
    }

    /// Decides, after a packet was sent, whether the stack may send the next.
    pub(super) fn stop_if_full(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        queue: StackQueue<'_>,
        counters: &Counters,
    ) -> Result<Flow> {
        if self.is_open() || self.stopped || self.stalled {
            return Ok(Flow::Unchanged);
        }
        self.refresh(own, queue)?;
        if self.is_open() {
            return Ok(Flow::Unchanged);
        }
        self.want(own.hw, peer, self.next_wanted())?;
        window::full_fence();
        // The peer may have made room before it could know.
        self.refresh(own, queue)?;
        if self.is_open() {
            return Ok(Flow::Unchanged);
        }
        self.waits_since = Instant::now();
        if self.has_room() {
            counters.tx_limited.add(1);
            return Ok(Flow::Unchanged);
        }
        counters.tx_stopped.add(1);
        self.stopped = true;
        Ok(Flow::Stop)
    }

    /// Polls for room, if this node waits for it.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules, `ENODEV`.
    pub(super) fn reclaim(
        &mut self,
        own: OwnRange<'_>,
        peer: u32,
        queue: StackQueue<'_>,
    ) -> Result<Flow> {
        self.refresh(own, queue)?;
        if !self.waits() {
            return Ok(Flow::Unchanged);
        }
        // The limit may still hold when half has arrived; half of the rest is next.
        while self.has_wanted() && self.limited && self.has_in_flight() {
            self.want(own.hw, peer, self.next_wanted())?;
            window::full_fence();
            self.refresh(own, queue)?;
        }
        if !self.has_wanted() {
            return Ok(Flow::Unchanged);
        }
        self.want(own.hw, peer, None)?;
        Ok(self.resume())
    }

    /// Gives up waiting for a peer that makes no room for `limit`, and forgets what is on its way;
    /// none if it does not wait for so long.
    pub(super) fn give_up(&mut self, limit: Delta, counters: &Counters) -> Option<Flow> {
        let waits = self.waits() && !self.stalled;
        if !waits || self.waits_since.elapsed() < limit {
            return None;
        }
        counters.tx_stalled.add(1);
        self.stalled = true;
        Some(self.resume())
    }
}

/// Returns true for an error that the peer is to blame for.
pub(super) fn is_violation(error: Error) -> bool {
    error == eproto()
}
