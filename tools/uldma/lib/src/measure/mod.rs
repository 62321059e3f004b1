// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measurements: times, and the link's own round trip.

mod clock;
mod pingpong;

pub use clock::Clock;
