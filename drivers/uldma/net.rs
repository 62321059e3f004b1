// SPDX-License-Identifier: GPL-2.0

//! The network interface over the link: `Documentation/uldma/network.rst`.
//!
//! Each peer has a queue: a ring of frames in this node's section, which the peer writes, and one in
//! the peer's section, which this node writes. Packets for one node go through its queue, packets for
//! groups are copied into all of them by queue 0, which never stops. Where both nodes have an adapter, its
//! engine moves large packets from where the stack has them into pages that the receiver has posted.

mod address;
mod counters;
mod engine;
mod frame;
mod interface;
mod moderation;
mod queue;
mod range;
mod receive;
mod reception;
mod ring;
mod transmit;

pub(crate) use interface::Interface;
