// SPDX-License-Identifier: MIT OR Apache-2.0

//! What each side of a connection says when it is opened: the kernels compare kinds and versions, and
//! carry private data between the programs.

use std::fmt;

use crate::{uapi, Error, Result};

/// Most bytes of private data.
const MOST: usize = uapi::ULDMA_CONN_PRIVATE as usize;

/// What a connection carries, the same on both sides; see `enum uldma_conn_kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionKind(u16);

impl ConnectionKind {
    /// Bytes, with [`Connection`](crate::Connection) or [`Stream`](crate::Stream).
    pub const BYTES: Self = Self::of(uapi::ULDMA_KIND_BYTES);
    /// Messages through rings, with [`Channel`](crate::Channel).
    pub const CHANNEL: Self = Self::of(uapi::ULDMA_KIND_CHANNEL);
    /// Messages into posted memory, with [`MessageConnection`](crate::MessageConnection).
    pub const MESSAGE: Self = Self::of(uapi::ULDMA_KIND_MESSAGE);
    /// Packets of IP, as `uldma net --tun` carries them.
    pub const PACKETS: Self = Self::of(uapi::ULDMA_KIND_PACKETS);

    const fn of(raw: uapi::uldma_conn_kind) -> Self {
        let [low, high, ..] = raw.to_le_bytes();
        Self(u16::from_le_bytes([low, high]))
    }

    /// Returns a kind for programs that agree about it: 0x8000 and up; none for other numbers.
    pub const fn private(number: u16) -> Option<Self> {
        if number >= Self::of(uapi::ULDMA_KIND_PRIVATE).0 {
            Some(Self(number))
        } else {
            None
        }
    }
}

/// Bytes for the program of the other side, which the kernels carry and do not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    length: u8,
    bytes: [u8; MOST],
}

impl PrivateData {
    /// Copies at most 128 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for more.
    pub fn new(data: &[u8]) -> Result<Self> {
        let mut private = Self::default();
        let room = private.bytes.get_mut(..data.len());
        match (room, u8::try_from(data.len())) {
            (Some(bytes), Ok(length)) => {
                bytes.copy_from_slice(data);
                private.length = length;
                Ok(private)
            }
            _ => Err(Error::Range {
                offset: 0,
                length: data.len() as u64,
                size: MOST as u64,
            }),
        }
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }
}

impl Default for PrivateData {
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; MOST],
        }
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// What one side of a connection says when it is opened; by default that it carries bytes, of version 0,
/// without private data.
///
/// The kernel of the side that listens refuses a connection of another kind or version before either
/// program has it ([`Error::OtherKind`]). Private data reaches the program at the
/// other side ([`ConnectionInfo::offer`](crate::ConnectionInfo::offer)): that of the side that listens is the
/// same for all that connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// What the connection carries.
    pub kind: ConnectionKind,
    /// Version of what programs of this kind do.
    pub version: u16,
    /// Bytes for the program of the other side.
    pub private: PrivateData,
}

impl Offer {
    /// The offer of a side that wants rings of `capacity` bytes.
    pub(crate) fn of_rings(kind: ConnectionKind, version: u16, capacity: u64) -> Self {
        // Eight bytes always fit.
        let private = PrivateData::new(&capacity.to_le_bytes()).unwrap_or_default();
        Self {
            kind,
            version,
            private,
        }
    }

    /// Returns the bytes of the rings that the side wants, which its private data begins with; none if it
    /// wants none.
    pub(crate) fn capacity(&self) -> Option<u64> {
        let first = self.private.as_slice().first_chunk();
        let capacity = first.map(|bytes| u64::from_le_bytes(*bytes));
        capacity.filter(|&capacity| capacity > 0)
    }

    /// Decodes an offer; none if it cannot be the kernel's.
    pub(super) fn from_raw(raw: &uapi::uldma_conn_offer) -> Option<Self> {
        let length = usize::try_from(raw.private_length).ok()?;
        Some(Self {
            kind: ConnectionKind(raw.kind),
            version: raw.version,
            private: PrivateData::new(raw.private_data.get(..length)?).ok()?,
        })
    }
}

impl From<Offer> for uapi::uldma_conn_offer {
    fn from(offer: Offer) -> Self {
        Self {
            kind: offer.kind.0,
            version: offer.version,
            private_length: offer.private.length.into(),
            private_data: offer.private.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_as_the_header_says() {
        assert_eq!(ConnectionKind::private(0x7fff), None);
        let kind = ConnectionKind::private(0x8000).unwrap();
        let private = PrivateData::new(b"words").unwrap();
        let offer = Offer {
            kind,
            version: 7,
            private,
        };
        let raw = uapi::uldma_conn_offer::from(offer);
        assert_eq!((raw.kind, raw.version, raw.private_length), (0x8000, 7, 5));
        assert_eq!(raw.private_data[..6], *b"words\0");
        assert_eq!(Offer::from_raw(&raw), Some(offer));
        let nothing = uapi::uldma_conn_offer::default();
        assert_eq!(Offer::from_raw(&nothing), Some(Offer::default()));
    }

    #[test]
    fn a_length_beyond_the_data_is_refused() {
        for private_length in [129, 256, u32::MAX] {
            let raw = uapi::uldma_conn_offer {
                private_length,
                ..Default::default()
            };
            assert_eq!(Offer::from_raw(&raw), None);
        }
        assert_eq!(PrivateData::new(&[1; 128]).unwrap().as_slice(), [1; 128]);
        assert!(matches!(
            PrivateData::new(&[1; 129]),
            Err(Error::Range { size: 128, .. })
        ));
    }

    #[test]
    fn rings_are_told_by_their_capacity() {
        let offer = |private: &[u8]| Offer {
            private: PrivateData::new(private).unwrap(),
            ..Offer::default()
        };
        let wanted = Offer::of_rings(ConnectionKind::BYTES, 0, 0x1_0000);
        assert_eq!(wanted, offer(&[0, 0, 1, 0, 0, 0, 0, 0]));
        assert_eq!(wanted.capacity(), Some(0x1_0000));
        for none in [&[][..], &[1; 7], &[0; 8]] {
            assert_eq!(offer(none).capacity(), None);
        }
    }
}
