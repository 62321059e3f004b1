// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page of descriptors that a program shares with the device.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::sys::{uapi, Mapping};
use crate::transfer::status::RECORDS;

/// Offsets of a descriptor's fields; fields of four bytes are stored in pairs.
mod field {
    use super::{offset_of, uapi};

    pub(super) const TICKET: usize = offset_of!(uapi::uldma_descriptor, ticket);
    /// And the flags.
    pub(super) const OP: usize = offset_of!(uapi::uldma_descriptor, op);
    /// And the destination.
    pub(super) const SRC: usize = offset_of!(uapi::uldma_descriptor, src);
    pub(super) const SRC_OFFSET: usize = offset_of!(uapi::uldma_descriptor, src_offset);
    pub(super) const DST_OFFSET: usize = offset_of!(uapi::uldma_descriptor, dst_offset);
    pub(super) const LENGTH: usize = offset_of!(uapi::uldma_descriptor, length);
    pub(super) const OPERAND: usize = offset_of!(uapi::uldma_descriptor, operand);
    pub(super) const COMPARE: usize = offset_of!(uapi::uldma_descriptor, compare);
}

/// Ordering of an operation relative to its neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The operation begins only after all earlier ones have ended.
    pub fence: bool,
    /// If the operation fails, the next one ends as [`Refusal::Aborted`](crate::method::Refusal::Aborted).
    pub link: bool,
}

impl Order {
    /// No ordering.
    pub const NONE: Self = Self {
        fence: false,
        link: false,
    };
    /// Ordered after all earlier operations.
    pub const FENCE: Self = Self {
        fence: true,
        link: false,
    };
    /// The next operation depends on it.
    pub const LINK: Self = Self {
        fence: false,
        link: true,
    };

    pub(crate) fn flags(self) -> u32 {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        flag(self.fence, uapi::ULDMA_DESC_FENCE) | flag(self.link, uapi::ULDMA_DESC_LINK)
    }
}

/// The page of descriptors.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Mapping,
}

impl Ring {
    pub(crate) fn new(mapping: Mapping) -> Result<Self> {
        let needed = size_of::<uapi::uldma_descriptor>() * RECORDS as usize;
        if mapping.length() < needed {
            return Err(Error::Range {
                offset: 0,
                length: needed as u64,
                size: mapping.length() as u64,
            });
        }
        Ok(Self { mapping })
    }

    /// Writes a descriptor to its slot, where the earlier one has ended; its ticket is written
    /// last.
    #[inline]
    pub(crate) fn write(&self, descriptor: &uapi::uldma_descriptor) {
        let place = (descriptor.ticket % RECORDS) as usize * size_of::<uapi::uldma_descriptor>();
        for (field, value) in [
            (field::OP, pair(descriptor.op, descriptor.flags)),
            (field::SRC, pair(descriptor.src, descriptor.dst)),
            (field::SRC_OFFSET, descriptor.src_offset),
            (field::DST_OFFSET, descriptor.dst_offset),
            (field::LENGTH, descriptor.length),
            (field::OPERAND, descriptor.operand),
            (field::COMPARE, descriptor.compare),
        ] {
            self.mapping
                .word(place + field)
                .store(value, Ordering::Relaxed);
        }
        let ticket = self.mapping.word(place + field::TICKET);
        ticket.store(descriptor.ticket, Ordering::Release);
    }

    /// Redirects a posted descriptor, whose slot is in region `slot`, to `room` bytes of `region` at
    /// `offset`. Returns false if the device has taken it.
    pub(crate) fn redirect(
        &self,
        ticket: u64,
        (region, slot): (u32, u32),
        offset: u64,
        room: u64,
    ) -> bool {
        let place = (ticket % RECORDS) as usize * size_of::<uapi::uldma_descriptor>();
        for (field, value) in [
            (field::SRC, pair(region, slot)),
            (field::SRC_OFFSET, offset),
            (field::COMPARE, room),
        ] {
            self.mapping
                .word(place + field)
                .store(value, Ordering::Relaxed);
        }
        self.exchange(place, uapi::ULDMA_REDIRECT_NONE, uapi::ULDMA_REDIRECT_READY)
    }

    /// Withdraws a redirection. Returns false if the device has taken the descriptor.
    pub(crate) fn withdraw(&self, ticket: u64) -> bool {
        let place = (ticket % RECORDS) as usize * size_of::<uapi::uldma_descriptor>();
        self.exchange(place, uapi::ULDMA_REDIRECT_READY, uapi::ULDMA_REDIRECT_NONE)
    }

    fn exchange(&self, place: usize, from: u32, to: u32) -> bool {
        let operand = self.mapping.word(place + field::OPERAND);
        // Release: the device reads the other fields after the operand.
        let exchanged =
            operand.compare_exchange(from.into(), to.into(), Ordering::AcqRel, Ordering::Acquire);
        exchanged.is_ok()
    }
}

/// Packs two fields of four bytes into a word.
#[inline]
fn pair(first: u32, second: u32) -> u64 {
    let (first, second) = (u64::from(first), u64::from(second));
    if cfg!(target_endian = "little") {
        first | (second << 32)
    } else {
        (first << 32) | second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that the device reads, decoded independently on purpose: eight words.
    fn words(mapping: &Mapping, place: usize) -> [u64; 8] {
        std::array::from_fn(|index| mapping.word(64 * place + 8 * index).load(Ordering::Relaxed))
    }

    #[test]
    fn a_descriptor_lies_where_the_device_looks() {
        let ring = Ring::new(Mapping::anonymous(4096).unwrap()).unwrap();
        let mut descriptor = uapi::uldma_descriptor {
            ticket: 65,
            op: 2,
            flags: 3,
            src: 0x11,
            dst: 0x22,
            src_offset: 0x33,
            dst_offset: 0x44,
            length: 0x55,
            operand: 0x66,
            compare: 0x77,
        };
        ring.write(&descriptor);
        assert_eq!(
            words(&ring.mapping, 1),
            [
                65,
                0x3_0000_0002,
                0x22_0000_0011,
                0x33,
                0x44,
                0x55,
                0x66,
                0x77
            ]
        );
        descriptor.ticket = 128;
        ring.write(&descriptor);
        assert_eq!(words(&ring.mapping, 0)[0], 128);
        assert_eq!(words(&ring.mapping, 2), [0; 8]);
    }

    #[test]
    fn the_header_and_this_file_agree() {
        assert_eq!(size_of::<uapi::uldma_descriptor>(), 64);
        assert_eq!(offset_of!(uapi::uldma_descriptor, flags), field::OP + 4);
        assert_eq!(offset_of!(uapi::uldma_descriptor, dst), field::SRC + 4);
        assert!(Ring::new(Mapping::anonymous(2048).unwrap()).is_err());
        let both = Order {
            fence: true,
            link: true,
        };
        assert_eq!(
            [Order::NONE, Order::FENCE, Order::LINK, both].map(Order::flags),
            [0, 1, 2, 3]
        );
    }
}
