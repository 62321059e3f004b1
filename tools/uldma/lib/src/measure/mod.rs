// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measurements: times, the link's own round trip, and what page exchange takes.

mod clock;
mod exchange;
pub mod pcic;
mod pingpong;

pub use clock::Clock;
pub use exchange::{ExchangeCost, ExchangeCosts};
