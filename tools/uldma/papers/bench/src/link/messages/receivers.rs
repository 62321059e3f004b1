// SPDX-License-Identifier: MIT OR Apache-2.0

//! How an end receives: each technique through the calls that it has in the library.

use std::ops::DerefMut;
use std::time::Duration;

use uldma::message::BufferedReceiver;
use uldma::{Buffer, Device, Error, MessageConnection, ReceiveTechnique};

use super::senders::PAGE;
use crate::failure::Failure;
use crate::link::way::Receiving;

/// One way to receive messages of one size.
pub(super) trait Receiver {
    /// Posts memory for all messages that may come.
    fn prepost(&mut self, _connection: &mut MessageConnection) -> Result<(), Failure> {
        Ok(())
    }

    /// Waits for a message, and posts memory for another one.
    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure>;
}

/// Returns the receiver of messages of `size` bytes, with memory for `depth` of them. The connection
/// is over `device`.
pub(super) fn receiver(
    receiving: Receiving,
    device: &Device,
    (size, depth): (usize, usize),
) -> Result<Box<dyn Receiver>, Failure> {
    Ok(match receiving {
        Receiving::Null => Box::new(Null),
        Receiving::Technique(ReceiveTechnique::V2pDma) => Box::new(Posted::new(size, depth)?),
        Receiving::Technique(ReceiveTechnique::PexDma) => {
            Box::new(Classical(device.exchangeable(size)?))
        }
        Receiving::Technique(ReceiveTechnique::DirectDma) => Box::new(Placed(size)),
        Receiving::Technique(_) => Box::new(Classical(Buffer::new(size)?)),
        Receiving::Buffered => Box::new(Buffered(
            Buffer::new(size)?,
            BufferedReceiver::new(size, depth)?,
        )),
    })
}

/// Checks the length of a message.
fn check(length: usize, size: usize) -> Result<(), Failure> {
    if length == size {
        return Ok(());
    }
    Err(Failure::Peer(format!("sent {length} bytes for {size}")))
}

/// Slots that are posted again as they are.
struct Null;

impl Receiver for Null {
    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        // The library copies what the target has room for, and posts the slots again.
        match connection.receive(&mut [], timeout) {
            Ok(_) | Err(Error::TooLong { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Techniques with the classical semantics: a message can arrive before the call.
struct Classical<T>(T);

impl<T: DerefMut<Target = [u8]>> Receiver for Classical<T> {
    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let length = connection.receive(&mut self.0, timeout)?;
        // A page that was exchanged is mapped when the program reads it.
        for byte in self.0.iter().step_by(PAGE) {
            std::hint::black_box(*byte);
        }
        check(length, self.0.len())
    }
}

/// Buffers that are posted, and pinned, for each message.
struct Posted {
    free: Vec<Buffer>,
    size: usize,
}

impl Posted {
    fn new(size: usize, depth: usize) -> Result<Self, Failure> {
        let free: uldma::Result<_> = (0..depth).map(|_| Buffer::new(size)).collect();
        Ok(Self { free: free?, size })
    }
}

impl Receiver for Posted {
    fn prepost(&mut self, connection: &mut MessageConnection) -> Result<(), Failure> {
        while let Some(buffer) = self.free.pop() {
            connection.post(buffer)?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let (buffer, length) = connection.receive_buffer(timeout)?;
        check(length, self.size)?;
        Ok(connection.post(buffer)?)
    }
}

/// The layer that gives classical semantics over `V2P_DMA`.
struct Buffered(Buffer, BufferedReceiver);

impl Receiver for Buffered {
    fn prepost(&mut self, connection: &mut MessageConnection) -> Result<(), Failure> {
        Ok(self.1.post(connection)?)
    }

    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let length = self.1.receive(connection, &mut self.0, timeout)?;
        check(length, self.0.len())
    }
}

/// Memory into which the sender puts messages of so many bytes.
struct Placed(usize);

impl Receiver for Placed {
    fn receive(
        &mut self,
        connection: &mut MessageConnection,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let put = connection.receive_put(timeout)?;
        if let Some(memory) = connection.inbound() {
            // As other receivers, a byte of each page.
            for offset in (put.offset..put.offset + put.length).step_by(PAGE) {
                let mut byte = [0];
                memory.read(offset, &mut byte)?;
                std::hint::black_box(byte);
            }
        }
        check(usize::try_from(put.length).unwrap_or(usize::MAX), self.0)
    }
}
