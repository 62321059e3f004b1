// SPDX-License-Identifier: GPL-2.0

//! What the interface agrees with each peer: ranges, keys and endpoints.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

use super::{
    super::{
        engine::Engine,
        queue::PeerQueue,
        range,
        receive::{
            Back,
            ACCEPTS, //
        },
        reception::Reception,
        ring::Producer,
        transmit::Route, //
    },
    Interface, //
};
use crate::{
    dma::endpoint::Endpoints,
    hw::{
        Doorbells,
        Hw,
        KernelDoorbell, //
    },
    kernel_ext::{
        errno::eproto,
        net::net_device::{
            NetDevice,
            Offloads, //
        },
        random, //
    },
    link::{
        backoff::Backoff,
        lane,
        message::{
            Message,
            Network,
            NetworkEndpoint, //
        },
        window_range::WindowRange,
        Link, //
    },
    params, //
};

/// Bit of an announcement beside the offloads: [`KernelDoorbell::Network`] rings the node.
const OWN_DOORBELL: u32 = 1 << 2;

/// Returns the doorbell that rings a node that accepts this.
fn doorbell_of(accepts: u32) -> KernelDoorbell {
    if accepts & OWN_DOORBELL != 0 {
        KernelDoorbell::Network
    } else {
        KernelDoorbell::Link
    }
}

/// Returns what a node that `doorbell` rings announces beside the offloads.
fn accepts_of(doorbell: KernelDoorbell) -> u32 {
    match doorbell {
        KernelDoorbell::Network => OWN_DOORBELL,
        KernelDoorbell::Link => 0,
    }
}

/// Returns the doorbells by which a peer that accepts this may ring a node that has announced
/// `announced`. On ivshmem a peer that has no vector for the network cannot ring that of others.
fn rung_by(announced: KernelDoorbell, accepts: u32) -> Doorbells {
    Doorbells::from(announced).and(doorbell_of(accepts).into())
}

/// Checks an announcement of a peer in whose section this node has `lane`; none if it withdraws one.
fn check(message: &Network, lane: &Range<usize>) -> Result<Option<(Network, WindowRange)>> {
    if *message == Network::NONE {
        return Ok(None);
    }
    let (offset, bytes) = message.window;
    let range = WindowRange::of_peer(offset, bytes, lane)?;
    let fits = (1514..=range::longest(range)).contains(&message.max_frame);
    let has_size = (lane::LEAST..=lane::LARGEST).contains(&range.length());
    if !has_size || message.key == 0 || !fits {
        return Err(eproto());
    }
    Ok(Some((*message, range)))
}

/// What is agreed with one peer.
pub(super) struct Agreement {
    /// There is a session, and the peer understands messages about the network.
    linked: bool,
    /// The peer understands messages about endpoints, and this node has an engine.
    has_engine: bool,
    /// Where the engine of the peer is to move packets to, until the two have joined.
    pub(super) reception: Option<KBox<Reception>>,
    /// The endpoint that the peer has announced.
    their_endpoint: Option<NetworkEndpoint>,
    /// The key of the ring that the peer was told of.
    pub(super) announced: Option<u32>,
    /// The doorbell that the peer was told of with it.
    doorbell: KernelDoorbell,
    /// What the peer has announced, checked.
    pub(super) theirs: Option<(Network, WindowRange)>,
    /// Frames may cross.
    pub(super) joined: bool,
    /// Backoff of a peer that changes what it has announced, by the age of the interface. The link
    /// has its own for a peer that ends the session.
    backoff: Backoff,
}

impl Agreement {
    /// Creates the agreement with a peer without a session.
    pub(super) fn new() -> Self {
        Self {
            linked: false,
            has_engine: false,
            reception: None,
            their_endpoint: None,
            announced: None,
            doorbell: KernelDoorbell::default(),
            theirs: None,
            joined: false,
            backoff: Backoff::new(params::link_backoff().as_nanos()),
        }
    }

    /// Returns true if nothing is agreed before the backoff of the peer ends, at the age `now` of the
    /// interface.
    pub(super) fn has_to_wait(&self, now: i64) -> bool {
        self.linked && !self.joined && self.backoff.is_penalty(now)
    }
}

impl Interface {
    /// Changes the agreement with `peer`, and has the worker do the rest. With `ends` both rings end.
    fn change(&self, peer: u32, ends: bool, change: impl FnOnce(&mut Agreement, &PeerQueue)) {
        if let Some((place, queue)) = self.queue_of(peer) {
            let mut control = self.control.lock();
            if ends {
                queue.set_ring(None, 0);
                control.end_reception(place, queue);
            }
            if let Some(agreement) = control.peers.get_mut(place) {
                change(agreement, queue);
            }
        }
        self.is_due.store(true, Relaxed);
    }

    /// Handles a link that came up, by which the peer understands messages about the network if
    /// `has_network`, and about endpoints if `has_engine`.
    pub(crate) fn link_up(&self, peer: u32, has_network: bool, has_engine: bool) {
        self.change(peer, false, |agreement, _| {
            agreement.linked = has_network;
            agreement.has_engine = has_engine && self.packets.is_some();
        });
    }

    /// Handles a link that went down. When this returns, nothing is written for the peer any more.
    pub(crate) fn link_down(&self, device: &NetDevice<Self>, peer: u32) {
        self.change(peer, true, |agreement, queue| {
            *agreement = Agreement::new();
            self.part(device, queue);
        });
    }

    /// Handles the announcement of an endpoint of `peer`.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    pub(crate) fn endpoint_announced(&self, peer: u32, message: &NetworkEndpoint) -> Result {
        let mut result = Err(eproto());
        self.change(peer, false, |agreement, _| {
            if agreement.linked && agreement.has_engine && message.key != 0 {
                agreement.their_endpoint = Some(*message);
                result = Ok(());
            }
        });
        result
    }

    /// Handles an announcement of `peer`.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    pub(crate) fn announced(&self, peer: u32, message: &Network) -> Result {
        let theirs = check(message, &self.hw.geometry().outbound(peer)?)?;
        let mut result = Err(eproto());
        // The peer that withdraws its range has forgotten the own one, too: its key is not used again.
        let ends = theirs.is_none();
        self.change(peer, ends, |agreement, _| {
            if !agreement.linked {
                return;
            }
            if ends {
                agreement.announced = None;
            }
            if agreement.theirs.is_some() {
                agreement.backoff.flapped(self.age());
            }
            agreement.theirs = theirs;
            // Frames cross by the new one, if there is one, or not at all.
            agreement.joined = false;
            result = Ok(());
        });
        result
    }

    /// Has no more frames cross to and from a peer.
    pub(super) fn part(&self, device: &NetDevice<Self>, queue: &PeerQueue) {
        queue.set_route(device, None, Offloads::default());
    }

    /// Announces the own range to a peer, or withdraws it, if that is due.
    pub(super) fn announce(
        &self,
        hw: Hw<'_>,
        link: &Link,
        endpoints: &Endpoints,
        queue: &PeerQueue,
        agreement: &mut Agreement,
        up: bool,
    ) -> Result {
        if !agreement.linked || agreement.announced.is_some() == up {
            return Ok(());
        }
        let peer = link.peer(queue.node)?;
        let doorbell = hw.network_doorbell();
        let message = if up {
            let key = random::u32() | 1;
            let range = queue.range();
            let max_frame = range::longest(range);
            // Before the peer can write.
            queue.set_ring(Some(key), max_frame);
            if agreement.has_engine && agreement.reception.is_none() {
                // Without memory for it packets go by the ring.
                let reception = Reception::new(hw, endpoints, range, max_frame);
                agreement.reception = reception.ok();
            }
            if let Some(reception) = &agreement.reception {
                let endpoint = reception.announcement(key);
                match peer.send(hw, &Message::NetworkEndpoint(endpoint)) {
                    Err(ENODEV) => return Err(ENODEV),
                    // The next message fails, too.
                    Ok(()) | Err(_) => (),
                }
            }
            Network {
                key,
                window: (
                    u64::try_from(range.offset())?,
                    u64::try_from(range.length())?,
                ),
                max_frame,
                accepts: ACCEPTS.bits() | accepts_of(doorbell),
            }
        } else {
            // A withdrawal ends both rings, and the peer announces its own again.
            agreement.theirs = None;
            queue.set_ring(None, 0);
            Network::NONE
        };
        match peer.send(hw, &Message::Network(message)) {
            Ok(()) => {
                agreement.announced = up.then_some(message.key);
                agreement.doorbell = doorbell;
            }
            // The ring is full, which the worker is told when there is room; or the session ends.
            Err(EBUSY) => self.is_due.store(true, Relaxed),
            Err(ENODEV) => return Err(ENODEV),
            Err(_) => (),
        }
        Ok(())
    }

    /// Has frames cross to and from a peer.
    pub(super) fn join(
        &self,
        hw: Hw<'_>,
        endpoints: &Endpoints,
        device: &NetDevice<Self>,
        queue: &PeerQueue,
        agreement: &mut Agreement,
        (theirs, range): (Network, WindowRange),
    ) -> Result {
        let their_endpoint = agreement.their_endpoint.take();
        let their_endpoint = their_endpoint.filter(|it| it.key == theirs.key);
        let engine = match their_endpoint {
            Some(endpoint) => self.connect(hw, endpoints, queue, agreement, &endpoint),
            None => None,
        };
        let doorbell = doorbell_of(theirs.accepts);
        // For what the peer has rung already, the queue is scheduled below.
        queue.set_rung_by(rung_by(agreement.doorbell, theirs.accepts));
        let route = Route {
            ring: Producer::new(theirs.key, range::ring_blocks(range)),
            range,
            max_frame: theirs.max_frame,
            doorbell,
            engine,
        };
        queue.set_back(hw, Some(Back { range, doorbell }))?;
        queue.set_route(device, Some(route), Offloads::from_bits(theirs.accepts));
        // The peer may have sent frames already.
        device.schedule(queue.number());
        Ok(())
    }

    /// Connects the endpoints of this node and a peer, and begins to receive. Returns the way of large
    /// packets, if both have one.
    fn connect(
        &self,
        hw: Hw<'_>,
        endpoints: &Endpoints,
        queue: &PeerQueue,
        agreement: &mut Agreement,
        theirs: &NetworkEndpoint,
    ) -> Option<Engine> {
        let mut reception = agreement.reception.take()?;
        let packets = self.packets.clone()?;
        let index = reception.index();
        let engine = reception
            .connect(hw, endpoints, queue.node, theirs)
            .and_then(|()| Engine::new(packets, index, theirs.most_bytes));
        match engine {
            Ok(engine) => {
                queue.set_reception(reception);
                Some(engine)
            }
            Err(_) => {
                // The link is going down; else packets go by the ring.
                agreement.reception = Some(reception);
                None
            }
        }
    }
}

#[kunit_tests(uldma_net_agreement)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_rung_by_the_doorbell_that_it_announces() {
        for doorbell in [KernelDoorbell::Network, KernelDoorbell::Link] {
            let accepts = ACCEPTS.bits() | accepts_of(doorbell);
            assert_eq!(doorbell_of(accepts), doorbell);
            assert_eq!(Offloads::from_bits(accepts), ACCEPTS);
        }
    }

    #[test]
    fn ranges_have_a_least_and_a_largest_size() {
        let of = |bytes: usize| {
            let window = (64 << 20, bytes as u64);
            let message = Network {
                key: 1,
                window,
                max_frame: 1514,
                accepts: 0,
            };
            check(&message, &(0..8 << 30)).map(|theirs| theirs.map(|(_, range)| range.length()))
        };
        for bytes in [lane::LEAST, 1 << 20, lane::LARGEST] {
            assert_eq!(of(bytes), Ok(Some(bytes)));
        }
        for bytes in [0, lane::LEAST / 2, lane::LARGEST + 4096, 4 << 30] {
            assert_eq!(of(bytes), Err(eproto()));
        }
        assert_eq!(check(&Network::NONE, &(0..8 << 30)), Ok(None));
    }

    #[test]
    fn a_peer_without_a_doorbell_of_the_network_may_ring_the_other() {
        let (link, network) = (KernelDoorbell::Link, KernelDoorbell::Network);
        let own = accepts_of(network);
        assert_eq!(rung_by(network, own), network.into());
        assert!(rung_by(network, 0).has(network) && rung_by(network, 0).has(link));
        assert_eq!(rung_by(link, 0), link.into());
        // What this node is not rung by does not interrupt it.
        assert!(rung_by(link, own).has(link));
    }
}
