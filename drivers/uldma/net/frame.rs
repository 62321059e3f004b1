// SPDX-License-Identifier: GPL-2.0

//! Frames as they stand in a ring: a header of two words, and the packet, or its first bytes.
//!
//! A frame begins at a multiple of [`BLOCK`] bytes. Its packet continues at the start of the ring
//! when it reaches the end.

use kernel::prelude::*;

use crate::{
    hw::{
        layout::word::*,
        le::Le, //
    },
    kernel_ext::{
        errno::eproto,
        net::{
            net_device::Offloads,
            skb::Offload, //
        }, //
    },
};

/// Bytes of a block, of which a frame has a whole number.
pub(super) const BLOCK: usize = 64;
/// Bytes of the header.
pub(super) const HEADER: usize = 2 * size_of::<u64>();
/// Bytes of the shortest packet: an Ethernet header.
pub(super) const SHORTEST: u32 = 14;
/// Bytes that a frame has of a packet whose other bytes the engine moves: enough for the headers, and a
/// whole number of blocks with the header.
pub(super) const SPLIT: u32 = 240;
/// Bytes of the longest packet: the largest MTU, and an Ethernet header with a VLAN tag.
pub(super) const LONGEST: u32 = 65535 + 18;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// The frame is to be passed, since the engine could not move the packet. Alone.
const VOID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_NONE`.
const GSO_NONE: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_ECN`, beside a way of TCP.
const GSO_ECN: u8 = 0x80;

word! {
    /// First word of a frame.
    struct Length(u64);

    fields {
        /// Bytes of all headers of a packet to be segmented.
        HDR_LEN: u16 = 63, 48;
        /// The way of segmentation.
        GSO_TYPE: u8 = 47, 40;
        /// Flags of the checksum.
        FLAGS: u8 = 39, 32;
        /// Bytes of the packet.
        BYTES: u32 = 31, 0;
    }
}

word! {
    /// Second word of a frame.
    struct Places(u64);

    fields {
        /// Bytes of the packet that are in the frame, if the engine moves the others; else 0.
        SPLIT: u16 = 63, 48;
        /// Place of the checksum behind its start.
        CSUM_OFFSET: u16 = 47, 32;
        /// Start of the bytes that the checksum is of.
        CSUM_START: u16 = 31, 16;
        /// Bytes of each segment.
        GSO_SIZE: u16 = 15, 0;
    }
}

/// The words of a header as they stand in the window.
pub(super) type RawHeader = [Le<u64>; 2];

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// All of it is in the frame.
    Ring,
    /// So many bytes are in the frame, and the engine has moved the others.
    Engine(u32),
    /// The engine could not move the others.
    Void(u32),
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the packet.
    pub(super) bytes: u32,
    pub(super) way: Way,
    pub(super) offload: Offload,
}

/// What a node has agreed to take.
#[derive(Clone, Copy)]
pub(super) struct Accepts {
    pub(super) offloads: Offloads,
    /// Bytes that the engine may move.
    pub(super) by_engine: u32,
}

/// A way of segmentation, as `VIRTIO_NET_HDR_GSO_*`.
#[derive(Clone, Copy)]
enum Segmentation {
    TcpV4,
    TcpV6,
    UdpL4,
}

impl Segmentation {
    /// Returns the way of that number; none unless the devices of this driver offer it.
    fn of(gso_type: u8) -> Option<Self> {
        Some(match gso_type & !GSO_ECN {
            1 => Self::TcpV4,
            4 => Self::TcpV6,
            5 if gso_type & GSO_ECN == 0 => Self::UdpL4,
            _ => return None,
        })
    }

    /// Returns the place of the checksum in the header of the protocol.
    fn csum_offset(self) -> u16 {
        match self {
            Self::TcpV4 | Self::TcpV6 => 16,
            Self::UdpL4 => 6,
        }
    }
}

/// Returns true if the stack leaves that to a device of this driver. What a peer wrote that is not so,
/// other code than that for such packets would handle.
pub(super) fn is_offered(offload: &Offload) -> bool {
    let is_partial = offload.flags == NEEDS_CSUM;
    if offload.gso_type != GSO_NONE {
        let offset = Segmentation::of(offload.gso_type).map(Segmentation::csum_offset);
        return is_partial && offload.gso_size != 0 && offset == Some(offload.csum_offset);
    }
    let has_places = offload.csum_start != 0 || offload.csum_offset != 0;
    offload.hdr_len == 0 && offload.gso_size == 0 && (is_partial || !has_places)
}

/// Returns the bytes of `blocks` blocks.
pub(super) fn bytes_of_blocks(blocks: u32) -> u32 {
    const BLOCK_BYTES: u32 = BLOCK as u32;
    blocks.saturating_mul(BLOCK_BYTES)
}

/// Returns the number of blocks of a frame with a packet of `bytes` bytes.
pub(super) fn blocks(bytes: u32) -> u32 {
    const BLOCK_BYTES: u32 = BLOCK as u32;
    const HEADER_BYTES: u32 = HEADER as u32;
    bytes.saturating_add(HEADER_BYTES).div_ceil(BLOCK_BYTES)
}

/// Returns the bytes of the longest packet for a ring of `blocks` blocks, of which two fit.
pub(super) fn longest(blocks: u32) -> u32 {
    const BLOCK_BYTES: u32 = BLOCK as u32;
    const HEADER_BYTES: u32 = HEADER as u32;
    (blocks / 2)
        .saturating_mul(BLOCK_BYTES)
        .saturating_sub(HEADER_BYTES)
        .min(LONGEST)
}

impl Header {
    /// Returns the bytes of the packet that are in the frame.
    pub(super) fn bytes_in_frame(&self) -> u32 {
        match self.way {
            Way::Ring => self.bytes,
            Way::Engine(split) | Way::Void(split) => split,
        }
    }

    /// Returns the number of blocks of the frame.
    pub(super) fn blocks(&self) -> u32 {
        blocks(self.bytes_in_frame())
    }

    /// Encodes the header.
    pub(super) fn encode(&self) -> RawHeader {
        let (flags, split) = match self.way {
            Way::Ring => (self.offload.flags, 0),
            Way::Engine(split) => (self.offload.flags, split),
            Way::Void(split) => (VOID, split),
        };
        // At most `SPLIT` in what this node writes; what it reads has 16 bits.
        let split = u16::try_from(split).unwrap_or(0);
        let length = Length::NONE
            .with(Length::BYTES, self.bytes)
            .with(Length::FLAGS, flags)
            .with(Length::GSO_TYPE, self.offload.gso_type)
            .with(Length::HDR_LEN, self.offload.hdr_len);
        let places = Places::NONE
            .with(Places::SPLIT, split)
            .with(Places::GSO_SIZE, self.offload.gso_size)
            .with(Places::CSUM_START, self.offload.csum_start)
            .with(Places::CSUM_OFFSET, self.offload.csum_offset);
        [Le::new(length.bits()), Le::new(places.bits())]
    }

    /// Decodes the header of a frame that a peer wrote, of which `pending` blocks are in the ring.
    ///
    /// Whether there is such an offload, and it fits the packet, is checked when the stack receives it.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the packet is shorter or longer than packets are, if the frame is not in the ring as
    /// a whole, if it leaves to this node or to the engine what it does not `accept`, or for bits that are
    /// not listed.
    pub(super) fn decode(
        raw: &RawHeader,
        pending: u32,
        max_frame: u32,
        accepts: Accepts,
    ) -> Result<Self> {
        let [length, places] = raw.map(Le::get);
        let (length, places) = (Length::from_bits(length), Places::from_bits(places));
        let split = u32::from(places.get(Places::SPLIT));
        let flags = length.get(Length::FLAGS);
        let header = Self {
            bytes: length.get(Length::BYTES),
            way: match (split, flags) {
                (0, _) => Way::Ring,
                (split, VOID) => Way::Void(split),
                (split, _) => Way::Engine(split),
            },
            offload: Offload {
                flags: if flags == VOID && split > 0 { 0 } else { flags },
                gso_type: length.get(Length::GSO_TYPE),
                hdr_len: length.get(Length::HDR_LEN),
                gso_size: places.get(Places::GSO_SIZE),
                csum_start: places.get(Places::CSUM_START),
                csum_offset: places.get(Places::CSUM_OFFSET),
            },
        };
        let is_complete = (SHORTEST..=max_frame).contains(&header.bytes)
            && header.blocks() <= pending
            && header.encode() == *raw;
        let is_split_well = match header.way {
            Way::Ring => true,
            Way::Engine(split) | Way::Void(split) => {
                let moved = header.bytes.saturating_sub(split);
                (SHORTEST..=SPLIT).contains(&split) && (1..=accepts.by_engine).contains(&moved)
            }
        };
        if is_complete && is_split_well && accepts.offloads.contains(header.offloads()?) {
            Ok(header)
        } else {
            Err(eproto())
        }
    }

    /// Returns what the packet leaves to the receiver.
    ///
    /// # Errors
    ///
    /// `EPROTO` for flags that are not defined.
    fn offloads(&self) -> Result<Offloads> {
        let checksum = match self.offload.flags {
            0 => Offloads::default(),
            NEEDS_CSUM => Offloads::CHECKSUM,
            _ => return Err(eproto()),
        };
        Ok(match self.offload.gso_type {
            GSO_NONE => checksum,
            _ => checksum.or(Offloads::SEGMENTATION),
        })
    }
}

#[kunit_tests(uldma_net_frame)]
mod tests {
    use super::*;

    const MAX: u32 = 1514;

    fn header(bytes: u32, flags: u8, gso_type: u8) -> Header {
        Header {
            bytes,
            way: Way::Ring,
            offload: Offload {
                flags,
                gso_type,
                hdr_len: 54,
                gso_size: 1448,
                csum_start: 34,
                csum_offset: u16::MAX,
            },
        }
    }

    fn decode(header: &Header, pending: u32, offloads: Offloads) -> Result<Header> {
        let accepts = Accepts {
            offloads,
            by_engine: 0,
        };
        Header::decode(&header.encode(), pending, MAX, accepts)
    }

    #[test]
    fn headers_survive_the_window() {
        for sent in [header(14, 0, 0), header(MAX, 1, 4), header(60, 1, 0x81)] {
            assert_eq!(decode(&sent, 24, Offloads::ALL), Ok(sent));
        }
    }

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let raw = header(0x0102_0304, 5, 6).encode();
        let bytes = raw.map(|word| word.in_memory().to_ne_bytes());
        assert_eq!(bytes[0], [4, 3, 2, 1, 5, 6, 54, 0]);
        assert_eq!(bytes[1], [0xa8, 5, 34, 0, 255, 255, 0, 0]);
    }

    #[test]
    fn lengths_are_those_of_packets() {
        for bytes in [0, 1, SHORTEST - 1, MAX + 1, u32::MAX] {
            let sent = header(bytes, 0, 0);
            assert_eq!(decode(&sent, u32::MAX, Offloads::ALL), Err(eproto()));
        }
    }

    #[test]
    fn frames_are_in_the_ring_as_a_whole() {
        let sent = header(MAX, 0, 0);
        assert_eq!(blocks(MAX), 24);
        assert_eq!(decode(&sent, 23, Offloads::ALL), Err(eproto()));
        assert_eq!(decode(&sent, 0, Offloads::ALL), Err(eproto()));
    }

    #[test]
    fn only_what_was_agreed_is_left_to_the_receiver() {
        let (plain, partial, large) = (header(60, 0, 0), header(60, 1, 0), header(60, 1, 1));
        assert!(decode(&plain, 9, Offloads::default()).is_ok());
        assert_eq!(decode(&partial, 9, Offloads::default()), Err(eproto()));
        assert!(decode(&partial, 9, Offloads::CHECKSUM).is_ok());
        assert_eq!(decode(&large, 9, Offloads::CHECKSUM), Err(eproto()));
        assert!(decode(&large, 9, Offloads::ALL).is_ok());
    }

    #[test]
    fn bits_that_are_not_listed_are_refused() {
        assert_eq!(decode(&header(60, 2, 0), 9, Offloads::ALL), Err(eproto()));
        let [length, places] = header(60, 0, 0).encode();
        let raw = [length, Le::new(places.get() | 1 << 48)];
        let accepts = Accepts {
            offloads: Offloads::ALL,
            by_engine: MAX,
        };
        assert_eq!(Header::decode(&raw, 9, MAX, accepts), Err(eproto()));
    }

    #[test]
    fn the_engine_moves_what_was_agreed() {
        let by = |way, bytes, by_engine| {
            let sent = Header {
                way,
                ..header(bytes, 1, 1)
            };
            let accepts = Accepts {
                offloads: Offloads::ALL,
                by_engine,
            };
            Header::decode(&sent.encode(), 4, MAX, accepts).map(|found| (sent == found, found))
        };
        let engine = Way::Engine(SPLIT);
        assert!(by(engine, MAX, MAX - SPLIT).is_ok_and(|(same, _)| same));
        assert_eq!(by(engine, MAX, MAX - SPLIT - 1).map(drop), Err(eproto()));
        assert_eq!(by(engine, MAX, 0).map(drop), Err(eproto()));
        assert_eq!(by(engine, SPLIT, MAX).map(drop), Err(eproto()));
        for split in [1, SHORTEST - 1, SPLIT + 1, u32::from(u16::MAX)] {
            assert_eq!(by(Way::Engine(split), MAX, MAX).map(drop), Err(eproto()));
        }
        assert!(by(Way::Engine(SHORTEST), SHORTEST + 1, 1).is_ok());
        // A frame to be passed has as many blocks, and nothing else counts.
        let void = by(Way::Void(SPLIT), MAX, MAX).map(|(_, found)| (found.way, found.blocks()));
        assert_eq!(void, Ok((Way::Void(SPLIT), 4)));
        assert_eq!(by(Way::Void(SPLIT), MAX, 0).map(drop), Err(eproto()));
    }

    #[test]
    fn only_what_is_offered_is_left_to_the_stack() {
        let plain = Offload::default();
        let partial = Offload {
            flags: NEEDS_CSUM,
            csum_start: 34,
            csum_offset: 50,
            ..plain
        };
        let large = |gso_type, csum_offset| Offload {
            gso_type,
            csum_offset,
            hdr_len: 54,
            gso_size: 1448,
            ..partial
        };
        for offload in [plain, partial, large(1, 16), large(0x84, 16), large(5, 6)] {
            assert!(is_offered(&offload));
            // Without a checksum there is nothing to be segmented, nor the place of one.
            let flags = 0;
            let is_plain = offload == plain;
            assert_eq!(is_offered(&Offload { flags, ..offload }), is_plain);
        }
        let known = [1, 4, 5, 0x81, 0x84];
        for gso_type in (1..=u8::MAX).filter(|gso_type| !known.contains(gso_type)) {
            assert!(!is_offered(&large(gso_type, 16)));
            assert!(!is_offered(&large(gso_type, 6)));
        }
        for offload in [large(1, 6), large(0x81, 6), large(4, 6), large(5, 16)] {
            assert!(!is_offered(&offload));
        }
        let gso_size = 0;
        let empty = large(1, 16);
        assert!(!is_offered(&Offload { gso_size, ..empty }));
        assert!(!is_offered(&large(GSO_NONE, 16)));
    }

    #[test]
    fn two_of_the_longest_fit_into_a_ring() {
        for ring in [48, 255, 256, 4095, 1 << 20, u32::MAX] {
            assert!(2 * u64::from(blocks(longest(ring))) <= u64::from(ring));
        }
        assert_eq!(longest(1 << 20), LONGEST);
        assert_eq!(longest(0), 0);
        assert_eq!((blocks(48), blocks(49)), (1, 2));
        assert_eq!(blocks(u32::MAX), 1 << 26);
    }
}
