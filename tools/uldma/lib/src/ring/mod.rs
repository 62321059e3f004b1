// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings: messages between the nodes over a pair of window segments.
//!
//! Each side writes into the peer's memory and reads its own; no side reads across the link. The
//! layout, the memory ordering and the rules against a hostile peer are in
//! `Documentation/uldma/ring.rst`. This module implements that page, over any memory that has the
//! two halves [`Inbound`] and [`Outbound`]; [`crate::Channel`] runs it over the window. The driver
//! compiles the same files, for the messages between the kernels.

#[path = "../../../../../drivers/uldma/ring/consumer.rs"]
mod consumer;
#[path = "../../../../../drivers/uldma/ring/error.rs"]
mod error;
#[path = "../../../../../drivers/uldma/ring/layout.rs"]
pub mod layout;
#[path = "../../../../../drivers/uldma/ring/memory.rs"]
mod memory;
#[path = "../../../../../drivers/uldma/ring/producer.rs"]
mod producer;

pub use consumer::{Consumer, Popped};
pub use error::{RingError, Violation};
pub use layout::Geometry;
pub use memory::{Inbound, Outbound};
pub use producer::{Producer, Pushed};

/// Version of layout and rules, which both sides of a channel say.
pub(crate) const VERSION: u16 = 3;

impl std::error::Error for Violation {}
