// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `uldma run` reports of the program's sockets.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::schema::SCHEMA_VERSION;

/// Counters of all sockets.
#[derive(Debug, Default)]
pub(super) struct Totals {
    connected: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    rings: AtomicU64,
    reset: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema_version: u32,
    /// Connections to peers that the program has made.
    connected: u64,
    /// Connections of peers to ports at which the program has listened.
    accepted: u64,
    /// Calls and connections that were refused.
    refused: u64,
    /// Connections whose data the programs copied through rings.
    rings: u64,
    /// Connections that were cut off.
    reset: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// Exit code of the program; 128 and the signal that has ended it.
    exit_code: i32,
}

fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}

impl Totals {
    pub(super) fn connected(&self) {
        add(&self.connected, 1);
    }

    pub(super) fn accepted(&self) {
        add(&self.accepted, 1);
    }

    pub(super) fn refused(&self) {
        add(&self.refused, 1);
    }

    pub(super) fn by_ring(&self) {
        add(&self.rings, 1);
    }

    pub(super) fn sent(&self, bytes: usize) {
        add(&self.bytes_sent, bytes);
    }

    pub(super) fn received(&self, bytes: usize) {
        add(&self.bytes_received, bytes);
    }

    /// Counts the end of a connection.
    pub(super) fn ended(&self, is_whole: bool) {
        add(&self.reset, usize::from(!is_whole));
    }

    pub(super) fn report(&self, exit_code: i32) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Report {
            schema_version: SCHEMA_VERSION,
            connected: read(&self.connected),
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            rings: read(&self.rings),
            reset: read(&self.reset),
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
            exit_code,
        }
    }
}
