// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the two sides of a message connection tell each other first: each names its endpoint. The side
//! that connects says so in its private data, so that the other one has nothing to wait for; that answers
//! by the first message over the channel.

use super::notice::{Named, PutArea};
use crate::channel::Channel;
use crate::error::name::Name;
use crate::error::Result;
use crate::message::ReceiveTechnique;
use crate::ring::Violation;
use crate::transfer::endpoint::EndpointName;
use crate::wait::deadline::Deadline;

/// What one side says first: 52 bytes, little-endian.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 8 | bytes of the longest message of the device |
/// | 8 | 8 | generation of the endpoint |
/// | 16 | 8 | name of the memory into which the peer puts bytes, or zero |
/// | 24 | 8 | its bytes, or zero |
/// | 32 | 4 | number of puts that can arrive before the receiver asks for them, or zero |
/// | 36 | 4 | receiving technique |
/// | 40 | 4 | node |
/// | 44 | 4 | index of the endpoint |
/// | 48 | 4 | one if messages have to go through the window, else zero |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) receiving: ReceiveTechnique,
    /// Longer messages have to be sent in pieces of this length.
    pub(super) piece: u64,
    /// Index and generation are zero without an engine.
    pub(super) endpoint: EndpointName,
    /// Messages have to go through the window.
    pub(super) through_window: bool,
    /// By `DIRECT_DMA`, the memory into which the peer puts bytes.
    pub(super) inbound: Option<Named>,
}

impl Handshake {
    pub(super) const SIZE: usize = 52;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut put = |at: usize, field: &[u8]| {
            for (byte, value) in bytes.iter_mut().skip(at).zip(field) {
                *byte = *value;
            }
        };
        put(0, &self.piece.to_le_bytes());
        put(8, &self.endpoint.generation.to_le_bytes());
        if let Some(Named { name, area }) = self.inbound {
            put(16, &name.get().to_le_bytes());
            put(24, &area.bytes.to_le_bytes());
            put(32, &area.puts.to_le_bytes());
        }
        put(36, &self.receiving.number().to_le_bytes());
        put(40, &self.endpoint.node.to_le_bytes());
        put(44, &self.endpoint.index.to_le_bytes());
        put(48, &u32::from(self.through_window).to_le_bytes());
        bytes
    }

    /// Waits for the answer of the side that accepts.
    ///
    /// # Errors
    ///
    /// Those of [`Channel::receive`] and [`Handshake::decode`].
    pub(super) fn receive(channel: &mut Channel, deadline: Deadline) -> Result<Self> {
        let mut bytes = [0; Self::SIZE];
        let length = channel.receive(&mut bytes, deadline.left())?;
        Self::decode(bytes.get(..length).unwrap_or_default())
    }

    /// Decodes what the peer said.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Violation`] for another length, or fields out of range.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).ok_or(Violation::Handshake.into())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let piece = word(0)?;
        (piece > 0).then_some(())?;
        let receiving = ReceiveTechnique::from_number(half(36)?)?;
        let inbound = match (Name::new(word(16)?), half(32)?, word(24)?) {
            (None, 0, 0) => None,
            (None, _, _) | (_, 0, _) | (_, _, 0) => return None,
            (Some(name), puts, bytes) => Some(Named {
                name,
                area: PutArea { bytes, puts },
            }),
        };
        let names_places = receiving == ReceiveTechnique::DirectDma;
        (names_places || inbound.is_none()).then_some(())?;
        let through_window = match half(48)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self {
            through_window,
            inbound,
            receiving,
            piece,
            endpoint: EndpointName {
                node: half(40)?,
                index: half(44)?,
                generation: word(8)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDSHAKE: Handshake = Handshake {
        receiving: ReceiveTechnique::V2pDma,
        piece: 65536,
        endpoint: EndpointName {
            node: 3,
            index: 77,
            generation: 0x1122_3344_5566_7788,
        },
        through_window: true,
        inbound: None,
    };

    fn with_inbound() -> Handshake {
        Handshake {
            receiving: ReceiveTechnique::DirectDma,
            inbound: Some(Named {
                name: Name::new(0x0102_0304_0506_0708).unwrap(),
                area: PutArea {
                    bytes: 1 << 20,
                    puts: 8,
                },
            }),
            ..HANDSHAKE
        }
    }

    #[test]
    fn a_hello_arrives_as_it_was_sent() {
        let bytes = HANDSHAKE.encode();
        assert_eq!(bytes[..8], [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(
            bytes[36..],
            [4, 0, 0, 0, 3, 0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0]
        );
        assert_eq!(Handshake::decode(&bytes).unwrap(), HANDSHAKE);
        let bytes = with_inbound().encode();
        assert_eq!(bytes[16..18], [8, 7]);
        assert_eq!(Handshake::decode(&bytes).unwrap(), with_inbound());
    }

    #[test]
    fn memory_for_puts_is_named_by_direct_dma_alone() {
        let mut other = with_inbound();
        other.receiving = ReceiveTechnique::CopyDma;
        assert!(Handshake::decode(&other.encode()).is_err());
    }

    /// Every byte matters: no other value of it gives the same handshake.
    #[test]
    fn changed_bytes_are_refused_or_seen() {
        let (handshake, bytes) = (with_inbound(), with_inbound().encode());
        for at in 0..Handshake::SIZE {
            for flip in [1, 0x80] {
                let mut changed = bytes;
                changed[at] ^= flip;
                assert!(Handshake::decode(&changed).map_or(true, |changed| changed != handshake));
            }
        }
        assert!(Handshake::decode(&bytes[1..]).is_err());
        assert!(Handshake::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    }
}
