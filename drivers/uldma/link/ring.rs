// SPDX-License-Identifier: GPL-2.0

//! The two rings of messages between this node and a peer: one in the section of each.

use core::cell::Cell;

use kernel::prelude::*;

use super::{
    area::{
        at,
        ring_of, //
    },
    message::{
        self,
        Message, //
    }, //
};
use crate::{
    hw::{
        le::Le,
        Hw, //
    },
    kernel_ext::{
        errno::eproto,
        window, //
    },
    ring::{
        Consumer,
        Inbound,
        Outbound,
        Popped,
        Producer,
        Pushed,
        RingError, //
    }, //
};

/// The lanes of this node and a peer, of which each begins with a ring.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a> {
    pub(super) hw: Hw<'a>,
    pub(super) peer: u32,
}

impl<'a> Channel<'a> {
    fn memory(&self) -> Result<Memory<'a>> {
        let geometry = self.hw.geometry();
        Ok(Memory {
            hw: self.hw,
            peer: self.peer,
            inbound: geometry.inbound(self.peer)?.start + at::RING.offset(),
            outbound: geometry.outbound(self.peer)?.start + at::RING.offset(),
            failure: Cell::new(Ok(())),
        })
    }
}

/// The memory of both rings, during one operation.
///
/// An access fails only if the device has left the bus. It loads zero then, and the operation fails.
struct Memory<'a> {
    hw: Hw<'a>,
    peer: u32,
    /// Byte offset in the own section of the ring that the peer writes.
    inbound: usize,
    /// Byte offset in the section of the peer of the ring that this node writes.
    outbound: usize,
    failure: Cell<Result>,
}

impl Memory<'_> {
    fn note(&self, result: Result) {
        if result.is_err() {
            self.failure.set(result);
        }
    }

    /// Returns the result of an operation, whose errors are those of the peer, after which this node
    /// ends the session.
    fn end<T>(self, result: Result<T, RingError>) -> Result<T> {
        self.failure.get()?;
        result.map_err(|_| eproto())
    }
}

impl Inbound for Memory<'_> {
    fn load(&self, offset: usize) -> u64 {
        match self.hw.read_window(self.inbound + offset) {
            Ok(word) => word.get(),
            Err(err) => {
                self.failure.set(Err(err));
                0
            }
        }
    }

    fn acquire(&self, offset: usize) -> u64 {
        self.load(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (number, part) in target.chunks_mut(size_of::<u64>()).enumerate() {
            let word = self.load(offset + number * size_of::<u64>()).to_le_bytes();
            if let Some(word) = word.get(..part.len()) {
                part.copy_from_slice(word);
            }
        }
    }

    fn fence(&self) {
        window::full_fence();
    }
}

impl Outbound for Memory<'_> {
    fn store(&self, offset: usize, value: u64) {
        let offset = self.outbound + offset;
        self.note(self.hw.write_window(self.peer, offset, Le::new(value)));
    }

    fn publish(&self, offset: usize, value: u64) {
        let offset = self.outbound + offset;
        self.note(self.hw.publish_window(self.peer, offset, Le::new(value)));
    }

    fn release(&self, offset: usize, value: u64) {
        window::full_fence();
        self.publish(offset, value);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (number, part) in source.chunks(size_of::<u64>()).enumerate() {
            let word = <[u8; size_of::<u64>()]>::try_from(part).unwrap_or_else(|_| padded(part));
            self.store(offset + number * size_of::<u64>(), u64::from_le_bytes(word));
        }
    }
}

/// Returns the last bytes of a message as a whole word.
fn padded(part: &[u8]) -> [u8; size_of::<u64>()] {
    let mut word = [0; size_of::<u64>()];
    for (to, byte) in word.iter_mut().zip(part) {
        *to = *byte;
    }
    word
}

/// The ends of this node of the two rings.
pub(super) struct Rings {
    producer: Producer,
    consumer: Consumer,
}

impl Rings {
    /// Begins both rings: the own one of `own_slots` messages, and that of the peer of `slots`.
    ///
    /// The writer of a ring clears it, before it echoes the session of the reader: so the reader, which
    /// waits for the echo, finds nothing of earlier sessions.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a ring that cannot be, `ENODEV` if the device has left the bus.
    pub(super) fn begin(channel: &Channel<'_>, own_slots: u32, slots: u32) -> Result<Self> {
        let memory = channel.memory()?;
        let producer = Producer::new(ring_of(slots)?);
        producer.clear(&memory);
        let mut consumer = Consumer::new(ring_of(own_slots)?);
        // The node needs doorbells until the progress worker runs.
        consumer.sleep(&memory, &memory);
        memory.end(Ok(Self { producer, consumer }))
    }

    /// Puts a message with the `turnaround` of this node into the peer's ring. Returns true if the peer
    /// needs a doorbell.
    ///
    /// # Errors
    ///
    /// `EBUSY` while the ring is full, `EPROTO` if the peer violates the protocol.
    pub(super) fn put(
        &mut self,
        channel: &Channel<'_>,
        message: &Message,
        turnaround: u64,
    ) -> Result<bool> {
        let memory = channel.memory()?;
        let (bytes, length) = message::to_bytes(message, turnaround);
        let bytes = bytes.get(..length).ok_or(EINVAL)?;
        let mut pushed = self.producer.push(&memory, &memory, bytes);
        if pushed == Ok(Pushed::Full) {
            // The peer rings once there is room.
            self.producer.sleep(&memory, &memory);
            pushed = self.producer.push(&memory, &memory, bytes);
        }
        match memory.end(pushed)? {
            Pushed::Done { wake } => Ok(wake),
            Pushed::Full => Err(EBUSY),
        }
    }

    /// Returns true if a message is pending, and if the peer needs a doorbell since it waits for room.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer violates the protocol.
    pub(super) fn has_message(&mut self, channel: &Channel<'_>) -> Result<(bool, bool)> {
        let memory = channel.memory()?;
        let peeked = self.consumer.peek(&memory, &memory);
        let Popped { length, wake } = memory.end(peeked)?;
        Ok((length.is_some(), wake))
    }

    /// Takes the next message from the own ring, with the turnaround that it tells. The second value is
    /// true if the peer needs a doorbell since it waits for room.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer violates the protocol.
    pub(super) fn take(&mut self, channel: &Channel<'_>) -> Result<(Option<(Message, u64)>, bool)> {
        let memory = channel.memory()?;
        let mut bytes = [0; message::BYTES];
        let popped = self.consumer.pop(&memory, &memory, &mut bytes);
        let Popped { length, wake } = memory.end(popped)?;
        let message = match length {
            Some(length) => Some(message::from_bytes(&bytes, length)?),
            None => None,
        };
        Ok((message, wake))
    }

    /// Returns true if the peer knows that this node needs doorbells.
    pub(super) fn is_asleep(&self) -> bool {
        self.consumer.is_asleep()
    }

    /// Returns true if the peer needs doorbells, and has taken all messages.
    pub(super) fn peer_is_idle(&mut self, channel: &Channel<'_>) -> Result<bool> {
        let memory = channel.memory()?;
        let is_idle = self.producer.peer_is_idle(&memory);
        memory.end(Ok(is_idle))
    }

    /// Tells the peer whether this node needs doorbells. The peer may have sent a message just
    /// before.
    pub(super) fn set_asleep(&mut self, channel: &Channel<'_>, asleep: bool) -> Result {
        let memory = channel.memory()?;
        if asleep {
            self.consumer.sleep(&memory, &memory);
        } else {
            self.consumer.awake(&memory);
        }
        memory.end(Ok(()))
    }
}
