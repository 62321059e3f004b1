// SPDX-License-Identifier: GPL-2.0

//! The link: the control protocol between the drivers of the nodes, through window and doorbells.
//!
//! The protocol is `Documentation/uldma/link.rst`.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use crate::{
    hw::Hw,
    kernel_ext::{
        errno::eproto,
        wakeup, //
    }, //
};

pub(crate) mod adaptive_poll;
pub(crate) mod area;
pub(crate) mod backoff;
mod doorbell_cost;
pub(crate) mod export;
pub(crate) mod handshake;
pub(crate) mod lane;
pub(crate) mod message;
mod owed;
pub(crate) mod peer;
pub(crate) mod polling;
pub(crate) mod progress_worker;
pub(crate) mod quarantine;
pub(crate) mod requests;
mod ring;
pub(crate) mod segment;
mod session;
pub(crate) mod throttle;
mod turnaround;
pub(crate) mod window_alloc;
pub(crate) mod window_range;

/// Period of the tick in milliseconds.
pub(crate) const TICK_MS: u32 = 100;
/// Period of the tick, in which the worker of a device writes the heartbeat and checks deadlines.
pub(crate) const TICK: Delta = Delta::from_millis(TICK_MS as i64);

use message::{
    Answer,
    Message,
    Query, //
};
use peer::{
    Change,
    Peer, //
};
use quarantine::{
    deadline,
    Quarantine, //
};
use requests::Requests;

/// Maximum number of messages of one peer that are handled in one turn.
const TURN: usize = 64;

/// Handlers of the messages of peers, which are named by their numbers.
pub(crate) trait Handler {
    /// Answers a query.
    fn query(&self, peer: u32, query: Query) -> Answer;
    /// Handles the end of the peer's segment at `offset`.
    fn segment_gone(&self, peer: u32, offset: u64);
    /// Handles the return of `count` offers of this node's segment at `offset`.
    fn segment_left(&self, peer: u32, offset: u64, count: u32);
    /// Handles an answer without a waiter, or, if `ours`, one that could not be sent.
    fn unwanted(&self, peer: u32, answer: Answer, ours: bool);
    /// Handles a message about a connection.
    fn connection(&self, peer: u32, message: &message::Connection);
    /// Handles a message about the network interface.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    fn network(&self, peer: u32, message: &message::Network) -> Result;
    /// Handles a message about an endpoint of the network interface.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer breaks the rules.
    fn network_endpoint(&self, peer: u32, message: &message::NetworkEndpoint) -> Result;
    /// Handles a link that came up: the peer has revoked everything of the last session.
    fn link_up(&self, peer: u32);
    /// Handles a link that went down. When this returns, no process writes the peer's section any
    /// more, and nothing of the session is used.
    fn link_down(&self, peer: u32);
}

/// The links of one device to its peers.
#[pin_data]
pub(crate) struct Link {
    /// Held while messages are handled, to keep their order.
    #[pin]
    turn: Mutex<()>,
    peers: KVec<Arc<Peer>>,
    #[pin]
    pub(crate) requests: Requests,
}

impl Link {
    /// Creates the links of node `node` of `nodes` nodes.
    pub(crate) fn new(node: u32, nodes: u32) -> Result<impl PinInit<Self>> {
        let mut peers = KVec::new();
        for other in (0..nodes).filter(|other| *other != node) {
            peers.push(Arc::pin_init(Peer::new(other), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(pin_init!(Self {
            turn <- new_mutex!((), "uldma::Link::turn"),
            peers,
            requests <- Requests::new(),
        }))
    }

    /// Returns all peers.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.iter()
    }

    /// Returns the peer of number `node`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such peer.
    pub(crate) fn peer(&self, node: u32) -> Result<&Arc<Peer>> {
        self.peers().find(|peer| peer.node() == node).ok_or(EINVAL)
    }

    /// Returns the session with node `node`, by how often the link came up.
    pub(crate) fn session(&self, node: u32) -> Option<u32> {
        let peer = self.peer(node).ok()?;
        Some(peer.describe().generation)
    }

    /// Returns the peer that a user names by its number plus one, or by 0 for the only one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such peer, or more than one for 0.
    pub(crate) fn named(&self, name: u32) -> Result<&Arc<Peer>> {
        match (name, self.peers.as_slice()) {
            (0, [peer]) => Ok(peer),
            (0, _) => Err(EINVAL),
            (name, _) => self.peer(name - 1),
        }
    }

    /// Returns the only peer with access, which a user names by its number plus one, or by 0 for
    /// all.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is none.
    pub(crate) fn only(&self, name: u32) -> Result<Option<u32>> {
        match name {
            0 => Ok(None),
            name => self.peer(name - 1).map(|peer| Some(peer.node())),
        }
    }

    /// Returns true if any peer can be reached.
    pub(crate) fn is_up(&self) -> bool {
        self.peers().any(|peer| peer.is_up())
    }

    /// Handles messages and link changes. Returns true if there were any.
    ///
    /// With `ask_hw` the states of the links are read from the hardware. If that does not answer, all
    /// links go down: what was written to peers since is lost.
    pub(crate) fn work(&self, hw: Hw<'_>, handler: &dyn Handler, ask_hw: bool) -> Result<bool> {
        let _guard = self.turn.lock();
        let result = self.work_in_turn(hw, handler, ask_hw);
        if result.is_err() && hw.check_answers().is_err() {
            for peer in self.peers().filter(|peer| peer.lose()) {
                handler.link_down(peer.node());
            }
        }
        result
    }

    fn work_in_turn(&self, hw: Hw<'_>, handler: &dyn Handler, ask_hw: bool) -> Result<bool> {
        let mut progress = false;
        for peer in self.peers() {
            let hw_link = if ask_hw {
                Some(hw.link(peer.node())?)
            } else {
                None
            };
            match peer.update(hw, hw_link)? {
                Change::None => (),
                Change::Up => {
                    handler.link_up(peer.node());
                    progress = true;
                }
                Change::Down => {
                    handler.link_down(peer.node());
                    peer.begin(hw)?;
                    progress = true;
                }
                Change::Restart => peer.begin(hw)?,
            }
            progress |= self.receive(hw, handler, peer)?;
        }
        Ok(progress)
    }

    /// Ends the sessions of peers that have held something of this node for too long. Not while a session
    /// begins or ends.
    pub(crate) fn end_overdue(&self, held: &Quarantine) {
        let deadline = deadline();
        for peer in self.peers() {
            if peer.is_up() && held.of(peer.node()).ticks >= deadline {
                peer.mark_broken();
            }
        }
    }

    /// Writes the heartbeat of this node for all peers.
    pub(crate) fn heartbeat(&self, hw: Hw<'_>) -> Result {
        for peer in self.peers() {
            peer.heartbeat(hw)?;
            // The measurement may have been disturbed while the node fell asleep.
            peer.measure_doorbell(hw)?;
        }
        Ok(())
    }

    /// Notes that a doorbell has rung, which wakes this node if it needed one.
    pub(crate) fn rung(&self) {
        for peer in self.peers() {
            peer.rung();
        }
    }

    /// Returns true if the doorbell of a peer rang and no message of that peer has come since.
    pub(crate) fn has_rung(&self) -> bool {
        self.peers().any(|peer| peer.is_up() && peer.has_rung())
    }

    /// Returns how many messages have shown the cost of a doorbell since the device was bound.
    pub(crate) fn followed(&self) -> u64 {
        self.peers().map(|peer| peer.followed()).sum()
    }

    /// Returns true if the doorbells of all peers have been measured.
    pub(crate) fn is_measured(&self) -> bool {
        let mut up = self.peers().filter(|peer| peer.is_up());
        up.all(|peer| peer.is_measured())
    }

    /// Returns the cost of sleeping until a peer rings: that of the peer whose doorbell costs most.
    pub(crate) fn doorbell_cost(&self) -> Delta {
        let up = self.peers().filter(|peer| peer.is_up());
        let costs = up.map(|peer| peer.doorbell_cost());
        costs.max().unwrap_or_else(wakeup::cost)
    }

    /// Returns true if a message is pending, or a peer has broken the rules, which
    /// [`Link::receive`] finds, too.
    pub(crate) fn has_message(&self, hw: Hw<'_>) -> Result<bool> {
        for peer in self.peers() {
            match peer.has_message(hw) {
                Ok(false) => (),
                Err(err) if err != eproto() => return Err(err),
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Tells all peers whether this node needs doorbells. Returns true if a message arrived before
    /// they could know.
    pub(crate) fn set_asleep(&self, hw: Hw<'_>, asleep: bool) -> Result<bool> {
        for peer in self.peers() {
            peer.set_asleep(hw, asleep)?;
        }
        let has_message = self.has_message(hw)?;
        if asleep && !has_message {
            for peer in self.peers() {
                peer.measure_doorbell(hw)?;
            }
        }
        Ok(has_message)
    }

    /// Ends the links, since the device is being unbound, and notifies the peers.
    pub(crate) fn end(&self, hw: Hw<'_>, handler: &dyn Handler) {
        let _guard = self.turn.lock();
        for peer in self.peers() {
            peer.end();
            handler.link_down(peer.node());
            // The only error is a device that has left the bus.
            let _ = peer.leave(hw);
        }
    }

    /// Handles messages of a peer; bounded, even if the peer never stops to send.
    fn receive(&self, hw: Hw<'_>, handler: &dyn Handler, peer: &Peer) -> Result<bool> {
        for taken in 0..TURN {
            let handled = match peer.receive(hw) {
                Ok(None) if taken > 0 => break,
                Ok(None) => return Ok(false),
                Ok(Some(message)) => self.handle(hw, handler, peer, &message),
                Err(err) => Err(err),
            };
            match handled {
                Ok(()) => (),
                Err(err) if err == eproto() => {
                    hw.check_answers()?;
                    peer.quarantine(hw.dev());
                    handler.link_down(peer.node());
                    peer.begin(hw)?;
                    return Ok(true);
                }
                Err(err) => return Err(err),
            }
        }
        Ok(true)
    }

    fn handle(&self, hw: Hw<'_>, handler: &dyn Handler, peer: &Peer, message: &Message) -> Result {
        let node = peer.node();
        match *message {
            Message::Query(request, query) => {
                let answer = handler.query(node, query);
                // A full ring loses the answer; the peer repeats its query.
                if peer.send(hw, &Message::Answer(request, answer)).is_err() {
                    handler.unwanted(node, answer, true);
                }
            }
            Message::Answer(doorbell_cost::REQUEST, Answer::Refused) => peer.doorbell_answered(),
            Message::Answer(number, answer) => {
                if !self.requests.answered(node, number, answer) {
                    handler.unwanted(node, answer, false);
                }
            }
            Message::SegmentGone(offset) => handler.segment_gone(node, offset),
            Message::SegmentLeft(offset, count) => handler.segment_left(node, offset, count),
            Message::Connection(ref connection) => handler.connection(node, connection),
            Message::Network(ref network) => return handler.network(node, network),
            Message::NetworkEndpoint(ref it) => return handler.network_endpoint(node, it),
        }
        Ok(())
    }
}
