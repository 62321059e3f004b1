// SPDX-License-Identifier: MIT OR Apache-2.0

//! Samples of times, and their quantiles.

use hdrhistogram::Histogram;
use uldma::measure::Clock;

/// Times in nanoseconds, three digits of each.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the arguments are constants that it documents"
        )]
        Self(Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("bounds and digits"))
    }

    /// Returns a quantile in nanoseconds, 0.5 for the median.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        self.0.value_at_quantile(part) as f64
    }

    /// Returns the median in nanoseconds.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Converts ticks of a clock to nanoseconds, each tick count standing for `events` events.
pub(crate) fn times(clock: &Clock, ticks: &[u64], events: u32) -> Times {
    let scale = clock.rate() / f64::from(events.max(1));
    let mut times = Times::new();
    for &sample in ticks {
        // Longer times than an hour count as an hour.
        times
            .0
            .saturating_record((sample as f64 * scale).round() as u64);
    }
    times
}

/// Returns millions of bytes per second.
pub(crate) fn throughput(bytes: u64, nanoseconds: f64) -> f64 {
    bytes as f64 * 1e3 / nanoseconds.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_in_megabytes() {
        assert!((throughput(1_000_000, 1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_in_order() {
        let clock = Clock::start();
        let times = times(&clock, &[1000, 2000, 3000, 4000, 100_000], 1);
        assert!(times.median() <= times.quantile(0.99));
        assert!(times.median() > 0.0);
    }
}
