// SPDX-License-Identifier: MIT OR Apache-2.0

//! The size word: the word of an initiation's single store.

use crate::sys::uapi;

/// Bytes that one initiation can move at most, by the width of the field.
pub const MAX_TRANSFER: u64 = uapi::ULDMA_SIZE_WORD_BYTES_MASK as u64;

/// One side of a transfer, as encoded in the size word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// Shadow address modulo eight.
    pub(crate) low: u64,
    /// Index in the device's region table.
    pub(crate) region: u32,
}

/// Packs a size word; none when the bytes or an index do not fit in their fields.
#[inline]
pub(crate) fn encode(bytes: u64, source: Operand, destination: Operand) -> Option<u64> {
    let fits = |side: Operand| side.region <= uapi::ULDMA_SIZE_WORD_REGION_MASK;
    if bytes == 0 || bytes > MAX_TRANSFER || !fits(source) || !fits(destination) {
        return None;
    }
    let low = u64::from(uapi::ULDMA_SIZE_WORD_LOW_MASK);
    Some(
        bytes
            | ((source.low & low) << uapi::ULDMA_SIZE_WORD_SRC_LOW_SHIFT)
            | ((destination.low & low) << uapi::ULDMA_SIZE_WORD_DST_LOW_SHIFT)
            | (u64::from(source.region) << uapi::ULDMA_SIZE_WORD_SRC_REGION_SHIFT)
            | (u64::from(destination.region) << uapi::ULDMA_SIZE_WORD_DST_REGION_SHIFT),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes the word as the device does, implemented independently on purpose.
    fn decode(word: u64) -> (u64, u64, u64, u32, u32) {
        let bits = |from: u32, count: u32| (word >> from) & ((1 << count) - 1);
        (
            bits(0, 30),
            bits(30, 3),
            bits(33, 3),
            bits(36, 14) as u32,
            bits(50, 14) as u32,
        )
    }

    proptest! {
        #[test]
        fn every_field_arrives(
            bytes in 1..=MAX_TRANSFER,
            low in (0..8u64, 0..8u64),
            region in (0..=0x3fffu32, 0..=0x3fffu32),
        ) {
            let source = Operand { low: low.0, region: region.0 };
            let destination = Operand { low: low.1, region: region.1 };
            let word = encode(bytes, source, destination).unwrap();
            prop_assert_eq!(decode(word), (bytes, low.0, low.1, region.0, region.1));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let side = |region| Operand { low: 0, region };
        assert_eq!(encode(0, side(1), side(2)), None);
        assert_eq!(encode(MAX_TRANSFER + 1, side(1), side(2)), None);
        assert_eq!(encode(1, side(0x4000), side(2)), None);
        assert_eq!(encode(1, side(1), side(0x4000)), None);
        assert!(encode(MAX_TRANSFER, side(0x3fff), side(0x3fff)).is_some());
    }
}
