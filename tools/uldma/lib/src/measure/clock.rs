// SPDX-License-Identifier: MIT OR Apache-2.0

//! A clock that costs next to nothing to read.
//!
//! In a guest, clock_gettime() may be a real system call that goes on to an emulated timer, which
//! costs more than what is to be measured. So on x86 the time-stamp counter is read, and its rate
//! taken from the real clock over the whole measurement.

use std::time::Instant;

/// Readings of a running clock, in ticks of unknown length until [`Clock::rate`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    first: u64,
}

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        let started = Instant::now();
        Self {
            started,
            first: raw(started),
        }
    }

    /// Ticks since the start.
    #[inline]
    pub fn ticks(&self) -> u64 {
        raw(self.started).wrapping_sub(self.first)
    }

    /// Nanoseconds per tick, the more exact the longer the clock has run (a millisecond at least).
    pub fn rate(&self) -> f64 {
        let mut elapsed = self.started.elapsed();
        while elapsed.as_micros() < 1000 {
            std::hint::spin_loop();
            elapsed = self.started.elapsed();
        }
        elapsed.as_nanos() as f64 / self.ticks().max(1) as f64
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn raw(_started: Instant) -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets processes use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn raw(started: Instant) -> u64 {
    started.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ticks_agree_with_the_real_clock() {
        let clock = Clock::start();
        std::thread::sleep(Duration::from_millis(20));
        let nanoseconds = clock.ticks() as f64 * clock.rate();
        assert!(nanoseconds > 15e6 && nanoseconds < 5e9, "{nanoseconds}");
    }
}
