// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reading end of a ring.

use super::layout::{
    self, ASLEEP, CLOSED, CONSUMER, FLAGS, HEADER, PRODUCER, SLOT, SLOT_DATA, SLOT_SIZE,
};
use super::{split, Inbound, Outbound, RingError, Violation};

/// The reading end of a ring: reads records and the peer's producer word in its own segment,
/// writes the consumer word to the peer.
#[derive(Debug)]
pub struct Consumer {
    capacity: u64,
    /// Bytes ever written by the peer, as published by it; checked.
    produced: u64,
    /// Flags of the peer's producer word when it was last read.
    peer: u64,
    /// Bytes ever read.
    consumed: u64,
    /// Number of consumed bytes that was last published.
    published: u64,
    /// Flags of the published consumer word.
    flags: u64,
    /// Producer word, and the published index at that time, of the last doorbell.
    rung: (u64, u64),
    /// The peer has ended: publish nothing.
    abandoned: bool,
    failed: Option<RingError>,
}

/// A message that was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popped {
    /// Bytes.
    pub length: usize,
    /// The peer sleeps until there is room: ring its doorbell.
    pub wake: bool,
}

impl Consumer {
    /// Creates the consumer of an empty ring of `capacity` bytes; none when [`layout::is_capacity`]
    /// is false.
    pub fn new(capacity: u64) -> Option<Self> {
        layout::is_capacity(capacity).then_some(Self {
            capacity,
            produced: 0,
            peer: 0,
            consumed: 0,
            published: 0,
            flags: 0,
            rung: (0, 0),
            abandoned: false,
            failed: None,
        })
    }

    /// Returns the largest number of bytes of a message.
    pub(super) fn max_message(&self) -> usize {
        self.capacity as usize - layout::HEADER
    }

    /// Returns the bytes ever written by the peer, as published by it.
    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    /// Consumes the next message, if there is one, into the start of `target`.
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
        let Some(length) = self.take(inbound, target)? else {
            return Ok(None);
        };
        let wake = self.release_when_due(inbound, outbound)?;
        Ok(Some(Popped { length, wake }))
    }

    /// Consumes all pending messages, at most `most`. Each is copied to the start of `target` and
    /// passed to `taken`; the peer is notified once for all of them. Returns their number, and
    /// whether to ring the peer's doorbell.
    ///
    /// # Errors
    ///
    /// The [`RingError`] of the first message; an error of a later one is returned by the next
    /// call. After all but `TooLong` the ring stays unusable. `Closed` comes after the last
    /// message.
    pub fn pop_batch(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        target: &mut [u8],
        most: usize,
        mut taken: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), RingError> {
        if self.failed.is_none() && self.produced != self.consumed {
            self.accept(inbound.acquire(PRODUCER))?;
        }
        let mut count = 0;
        // Only messages of one poll, so that a fast peer cannot keep this side here.
        while count < most && (count == 0 || self.produced != self.consumed) {
            match self.take(inbound, target) {
                Ok(Some(length)) => taken(&target[..length]),
                Ok(None) => break,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += 1;
        }
        let wake = self.release_when_due(inbound, outbound)?;
        Ok((count, wake))
    }

    /// Consumes the next message, and publishes nothing.
    #[inline]
    fn take(
        &mut self,
        inbound: &impl Inbound,
        target: &mut [u8],
    ) -> Result<Option<usize>, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.produced == self.consumed {
            self.accept(inbound.acquire(PRODUCER))?;
            if self.produced == self.consumed {
                if self.peer & CLOSED != 0 {
                    return Err(self.fail(RingError::Closed));
                }
                return Ok(None);
            }
        }
        // Lengths are read once: the checked value is the one that is used.
        let slot = inbound
            .load(SLOT)
            .wrapping_sub(layout::slot_base(self.consumed));
        let in_slot = slot <= SLOT_SIZE as u64;
        let length = if in_slot { slot } else { self.header(inbound) };
        let available = self.produced - self.consumed;
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
        if !in_slot {
            self.read(inbound, target);
        } else {
            let mut words = target.chunks_exact_mut(8);
            let mut offset = SLOT_DATA;
            for word in words.by_ref() {
                word.copy_from_slice(&inbound.load(offset).to_le_bytes());
                offset += 8;
            }
            let rest = words.into_remainder();
            if !rest.is_empty() {
                let word = inbound.load(offset).to_le_bytes();
                rest.iter_mut()
                    .zip(word)
                    .for_each(|(target, byte)| *target = byte);
            }
        }
        self.consumed += size;
        Ok(Some(length))
    }

    /// Publishes the consumed index when enough has been consumed. Returns whether to ring the
    /// peer's doorbell.
    #[inline]
    fn release_when_due(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        if self.consumed - self.published < self.capacity / 4 {
            return Ok(false);
        }
        self.release(inbound, outbound)
    }

    /// Returns the length of the next record, from its header in the ring.
    fn header(&self, inbound: &impl Inbound) -> u64 {
        inbound.load(split(self.consumed, HEADER, self.capacity).0)
    }

    /// Copies the payload of the next record.
    fn read(&self, inbound: &impl Inbound, target: &mut [u8]) {
        let payload = self.consumed + HEADER as u64;
        let (start, first) = split(payload, target.len(), self.capacity);
        let (head, tail) = target.split_at_mut(first);
        inbound.read(start, head);
        if !tail.is_empty() {
            inbound.read(layout::DATA, tail);
        }
    }

    /// Returns the index at which the next message will start, if the ring is empty and works, and
    /// consuming a short message does not require publishing the index.
    #[inline(always)]
    pub(super) fn idle_at(&self) -> Option<u64> {
        let idle = self.produced == self.consumed
            && self.consumed - self.published < self.capacity / 8
            && self.failed.is_none();
        idle.then_some(self.consumed)
    }

    /// Returns the peer's word for an empty ring.
    #[inline(always)]
    pub(super) fn idle_word(&self) -> u64 {
        self.produced | self.peer
    }

    /// Notes that one record was seen and consumed.
    #[inline(always)]
    pub(super) fn advance(&mut self, size: u64) {
        self.consumed += size;
        self.produced = self.consumed;
        self.peer = 0;
    }

    /// Publishes the consumed index along with a message to the peer, if it has changed. When it
    /// returns true, [`Consumer::poll_once`] must follow after a fence.
    #[inline]
    pub fn piggyback(&mut self, outbound: &impl Outbound) -> bool {
        let unpublished = self.published != self.consumed;
        if unpublished {
            self.publish_word(outbound, self.flags);
        }
        unpublished
    }

    /// Checks whether the peer sleeps for want of room that has been published. Returns whether to
    /// ring its doorbell.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline]
    pub fn poll_once(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        // The bytes up to this index may be consumed without another poll of the word.
        let word = inbound.acquire(PRODUCER);
        if word & ASLEEP == 0 {
            return Ok(false);
        }
        self.accept(word)?;
        Ok(self.wakes(word))
    }

    /// To be called when the ring is empty: publishes the consumed index if the peer waits for
    /// room. Returns whether to ring its doorbell.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline]
    pub fn notify_room(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        if self.peer & layout::WANTS_ROOM == 0 {
            return Ok(false);
        }
        if self.published != self.consumed {
            return self.release(inbound, outbound);
        }
        // The index was published, but the peer may have gone to sleep just before.
        Ok(self.wakes(self.produced | self.peer))
    }

    /// Publishes that this side goes to sleep until there is a message. Poll once more before
    /// sleeping; call [`Consumer::awake`] afterwards.
    pub fn sleep(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.publish_word(outbound, ASLEEP);
        inbound.fence();
    }

    /// Publishes that this side is awake.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.flags & ASLEEP != 0 {
            self.publish_word(outbound, 0);
        }
    }

    /// Publishes that this side consumes nothing more.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.publish_word(outbound, CLOSED);
        self.failed.get_or_insert(RingError::Closed);
    }

    /// Notes that the peer's memory may be unmapped: it is not written any more. Messages that the
    /// peer sent before can still be consumed.
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Returns true if the peer has published that it closed; reads its word if necessary.
    pub fn peer_closed(&self, inbound: &impl Inbound) -> bool {
        (self.peer | inbound.load(PRODUCER)) & CLOSED != 0
    }

    /// Publishes the consumed index, then checks whether the peer sleeps for want of room.
    fn release(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        self.publish_word(outbound, self.flags);
        inbound.fence();
        self.poll_once(inbound)
    }

    /// Returns true if the peer's word requires a doorbell. One doorbell is enough until a new
    /// index is published: the peer may sleep again with the same word when the room is still too
    /// small for its message.
    fn wakes(&mut self, word: u64) -> bool {
        let wake = word & ASLEEP != 0 && self.rung != (word, self.published);
        if wake {
            self.rung = (word, self.published);
        }
        wake
    }

    #[inline]
    fn publish_word(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        self.published = self.consumed;
        if !self.abandoned {
            // From this store on the peer may overwrite the consumed bytes.
            outbound.publish(CONSUMER, self.consumed | flags);
        }
    }

    /// Checks the peer's producer word and stores it.
    #[inline]
    fn accept(&mut self, word: u64) -> Result<(), RingError> {
        let index = word & !FLAGS;
        // The index must not go back, nor exceed the ring's capacity beyond the consumed index.
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
