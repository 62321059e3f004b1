// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measurements: times, numbers of system calls, the link's own round trip, and what page exchange takes.

mod clock;
mod exchange;
pub mod pcic;
mod pingpong;

pub use crate::sys::{calls, count_call};
pub use clock::Clock;
pub use exchange::{ExchangeCost, ExchangeCosts};
