// SPDX-License-Identifier: MIT OR Apache-2.0

//! How long to wait: polling, what sleeping costs, deadlines, retries.

#[path = "../../../../drivers/uldma/link/adaptive_poll.rs"]
mod adaptive_poll;
pub(crate) mod deadline;
pub(crate) mod retry;
pub(crate) mod spin;
pub(crate) mod ticks;
pub(crate) mod wakeup;
