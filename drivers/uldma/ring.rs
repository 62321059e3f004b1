// SPDX-License-Identifier: GPL-2.0

//! Rings of messages between two nodes, over any memory that has the two halves [`Inbound`] and
//! [`Outbound`].
//!
//! `Documentation/uldma/ring.rst` has layout, memory ordering and the rules against a hostile peer.
//! The files of this folder are compiled into the library (`tools/uldma/lib`), too, which has the
//! tests of them: models of all interleavings, and a peer that writes anything at any time. So they
//! use nothing but `core`.

// The library exports these items, of which the driver uses a part: it takes no batches and no short
// messages, closes no ring, and chooses rings by their lines.
#[expect(dead_code, unreachable_pub, reason = "of the library")]
mod consumer;
#[expect(dead_code, unreachable_pub, reason = "of the library")]
mod error;
#[expect(dead_code, unreachable_pub, reason = "of the library")]
mod layout;
#[expect(unreachable_pub, reason = "of the library")]
mod memory;
#[expect(dead_code, unreachable_pub, reason = "of the library")]
mod producer;

pub(crate) use consumer::{
    Consumer,
    Popped, //
};
pub(crate) use error::{
    RingError,
    Violation, //
};
pub(crate) use layout::Geometry;
pub(crate) use memory::{
    Inbound,
    Outbound, //
};
pub(crate) use producer::{
    Producer,
    Pushed, //
};
