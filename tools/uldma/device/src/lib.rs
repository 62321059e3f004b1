// SPDX-License-Identifier: MIT OR Apache-2.0

//! Model of the uldma PCI device: a user-level DMA adapter with one function per node and links
//! between them, served over vfio-user.
//!
//! `Documentation/uldma/device.rst` is its programming manual. The state machines are plain types
//! without threads or files: [`method`], [`location`], [`tpt`], [`check`], [`walk`], [`context`],
//! [`transfer`], [`queue`], [`engine`], [`link`], [`doorbell`], [`registers`], [`config`], combined in
//! [`model`]. [`tlb`] only counts.
//! The running device around them is in [`memory`], [`irq`], [`device`], [`wire`], [`backend`],
//! [`control`], [`ratelimit`] and [`socket`].

#![forbid(unsafe_code)]

pub mod abi;
mod access;
pub mod atomic;
pub mod backend;
pub mod check;
pub mod completion;
pub mod config;
pub mod context;
mod context_page;
pub mod control;
pub mod device;
mod dispatch;
pub mod doorbell;
pub mod endpoint;
pub mod engine;
pub mod fault;
mod flight;
mod initiate;
mod invalidation;
pub mod irq;
#[path = "../../../../drivers/uldma/hw/layout.rs"]
pub mod layout;
pub mod link;
pub mod location;
pub mod memory;
pub mod method;
pub mod methods;
pub mod model;
pub mod node;
pub mod page_request;
mod page_wait;
pub mod poll;
pub mod queue;
pub mod ratelimit;
mod reception;
pub mod registers;
pub mod shadow;
pub mod socket;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod tlb;
pub mod touch;
pub mod tpt;
pub mod transfer;
pub mod walk;
pub mod wire;
