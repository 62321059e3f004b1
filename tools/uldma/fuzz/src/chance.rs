// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers from a seed, the same on every machine.

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

/// Numbers at which something changes.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    63,
    64,
    65,
    127,
    128,
    129,
    255,
    4095,
    4096,
    0xffff_fffe,
    0xffff_ffff,
    1 << 32,
    (1 << 32) + 1,
    1 << 63,
    u64::MAX - 7,
    u64::MAX - 1,
    u64::MAX,
];

impl Chance {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below a limit, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.any() % limit).unwrap_or(0)
    }

    /// Returns true in one of `cases` cases.
    pub(crate) fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    /// Returns one of the values.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).cloned()
    }

    /// A number of 32 bits, often one at which something changes.
    pub(crate) fn half(&mut self) -> u32 {
        u32::try_from(self.word() & 0xffff_ffff).unwrap_or(0)
    }

    /// A number that is often one at which something changes, or close to one.
    pub(crate) fn word(&mut self) -> u64 {
        match self.below(8) {
            0 => self.any(),
            1 => self.any() >> self.below(64),
            2 => ((self.any() & 0xffff_ffff) << 32) | (self.any() % 16),
            _ => self.pick(&EDGES).unwrap_or(0),
        }
    }
}
