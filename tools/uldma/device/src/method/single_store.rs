// SPDX-License-Identifier: MIT OR Apache-2.0

//! Single-store initiation: a store to the destination's shadow address, of a word that names the
//! source by its region. This method is not in the paper, whose methods all load.

use super::{Machine, Reply, Request, ShadowRef};
use crate::abi::{single_store as bits, Status};

/// The decoded word. Lengths and offsets are in units of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PutWord {
    /// Length / 8.
    pub length: u32,
    /// First byte in the source region / 8.
    pub src_offset: u32,
    /// Source region.
    pub src_region: u32,
    /// Destination region, or 0 for the page alone.
    pub dst_region: u32,
}

impl PutWord {
    /// Decodes a stored word.
    pub fn unpack(word: u64) -> Self {
        let field = |shift: u32, mask: u64| ((word >> shift) & mask) as u32;
        Self {
            length: field(0, bits::LENGTH_MASK),
            src_offset: field(bits::SRC_OFFSET_SHIFT, bits::SRC_OFFSET_MASK),
            src_region: field(bits::SRC_REGION_SHIFT, bits::REGION_MASK),
            dst_region: field(bits::DST_REGION_SHIFT, bits::REGION_MASK),
        }
    }

    /// Encodes the word that a program stores; fields that are too wide lose their upper bits.
    pub fn pack(&self) -> u64 {
        let field = |value: u32, shift: u32, mask: u64| (u64::from(value) & mask) << shift;
        field(self.length, 0, bits::LENGTH_MASK)
            | field(
                self.src_offset,
                bits::SRC_OFFSET_SHIFT,
                bits::SRC_OFFSET_MASK,
            )
            | field(self.src_region, bits::SRC_REGION_SHIFT, bits::REGION_MASK)
            | field(self.dst_region, bits::DST_REGION_SHIFT, bits::REGION_MASK)
    }
}

/// Single store; has no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SingleStore;

impl Machine for SingleStore {
    fn store(&mut self, _context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        match word {
            Some(word) => Reply::Start(Request::Put {
                destination: at,
                word: PutWord::unpack(word),
            }),
            None => Reply::Refused(Status::BadAccess),
        }
    }

    fn load(&mut self, _context: u32, _at: ShadowRef, well_formed: bool) -> Reply {
        Reply::Refused(if well_formed {
            Status::NoArgs
        } else {
            Status::BadAccess
        })
    }

    fn forget(&mut self, _context: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_stores_act() {
        let at = ShadowRef::of_entry(3, 16);
        let word = PutWord {
            length: 1,
            src_offset: 2,
            src_region: 3,
            dst_region: 4,
        };
        assert_eq!(
            SingleStore.store(1, at, Some(word.pack())),
            Reply::Start(Request::Put {
                destination: at,
                word
            })
        );
        for reply in [
            SingleStore.store(1, at, None),
            SingleStore.load(1, at, false),
        ] {
            assert_eq!(reply, Reply::Refused(Status::BadAccess));
        }
        let reply = SingleStore.load(1, at, true);
        assert_eq!(reply, Reply::Refused(Status::NoArgs));
    }

    proptest! {
        #[test]
        fn every_word_survives_taking_apart(word: u64) {
            prop_assert_eq!(PutWord::unpack(word).pack(), word);
        }
    }
}
