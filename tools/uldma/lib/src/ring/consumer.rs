// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reading end of a ring.

use super::layout::{self, ASLEEP, CLOSED, CONSUMER, FLAGS, HEADER, PRODUCER};
use super::{split, Inbound, Outbound, RingError, Violation};

/// The reading end of a ring: reads records and the peer's producer word in its own segment,
/// writes the consumer word to the peer.
#[derive(Debug)]
pub struct Consumer {
    capacity: u64,
    /// Bytes ever written by the peer, as far as it said, checked.
    produced: u64,
    /// Flags of the peer's producer word, as seen last.
    peer: u64,
    /// Bytes ever read.
    consumed: u64,
    /// Of these, how many the peer was told.
    told: u64,
    /// Flags of the consumer word that the peer sees.
    flags: u64,
    /// Producer word, and what it was told then, that the doorbell was rung for last.
    rung: (u64, u64),
    failed: Option<RingError>,
}

/// A message that was taken out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popped {
    /// Bytes.
    pub length: usize,
    /// The peer sleeps until there is room: ring its doorbell.
    pub wake: bool,
}

impl Consumer {
    /// The end of an empty ring of `capacity` bytes; none when [`layout::is_capacity`] says no.
    pub fn new(capacity: u64) -> Option<Self> {
        layout::is_capacity(capacity).then_some(Self {
            capacity,
            produced: 0,
            peer: 0,
            consumed: 0,
            told: 0,
            flags: 0,
            rung: (0, 0),
            failed: None,
        })
    }

    /// Takes the next message, when there is one, into the start of `target`.
    ///
    /// # Errors
    ///
    /// [`RingError`]; after all but `TooLong` the ring stays unusable. `Closed` comes after the
    /// last message.
    #[inline]
    pub fn pop(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        target: &mut [u8],
    ) -> Result<Option<Popped>, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.produced == self.consumed {
            self.accept(inbound.load(PRODUCER))?;
            if self.produced == self.consumed {
                if self.peer & CLOSED != 0 {
                    return Err(self.fail(RingError::Closed));
                }
                return Ok(None);
            }
        }
        let available = self.produced - self.consumed;
        // The header is read once: what is checked is what is used.
        let (start, _) = split(self.consumed, HEADER, self.capacity);
        let length = inbound.load(start);
        if length > self.capacity || layout::record_size(length) > available {
            return Err(self.fail(RingError::Violation(Violation::Length)));
        }
        let size = layout::record_size(length);
        let length = length as usize;
        let Some(target) = target.get_mut(..length) else {
            return Err(RingError::TooLong {
                length,
                limit: target.len(),
            });
        };
        let payload = self.consumed + HEADER as u64;
        let (start, first) = split(payload, length, self.capacity);
        let (head, tail) = target.split_at_mut(first);
        inbound.read(start, head);
        if !tail.is_empty() {
            inbound.read(layout::DATA, tail);
        }
        self.consumed += size;
        let wake = if self.consumed - self.told >= self.capacity / 4 {
            self.release(inbound, outbound)?
        } else {
            false
        };
        Ok(Some(Popped { length, wake }))
    }

    /// To be called when there is nothing to take: tells a peer that waits for room what was
    /// taken. Returns whether to ring its doorbell.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline]
    pub fn feed(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        if self.peer & layout::HUNGRY == 0 {
            return Ok(false);
        }
        if self.told != self.consumed {
            return self.release(inbound, outbound);
        }
        // It was told, but may have gone to sleep just before that arrived.
        Ok(self.wakes(self.produced | self.peer))
    }

    /// Says that this side is going to sleep until there is a message. Look for one once more
    /// before sleeping; say [`Consumer::awake`] afterwards.
    pub fn sleep(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.tell(outbound, ASLEEP);
        inbound.fence();
    }

    /// Says that this side does not sleep any more.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.flags & ASLEEP != 0 {
            self.tell(outbound, 0);
        }
    }

    /// Says that nothing more will be taken.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.tell(outbound, CLOSED);
        self.failed.get_or_insert(RingError::Closed);
    }

    /// Whether the peer has said that it closed, as far as was seen.
    pub fn peer_closed(&self) -> bool {
        self.peer & CLOSED != 0
    }

    /// Tells what was taken, then looks whether the peer sleeps for want of room.
    fn release(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        self.tell(outbound, self.flags);
        inbound.fence();
        let word = inbound.load(PRODUCER);
        self.accept(word)?;
        Ok(self.wakes(word))
    }

    /// Whether the peer's word asks for a doorbell. One is enough until the peer is told more: it
    /// may sleep again with the same word when the room is still too small for its message.
    fn wakes(&mut self, word: u64) -> bool {
        let wake = word & ASLEEP != 0 && self.rung != (word, self.told);
        if wake {
            self.rung = (word, self.told);
        }
        wake
    }

    #[inline]
    fn tell(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        self.told = self.consumed;
        // Release: whoever sees the index may overwrite what was read.
        outbound.store(CONSUMER, self.consumed | flags);
    }

    /// Checks the peer's producer word and takes it over.
    #[inline]
    fn accept(&mut self, word: u64) -> Result<(), RingError> {
        let index = word & !FLAGS;
        // Not back, and not more than the ring holds beyond what was taken.
        if index < self.produced || index - self.consumed > self.capacity {
            return Err(self.fail(RingError::Violation(Violation::Index)));
        }
        self.produced = index;
        self.peer = word & FLAGS;
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: RingError) -> RingError {
        *self.failed.get_or_insert(error)
    }
}
