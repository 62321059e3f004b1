// SPDX-License-Identifier: MIT OR Apache-2.0

//! One store: the shadow address names the destination, and the word the source.
//!
//! No load follows, so the thread does not wait for the device at all. Each store takes the next
//! ticket, even if the device refuses it; the status page has the result.

use crate::method::refusal::Refusal;
use crate::mmio::Register;
use crate::sys::uapi;

/// Addresses and lengths are multiples of this.
pub(crate) const UNIT: u64 = 8;

/// Bytes that one store can move at most.
pub(crate) const MAX_TRANSFER: u64 = uapi::ULDMA_SINGLE_STORE_LENGTH_MASK as u64 * UNIT;

/// Starts a transfer, unless the device refuses it.
#[inline]
pub(crate) fn initiate<R: Register>(destination: R, word: u64) {
    destination.begin();
    destination.store(word);
}

/// Encodes a word. The regions are indices, and `offset` is the first byte in the source's region.
///
/// # Errors
///
/// [`Refusal::BadSize`] for no bytes or too many, [`Refusal::NotAligned`] for values that the word
/// cannot express.
#[inline]
pub(crate) fn encode(
    bytes: u64,
    source: u32,
    offset: u64,
    destination: u32,
) -> Result<u64, Refusal> {
    let region = uapi::ULDMA_SIZE_WORD_REGION_MASK;
    if bytes == 0 || bytes > MAX_TRANSFER {
        return Err(Refusal::BadSize);
    }
    let offset_mask = u64::from(uapi::ULDMA_SINGLE_STORE_SRC_OFFSET_MASK);
    let aligned = bytes % UNIT == 0 && offset % UNIT == 0;
    if !aligned || offset / UNIT > offset_mask || source > region || destination > region {
        return Err(Refusal::NotAligned);
    }
    Ok((bytes / UNIT)
        | ((offset / UNIT) << uapi::ULDMA_SINGLE_STORE_SRC_OFFSET_SHIFT)
        | (u64::from(source) << uapi::ULDMA_SINGLE_STORE_SRC_REGION_SHIFT)
        | (u64::from(destination) << uapi::ULDMA_SINGLE_STORE_DST_REGION_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio::fake::{Access, Bus};
    use proptest::prelude::*;

    /// Decodes the word as the device does, implemented independently on purpose.
    fn decode(word: u64) -> (u64, u64, u32, u32) {
        let bits = |from: u32, count: u32| (word >> from) & ((1 << count) - 1);
        (
            8 * bits(0, 18),
            8 * bits(18, 18),
            bits(36, 14) as u32,
            bits(50, 14) as u32,
        )
    }

    proptest! {
        #[test]
        fn every_field_arrives(
            bytes in 1..=0x3ffffu64,
            offset in 0..=0x3ffffu64,
            source in 0..=0x3fffu32,
            destination in 0..=0x3fffu32,
        ) {
            let word = encode(8 * bytes, source, 8 * offset, destination).unwrap();
            prop_assert_eq!(decode(word), (8 * bytes, 8 * offset, source, destination));
        }
    }

    #[test]
    fn what_the_word_cannot_say_is_refused() {
        assert_eq!(encode(0, 1, 0, 2), Err(Refusal::BadSize));
        assert_eq!(encode(MAX_TRANSFER + 8, 1, 0, 2), Err(Refusal::BadSize));
        assert_eq!(encode(12, 1, 0, 2), Err(Refusal::NotAligned));
        assert_eq!(encode(8, 1, 4, 2), Err(Refusal::NotAligned));
        assert_eq!(encode(8, 1, 8 << 18, 2), Err(Refusal::NotAligned));
        assert_eq!(encode(8, 0x4000, 0, 2), Err(Refusal::NotAligned));
        assert!(encode(MAX_TRANSFER, 0x3fff, (8 << 18) - 8, 0x3fff).is_ok());
    }

    #[test]
    fn one_store_is_all() {
        let bus = Bus::new(|_| 0);
        initiate(bus.at(0xd), 0x77);
        assert_eq!(
            *bus.seen.borrow(),
            [Access::Begin, Access::Store(0xd, 0x77)]
        );
    }
}
