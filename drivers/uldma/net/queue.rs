// SPDX-License-Identifier: GPL-2.0

//! The queue of one peer: both directions, and what interrupts have to know.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    time::Delta, //
};

use super::{
    address::node_of,
    counters::Counters,
    moderation::{
        Costs,
        Sent, //
    },
    range::{
        ring_blocks,
        OwnRange, //
    },
    receive::{
        Back,
        Receive,
        Taken, //
    },
    reception::Reception,
    ring::{
        Consumer,
        Counter, //
    },
    transmit::{
        is_violation,
        Flow,
        Packet,
        Route,
        StackQueue,
        Transmit, //
    }, //
};
use crate::{
    hw::{
        Doorbells,
        Hw, //
    },
    kernel_ext::{
        bh_lock::{
            new_bh_lock,
            BhLock, //
        },
        net::{
            napi::Poll,
            net_device::{
                Driver,
                Handle,
                NetDevice,
                Offloads, //
            },
            skb::SkBuff, //
        },
        wakeup, //
    },
    link::window_range::WindowRange,
    params, //
};

/// What a poll leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// No frames, after so many packets.
    Idle(u32),
    /// More frames.
    More,
}

/// The queue of one peer.
#[pin_data]
pub(super) struct PeerQueue {
    /// Number of the peer.
    pub(super) node: u32,
    /// Number of the queue.
    number: u32,
    /// The range of the own section that the peer writes.
    range: WindowRange,
    #[pin]
    tx: BhLock<Transmit>,
    #[pin]
    rx: BhLock<Receive>,
    /// A copy of the counter of consumed blocks, for interrupts; zero without a ring.
    consumed: Atomic<u64>,
    /// This node waits for room, for interrupts.
    waits: Atomic<bool>,
    /// This node waits for frames, for which idle processors poll.
    waits_for_frames: Atomic<bool>,
    /// The engine moves packets to the peer.
    flies: Atomic<bool>,
    /// This node has sent packets since the last poll.
    sent: Atomic<bool>,
    /// The peer's doorbell rang for them.
    rang: Atomic<bool>,
    /// Cost of a doorbell of the peer, in nanoseconds.
    doorbell_cost: Atomic<i64>,
    /// What the peer accepts: the bits of [`Offloads`].
    accepts: Atomic<u32>,
    /// The [`Doorbells`] by which the peer may ring for packets and room.
    rung_by: Atomic<u32>,
    /// The peer broke the rules, which the progress worker has to report.
    violated: Atomic<bool>,
    pub(super) counters: Counters,
}

impl PeerQueue {
    /// Creates queue `number`, for the peer `node`.
    pub(super) fn new(node: u32, number: u32, range: WindowRange) -> impl PinInit<Self> {
        pin_init!(Self {
            node,
            number,
            range,
            tx <- new_bh_lock!(Transmit::new(), "uldma::PeerQueue::tx"),
            rx <- new_bh_lock!(Receive::new(), "uldma::PeerQueue::rx"),
            consumed: Atomic::new(0),
            waits: Atomic::new(false),
            waits_for_frames: Atomic::new(false),
            flies: Atomic::new(false),
            sent: Atomic::new(false),
            rang: Atomic::new(false),
            doorbell_cost: Atomic::new(0),
            accepts: Atomic::new(0),
            rung_by: Atomic::new(Doorbells::ALL.bits()),
            violated: Atomic::new(false),
            counters: Counters::default(),
        })
    }

    /// Returns the number of the queue.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the range of the own section that the peer writes.
    pub(super) fn range(&self) -> WindowRange {
        self.range
    }

    /// Returns what the peer accepts.
    pub(super) fn accepts(&self) -> Offloads {
        Offloads::from_bits(self.accepts.load(Relaxed))
    }

    /// Returns true once after the peer broke the rules.
    pub(super) fn take_violation(&self) -> bool {
        self.violated.load(Relaxed) && self.violated.xchg(false, Full)
    }

    fn of_stack<'a>(&self, handle: Handle<'a>) -> StackQueue<'a> {
        StackQueue {
            handle,
            number: self.number,
        }
    }

    fn own<'a>(&self, hw: Hw<'a>) -> OwnRange<'a> {
        OwnRange {
            hw,
            range: self.range,
        }
    }

    /// Begins the ring `key` that the peer writes, or ends it.
    pub(super) fn set_ring(&self, key: Option<u32>, max_frame: u32) {
        let mut rx = self.rx.lock();
        rx.set_ring(
            key.map(|key| Consumer::new(key, ring_blocks(self.range))),
            max_frame,
        );
        self.consumed.store(rx.counter().bits(), Relaxed);
    }

    /// Begins to send frames to the peer on `route`, which takes what `accepts` says, or ends.
    pub(super) fn set_route<T: Driver>(
        &self,
        device: &NetDevice<T>,
        route: Option<Route>,
        accepts: Offloads,
    ) {
        self.accepts.store(accepts.bits(), Relaxed);
        let mut tx = self.tx.lock();
        let flow = tx.set_route(route);
        self.waits.store(tx.waits(), Relaxed);
        self.flies.store(tx.flies(), Relaxed);
        self.reopen(device, &mut tx, flow);
    }

    /// Has the stack send packets of a queue again that may have been stopped.
    fn reopen<T: Driver>(&self, device: &NetDevice<T>, tx: &mut Transmit, flow: Flow) {
        device.reset_sent(self.number, tx.reset_in_flight());
        if flow == Flow::Wake {
            device.wake_queue(self.number);
        }
    }

    /// Begins to receive by the engine, with a reception that is connected.
    pub(super) fn set_reception(&self, reception: KBox<Reception>) {
        self.rx.lock().set_reception(reception);
    }

    /// Ends to receive by the engine. Returns the reception, which has to be ended.
    pub(super) fn take_reception(&self) -> Option<KBox<Reception>> {
        self.rx.lock().take_reception()
    }

    /// Begins to return room to the peer, by `back`, or ends.
    pub(super) fn set_back(&self, hw: Hw<'_>, back: Option<Back>) -> Result {
        self.rx.lock().set_back(back, self.own(hw), self.node)
    }

    /// Returns true if the engine moves packets to the peer.
    pub(super) fn flies(&self) -> bool {
        self.flies.load(Relaxed)
    }

    /// Notes the doorbells by which the peer may ring for packets and room.
    pub(super) fn set_rung_by(&self, doorbells: Doorbells) {
        self.rung_by.store(doorbells.bits(), Relaxed);
    }

    /// Returns true if the peer may have rung one of these doorbells for packets or room.
    pub(super) fn may_ring(&self, rung: Doorbells) -> bool {
        Doorbells::of_bits(self.rung_by.load(Relaxed)).meet(rung)
    }

    /// Returns true if the peer has sent something, or has made room that this node waits for. For
    /// interrupts.
    pub(super) fn has_work(&self, hw: Hw<'_>) -> bool {
        self.waits.load(Relaxed) || self.has_frames(hw)
    }

    /// Returns true if the peer has sent something.
    pub(super) fn has_frames(&self, hw: Hw<'_>) -> bool {
        let consumed = Counter::from_bits(self.consumed.load(Relaxed));
        let produced = self.own(hw).produced().unwrap_or(Counter::NONE);
        produced.get(Counter::KEY) == consumed.get(Counter::KEY) && produced != consumed
    }

    /// Returns true if an idle processor is to poll for frames.
    pub(super) fn waits_for_frames(&self) -> bool {
        self.waits_for_frames.load(Relaxed)
    }

    /// Has idle processors poll for frames, or not. Only a poll of the queue begins that.
    pub(super) fn set_waits_for_frames(&self, waits: bool) {
        self.waits_for_frames.store(waits, Relaxed);
    }

    /// Notes an error. Returns true if the peer is to blame, which the progress worker reports.
    pub(super) fn failed(&self, error: Error) -> bool {
        if !is_violation(error) {
            // The device has left the bus, and its removal ends everything.
            return false;
        }
        self.counters.violations.add(1);
        self.set_ring(None, 0);
        self.violated.xchg(true, Full);
        true
    }

    /// Writes a packet for the peer, and stops the queue when no other would fit.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    pub(super) fn transmit(&self, handle: Handle<'_>, hw: Hw<'_>, skb: SkBuff) -> Result {
        let own = self.own(hw);
        let queue = self.of_stack(handle);
        let mut skb = Some(skb);
        let mut tx = self.tx.lock();
        if tx.flies() {
            // The packets before may have arrived.
            if tx.land(own, self.node, params::link_timeout(), &self.counters)? {
                self.rang.store(true, Relaxed);
            }
        }
        let packet = Packet::Own(&mut skb);
        let sent = tx.send(own, self.node, Some(queue), packet, &self.counters);
        let stopped = tx.stop_if_full(own, self.node, queue, &self.counters)?;
        self.waits.store(tx.waits(), Relaxed);
        self.flies.store(tx.flies(), Relaxed);
        if stopped == Flow::Stop {
            handle.stop_queue(self.number);
        }
        drop(tx);
        if let Some(skb) = skb {
            skb.consume();
        }
        self.sent.store(true, Relaxed);
        if let Ok(sent) = sent {
            if sent.rang {
                // The answer may come before this node would sleep again.
                self.rang.store(true, Relaxed);
            }
            if sent.rang || sent.takes_off {
                handle.schedule(self.number);
            }
        }
        self.judge(sent.map(drop))
    }

    /// Writes a packet for a group to the peer, if there is room.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    pub(super) fn transmit_copy(&self, hw: Hw<'_>, skb: &SkBuff) -> Result {
        let mut tx = self.tx.lock();
        if tx.route().is_none() {
            return Ok(());
        }
        let packet = Packet::Shared(skb);
        let sent = tx.send(self.own(hw), self.node, None, packet, &self.counters);
        drop(tx);
        self.judge(sent.map(drop))
    }

    /// Counts a packet that was not sent.
    fn judge(&self, sent: Result) -> Result {
        match sent {
            Ok(()) => return Ok(()),
            Err(EMSGSIZE) => self.counters.tx_too_long.add(1),
            Err(_) => self.counters.tx_dropped.add(1),
        }
        match sent {
            Err(error) if is_violation(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Publishes what the engine has moved, and polls for room that this node waits for. Returns true if
    /// there is some.
    pub(super) fn reclaim(&self, handle: Handle<'_>, hw: Hw<'_>) -> Result<bool> {
        let mut tx = self.tx.lock();
        if tx.flies() {
            let limit = params::link_timeout();
            if tx.land(self.own(hw), self.node, limit, &self.counters)? {
                self.rang.store(true, Relaxed);
            }
            self.flies.store(tx.flies(), Relaxed);
        }
        let flow = tx.reclaim(self.own(hw), self.node, self.of_stack(handle))?;
        self.waits.store(tx.waits(), Relaxed);
        if flow == Flow::Wake {
            // The lock is held, so that no later decision is overtaken.
            handle.wake_queue(self.number);
        }
        Ok(flow == Flow::Wake)
    }

    /// Has the stack send again, and packets dropped, if the peer has made no room for `limit`.
    pub(super) fn give_up<T: Driver>(&self, device: &NetDevice<T>, limit: Delta) {
        let mut tx = self.tx.lock();
        if let Some(flow) = tx.give_up(limit, &self.counters) {
            self.reopen(device, &mut tx, flow);
        }
    }

    /// Receives packets, up to the budget of the poll and `max_bytes` bytes.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    pub(super) fn receive(&self, hw: Hw<'_>, poll: &Poll<'_>, max_bytes: u64) -> Result<Polled> {
        let own = self.own(hw);
        self.counters.polls.add(1);
        {
            let mut rx = self.rx.lock();
            rx.set_asleep(own, self.node, false)?;
            rx.post(own, self.node)?;
        }
        let (mut packets, mut bytes) = (0, 0u64);
        while packets < poll.budget() && bytes < max_bytes {
            // The stack gets the packet without the lock, since it may send an answer at once.
            let taken = {
                let mut rx = self.rx.lock();
                let taken = rx.take(own, poll, &self.counters)?;
                rx.give_room(own, self.node, false, &self.counters)?;
                self.consumed.store(rx.counter().bits(), Relaxed);
                taken
            };
            match taken {
                Taken::Nothing => {
                    let mut rx = self.rx.lock();
                    rx.post(own, self.node)?;
                    rx.give_room(own, self.node, true, &self.counters)?;
                    drop(rx);
                    if packets == 0 {
                        self.counters.polls_in_vain.add(1);
                    }
                    return Ok(Polled::Idle(packets));
                }
                Taken::Dropped => self.counters.rx_dropped.add(1),
                Taken::Refused => self.counters.rx_errors.add(1),
                Taken::Void => (),
                Taken::Packet(skb, offload) => {
                    let length = u64::from(skb.len());
                    bytes = bytes.saturating_add(length);
                    let is_multicast = match skb.addresses() {
                        Ok((to, from)) if node_of(from) == Some(self.node) => to.is_multicast(),
                        // No node passes packets of others on, so the peer pretends to be one.
                        _ => {
                            self.counters.rx_foreign.add(1);
                            packets += 1;
                            continue;
                        }
                    };
                    match poll.receive(skb, &offload) {
                        Ok(()) => {
                            self.counters.rx_packets.add(1);
                            self.counters.rx_bytes.add(length);
                            self.counters.rx_multicast.add(is_multicast.into());
                        }
                        Err(_) => self.counters.rx_errors.add(1),
                    }
                }
            }
            packets += 1;
        }
        self.rx
            .lock()
            .give_room(own, self.node, true, &self.counters)?;
        Ok(Polled::More)
    }

    /// Notes the cost of a doorbell of the peer.
    pub(super) fn set_doorbell_cost(&self, cost: Delta) {
        self.doorbell_cost.store(cost.as_nanos(), Relaxed);
    }

    /// Returns the time until the next poll, after one that received `packets`; none if the peer is
    /// to ring.
    pub(super) fn next_poll(&self, packets: u32) -> Option<Delta> {
        let sent = match (self.sent.xchg(false, Full), self.rang.xchg(false, Full)) {
            (_, true) => Sent::Rang,
            (true, false) => Sent::Packets,
            (false, false) => Sent::Nothing,
        };
        let costs = Costs {
            doorbell: Delta::from_nanos(self.doorbell_cost.load(Relaxed)),
            timer: wakeup::cost_by_timer(),
            most: params::link_busy_poll(),
        };
        let mut rx = self.rx.lock();
        rx.moderation().next_poll(packets > 0, sent, costs)
    }

    /// Returns the time until the engine is to be polled again; none if it moves nothing.
    pub(super) fn next_landing(&self) -> Option<Delta> {
        self.tx.lock().next_landing()
    }

    /// Has the peer ring from here on. Returns true if there are frames already.
    pub(super) fn sleep(&self, hw: Hw<'_>) -> Result<bool> {
        self.rx.lock().set_asleep(self.own(hw), self.node, true)
    }
}
