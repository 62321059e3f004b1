// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of accesses, the same in each run.

use clap::ValueEnum;

/// Which of some places are accessed, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Pattern {
    /// Each as often as any other, in no order
    Uniform,
    /// The one of rank N a part 1/N as often as the first, in no order
    Zipf,
    /// One after the other, again and again
    Sequential,
}

impl Pattern {
    pub(super) const ALL: [Self; 3] = [Self::Uniform, Self::Zipf, Self::Sequential];

    /// Returns the name in figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::Sequential => "sequential",
        }
    }
}

/// Places that are accessed one after the other, without end.
pub(super) struct Places {
    pattern: Pattern,
    count: usize,
    last: usize,
    /// State of Marsaglia's xorshift; never 0.
    random: u64,
    /// By rank, the part of the accesses that go to places up to this rank.
    parts: Vec<f64>,
    /// The place of each rank: neighbours in rank are none in place.
    ranked: Vec<usize>,
}

impl Places {
    /// Returns accesses to `count` places, which is not 0.
    pub(super) fn new(pattern: Pattern, count: usize) -> Self {
        let mut places = Self {
            pattern,
            count,
            last: count - 1,
            random: 0x9e37_79b9_7f4a_7c15,
            parts: Vec::new(),
            ranked: Vec::new(),
        };
        if pattern == Pattern::Zipf {
            let weights = (1..=count).map(|rank| 1.0 / rank as f64);
            let all: f64 = weights.clone().sum();
            let sums = weights.scan(0.0, |sum, weight| {
                *sum += weight / all;
                Some(*sum)
            });
            places.parts = sums.collect();
            places.ranked = (0..count).collect();
            for end in (1..count).rev() {
                let other = places.below(end + 1);
                places.ranked.swap(end, other);
            }
        }
        places
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit as u64) as usize
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.last = match self.pattern {
            Pattern::Uniform => self.below(self.count),
            Pattern::Sequential => (self.last + 1) % self.count,
            Pattern::Zipf => {
                let part = (self.random() >> 11) as f64 / (1_u64 << 53) as f64;
                let rank = self.parts.partition_point(|sum| *sum < part);
                // The sum of all may be a little less than 1.
                self.ranked[rank.min(self.count - 1)]
            }
        };
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: Pattern) -> Vec<usize> {
        let mut counts = vec![0; 8];
        for place in Places::new(pattern, 8).take(8000) {
            counts[place] += 1;
        }
        counts
    }

    #[test]
    fn places_are_as_frequent_as_the_pattern_says() {
        assert_eq!(counts(Pattern::Sequential), [1000; 8]);
        let uniform = counts(Pattern::Uniform);
        assert!(uniform.iter().all(|count| (850..1150).contains(count)));
        let mut zipf = counts(Pattern::Zipf);
        zipf.sort_unstable();
        // 8000 / (1 + 1/2 + ... + 1/8) = 2943.
        assert!((2700..3200).contains(&zipf[7]));
        assert!((1300..1650).contains(&zipf[6]));
    }
}
