// SPDX-License-Identifier: MIT OR Apache-2.0

//! A clock that is cheap to read.

use crate::wait::ticks::Rate;

/// A running clock. Its readings are in ticks, whose length [`Clock::rate`] returns.
///
/// The rate is taken from the real clock over the whole measurement.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Rate);

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self(Rate::start())
    }

    /// Ticks since the start.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.0.ticks()
    }

    /// Nanoseconds per tick, the more exact the longer the clock has run (a millisecond at least).
    pub fn rate(&self) -> f64 {
        self.0.nanoseconds()
    }
}
