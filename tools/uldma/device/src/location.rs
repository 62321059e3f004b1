// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of the two sides of a transfer, as the checks leave it: locations in tables and lists
//! of the nodes, not bus addresses, since the driver may change the tables before each chunk.

/// Start of one side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a page that was named without a region.
    Page {
        /// Index in the page table.
        entry: u32,
        /// Byte in the page.
        offset: u64,
    },
    /// In a region of this node.
    Region {
        /// Index in the region table.
        region: u32,
        /// The entry's generation.
        generation: u64,
        /// Byte in the region.
        position: u64,
    },
    /// In a region of a peer, by way of an import.
    Import {
        /// Index of the import in this node's region table.
        region: u32,
        /// The import entry's own generation.
        generation: u64,
        /// The byte in the peer's memory that the import leads to.
        remote: PeerLocation,
    },
    /// In a region of a peer that a privileged descriptor named.
    Peer(PeerLocation),
    /// In a region of a peer that a receive descriptor of the peer named.
    Posted(PeerLocation),
    /// In memory of this node that a privileged descriptor listed.
    Listed(List),
    /// In memory of a peer that a receive descriptor of a privileged endpoint of the peer listed.
    PostedList(PeerList),
}

/// A place in a region of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLocation {
    /// The node.
    pub node: u32,
    /// Generation of the link to it.
    pub link_generation: u32,
    /// Index in its region table.
    pub region: u32,
    /// Its space that owns the region.
    pub space: u32,
    /// The entry's generation.
    pub generation: u64,
    /// Byte in the region.
    pub position: u64,
}

/// A list of segments in a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Bus address.
    pub address: u64,
    /// Number of segments.
    pub segments: u32,
}

/// A list of segments of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerList {
    /// The node.
    pub node: u32,
    /// Generation of the link to it.
    pub link_generation: u32,
    /// The list in its memory.
    pub list: List,
}

/// One side of a transfer, after the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedSide {
    /// Space that owns the page or region that was named, on its node.
    pub space: u32,
    /// The first byte.
    pub place: Location,
}

impl CheckedSide {
    /// Returns the location in a region of a peer, if the side is in one.
    pub fn remote(&self) -> Option<&PeerLocation> {
        match &self.place {
            Location::Import { remote, .. } | Location::Peer(remote) | Location::Posted(remote) => {
                Some(remote)
            }
            Location::Page { .. }
            | Location::Region { .. }
            | Location::Listed(_)
            | Location::PostedList(_) => None,
        }
    }

    /// Returns the node whose memory it is, if that is a peer.
    pub fn peer(&self) -> Option<u32> {
        match &self.place {
            Location::PostedList(peer) => Some(peer.node),
            _ => self.remote().map(|remote| remote.node),
        }
    }

    /// Returns true if a peer has posted the memory for this message, so that no import is needed.
    pub fn is_posted(&self) -> bool {
        matches!(self.place, Location::Posted(_) | Location::PostedList(_))
    }

    /// Returns true if the memory is a peer's.
    pub fn is_remote(&self) -> bool {
        self.peer().is_some()
    }
}

/// A transfer that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedTransfer {
    /// The memory to read.
    pub source: CheckedSide,
    /// The memory to write.
    pub destination: CheckedSide,
    /// Number of bytes to copy.
    pub bytes: u64,
}
