// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registrations of the paper's 13 sizes, all backends in one loop, so that drift hits all.

use uldma::measure::Clock;

use super::backend::Backend;
use super::memory::{Pages, Range, Subject};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Sizes of the paper's tables: 4 KiB to 16 MiB in powers of two.
pub(crate) const SIZES: [&str; 13] = [
    "4k", "8k", "16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m", "4m", "8m", "16m",
];
/// Pages of the largest.
pub(crate) const LARGEST: usize = pages(SIZES.len() - 1);

/// Registrations of small sizes, and of large ones.
const ROUNDS: std::ops::RangeInclusive<usize> = 31..=201;
/// Pages to register in all with one size, between these two bounds.
const BUDGET: usize = 40_000;
/// Number of first rounds that are left out.
const WARM_UP: usize = 3;

/// Returns the pages of size number `index`.
pub(crate) const fn pages(index: usize) -> usize {
    1 << index
}

/// A backend and the name of its figures.
pub(crate) type Named<'a> = (&'static str, &'a mut dyn Backend);

/// Ticks that one backend took to register and to deregister: in the first of its two times in
/// a turn, and in the second.
#[derive(Default)]
struct Samples {
    cold: [Vec<u64>; 2],
    warm: [Vec<u64>; 2],
}

/// Lets every backend register and deregister memory of this kind in all sizes. Adds
/// `lmm.register.NAME.SIZE`, `lmm.deregister.NAME.SIZE` (the medians) and the same with `lmm.min` (the
/// shortest) and `lmm.cold` (the medians of the first of two times in a row).
pub(crate) fn measure(
    backends: &mut [Named<'_>],
    kind: Pages,
    figures: &mut Figures,
) -> Result<(), Failure> {
    for (index, size) in SIZES.into_iter().enumerate() {
        let rounds = (BUDGET / pages(index)).clamp(*ROUNDS.start(), *ROUNDS.end());
        let subject = Subject::new(kind, pages(index))?;
        for (_, backend) in backends.iter_mut() {
            backend.begin(&subject)?;
        }
        let clock = Clock::start();
        let samples = run(backends, subject.range(), rounds, &clock)?;
        for ((name, _), samples) in backends.iter().zip(samples) {
            let phases = ["register", "deregister"];
            for ((what, cold), warm) in phases.into_iter().zip(samples.cold).zip(samples.warm) {
                let (cold, warm) = (times(&clock, &cold, 1), times(&clock, &warm, 1));
                for (kind, value) in [
                    ("lmm", warm.median()),
                    ("lmm.min", warm.quantile(0.0)),
                    ("lmm.cold", cold.median()),
                ] {
                    let name = format!("{kind}.{what}.{name}.{size}");
                    figures.add(name, value, "ns");
                }
            }
        }
    }
    Ok(())
}

fn run(
    backends: &mut [Named<'_>],
    range: Range,
    rounds: usize,
    clock: &Clock,
) -> Result<Vec<Samples>, Failure> {
    let count = backends.len();
    let mut samples: Vec<Samples> = (0..count).map(|_| Samples::default()).collect();
    for round in 0..rounds + WARM_UP {
        for turn in 0..count {
            let number = (turn + round) % count;
            let backend = &mut *backends[number].1;
            backend.prepare(range)?;
            // The previous backend has left caches and TLBs cold, which under an emulator costs more than
            // a small registration.
            let cold = once(backend, range, clock)?;
            let warm = once(backend, range, clock)?;
            backend.clean_up()?;
            if round >= WARM_UP {
                let samples = &mut samples[number];
                for what in 0..2 {
                    samples.cold[what].push(cold[what]);
                    samples.warm[what].push(warm[what]);
                }
            }
        }
    }
    Ok(samples)
}

/// Returns the ticks to register and to deregister.
fn once(backend: &mut dyn Backend, range: Range, clock: &Clock) -> Result<[u64; 2], Failure> {
    let before = clock.ticks();
    backend.register(range)?;
    let between = clock.ticks();
    backend.deregister()?;
    Ok([between - before, clock.ticks() - between])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_gets_its_figures() {
        let mut figures = Figures::default();
        let (mut one, mut other) = (Nothing(0), Nothing(0));
        let both: &mut [Named<'_>] = &mut [("one", &mut one), ("other", &mut other)];
        measure(both, Pages::Private, &mut figures).unwrap();
        assert!(figures.get("lmm.register.one.4k").is_some());
        assert!(figures.get("lmm.min.deregister.other.16m").is_some());
        assert_eq!(one.0, other.0);
    }

    /// Counts its calls.
    struct Nothing(usize);

    impl Backend for Nothing {
        fn register(&mut self, range: Range) -> Result<(), Failure> {
            self.0 += range.count();
            Ok(())
        }

        fn deregister(&mut self) -> Result<(), Failure> {
            self.0 += 1;
            Ok(())
        }
    }
}
