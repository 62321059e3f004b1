// SPDX-License-Identifier: MIT OR Apache-2.0

//! What two sides tell each other about puts: the memory, in the handshake, and a notice after each.

use crate::error::name::Name;

/// Memory into which a side lets its peer put bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutArea {
    /// Bytes.
    pub bytes: u64,
    /// Number of puts that can arrive before the receiver asks for them. A sender that divides the
    /// memory into as many places, and uses them in turns, puts nothing over what is not received.
    pub puts: u32,
}

/// The same, and the name by which the peer imports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: Name,
    pub(super) area: PutArea,
}

/// Bytes that a sender has put into the memory of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Byte offset in the receiver's memory.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Put {
    /// Bytes of a notice: offset and length, little-endian.
    pub(super) const NOTICE: usize = 16;

    pub(super) fn encode(self) -> [u8; Self::NOTICE] {
        let mut bytes = [0; Self::NOTICE];
        let (offset, length) = bytes.split_at_mut(8);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        length.copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes a notice of `received` bytes; none unless it names a part of `size` bytes.
    pub(super) fn decode(bytes: [u8; Self::NOTICE], received: u64, size: u64) -> Option<Self> {
        let offset = u64::from_le_bytes(*bytes.first_chunk()?);
        let length = u64::from_le_bytes(*bytes.last_chunk()?);
        let is_part = offset.checked_add(length).is_some_and(|end| end <= size);
        (received == Self::NOTICE as u64 && is_part).then_some(Self { offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_names_a_part_of_the_memory_or_is_refused() {
        let notice = |offset, length| Put { offset, length }.encode();
        let decode = |offset, length| Put::decode(notice(offset, length), 16, 4096);
        let whole = Put {
            offset: 0,
            length: 4096,
        };
        assert_eq!(decode(0, 4096), Some(whole));
        assert!(decode(4096, 0).is_some());
        assert_eq!(decode(1, 4096), None);
        assert_eq!(decode(4097, 0), None);
        assert_eq!(decode(u64::MAX, 2), None);
        assert_eq!(Put::decode(notice(0, 1), 15, 4096), None);
    }

    #[test]
    fn a_notice_is_little_endian() {
        let notice = Put {
            offset: 0x0102,
            length: 3,
        };
        assert_eq!(notice.encode()[..3], [2, 1, 0]);
        assert_eq!(notice.encode()[8..10], [3, 0]);
    }
}
