// SPDX-License-Identifier: MIT OR Apache-2.0

//! Server for `ivshmem-doorbell` devices of QEMU: it gives each client an ID, the memory that all
//! share, and the eventfds by which they interrupt each other.
//!
//! The protocol is QEMU's (`docs/specs/ivshmem-spec.rst` there). [`Server`] speaks it, but says
//! nothing of clients that leave: memory and eventfds stay as they are whoever comes and goes.

#![forbid(unsafe_code)]

mod message;
mod server;

pub use server::{Server, MAX_NODES, MAX_VECTORS};
