// SPDX-License-Identifier: MIT OR Apache-2.0

//! What was given a ticket, from then until it has ended.

use std::time::Instant;

use crate::abi::Status;
use crate::check::{Checked, Side};
use crate::memory::{BusError, GuestMemory};

/// A read, a change and a write of one word that nothing comes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Add a number, and wrap around.
    Add(u64),
    /// Replace the word if it is the one that is expected.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
}

impl Atomic {
    /// Bytes of the word.
    pub const BYTES: u64 = 8;

    /// Does it to the word at a bus address; says what the word was.
    pub fn apply(self, memory: &GuestMemory, address: u64) -> Result<u64, BusError> {
        memory.update64(address, |word| match self {
            Atomic::Add(number) => Some(word.wrapping_add(number)),
            Atomic::CompareSwap { compare, swap } => (word == compare).then_some(swap),
        })
    }
}

/// What there is to do, after all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Move bytes.
    Copy(Checked),
    /// Change a word.
    Atomic {
        /// Where.
        at: Side,
        /// How.
        operation: Atomic,
    },
    /// Nothing: how it ends is known from the start.
    Nothing,
}

impl Work {
    /// The memory that it touches.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        let (one, other) = match self {
            Work::Copy(checked) => (Some(&checked.source), Some(&checked.destination)),
            Work::Atomic { at, .. } => (Some(at), None),
            Work::Nothing => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        match self {
            Work::Copy(checked) => checked.bytes,
            Work::Atomic { .. } | Work::Nothing => 0,
        }
    }
}

/// A transfer that was given a ticket.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its ticket in its context.
    pub ticket: u64,
    /// What it does.
    pub work: Work,
    /// Bytes moved so far.
    pub done: u64,
    /// What the word was, once an atomic operation is done.
    pub word: Option<u64>,
    /// The engine does not start before this.
    pub ready: Instant,
    /// How it ends, once that is known.
    pub ending: Option<Status>,
    /// If it ends badly, the next one ends as aborted.
    pub linked: bool,
}

impl Transfer {
    /// A transfer whose ticket is still to be given.
    pub fn new(work: Work, ready: Instant) -> Self {
        Self {
            ticket: 0,
            work,
            done: 0,
            word: None,
            ready,
            ending: None,
            linked: false,
        }
    }

    /// One that does nothing but end.
    pub fn ended(status: Status, now: Instant) -> Self {
        Self {
            ending: Some(status),
            ..Self::new(Work::Nothing, now)
        }
    }
}

/// What became of the work that was done at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes moved.
    pub moved: u64,
    /// What the word was that was changed.
    pub word: Option<u64>,
    /// Why it stopped before its end.
    pub error: Option<Status>,
}

impl Outcome {
    /// Nothing was done.
    pub fn failed(status: Status) -> Self {
        Self {
            error: Some(status),
            ..Self::default()
        }
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
