// SPDX-License-Identifier: MIT OR Apache-2.0

//! Places in the memory of receivers by `DIRECT_DMA`, which their senders name in turns.

use std::ops::Range;
use std::time::Duration;

use uldma::message::{PutArea, Sent};
use uldma::{MessageConnection, Region};

use crate::failure::Failure;

/// Places of the peer for messages of one size; none where the peer takes messages.
pub(super) struct Places {
    area: Option<PutArea>,
    size: u64,
    next: u64,
}

impl Places {
    pub(super) fn new(connection: &MessageConnection, size: usize) -> Self {
        Self {
            area: connection.outbound(),
            size: size as u64,
            next: 0,
        }
    }

    /// Returns true if the peer takes messages.
    pub(super) fn is_empty(&self) -> bool {
        self.area.is_none()
    }

    /// Returns the offset of the next place. The peer has as many as puts may be under way.
    fn take(&mut self) -> Option<u64> {
        let puts = u64::from(self.area?.puts).max(1);
        let offset = self.next % puts * self.size;
        self.next += 1;
        Some(offset)
    }

    /// Puts a message at the next place, or sends it.
    pub(super) fn send(
        &mut self,
        connection: &mut MessageConnection,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), Failure> {
        Ok(match self.take() {
            Some(offset) => connection.put(message, offset, timeout),
            None => connection.send(message, timeout),
        }?)
    }

    /// The same from registered memory.
    pub(super) fn start(
        &mut self,
        connection: &mut MessageConnection,
        region: &Region,
        part: Range<u64>,
        timeout: Duration,
    ) -> Result<Sent, Failure> {
        Ok(match self.take() {
            Some(offset) => connection.start_put(region, part, offset, timeout),
            None => connection.start(region, part, timeout),
        }?)
    }
}
