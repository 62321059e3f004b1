// SPDX-License-Identifier: MIT OR Apache-2.0

//! What each side of a connection says when it is opened: the kernels compare kinds and versions, and
//! carry private data between the programs.

use std::fmt;

use super::receipt;
use crate::error::{Error, Result};
use crate::ring::Geometry;
use crate::sys::uapi;

/// The byte of a stream's private data that says if it takes part in receipts.
const RECEIPTS: usize = 8;
/// Bytes of the private data of a side with a ring: its capacity.
const CAPACITY: usize = 8;
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
    /// Packets of IP, as the sample `tun` carries them.
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
/// other side ([`ConnectionInfo::offer`](crate::connection::ConnectionInfo::offer)): that of the side that listens is the
/// same for all that connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// What the connection carries.
    pub kind: ConnectionKind,
    /// Version of what programs of this kind do.
    pub version: u16,
    /// Bytes of the ring that this side has in its window for the program of the other side; zero for
    /// none. Of the other side it is zero unless the connection has rings.
    pub ring_length: u64,
    /// Bytes for the program of the other side.
    pub private: PrivateData,
}

impl Offer {
    /// Returns the offer of a side with a ring.
    pub(crate) fn of_ring(kind: ConnectionKind, version: u16, ring: Geometry) -> Self {
        Self {
            kind,
            version,
            ring_length: ring.length(),
            // Eight bytes always fit.
            private: PrivateData::new(&ring.capacity().to_le_bytes()).unwrap_or_default(),
        }
    }

    /// Returns the offer with more private data behind that of the ring.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for more than there is room for.
    pub(crate) fn with(self, data: &[u8]) -> Result<Self> {
        Ok(Self {
            private: PrivateData::new(&[self.private.as_slice(), data].concat())?,
            ..self
        })
    }

    /// Returns the private data behind that of the ring.
    pub(crate) fn data(&self) -> &[u8] {
        let private = self.private.as_slice();
        private.get(CAPACITY..).unwrap_or_default()
    }

    /// Returns the capacity of the ring that the side's program uses, which its private data begins with;
    /// none if it uses none.
    pub(crate) fn capacity(&self) -> Option<u64> {
        let first = self.private.as_slice().first_chunk();
        let capacity = first.map(|bytes| u64::from_le_bytes(*bytes));
        capacity.filter(|&capacity| capacity > 0)
    }

    /// Returns the offer of a side that also takes part in receipts
    /// ([`Connection::make_receipts`](crate::Connection::make_receipts)): with a ring that has room for
    /// them. Its private data has at least nine bytes, of which the last one is 1.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for an offer whose private data has more bytes than a stream's.
    pub fn with_receipts(self) -> Result<Self> {
        let mut bytes = [0; RECEIPTS + 1];
        let data = self.private.as_slice();
        let Some(place) = bytes
            .get_mut(..data.len())
            .filter(|_| data.len() <= RECEIPTS)
        else {
            return Err(Error::Range {
                offset: 0,
                length: data.len() as u64,
                size: RECEIPTS as u64,
            });
        };
        place.copy_from_slice(data);
        if let Some(receipts) = bytes.last_mut() {
            *receipts = 1;
        }
        Ok(Self {
            ring_length: self.ring_length.max(receipt::BYTES),
            private: PrivateData::new(&bytes)?,
            ..self
        })
    }

    /// Returns true if the side takes part in receipts.
    pub(super) fn has_receipts(&self) -> bool {
        self.private.as_slice().get(RECEIPTS) == Some(&1)
    }

    /// Decodes an offer; none if it cannot be the kernel's.
    pub(super) fn from_raw(raw: &uapi::uldma_conn_offer) -> Option<Self> {
        let length = usize::try_from(raw.private_length).ok()?;
        Some(Self {
            kind: ConnectionKind(raw.kind),
            version: raw.version,
            ring_length: raw.ring_length,
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
            ring_length: offer.ring_length,
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
            ring_length: 8192,
            private,
        };
        let raw = uapi::uldma_conn_offer::from(offer);
        assert_eq!((raw.kind, raw.version, raw.private_length), (0x8000, 7, 5));
        assert_eq!(raw.private_data[..6], *b"words\0");
        assert_eq!(raw.ring_length, 8192);
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
    fn receipts_are_told_beside_a_ring() {
        let plain = Offer::default();
        assert!(!plain.has_receipts());
        let with = plain.with_receipts().unwrap();
        assert!(with.has_receipts() && with.capacity().is_none());
        assert_eq!(with.ring_length, 16);
        let ring = Offer::of_ring(ConnectionKind::BYTES, 0, Geometry::of(0x1_0000).unwrap());
        let with = ring.with_receipts().unwrap();
        assert!(with.has_receipts() && !ring.has_receipts());
        assert_eq!(
            (with.capacity(), with.ring_length),
            (ring.capacity(), ring.ring_length)
        );
        assert!(with.with_receipts().is_err());
    }

    #[test]
    fn a_ring_is_told_by_its_capacity() {
        let offer = |private: &[u8]| Offer {
            ring_length: 0x80 + 0x1_4000,
            private: PrivateData::new(private).unwrap(),
            ..Offer::default()
        };
        let wanted = Offer::of_ring(ConnectionKind::BYTES, 0, Geometry::of(0x1_0000).unwrap());
        assert_eq!(wanted, offer(&[0, 0, 1, 0, 0, 0, 0, 0]));
        assert_eq!(wanted.capacity(), Some(0x1_0000));
        for none in [&[][..], &[1; 7], &[0; 8]] {
            assert_eq!(offer(none).capacity(), None);
        }
    }
}
