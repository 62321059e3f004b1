// SPDX-License-Identifier: GPL-2.0

//! Words in the byte order in which nodes exchange them.

use core::marker::PhantomData;

use kernel::prelude::*;

use super::layout::Word;

/// A word as it stands in memory that nodes of different byte orders share: 8 bytes, the lowest
/// first.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Le<W>(u64, PhantomData<W>);

/// Returns `word` in little-endian order, or back, on a CPU that is big-endian or not.
const fn swapped_on(is_big_endian: bool, word: u64) -> u64 {
    if is_big_endian {
        word.swap_bytes()
    } else {
        word
    }
}

const IS_BIG_ENDIAN: bool = cfg!(target_endian = "big");

impl<W: Word> Le<W> {
    /// Converts a value of this CPU.
    #[inline(always)]
    pub(crate) fn new(value: W) -> Self {
        Self::from_memory(swapped_on(IS_BIG_ENDIAN, value.to_raw()))
    }

    /// Returns the value for this CPU.
    #[inline(always)]
    pub(crate) fn get(self) -> W {
        W::from_raw(swapped_on(IS_BIG_ENDIAN, self.0))
    }
}

impl<W> Le<W> {
    /// Creates the word that a load from shared memory returned, not converted.
    #[inline(always)]
    pub(crate) const fn from_memory(word: u64) -> Self {
        Self(word, PhantomData)
    }

    /// Returns the word for a store to shared memory, which must not convert it.
    #[inline(always)]
    pub(crate) const fn in_memory(self) -> u64 {
        self.0
    }
}

#[kunit_tests(uldma_le)]
mod tests {
    use super::*;

    const VALUE: u64 = 0x0102_0304_0506_0708;

    #[test]
    fn both_kinds_of_cpu_store_the_same_bytes() {
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(swapped_on(true, VALUE).to_be_bytes(), bytes);
        assert_eq!(swapped_on(false, VALUE).to_le_bytes(), bytes);
        assert_eq!(Le::new(VALUE).in_memory().to_ne_bytes(), bytes);
    }

    #[test]
    fn each_kind_of_cpu_loads_what_the_other_stored() {
        let from_big = u64::from_le_bytes(swapped_on(true, VALUE).to_be_bytes());
        assert_eq!(swapped_on(false, from_big), VALUE);
        let from_little = u64::from_be_bytes(swapped_on(false, VALUE).to_le_bytes());
        assert_eq!(swapped_on(true, from_little), VALUE);
        assert_eq!(Le::<u32>::new(7).get(), 7);
    }
}
