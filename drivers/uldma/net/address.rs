// SPDX-License-Identifier: GPL-2.0

//! The Ethernet addresses of nodes, each of which names its node.

use kernel::prelude::*;

use crate::kernel_ext::net::skb::MacAddress;

/// The first bytes of the address of each node: locally administered.
const PREFIX: [u8; 3] = [0x02, 0x75, 0x6c];

/// Returns the address of `node`, for device `device` of this machine.
pub(super) fn address_of(device: u32, node: u32) -> MacAddress {
    let [a, b, c] = PREFIX;
    // There are at most 64 devices, and 8 nodes.
    let [device, ..] = device.to_le_bytes();
    let [node, ..] = node.to_le_bytes();
    MacAddress([a, b, c, device, 0, node])
}

/// Returns the node of an address. The number of the device is a matter of that node.
pub(super) fn node_of(address: MacAddress) -> Option<u32> {
    let MacAddress([a, b, c, _, 0, node]) = address else {
        return None;
    };
    ([a, b, c] == PREFIX).then_some(node.into())
}

#[kunit_tests(uldma_net_address)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_nodes() {
        for (device, node) in [(0, 0), (63, 7), (1, 5)] {
            let address = address_of(device, node);
            assert!(!address.is_multicast());
            assert_eq!(node_of(address), Some(node));
        }
        assert_eq!(node_of(MacAddress([0x02, 0x75, 0x6d, 0, 0, 1])), None);
        assert_eq!(node_of(MacAddress([0x02, 0x75, 0x6c, 0, 1, 1])), None);
        assert!(MacAddress([255; 6]).is_multicast());
    }
}
