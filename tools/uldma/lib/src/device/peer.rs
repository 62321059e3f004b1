// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a device knows of its peers.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;

/// The link to one peer, see `struct uldma_peer_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The peer's number.
    pub node: u32,
    /// True if the link to it is up.
    pub link_up: bool,
    /// Number of times that the link to it came up.
    pub generation: u32,
    /// Version of the link protocol in use; zero while the link is down.
    pub version: u32,
    /// Features that both have.
    pub features: u32,
    /// Messages that can be in flight to it.
    pub slots: u32,
    /// Messages that were sent to it.
    pub sent: u64,
    /// Messages received from it.
    pub received: u64,
    /// Times that its doorbell was rung for messages.
    pub doorbells: u64,
    /// Doorbell interrupts of this device, from all peers.
    pub interrupts: u64,
    /// Times that the driver polled for messages without an interrupt.
    pub polls: u64,
    /// Times that it broke the protocol.
    pub violations: u64,
    /// Time that a thread that sleeps takes to run after the peer has rung, as the driver has measured.
    pub doorbell: Duration,
}

impl PeerInfo {
    fn from_raw(raw: &uapi::uldma_peer_query) -> Self {
        Self {
            node: raw.node,
            link_up: raw.out_link & uapi::ULDMA_LINK_UP != 0,
            generation: raw.out_generation,
            version: raw.out_version,
            features: raw.out_features,
            slots: raw.out_slots,
            sent: raw.out_sent,
            received: raw.out_received,
            doorbells: raw.out_doorbells,
            interrupts: raw.out_interrupts,
            polls: raw.out_polls,
            violations: raw.out_violations,
            doorbell: Duration::from_nanos(raw.out_doorbell_ns),
        }
    }
}

impl Device {
    /// Returns the link to a node.
    ///
    /// # Errors
    ///
    /// [`Error::NoPeer`] for this node's own number, and for a node that does not exist;
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn peer(&self, node: u32) -> Result<PeerInfo> {
        let argument = uapi::uldma_peer_query {
            node,
            ..Default::default()
        };
        sys::peer_query(self.as_fd(), argument)
            .map(|raw| PeerInfo::from_raw(&raw))
            .map_err(|errno| {
                let error = Error::system(format!("query the link to node {node}"), errno);
                self.about_peer(Peer::node(node), error)
            })
    }

    /// Returns a more precise error for a call that named a peer, as the kernel only returns EINVAL
    /// for a wrong one.
    pub(crate) fn about_peer(&self, peer: Peer, error: Error) -> Error {
        if error.errno() != Some(Errno::EINVAL) {
            return error;
        }
        let query = self.query().ok();
        let fault = query.and_then(|query| peer.fault(query.node, query.nodes));
        fault.unwrap_or(error)
    }

    /// Returns the links to all other nodes, up or down, in ascending order.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn peers(&self) -> Result<Vec<PeerInfo>> {
        let query = self.query()?;
        let others = (0..query.nodes).filter(|&node| node != query.node);
        others.map(|node| self.peer(node)).collect()
    }

    /// Returns the link to a peer.
    pub(crate) fn link_to(&self, peer: Peer) -> Result<PeerInfo> {
        if let Some(node) = peer.number() {
            return self.peer(node);
        }
        // Of two nodes, one has the number zero and the other one.
        self.peer(u32::from(self.query()?.node == 0))
    }
}
