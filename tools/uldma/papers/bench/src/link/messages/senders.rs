// SPDX-License-Identifier: MIT OR Apache-2.0

//! How an end sends: each technique through the calls that it has in the library.

use std::collections::VecDeque;
use std::time::Duration;

use uldma::message::{BufferedSender, Sent, SentBuffer};
use uldma::{Access, Buffer, Device, ExchangeBuffer, MessageConnection, Region, SendTechnique};

use super::places::Places;
use crate::failure::Failure;
use crate::link::way::Sending;

/// Bytes of a page of the nodes.
pub(super) const PAGE: usize = 4096;

/// One way to send messages of one size.
pub(super) trait Sender {
    /// Sends a message, as soon as memory for it is free.
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure>;

    /// Waits until all messages were sent.
    fn finish(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        Ok(connection.flush(timeout)?)
    }
}

/// Returns the sender of messages of `size` bytes, with memory for `depth` of them. The connection is
/// over `device`.
pub(super) fn sender(
    sending: Sending,
    connection: &MessageConnection,
    device: &Device,
    (size, depth): (usize, usize),
) -> Result<Box<dyn Sender>, Failure> {
    let places = Places::new(connection, size);
    Ok(match sending {
        Sending::Generator => Box::new(Direct::new(connection, size, (1, depth))?),
        Sending::Technique(SendTechnique::DirectDma) => {
            Box::new(Direct::new(connection, size, (depth, depth))?)
        }
        // Only memory that its caller keeps can be put.
        Sending::Technique(SendTechnique::V2pDma) if places.is_empty() => {
            Box::new(Pinned::new(size, depth, false)?)
        }
        Sending::Cached => Box::new(Pinned::new(size, depth, true)?),
        Sending::Technique(SendTechnique::PexDma) => {
            Box::new(Exchanged::new(device, places, (size, depth), false)?)
        }
        Sending::Overwritten => Box::new(Exchanged::new(device, places, (size, depth), true)?),
        Sending::Technique(_) => Box::new(Classical(filled(size)?, places)),
        Sending::Buffered => Box::new(Buffered(filled(size)?, BufferedSender::new(depth))),
    })
}

/// Returns memory that has been written to.
fn filled(size: usize) -> Result<Buffer, Failure> {
    let mut buffer = Buffer::new(size)?;
    buffer.fill(0xa5);
    Ok(buffer)
}

/// Techniques with the classical semantics: the message may be changed when the call returns.
struct Classical(Buffer, Places);

impl Sender for Classical {
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        self.1.send(connection, &self.0, timeout)
    }
}

/// Buffers of exchangeable memory, in turns.
struct Exchanged {
    places: Places,
    buffers: Vec<ExchangeBuffer>,
    next: usize,
    /// Each page is written to while it may be sent.
    overwrites: bool,
}

impl Exchanged {
    fn new(
        device: &Device,
        places: Places,
        (size, depth): (usize, usize),
        overwrites: bool,
    ) -> Result<Self, Failure> {
        let mut buffers = Vec::with_capacity(depth);
        for _ in 0..depth {
            let mut buffer = device.exchangeable(size)?;
            buffer.fill(0xa5);
            buffers.push(buffer);
        }
        Ok(Self {
            places,
            buffers,
            next: 0,
            overwrites,
        })
    }
}

impl Sender for Exchanged {
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let count = self.buffers.len().max(1);
        if let Some(buffer) = self.buffers.get_mut(self.next % count) {
            self.places.send(connection, buffer, timeout)?;
            if self.overwrites {
                for byte in buffer.iter_mut().step_by(PAGE) {
                    *byte = byte.wrapping_add(1);
                }
            }
        }
        self.next += 1;
        Ok(())
    }
}

/// Places in registered memory, in turns.
struct Direct {
    targets: Places,
    region: Region,
    size: u64,
    places: u64,
    /// Messages in flight at most.
    depth: usize,
    next: u64,
    under_way: VecDeque<Sent>,
}

impl Direct {
    fn new(
        connection: &MessageConnection,
        size: usize,
        (places, depth): (usize, usize),
    ) -> Result<Self, Failure> {
        let device = connection.device();
        Ok(Self {
            targets: Places::new(connection, size),
            region: device.register(filled(size * places)?, Access::Read)?,
            size: size as u64,
            places: places as u64,
            depth,
            next: 0,
            under_way: VecDeque::with_capacity(depth),
        })
    }
}

impl Sender for Direct {
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        if self.under_way.len() == self.depth {
            // Half of them at a time, so that the sender sleeps seldom and the device always has
            // work. The last one of the half ends last.
            let half = self.under_way.drain(..self.depth.div_ceil(2));
            for sent in half.rev() {
                connection.wait_sent(&sent, timeout)?;
            }
        }
        let start = self.next % self.places * self.size;
        let part = start..start + self.size;
        let sent = self
            .targets
            .start(connection, &self.region, part, timeout)?;
        self.under_way.push_back(sent);
        self.next += 1;
        Ok(())
    }

    fn finish(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        while let Some(oldest) = self.under_way.pop_front() {
            connection.wait_sent(&oldest, timeout)?;
        }
        Ok(())
    }
}

/// Buffers that are pinned for each message, or by the first one, with the pin cache.
struct Pinned {
    free: Vec<Buffer>,
    under_way: VecDeque<SentBuffer>,
    is_cached: bool,
    /// The cache is on. It is the whole process's, so only while messages are sent.
    is_on: bool,
}

impl Pinned {
    fn new(size: usize, depth: usize, is_cached: bool) -> Result<Self, Failure> {
        let free: Result<_, Failure> = (0..depth).map(|_| filled(size)).collect();
        Ok(Self {
            free: free?,
            under_way: VecDeque::with_capacity(depth),
            is_cached,
            is_on: false,
        })
    }

    /// Returns a buffer that the device does not read any more.
    fn take(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<Buffer, Failure> {
        if let Some(buffer) = self.free.pop() {
            return Ok(buffer);
        }
        let oldest = self.under_way.pop_front();
        let oldest = oldest.ok_or_else(|| Failure::Peer("has no buffer in flight".into()))?;
        Ok(connection.reclaim(oldest, timeout)?)
    }
}

impl Sender for Pinned {
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        if self.is_cached && !self.is_on {
            connection.device().set_pin_cache(true)?;
            self.is_on = true;
        }
        let buffer = self.take(connection, timeout)?;
        self.under_way
            .push_back(connection.send_buffer(buffer, timeout)?);
        Ok(())
    }

    fn finish(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        while let Some(oldest) = self.under_way.pop_front() {
            self.free.push(connection.reclaim(oldest, timeout)?);
        }
        if core::mem::take(&mut self.is_on) {
            connection.device().set_pin_cache(false)?;
        }
        Ok(())
    }
}

/// The layer that gives classical semantics over `V2P_DMA`.
struct Buffered(Buffer, BufferedSender);

impl Sender for Buffered {
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        Ok(self.1.send(connection, &self.0, timeout)?)
    }

    fn finish(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        Ok(self.1.finish(connection, timeout)?)
    }
}
