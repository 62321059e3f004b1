// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of nodes, as programs use them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Uldma's port of the TCP port zero: programs that use both do not meet.
const FIRST_PORT: u32 = 1 << 16;

/// The addresses of the nodes of a link.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    own: u32,
    others: BTreeMap<Ipv4Addr, u32>,
}

impl Nodes {
    /// Creates the addresses for node `own`, with other ones that name nodes, too.
    pub(super) fn new(own: u32, others: impl IntoIterator<Item = (Ipv4Addr, u32)>) -> Self {
        let others = others.into_iter().collect();
        Self { own, others }
    }

    /// Returns the address of a node: 127.117.108 ("ul") and its number. Each is an address of the
    /// loopback interface, so no packet to it leaves the machine.
    pub(super) fn address(node: u32) -> Option<Ipv4Addr> {
        let number = u8::try_from(node).ok()?;
        Some(Ipv4Addr::new(127, 117, 108, number))
    }

    /// Returns this node's address.
    pub(super) fn own(&self) -> Ipv4Addr {
        Self::address(self.own).unwrap_or(Ipv4Addr::LOCALHOST)
    }

    /// Returns the other node that an address names.
    pub(super) fn find(&self, address: Ipv4Addr) -> Option<u32> {
        let [127, 117, 108, number] = address.octets() else {
            return self.others.get(&address).copied();
        };
        let node = u32::from(number);
        (node != self.own).then_some(node)
    }

    /// Returns whether peers reach what listens there.
    pub(super) fn reach(&self, at: SocketAddrV4) -> bool {
        at.ip().is_unspecified() || *at.ip() == self.own()
    }
}

/// Returns the port of uldma for a port of TCP.
pub(super) fn port(tcp: u16) -> u32 {
    FIRST_PORT + u32::from(tcp)
}

/// Parses ADDRESS=NODE.
pub(crate) fn parse(text: &str) -> Result<(Ipv4Addr, u32), String> {
    let (address, node) = text.split_once('=').ok_or("no ADDRESS=NODE")?;
    let address = address.parse().map_err(|_| "no IPv4 address")?;
    let node = node.parse().map_err(|_| "no number of a node")?;
    Ok((address, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_other_nodes() {
        let nodes = Nodes::new(2, [parse("10.1.1.3=3").unwrap()]);
        let find = |text: &str| nodes.find(text.parse().unwrap());
        assert_eq!(find("127.117.108.1"), Some(1));
        assert_eq!(find("127.117.108.2"), None);
        assert_eq!(find("127.0.0.1"), None);
        assert_eq!(find("10.1.1.3"), Some(3));
        assert_eq!(find("10.1.1.4"), None);
        assert_eq!(Nodes::address(256), None);
        assert_eq!(nodes.own(), Nodes::address(2).unwrap());
    }

    #[test]
    fn peers_reach_only_what_is_not_bound_to_another_address() {
        let nodes = Nodes::new(0, []);
        let reach = |text: &str| nodes.reach(text.parse().unwrap());
        assert!(reach("0.0.0.0:80") && reach("127.117.108.0:80"));
        assert!(!reach("127.0.0.1:80") && !reach("10.0.0.1:80"));
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for text in ["", "10.0.0.1", "10.0.0.1=", "10.0.0=1", "::1=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
