// SPDX-License-Identifier: MIT OR Apache-2.0

//! Server for `ivshmem-doorbell` devices of QEMU: it sends each client an ID, the shared memory,
//! and the eventfds by which clients interrupt each other.
//!
//! The protocol is QEMU's (`docs/specs/ivshmem-spec.rst` there), except that [`Server`] does not
//! report clients that leave: memory and eventfds stay the same when clients come and go.

#![forbid(unsafe_code)]

mod message;
mod server;

pub use server::{Server, MAX_NODES, MAX_VECTORS};
