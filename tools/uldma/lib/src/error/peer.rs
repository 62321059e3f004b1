// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers: the other nodes of the link, by number.

use std::fmt;

use crate::error::Error;

/// The node that a call addresses, see "DOC: peers" of the user interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer(u32);

impl Peer {
    /// The other node of a link of two. Where there are more, calls fail with
    /// [`Error::NoPeer`].
    pub const OTHER: Self = Self(0);

    /// Returns the peer with a number.
    pub const fn node(number: u32) -> Self {
        // No link has that many nodes, and the kernel reports the error.
        Self(number.saturating_add(1))
    }

    /// Returns the number; none for [`Peer::OTHER`].
    pub const fn number(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Returns the reason for which node `own`, of a link of `nodes`, cannot address this peer, if
    /// any.
    pub(crate) fn fault(self, own: u32, nodes: u32) -> Option<Error> {
        let reason = match self.number() {
            Some(number) if number == own => format!("node {number} is this node itself"),
            Some(number) if number >= nodes => format!("there is no node {number}"),
            None if nodes > 2 => format!("the link has {nodes} nodes, and no peer was named"),
            _ => return None,
        };
        let others = (0..nodes).filter(|&node| node != own);
        let others: Vec<String> = others.map(|node| node.to_string()).collect();
        let hint = match &others[..] {
            [] => format!("this is node {own}, and the link has no other"),
            [other] => format!("this is node {own}, the peer is node {other}"),
            _ => format!(
                "this is node {own}, the peers are nodes {}",
                others.join(", ")
            ),
        };
        Some(Error::NoPeer { reason, hint })
    }

    /// Returns the field `peer` of the user interface.
    pub(crate) fn field(self) -> u32 {
        self.0
    }
}

impl From<Option<u32>> for Peer {
    fn from(number: Option<u32>) -> Self {
        number.map_or(Self::OTHER, Self::node)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "node {number}"),
            None => f.write_str("the peer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_number_plus_one_or_the_other_one() {
        assert_eq!(Peer::OTHER.field(), 0);
        assert_eq!(Peer::node(0).field(), 1);
        assert_eq!(Peer::from(Some(7)).number(), Some(7));
        assert_eq!(Peer::from(None), Peer::OTHER);
        assert_eq!(Peer::node(u32::MAX).field(), u32::MAX);
    }

    #[test]
    fn a_peer_that_cannot_be_is_explained() {
        let fault = |peer: Peer, own, nodes| {
            let error = peer.fault(own, nodes)?;
            Some((error.to_string(), error.hint()?.to_owned()))
        };
        let (reason, hint) = fault(Peer::node(0), 0, 2).unwrap();
        assert_eq!(reason, "node 0 is this node itself");
        assert_eq!(hint, "this is node 0, the peer is node 1");
        let (reason, hint) = fault(Peer::node(5), 1, 3).unwrap();
        assert_eq!(reason, "there is no node 5");
        assert_eq!(hint, "this is node 1, the peers are nodes 0, 2");
        let (reason, _) = fault(Peer::OTHER, 1, 3).unwrap();
        assert_eq!(reason, "the link has 3 nodes, and no peer was named");
        assert_eq!(fault(Peer::OTHER, 1, 2), None);
        assert_eq!(fault(Peer::node(2), 1, 3), None);
    }

    #[test]
    fn peers_are_named_in_messages() {
        assert_eq!(Peer::node(2).to_string(), "node 2");
        assert_eq!(Peer::OTHER.to_string(), "the peer");
    }
}
