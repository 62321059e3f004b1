// SPDX-License-Identifier: GPL-2.0

//! The link: what the drivers of the nodes say to each other, through the window and the doorbells.
//!
//! The protocol is `Documentation/uldma/link.rst`.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    hw::Hardware,
    kernel_ext::{
        errno::eproto,
        window, //
    }, //
};

pub(crate) mod adaptive_poll;
mod backoff;
pub(crate) mod export;
pub(crate) mod handshake;
pub(crate) mod message;
mod owed;
pub(crate) mod peer;
pub(crate) mod polling;
pub(crate) mod progress_worker;
pub(crate) mod requests;
mod ring;
pub(crate) mod segment;
mod session;
pub(crate) mod window_alloc;

use message::{
    Answer,
    Message,
    Query, //
};
use peer::{
    Change,
    Peer, //
};
use requests::Requests;

/// Messages of one peer that are taken in one turn.
const TURN: usize = 64;

/// Who answers what peers ask, and is told what they tell. Peers are named by their numbers.
pub(crate) trait Handler {
    /// Answers a query.
    fn query(&self, peer: u32, query: Query) -> Answer;
    /// The peer's segment at `offset` is gone.
    fn segment_gone(&self, peer: u32, offset: u64);
    /// `count` of those who were offered this node's segment at `offset` do not write it any more.
    fn segment_left(&self, peer: u32, offset: u64, count: u32);
    /// An answer came that nobody waits for any more, or that could not be sent.
    fn unwanted(&self, peer: u32, answer: Answer, ours: bool);
    /// A message about a connection came.
    fn connection(&self, peer: u32, message: &message::Connection);
    /// The link is up: the peer forgot, and revoked, all of the last session.
    fn link_up(&self, peer: u32);
    /// The link is down: nobody writes the peer's parts of the window any more, and nothing of the
    /// session is used, when this returns.
    fn link_down(&self, peer: u32);
}

/// The links of one device to its peers.
#[pin_data]
pub(crate) struct Link {
    /// Held while messages are handled, so that they are handled in order.
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

    /// All peers.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.peers.iter()
    }

    /// The peer of number `node`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is none.
    pub(crate) fn peer(&self, node: u32) -> Result<&Arc<Peer>> {
        self.peers().find(|peer| peer.node() == node).ok_or(EINVAL)
    }

    /// The session with node `node`, by how often the link came up.
    pub(crate) fn session(&self, node: u32) -> Option<u32> {
        let peer = self.peer(node).ok()?;
        Some(peer.describe().generation)
    }

    /// The peer that a user names by `name`: its number plus one, or 0 for the only one.
    ///
    /// # Errors
    ///
    /// `EINVAL` when there is none, or more than one for 0.
    pub(crate) fn named(&self, name: u32) -> Result<&Arc<Peer>> {
        match (name, self.peers.as_slice()) {
            (0, [peer]) => Ok(peer),
            (0, _) => Err(EINVAL),
            (name, _) => self.peer(name - 1),
        }
    }

    /// The only peer that may ask, whom a user names by `name`: its number plus one, or 0 for all.
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

    /// Whether any peer can be reached.
    pub(crate) fn is_up(&self) -> bool {
        self.peers().any(|peer| peer.is_up())
    }

    /// Takes what has come, and follows links that went up or down; whether there was anything.
    ///
    /// With `ask_hw` the hardware is asked what became of the links.
    pub(crate) fn work(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
        ask_hw: bool,
    ) -> Result<bool> {
        let _guard = self.turn.lock();
        let mut progress = false;
        for peer in self.peers() {
            let hw_link = match ask_hw {
                true => Some(hw.link(dev, peer.node())?),
                false => None,
            };
            match peer.update(dev, hw, hw_link)? {
                Change::None => (),
                Change::Up => {
                    handler.link_up(peer.node());
                    progress = true;
                }
                Change::Down => {
                    handler.link_down(peer.node());
                    peer.begin(dev, hw)?;
                    progress = true;
                }
                Change::Restart => peer.begin(dev, hw)?,
            }
            progress |= self.receive(dev, hw, handler, peer)?;
        }
        Ok(progress)
    }

    /// Tells all peers that this node is alive.
    pub(crate) fn heartbeat(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        self.peers().try_for_each(|peer| peer.heartbeat(dev, hw))
    }

    /// Whether a message has come.
    pub(crate) fn has_message(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result<bool> {
        for peer in self.peers() {
            if peer.has_message(dev, hw)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells all peers whether this node looks only when its doorbell rings; whether a message came
    /// before they knew.
    pub(crate) fn set_asleep(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        asleep: bool,
    ) -> Result<bool> {
        for peer in self.peers() {
            peer.set_asleep(dev, hw, asleep)?;
        }
        window::full_fence();
        self.has_message(dev, hw)
    }

    /// Ends the links, as the device goes, and lets the peers know.
    pub(crate) fn end(&self, dev: &Device<Bound>, hw: &dyn Hardware, handler: &dyn Handler) {
        let _guard = self.turn.lock();
        for peer in self.peers() {
            peer.end();
            handler.link_down(peer.node());
            // A device that has left the bus tells nobody anything.
            let _ = peer.leave(dev, hw);
        }
    }

    /// Takes messages of a peer; a peer that never stops cannot keep this from ending.
    fn receive(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
        peer: &Peer,
    ) -> Result<bool> {
        for taken in 0..TURN {
            match peer.receive(dev, hw) {
                Ok(None) if taken > 0 => break,
                Ok(None) => return Ok(false),
                Ok(Some(message)) => self.handle(dev, hw, handler, peer, &message)?,
                Err(err) if err == eproto() => {
                    peer.quarantine(dev);
                    handler.link_down(peer.node());
                    peer.begin(dev, hw)?;
                    return Ok(true);
                }
                Err(err) => return Err(err),
            }
        }
        peer.return_credits(dev, hw)?;
        Ok(true)
    }

    fn handle(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
        peer: &Peer,
        message: &Message,
    ) -> Result {
        let node = peer.node();
        match *message {
            Message::Query(request, query) => {
                let answer = handler.query(node, query);
                // A full ring loses the answer; the peer asks again.
                if peer
                    .send(dev, hw, &Message::Answer(request, answer))
                    .is_err()
                {
                    handler.unwanted(node, answer, true);
                }
            }
            Message::Answer(number, answer) => {
                if !self.requests.answered(node, number, answer) {
                    handler.unwanted(node, answer, false);
                }
            }
            Message::SegmentGone(offset) => handler.segment_gone(node, offset),
            Message::SegmentLeft(offset, count) => handler.segment_left(node, offset, count),
            Message::Connection(ref connection) => handler.connection(node, connection),
        }
        Ok(())
    }
}
