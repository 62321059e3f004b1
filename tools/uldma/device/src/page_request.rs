// SPDX-License-Identifier: MIT OR Apache-2.0

//! Page requests: by them the device tells the driver of a node which of its pages a transfer lacked.

/// The requests to the driver of one node.
#[derive(Debug, Default)]
struct OfNode {
    /// Bus address of the page of slots, or 0.
    page: u64,
}

/// The page requests to the drivers of all nodes.
#[derive(Debug, Default)]
pub struct PageRequests {
    nodes: Vec<OfNode>,
}

impl PageRequests {
    /// Returns no requests to the drivers of a number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: (0..nodes).map(|_| OfNode::default()).collect(),
        }
    }

    /// Returns the address of a node's page of slots, or 0.
    pub fn page(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.page)
    }

    /// Sets the address of a node's page of slots.
    pub fn set_page(&mut self, node: usize, page: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.page = page;
        }
    }
}
