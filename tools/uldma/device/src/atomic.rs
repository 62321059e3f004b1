// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic operations on words of the guests' memory.

use crate::memory::{BusError, GuestMemory};

/// An atomic read-modify-write operation on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Add a number, wrapping around.
    Add(u64),
    /// Replace the word if it equals the expected value.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The value that replaces it.
        swap: u64,
    },
}

impl Atomic {
    /// Bytes of the word.
    pub const BYTES: u64 = 8;

    /// Applies the operation to the word at a bus address. Returns the word's old value.
    pub fn apply(self, memory: &GuestMemory, address: u64) -> Result<u64, BusError> {
        memory.update64(address, |word| match self {
            Atomic::Add(number) => Some(word.wrapping_add(number)),
            Atomic::CompareSwap { compare, swap } => (word == compare).then_some(swap),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Bus;
    use crate::testing::memfd;

    #[test]
    fn words_are_changed() {
        let mut memory = GuestMemory::default();
        memory
            .map(0x1000, 0x1000, Some((memfd(0x1000), 0)), true, true)
            .unwrap();
        memory.store64(0x1008, u64::MAX).unwrap();
        assert_eq!(Atomic::Add(3).apply(&memory, 0x1008), Ok(u64::MAX));
        let swap = Atomic::CompareSwap {
            compare: 2,
            swap: 9,
        };
        assert_eq!(swap.apply(&memory, 0x1008), Ok(2));
        assert_eq!(swap.apply(&memory, 0x1008), Ok(9));
        assert_eq!(memory.load64(0x1008), Ok(9));
        assert_eq!(swap.apply(&memory, 0x3000), Err(BusError));
        assert_eq!(swap.apply(&memory, 0x1004), Err(BusError));
    }

    #[test]
    fn readers_and_writers_are_not_changed() {
        for (readable, writable) in [(true, false), (false, true)] {
            let mut memory = GuestMemory::default();
            let file = Some((memfd(0x1000), 0));
            memory
                .map(0x1000, 0x1000, file, readable, writable)
                .unwrap();
            assert_eq!(Atomic::Add(1).apply(&memory, 0x1000), Err(BusError));
        }
    }
}
