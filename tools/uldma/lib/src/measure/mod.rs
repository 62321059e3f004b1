// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measurements: system calls, times, and the link's own round trip.

mod clock;
mod pingpong;
mod tracer;

pub use clock::Clock;
pub use tracer::{tracer_main, SyscallCount, Tracer, Watched};
