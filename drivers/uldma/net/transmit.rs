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
    frame,
    range::{
        OwnRange,
        PeerRange, //
    },
    ring::Producer, //
};
use crate::{
    hw::Hw,
    kernel_ext::{
        errno::{
            enotconn,
            eproto, //
        },
        net::{
            net_device::{
                Handle,
                InFlight, //
            },
            skb::SkBuff, //
        },
        window, //
    },
    link::{
        area::Counter,
        window_alloc::WindowRange, //
    }, //
};

/// The way to a peer that takes frames.
pub(super) struct Route {
    pub(super) ring: Producer,
    /// The range of the peer's section.
    pub(super) range: WindowRange,
    /// Bytes of the longest packet that the peer takes.
    pub(super) max_frame: u32,
    /// The doorbell bit that rings the peer.
    pub(super) doorbell: u32,
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

    /// Tells the stack about `sent` blocks, and about those that have arrived.
    fn account(&mut self, queue: StackQueue<'_>, sent: u32) {
        let (Some(route), false) = (&mut self.route, self.stalled) else {
            return;
        };
        let completed = route.ring.take_completed();
        if sent > 0 || completed > 0 {
            let [sent, completed] = [sent, completed].map(frame::bytes_of_blocks);
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

    /// Writes a packet for `peer`, and rings its doorbell if it sleeps. Returns true if it rang.
    /// The bytes count in `queue`, unless that is none.
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
        skb: &SkBuff,
        counters: &Counters,
    ) -> Result<bool> {
        let route = self.route.as_mut().ok_or_else(enotconn)?;
        let bytes = skb.len();
        if !(frame::SHORTEST..=route.max_frame).contains(&bytes) {
            return Err(EMSGSIZE);
        }
        let blocks = frame::blocks(bytes);
        if route.ring.room() < blocks {
            route.ring.consumed(own.consumed()?)?;
            if route.ring.room() < blocks {
                return Err(EBUSY);
            }
        }
        let to = PeerRange {
            hw: own.hw,
            peer,
            range: route.range,
        };
        to.write_frame(route.ring.block(), route.ring.blocks(), skb)?;
        to.publish_produced(route.ring.produce(blocks))?;
        counters.tx_packets.add(1);
        counters.tx_bytes.add(bytes.into());
        if let Some(queue) = queue {
            self.account(queue, blocks);
        }
        window::full_fence();
        let route = self.route.as_mut().ok_or_else(enotconn)?;
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
