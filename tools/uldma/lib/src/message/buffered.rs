// SPDX-License-Identifier: MIT OR Apache-2.0

//! A layer with the classical semantics over `V2P_DMA`: the program's memory is its own whenever no
//! call runs, and nothing has to be posted. It costs the copies that the technique saves.

use std::collections::VecDeque;
use std::time::Duration;

use super::{MessageConnection, SentBuffer};
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;

/// Sends by `V2P_DMA` from buffers of its own.
#[derive(Debug)]
pub struct BufferedSender {
    /// Messages in flight at most.
    depth: usize,
    free: Vec<Buffer>,
    in_flight: VecDeque<SentBuffer>,
}

impl BufferedSender {
    /// A layer that has up to `depth` messages in flight, and one at least.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self {
            depth: depth.max(1),
            free: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    /// Sends `message`, whose bytes may be changed when this returns, before the device has read them.
    /// With as many messages in flight as there may be, waits until the device has read the oldest.
    ///
    /// # Errors
    ///
    /// Those of [`MessageConnection::send_buffer`] and, of an earlier message, of
    /// [`MessageConnection::reclaim`].
    pub fn send(
        &mut self,
        connection: &mut MessageConnection,
        message: &[u8],
        timeout: Duration,
    ) -> Result<()> {
        if message.is_empty() {
            // There is nothing to be pinned.
            return connection.send(message, timeout);
        }
        if self.in_flight.len() >= self.depth {
            self.reclaim_oldest(connection, timeout)?;
        }
        let fits = |buffer: &Buffer| buffer.len() == message.len();
        let mut buffer = match self.free.pop().filter(fits) {
            Some(buffer) => buffer,
            None => Buffer::new(message.len())?,
        };
        buffer.copy_from_slice(message);
        self.in_flight
            .push_back(connection.send_buffer(buffer, timeout)?);
        Ok(())
    }

    /// Waits until the device has read all messages.
    ///
    /// # Errors
    ///
    /// Those of [`MessageConnection::reclaim`].
    pub fn finish(&mut self, connection: &mut MessageConnection, timeout: Duration) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.reclaim_oldest(connection, timeout)?;
        }
        Ok(())
    }

    fn reclaim_oldest(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<()> {
        if let Some(oldest) = self.in_flight.pop_front() {
            self.free.push(connection.reclaim(oldest, timeout)?);
        }
        Ok(())
    }
}

/// Receives by `V2P_DMA` into buffers of its own, which are always posted.
#[derive(Debug)]
pub struct BufferedReceiver {
    /// Buffers that are not posted yet.
    free: Vec<Buffer>,
}

impl BufferedReceiver {
    /// A layer with `depth` buffers of `length` bytes, each for one message.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM, or EINVAL for no bytes at all.
    pub fn new(length: usize, depth: usize) -> Result<Self> {
        let free: Result<_> = (0..depth).map(|_| Buffer::new(length)).collect();
        Ok(Self { free: free? })
    }

    /// Posts the buffers, so that as many messages can come before the first is received. Receiving
    /// does that, too.
    ///
    /// # Errors
    ///
    /// Those of [`MessageConnection::post`].
    pub fn post(&mut self, connection: &mut MessageConnection) -> Result<()> {
        while let Some(buffer) = self.free.pop() {
            connection.post(buffer)?;
        }
        Ok(())
    }

    /// Waits for a message, and copies it to `target`. Returns its length.
    ///
    /// # Errors
    ///
    /// Those of [`MessageConnection::receive_buffer`] and [`MessageConnection::post`];
    /// [`Error::TooLong`] when `target` is too short (the message is discarded).
    pub fn receive(
        &mut self,
        connection: &mut MessageConnection,
        target: &mut [u8],
        timeout: Duration,
    ) -> Result<usize> {
        self.post(connection)?;
        let (buffer, length) = connection.receive_buffer(timeout)?;
        let limit = target.len();
        let copied = match (target.get_mut(..length), buffer.get(..length)) {
            (Some(target), Some(message)) => {
                target.copy_from_slice(message);
                Ok(length)
            }
            _ => Err(Error::TooLong { length, limit }),
        };
        self.free.push(buffer);
        self.post(connection)?;
        copied
    }
}
