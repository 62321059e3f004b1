// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shadow space: the layout of its addresses, and the size word that is stored there.
//!
//! Extended shadow addressing ("user-level DMA" paper, section 3.2): the highest bits of a shadow
//! address name the context. The operating system sets them when it maps a shadow page, so a
//! process cannot forge them.

use crate::layout::SizeWord as Bits;

/// Layout of the shadow space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// log2 of the bytes of the whole shadow space.
    pub shadow_bits: u32,
    /// Contexts that the device has.
    pub contexts: u32,
    /// log2 of the bytes of a page.
    pub page_shift: u32,
}

/// A decoded shadow address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowAddress {
    /// The context; may be one that the device does not have.
    pub context: u32,
    /// Index in the page table.
    pub entry: u32,
    /// Byte in the page.
    pub offset: u32,
}

impl Geometry {
    /// Returns log2 of the bytes of shadow space of each context.
    pub fn shadow_shift(&self) -> u32 {
        self.shadow_bits - self.contexts.next_power_of_two().ilog2()
    }

    /// Decodes a byte offset in the shadow space.
    pub fn decode(&self, address: u64) -> ShadowAddress {
        let shift = self.shadow_shift();
        let in_slice = address & ((1 << shift) - 1);
        ShadowAddress {
            context: (address >> shift) as u32,
            entry: (in_slice >> self.page_shift) as u32,
            offset: (in_slice & ((1 << self.page_shift) - 1)) as u32,
        }
    }
}

/// The decoded size word of a user-level initiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SizeWord {
    /// Bytes to move.
    pub bytes: u32,
    /// Source address modulo 8.
    pub src_low: u32,
    /// Destination address modulo 8.
    pub dst_low: u32,
    /// Source region, or 0 for the page alone.
    pub src_region: u32,
    /// Destination region, or 0 for the page alone.
    pub dst_region: u32,
}

impl SizeWord {
    /// Decodes a stored word.
    pub fn unpack(word: u64) -> Self {
        let word = Bits::from_bits(word);
        Self {
            bytes: word.get(Bits::BYTES),
            src_low: word.get(Bits::SRC_LOW),
            dst_low: word.get(Bits::DST_LOW),
            src_region: word.get(Bits::SRC_REGION),
            dst_region: word.get(Bits::DST_REGION),
        }
    }

    /// Encodes the word that a program stores; fields that are too wide lose their upper bits.
    pub fn pack(&self) -> u64 {
        let word = Bits::BYTES.set_low_bits(Bits::NONE, self.bytes);
        let word = Bits::SRC_LOW.set_low_bits(word, self.src_low);
        let word = Bits::DST_LOW.set_low_bits(word, self.dst_low);
        let word = Bits::SRC_REGION.set_low_bits(word, self.src_region);
        Bits::DST_REGION.set_low_bits(word, self.dst_region).bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slices_of_a_device_whose_contexts_are_no_power_of_two() {
        let geometry = Geometry {
            shadow_bits: 34,
            contexts: 5,
            page_shift: 12,
        };
        assert_eq!(geometry.shadow_shift(), 31);
        assert_eq!(
            geometry.decode((3 << 31) + (7 << 12) + 0x18),
            ShadowAddress {
                context: 3,
                entry: 7,
                offset: 0x18
            }
        );
    }

    proptest! {
        #[test]
        fn every_word_survives_taking_apart(word: u64) {
            prop_assert_eq!(SizeWord::unpack(word).pack(), word);
        }

        #[test]
        fn every_address_survives_taking_apart(
            shadow_bits in 28u32..=44,
            contexts in 1u32..=256,
            page_shift in 12u32..=16,
            address: u64,
        ) {
            let geometry = Geometry { shadow_bits, contexts, page_shift };
            let address = address & ((1 << shadow_bits) - 1);
            let named = geometry.decode(address);
            let rebuilt = (u64::from(named.context) << geometry.shadow_shift())
                | (u64::from(named.entry) << page_shift)
                | u64::from(named.offset);
            prop_assert_eq!(rebuilt, address);
        }
    }
}
