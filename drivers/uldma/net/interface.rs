// SPDX-License-Identifier: GPL-2.0

//! The interface of one device, and what it agrees with the peers.
//!
//! A node announces to each peer the range that the peer may write, while the administrator has the
//! interface up, and withdraws it when the interface goes down. Frames cross to a peer when both have
//! announced: the words about one ring are in the range of the other.
//!
//! The progress worker sends these messages. `Interface::control` is taken under `Link::turn` and
//! under the lock of the network stack, and `Peer::state`, `Endpoints::state` and the locks of queues
//! under it. `Queue::state` is innermost.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    address::{
        address_of,
        node_of, //
    },
    counters::{
        self,
        Count, //
    },
    frame,
    queue::{
        PeerQueue,
        Polled, //
    },
    range,
    reception::Reception, //
};
use crate::{
    dma::{
        endpoint::{
            Endpoints,
            Released, //
        },
        send_queue::SendQueue, //
    },
    hw::{
        Consumer,
        Doorbells,
        Hardware,
        Hw, //
    },
    kernel_ext::net::{
        napi::Poll,
        net_device::{
            CounterName,
            Driver,
            Handle,
            NetDevice,
            Offloads,
            QueueStats,
            Stats, //
        },
        skb::{
            MacAddress,
            SkBuff, //
        }, //
    },
    link::{
        lane::Lane,
        progress_worker::ProgressWorker,
        throttle::Throttle,
        Link, //
    },
    params, //
};

mod agreement;

use agreement::Agreement;

/// The queue of no peer, whose poll unmasks the doorbell after polls that have found nothing.
const UNMASKING: u32 = 0;

/// Maximum bytes of one poll: as many as a budget of packets of the usual MTU has.
const POLL_BYTES: u64 = 64 * 1514;

struct Control {
    /// The administrator has the interface up.
    up: bool,
    /// By the place of the queue.
    peers: KVec<Agreement>,
    /// Receptions that have ended, and that the device may still write.
    ended: Option<KBox<Reception>>,
    /// Those that the device does not confirm the end of.
    retained: Option<KBox<Reception>>,
}

/// Adds a reception to a list.
fn add(list: &mut Option<KBox<Reception>>, mut reception: KBox<Reception>) {
    reception.next = list.take();
    *list = Some(reception);
}

/// Removes a reception from a list.
fn remove(list: &mut Option<KBox<Reception>>) -> Option<KBox<Reception>> {
    let mut first = list.take()?;
    *list = first.next.take();
    Some(first)
}

impl Control {
    /// Ends to receive by the engine of one peer.
    fn end_reception(&mut self, place: usize, queue: &PeerQueue) {
        let waiting = self.peers.get_mut(place).and_then(|it| it.reception.take());
        for reception in [waiting, queue.take_reception()].into_iter().flatten() {
            add(&mut self.ended, reception);
        }
    }
}

/// The network interface of one device.
#[pin_data]
pub(crate) struct Interface {
    hw: Arc<dyn Hardware>,
    worker: Arc<ProgressWorker>,
    queues: KVec<Pin<KBox<PeerQueue>>>,
    names: KVec<CounterName>,
    /// The queue of packets for the engine, if there is one.
    packets: Option<Arc<SendQueue>>,
    /// There is something for [`Interface::work`].
    is_due: Atomic<bool>,
    /// There is something for it after the backoff of a peer.
    is_delayed: Atomic<bool>,
    /// The origin of the times of backoffs.
    created: Instant<Monotonic>,
    /// The doorbell rang, which masks it, and was not unmasked since.
    is_masked: Atomic<bool>,
    /// Number of times that it was unmasked.
    unmasked: Count,
    /// Doorbells that had nothing behind them.
    throttle: Throttle,
    /// Number of times that it stayed masked, since these were too many.
    moderations: Count,
    /// Packets that were dropped because no node has their address.
    tx_unknown: Count,
    #[pin]
    control: Mutex<Control>,
}

impl Interface {
    /// Creates the interface of a device, if it has one.
    pub(crate) fn new(
        hw: Arc<dyn Hardware>,
        worker: Arc<ProgressWorker>,
    ) -> Result<Option<Arc<NetDevice<Self>>>> {
        let geometry = *hw.geometry();
        let (mut queues, mut names, mut peers) = (KVec::new(), KVec::new(), KVec::new());
        for name in ["unmasked", "moderations", "tx_unknown"] {
            names.push(counters::name(fmt!("{name}"))?, GFP_KERNEL)?;
        }
        let mut max_frame = frame::LONGEST;
        for node in (0..geometry.nodes).filter(|node| *node != geometry.node) {
            let Some(range) = Lane::inbound(&geometry, node)?.network() else {
                return Ok(None);
            };
            max_frame = max_frame.min(range::longest(range));
            // Queue 0 is for groups, which are written to all others.
            let number = u32::try_from(queues.len())? + 1;
            let queue = KBox::pin_init(PeerQueue::new(node, number, range), GFP_KERNEL)?;
            queues.push(queue, GFP_KERNEL)?;
            counters::add_names(&mut names, node)?;
            peers.push(Agreement::new(), GFP_KERNEL)?;
        }
        let count = u32::try_from(queues.len())? + 1;
        let packets = match hw.kernel_queues().and_then(|contexts| contexts.packets) {
            Some(context) => Some(Arc::pin_init(SendQueue::new(context)?, GFP_KERNEL)?),
            None => None,
        };
        let control = Control {
            up: false,
            peers,
            ended: None,
            retained: None,
        };
        let interface = Arc::pin_init(
            pin_init!(Self {
                hw,
                worker,
                queues,
                names,
                packets,
                is_due: Atomic::new(false),
                is_delayed: Atomic::new(false),
                created: Instant::now(),
                is_masked: Atomic::new(false),
                unmasked: Count::default(),
                throttle: Throttle::new(),
                moderations: Count::default(),
                tx_unknown: Count::default(),
                control <- new_mutex!(control, "uldma::Interface::control"),
            }),
            GFP_KERNEL,
        )?;
        NetDevice::new(interface, count, max_frame).map(Some)
    }

    /// Enables the queue of packets for the engine.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        let packets = self.packets.as_ref();
        packets.map_or(Ok(()), |packets| packets.enable(hw))
    }

    /// Frees all packets and pages that the device had; it does no DMA any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>, released: &Released) {
        if let Some(packets) = &self.packets {
            packets.tear_down(dev);
        }
        let mut control = self.control.lock();
        for (place, queue) in self.queues().enumerate() {
            control.end_reception(place, queue);
        }
        while let Some(reception) = remove(&mut control.ended) {
            reception.free(released);
        }
        while let Some(reception) = remove(&mut control.retained) {
            reception.free(released);
        }
    }

    /// Returns the address of this node, for device `device` of this machine.
    pub(crate) fn address(&self, device: u32) -> MacAddress {
        address_of(device, self.hw.geometry().node)
    }

    fn queues(&self) -> impl Iterator<Item = &PeerQueue> {
        self.queues.iter().map(|queue| &**queue)
    }

    /// Returns the queue of peer `node`.
    fn queue_of(&self, node: u32) -> Option<(usize, &PeerQueue)> {
        self.queues().enumerate().find(|(_, it)| it.node == node)
    }

    /// Returns the queue for an address of one node.
    fn queue_for(&self, address: MacAddress) -> Option<&PeerQueue> {
        let (_, queue) = self.queue_of(node_of(address)?)?;
        Some(queue)
    }

    /// Nanoseconds since the interface was created.
    fn age(&self) -> i64 {
        self.created.elapsed().as_nanos()
    }

    /// Does what the events since the last call request. Returns true if there was anything.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has left the bus.
    pub(crate) fn work(
        &self,
        hw: Hw<'_>,
        link: &Link,
        endpoints: &Endpoints,
        device: &NetDevice<Self>,
    ) -> Result<bool> {
        if !self.is_due.load(Relaxed) || !self.is_due.xchg(false, Full) {
            return Ok(false);
        }
        let mut control = self.control.lock();
        let mut carrier = false;
        let (up, now) = (control.up, self.age());
        for (place, queue) in self.queues().enumerate() {
            if queue.take_violation() {
                link.peer(queue.node)?.mark_broken();
            }
            if !up {
                control.end_reception(place, queue);
            }
            let Some(agreement) = control.peers.get_mut(place) else {
                continue;
            };
            let waits = up && agreement.has_to_wait(now);
            if waits {
                // Due again at the next heartbeat.
                self.is_delayed.store(true, Relaxed);
            } else {
                self.announce(hw, link, endpoints, queue, agreement, up)?;
            }
            let has_announced = agreement.announced.is_some() && !waits;
            match agreement.theirs.filter(|_| has_announced) {
                Some(_) if agreement.joined => (),
                Some(theirs) => {
                    self.join(hw, endpoints, device, queue, agreement, theirs)?;
                    agreement.joined = true;
                }
                None => {
                    agreement.joined = false;
                    self.part(device, queue);
                    queue.set_back(hw, None)?;
                }
            }
            carrier |= agreement.joined;
        }
        while let Some(reception) = remove(&mut control.ended) {
            if let Err(reception) = reception.end(hw, endpoints) {
                add(&mut control.retained, reception);
            }
        }
        drop(control);
        device.set_carrier(carrier);
        Ok(true)
    }

    /// Handles doorbells, some of which may be for the network, and which are masked until a poll has
    /// ended. Called by interrupts.
    pub(crate) fn interrupt(&self, hw: Hw<'_>, device: &NetDevice<Self>, rung: Doorbells) {
        let mut is_rung = self.queues().any(|queue| queue.may_ring(rung));
        is_rung |= rung.has(hw.network_doorbell());
        if !is_rung {
            return;
        }
        // Polls that are scheduled from here on see it.
        self.is_masked.store(true, Relaxed);
        let mut found = false;
        for queue in self.queues() {
            if queue.may_ring(rung) && queue.has_work(hw) {
                queue.counters.interrupts.add(1);
                device.schedule(queue.number());
                found = true;
            }
        }
        if !found {
            self.throttle.charge();
            device.schedule(UNMASKING);
        }
    }

    /// Has the doorbell interrupt again after a poll, unless it is not masked; `found` if the poll has
    /// found something. The queue looks for work once more afterwards.
    fn polled(&self, handle: Handle<'_>, hw: Hw<'_>, found: bool) {
        if self.is_masked.load(Relaxed) {
            if found {
                self.unmask(hw);
            } else {
                self.throttle.charge();
                handle.schedule(UNMASKING);
            }
        }
    }

    fn unmask(&self, hw: Hw<'_>) {
        if self.is_masked.xchg(false, Full) {
            self.unmasked.add(1);
            // The only error is a device that has left the bus.
            let _ = hw.unmask(Consumer::Network);
        }
    }

    /// Has the doorbell interrupt again after doorbells that had nothing behind them, once these are not
    /// too many.
    fn unmask_in_time(&self, hw: Hw<'_>, poll: Poll<'_>) {
        match self.throttle.left() {
            Some(left) if self.is_masked.load(Relaxed) => {
                self.moderations.add(1);
                poll.complete_and_poll(0, left);
            }
            _ => {
                poll.complete(0);
                self.unmask(hw);
            }
        }
    }

    /// Polls for frames whose doorbell was lost, and for peers that make no room. Called ten times
    /// per second.
    pub(crate) fn heartbeat(
        &self,
        hw: Hw<'_>,
        link: &Link,
        device: &NetDevice<Self>,
        completion_cost: Delta,
    ) {
        if self.is_delayed.xchg(false, Full) {
            self.is_due.store(true, Relaxed);
            self.worker.interrupt();
        }
        if self.is_masked.load(Relaxed) {
            // The interface was down.
            device.schedule(UNMASKING);
        }
        if let Some(packets) = &self.packets {
            // No poll does it while the interface is down.
            packets.reap(hw.dev());
        }
        for queue in self.queues() {
            if queue.has_work(hw) || queue.flies() {
                device.schedule(queue.number());
            }
            if let Ok(peer) = link.peer(queue.node) {
                // The interrupt of a doorbell takes the way of a completion's.
                queue.set_doorbell_cost(peer.doorbell_cost().max(completion_cost));
            }
            queue.give_up(device, params::link_timeout());
        }
    }

    /// Notes an error of a queue.
    fn failed(&self, queue: &PeerQueue, error: Error) {
        if queue.failed(error) {
            self.is_due.store(true, Relaxed);
            self.worker.interrupt();
        }
    }

    fn set_up(&self, up: bool) {
        self.control.lock().up = up;
        self.is_due.store(true, Relaxed);
        self.worker.interrupt();
    }
}

impl Driver for Interface {
    fn open(&self, handle: Handle<'_>) -> Result {
        self.set_up(true);
        // It may have rung while no queue was polled.
        handle.schedule(UNMASKING);
        Ok(())
    }

    fn stop(&self, _handle: Handle<'_>) {
        self.set_up(false);
        for queue in self.queues() {
            // Its timer has been cancelled, so no poll follows.
            queue.set_waits_for_frames(false);
        }
    }

    fn transmit(&self, handle: Handle<'_>, skb: SkBuff) {
        let hw = Hw::new(handle.parent(), &*self.hw);
        let Ok((destination, _)) = skb.addresses() else {
            return;
        };
        if destination.is_multicast() {
            for queue in self.queues() {
                if let Err(error) = queue.transmit_copy(hw, &skb) {
                    self.failed(queue, error);
                }
            }
            skb.consume();
        } else if let Some(queue) = self.queue_for(destination) {
            if let Err(error) = queue.transmit(handle, hw, skb) {
                self.failed(queue, error);
            }
        } else {
            self.tx_unknown.add(1);
        }
    }

    fn vector(&self) -> Option<u32> {
        self.hw.network_vector()
    }

    fn select_queue(&self, destination: MacAddress) -> u32 {
        self.queue_for(destination).map_or(0, PeerQueue::number)
    }

    fn offloads(&self, destination: MacAddress) -> Offloads {
        match self.queue_for(destination) {
            Some(queue) => queue.accepts(),
            None => Offloads::default(),
        }
    }

    fn poll(&self, handle: Handle<'_>, number: u32, poll: Poll<'_>) -> u32 {
        let hw = Hw::new(handle.parent(), &*self.hw);
        let Some(queue) = self.queues().find(|queue| queue.number() == number) else {
            self.unmask_in_time(hw, poll);
            return 0;
        };
        let made_room = queue.reclaim(handle, hw).unwrap_or_else(|error| {
            self.failed(queue, error);
            false
        });
        if poll.budget() == 0 {
            return 0;
        }
        queue.set_waits_for_frames(false);
        let budget = poll.budget();
        let polled = queue.receive(hw, &poll, POLL_BYTES);
        let found = made_room || !matches!(polled, Ok(Polled::Idle(0)) | Err(_));
        self.polled(handle, hw, found);
        let done = match polled {
            Ok(Polled::More) => return budget,
            Ok(Polled::Idle(done)) => done,
            Err(error) => {
                self.failed(queue, error);
                0
            }
        };
        let landing = queue.next_landing();
        if let Some(after) = queue.next_poll(done) {
            queue.counters.timed_polls.add(1);
            let after = landing.map_or(after, |landing| after.min(landing));
            queue.set_waits_for_frames(true);
            poll.complete_and_wait(done, after);
        } else if let Some(after) = landing {
            // The peer rings from here on, but nothing does when the engine is done.
            if queue.sleep(hw) == Ok(true) {
                return budget;
            }
            poll.complete_and_poll(done, after);
        } else if poll.complete(done) && queue.sleep(hw) == Ok(true) {
            handle.schedule(number);
        }
        done
    }

    fn poll_idle(&self, handle: Handle<'_>) -> bool {
        let hw = Hw::new(handle.parent(), &*self.hw);
        let mut waits = false;
        for queue in self.queues().filter(|queue| queue.waits_for_frames()) {
            waits = true;
            if queue.has_frames(hw) {
                // The poll that follows decides anew.
                queue.set_waits_for_frames(false);
                if handle.schedule(queue.number()) {
                    queue.counters.idle_polls.add(1);
                }
            }
        }
        waits
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats {
            tx_dropped: self.tx_unknown.get(),
            ..Stats::default()
        };
        for queue in self.queues() {
            let of = &queue.counters;
            stats.rx_packets += of.rx_packets.get();
            stats.tx_packets += of.tx_packets.get();
            stats.rx_bytes += of.rx_bytes.get();
            stats.tx_bytes += of.tx_bytes.get();
            stats.rx_errors += of.rx_errors.get() + of.violations.get();
            stats.tx_errors += of.tx_too_long.get();
            stats.rx_dropped += of.rx_dropped.get();
            stats.tx_dropped += of.tx_dropped.get();
            stats.multicast += of.rx_multicast.get();
        }
        stats
    }

    fn queue_stats(&self, queue: u32) -> QueueStats {
        let mut queues = self.queues();
        let Some(queue) = queues.find(|it| it.number() == queue) else {
            return QueueStats::default();
        };
        let of = &queue.counters;
        QueueStats {
            rx_packets: of.rx_packets.get(),
            tx_packets: of.tx_packets.get(),
            rx_bytes: of.rx_bytes.get(),
            tx_bytes: of.tx_bytes.get(),
            tx_stop: of.tx_stopped.get(),
        }
    }

    fn counter_names(&self) -> &[CounterName] {
        &self.names
    }

    fn counter_values(&self, put: &mut dyn FnMut(u64)) {
        put(self.unmasked.get());
        put(self.moderations.get());
        put(self.tx_unknown.get());
        for queue in self.queues() {
            queue.counters.values(put);
        }
    }
}
