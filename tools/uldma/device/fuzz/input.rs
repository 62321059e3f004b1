// SPDX-License-Identifier: MIT OR Apache-2.0

//! Inputs: bytes that decide about every step, and their sources.

use std::collections::HashSet;
use std::hash::Hash;

/// Most bytes of an input.
const LONGEST: usize = 2048;

/// Pseudo-random numbers from a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another one, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// An input that is being used up; nothing but zeros follows its end.
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let wide = (usize::from(self.byte()) << 8) | usize::from(self.byte());
        wide % limit
    }

    pub(crate) fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| (word << 8) | u64::from(self.byte()))
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }

    /// Takes at most `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// A number that is at some edge, or near it, or anything.
    pub(crate) fn number(&mut self, known: &[u64]) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            8,
            63,
            4095,
            4096,
            256 * 1024,
            u32::MAX as u64,
            1 << 32,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 7,
            u64::MAX,
        ];
        let number = match self.byte() % 8 {
            0..=2 if !known.is_empty() => self.one_of(known),
            3..=5 => self.one_of(&EDGES),
            6 => u64::from(self.byte()),
            _ => self.word(),
        };
        match self.byte() {
            0..=31 => number.wrapping_add(u64::from(self.byte())),
            32..=63 => number.wrapping_sub(u64::from(self.byte())),
            _ => number,
        }
    }
}

/// Inputs that had new marks, and all marks so far.
#[derive(Default)]
pub(crate) struct Corpus<T> {
    pub(crate) inputs: Vec<Vec<u8>>,
    seen: HashSet<T>,
}

impl<T: Eq + Hash> Corpus<T> {
    /// Keeps an input if one of its marks is new. Returns true if so.
    pub(crate) fn keep(&mut self, input: Vec<u8>, did: impl IntoIterator<Item = T>) -> bool {
        let before = self.seen.len();
        self.seen.extend(did);
        let is_new = self.seen.len() > before;
        if is_new {
            self.inputs.push(input);
        }
        is_new
    }

    pub(crate) fn seen(&self) -> usize {
        self.seen.len()
    }

    /// The next input: a new one, or a change of one that did something.
    pub(crate) fn next(&self, chance: &mut Chance) -> Vec<u8> {
        if self.inputs.is_empty() || chance.below(8) == 0 {
            let count = 1 + chance.below(LONGEST / 4);
            return chance.bytes(count);
        }
        let mut input = self.inputs[chance.below(self.inputs.len())].clone();
        for _ in 0..1 + chance.below(6) {
            let at = chance.below(input.len() + 1);
            match chance.below(6) {
                0 => input.truncate(at),
                1 => {
                    let count = 1 + chance.below(16);
                    let new = chance.bytes(count);
                    input.splice(at..at, new);
                }
                2 => {
                    let other = &self.inputs[chance.below(self.inputs.len())];
                    let from = chance.below(other.len() + 1);
                    let count = chance.below(64).min(other.len() - from);
                    input.splice(at..at, other[from..from + count].iter().copied());
                }
                3 => {
                    let end = (at + chance.below(16)).min(input.len());
                    input.drain(at..end);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte ^= 1 << chance.below(8);
                    }
                }
            }
        }
        input.truncate(LONGEST);
        input
    }
}
