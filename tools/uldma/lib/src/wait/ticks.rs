// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time in units that cost next to nothing to read.
//!
//! In a guest, clock_gettime() may be a real system call that reads an emulated timer, which takes
//! longer than the operations to measure. So on x86 the time-stamp counter is read.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time now, in ticks of constant but unknown length.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets processes use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The time now, in ticks of constant but unknown length: nanoseconds here.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks since `start`; none where the counter went back, as it can from one processor to another.
#[inline]
pub(crate) fn since(start: u64) -> u64 {
    now().saturating_sub(start)
}

/// A running comparison of ticks with the real clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    started: Instant,
    first: u64,
}

impl Rate {
    /// Shorter comparisons are inexact.
    const LEAST: Duration = Duration::from_millis(1);

    /// Starts to compare.
    pub(crate) fn start() -> Self {
        let started = Instant::now();
        let first = now();
        Self { started, first }
    }

    /// Ticks since the start.
    #[inline]
    pub(crate) fn ticks(&self) -> u64 {
        since(self.first)
    }

    /// Nanoseconds per tick, the more exact the longer it runs (a millisecond at least).
    pub(crate) fn nanoseconds(&self) -> f64 {
        let mut elapsed = self.started.elapsed();
        while elapsed < Self::LEAST {
            std::hint::spin_loop();
            elapsed = self.started.elapsed();
        }
        elapsed.as_nanos() as f64 / self.ticks().max(1) as f64
    }
}

/// About as many ticks as `time` has.
pub(crate) fn of(time: Duration) -> u64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    let nanoseconds = RATE.get_or_init(|| Rate::start().nanoseconds());
    (time.as_nanos() as f64 / nanoseconds) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_agree_with_the_real_clock() {
        let rate = Rate::start();
        std::thread::sleep(Duration::from_millis(20));
        let nanoseconds = rate.ticks() as f64 * rate.nanoseconds();
        assert!(nanoseconds > 15e6 && nanoseconds < 5e9, "{nanoseconds}");
    }

    #[test]
    fn a_duration_is_as_many_ticks_as_it_lasts() {
        let expected = of(Duration::from_millis(20));
        let start = now();
        std::thread::sleep(Duration::from_millis(20));
        assert!(since(start) > expected / 2, "{expected}");
        assert_eq!(of(Duration::ZERO), 0);
    }
}
