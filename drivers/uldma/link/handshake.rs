// SPDX-License-Identifier: GPL-2.0

//! Handshakes: the words by which a node describes itself to its peers, and the negotiation.

use kernel::prelude::*;

use super::area::{
    at,
    ring_of,
    AreaWord,
    Shape,
    Versions,
    MAX_SLOTS, //
};
use crate::hw::{
    layout::Word,
    le::Le,
    Hw, //
};

/// "udmalink".
const MAGIC: u64 = 0x6b6e_696c_616d_6475;
/// The supported versions of the protocol: lowest and highest.
const VERSIONS: (u32, u32) = (3, 3);
/// Feature: the node understands messages about the network interface.
pub(super) const NETWORK: u64 = 1 << 0;
/// Feature: it also understands messages about endpoints of the network interface.
pub(super) const NETWORK_ENGINE: u64 = 1 << 1;
/// Feature: the node has streams between endpoints.
pub(super) const STREAMS: u64 = 1 << 2;
/// Feature: the node has an interrupt of segments alone.
pub(super) const SEGMENT_VECTOR: u64 = 1 << 3;

/// The offer of a node in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    magic: u64,
    versions: (u32, u32),
    features: u64,
    /// Bytes of a section.
    section: u64,
    nodes: u32,
    /// Slots of the ring that the node reads.
    slots: u32,
}

/// The terms that two nodes have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) version: u32,
    pub(crate) features: u64,
    /// Maximum number of messages in flight to the peer.
    pub(crate) slots: u32,
    /// Maximum number of messages in flight from the peer.
    pub(super) own_slots: u32,
}

/// The incompatibility of two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    Magic,
    Version,
    Shape,
}

impl Terms {
    /// Returns true if both nodes understand messages about the network.
    pub(crate) fn has_network(&self) -> bool {
        self.features & NETWORK != 0
    }

    /// Returns true if both nodes understand messages about endpoints of the network.
    pub(crate) fn has_network_engine(&self) -> bool {
        let both = NETWORK | NETWORK_ENGINE;
        self.features & both == both
    }

    /// Returns true if both nodes have streams between endpoints.
    pub(crate) fn has_streams(&self) -> bool {
        self.features & STREAMS != 0
    }

    /// Returns true if both nodes have an interrupt of segments alone.
    pub(super) fn has_segment_vector(&self) -> bool {
        self.features & SEGMENT_VECTOR != 0
    }
}

impl Offer {
    /// Returns the offer of this node, with `slots` slots.
    pub(super) fn own(hw: Hw<'_>, slots: u32, features: u64) -> Result<Self> {
        let geometry = hw.geometry();
        Ok(Self {
            magic: MAGIC,
            versions: VERSIONS,
            features,
            section: geometry.lanes.section(),
            nodes: geometry.nodes,
            slots: 1 << slots.clamp(1, MAX_SLOTS).ilog2(),
        })
    }

    /// Negotiates the terms with `peer`.
    pub(super) fn agree(&self, peer: &Self) -> Result<Terms, Misfit> {
        if peer.magic != self.magic {
            return Err(Misfit::Magic);
        }
        let version = self.versions.1.min(peer.versions.1);
        if version < self.versions.0.max(peer.versions.0) {
            return Err(Misfit::Version);
        }
        let slots_fit = ring_of(peer.slots).is_ok();
        if peer.section != self.section || peer.nodes != self.nodes || !slots_fit {
            return Err(Misfit::Shape);
        }
        Ok(Terms {
            version,
            features: self.features & peer.features,
            slots: peer.slots,
            own_slots: self.slots,
        })
    }
}

/// A handshake, as it stands in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) session: u32,
    /// The session of the reader that the writer has met, or 0.
    pub(super) echo: u32,
    pub(super) offer: Offer,
}

impl Handshake {
    /// Writes the handshake of a new session into the section of `peer`, session last.
    pub(super) fn write(&self, hw: Hw<'_>, peer: u32) -> Result {
        let base = hw.geometry().outbound(peer)?.start;
        hw.publish_window(peer, base + at::SESSION.offset(), Le::new(0u64))?;
        self.write_again(hw, peer)
    }

    /// Writes the handshake once more, with another echo or because it may have been lost: a reader
    /// finds no moment without a session.
    pub(super) fn write_again(&self, hw: Hw<'_>, peer: u32) -> Result {
        let base = hw.geometry().outbound(peer)?.start;
        let Offer {
            magic,
            versions: (lowest, highest),
            features,
            section,
            nodes,
            slots,
        } = self.offer;
        let versions = Versions::NONE
            .with(Versions::LOWEST, lowest)
            .with(Versions::HIGHEST, highest);
        let shape = Shape::NONE
            .with(Shape::NODES, nodes)
            .with(Shape::SLOTS, slots);
        for (offset, word) in [
            (at::MAGIC.offset(), magic),
            (at::VERSIONS.offset(), versions.bits()),
            (at::FEATURES.offset(), features),
            (at::SECTION.offset(), section),
            (at::SHAPE.offset(), shape.bits()),
        ] {
            hw.write_window(peer, base + offset, Le::new(word))?;
        }
        // After the ring has been cleared.
        let echo = Le::new(u64::from(self.echo));
        hw.publish_window(peer, base + at::ECHO.offset(), echo)?;
        let session = Le::new(u64::from(self.session));
        hw.publish_window(peer, base + at::SESSION.offset(), session)
    }

    /// Reads the handshake of `peer`, unless there is none or it is being written.
    pub(super) fn read(hw: Hw<'_>, peer: u32) -> Result<Option<Self>> {
        let session = read(hw, peer, at::SESSION)?;
        // A device that has left the bus reads as all ones.
        let Ok(session @ 1..=0xffff_fffe) = u32::try_from(session) else {
            return Ok(None);
        };
        let shape = read(hw, peer, at::SHAPE)?;
        let magic = read(hw, peer, at::MAGIC)?;
        let versions = read(hw, peer, at::VERSIONS)?;
        let offer = Offer {
            magic,
            versions: (
                versions.get(Versions::LOWEST),
                versions.get(Versions::HIGHEST),
            ),
            features: read(hw, peer, at::FEATURES)?,
            section: read(hw, peer, at::SECTION)?,
            nodes: shape.get(Shape::NODES),
            slots: shape.get(Shape::SLOTS),
        };
        let echo = read(hw, peer, at::ECHO)?;
        if read(hw, peer, at::SESSION)? != session.into() {
            return Ok(None);
        }
        Ok(Some(Self {
            session,
            echo: u32::try_from(echo).unwrap_or(0),
            offer,
        }))
    }
}

/// Reads a word of the area of `peer`.
fn read<T: Word>(hw: Hw<'_>, peer: u32, word: AreaWord<T>) -> Result<T> {
    let word = hw.read_window::<T>(hw.geometry().inbound(peer)?.start + word.offset())?;
    Ok(word.get())
}

/// Writes the heartbeat of this node.
pub(super) fn write_heartbeat(hw: Hw<'_>, peer: u32, heartbeat: u64) -> Result {
    let base = hw.geometry().outbound(peer)?.start;
    hw.publish_window(peer, base + at::HEARTBEAT.offset(), Le::new(heartbeat))
}

/// Reads the heartbeat of `peer`.
pub(super) fn read_heartbeat(hw: Hw<'_>, peer: u32) -> Result<u64> {
    read(hw, peer, at::HEARTBEAT)
}

#[kunit_tests(uldma_link_handshake)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            magic: MAGIC,
            versions: (2, 4),
            features: 0b110,
            section: 1 << 20,
            nodes: 2,
            slots: 16,
        }
    }

    #[test]
    fn the_best_of_both_is_used() {
        let peer = Offer {
            versions: (3, 7),
            features: 0b011,
            slots: 1,
            ..offer()
        };
        let terms = Terms {
            version: 4,
            features: 0b010,
            slots: 1,
            own_slots: 16,
        };
        assert_eq!(offer().agree(&peer), Ok(terms));
    }

    #[test]
    fn misfits_are_told() {
        let misfit = |peer| offer().agree(&peer);
        let magic = offer().magic + 1;
        assert_eq!(misfit(Offer { magic, ..offer() }), Err(Misfit::Magic));
        for versions in [(5, 9), (0, 1), (9, 0)] {
            let peer = Offer {
                versions,
                ..offer()
            };
            assert_eq!(misfit(peer), Err(Misfit::Version));
        }
        for slots in [0, 3, MAX_SLOTS + 1, 2 * MAX_SLOTS, u32::MAX] {
            assert_eq!(misfit(Offer { slots, ..offer() }), Err(Misfit::Shape));
        }
        for section in [0, 1, u64::MAX] {
            assert_eq!(misfit(Offer { section, ..offer() }), Err(Misfit::Shape));
        }
        assert_eq!(
            misfit(Offer {
                nodes: 3,
                ..offer()
            }),
            Err(Misfit::Shape)
        );
    }
}
