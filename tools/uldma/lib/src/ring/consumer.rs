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
    /// Nobody listens any more: tell nothing.
    abandoned: bool,
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
            abandoned: false,
            failed: None,
        })
    }

    /// Bytes ever written by the peer, as far as it said.
    pub(super) fn produced(&self) -> u64 {
        self.produced
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
        let Some(length) = self.take(inbound, target)? else {
            return Ok(None);
        };
        let wake = self.release_when_due(inbound, outbound)?;
        Ok(Some(Popped { length, wake }))
    }

    /// Takes all messages that are there now, but at most `most`, one after the other into the start
    /// of `target`, and shows each to `taken`. The peer is told once of all of them. Returns how many
    /// there were, and whether to ring the peer's doorbell.
    ///
    /// # Errors
    ///
    /// As [`Consumer::pop`], where it is the first message that cannot be taken; what stands in the way
    /// of later ones is told by the next call.
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
        // All that is there at one look, so that a quick peer cannot keep this side here.
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

    /// Takes the next message, and tells the peer nothing.
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
        // Lengths are read once: what is checked is what is used.
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
                word.copy_from_slice(&inbound.load(offset).to_ne_bytes());
                offset += 8;
            }
            let rest = words.into_remainder();
            if !rest.is_empty() {
                let word = inbound.load(offset).to_ne_bytes();
                rest.iter_mut()
                    .zip(word)
                    .for_each(|(target, byte)| *target = byte);
            }
        }
        self.consumed += size;
        Ok(Some(length))
    }

    /// Tells the peer what was taken, when that is much; returns whether to ring its doorbell.
    #[inline]
    fn release_when_due(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        if self.consumed - self.told < self.capacity / 4 {
            return Ok(false);
        }
        self.release(inbound, outbound)
    }

    /// Length of the next record, as its header in the ring has it.
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

    /// The index at which the next message will start, if there is none now, the ring works, and
    /// taking a short one does not call for telling the peer.
    #[inline(always)]
    pub(super) fn idle_at(&self) -> Option<u64> {
        let idle = self.produced == self.consumed
            && self.consumed - self.told < self.capacity / 8
            && self.failed.is_none();
        idle.then_some(self.consumed)
    }

    /// The peer's word as it was when there was no message.
    #[inline(always)]
    pub(super) fn idle_word(&self) -> u64 {
        self.produced | self.peer
    }

    /// Notes that a record was seen, as the only one, and taken.
    #[inline(always)]
    pub(super) fn advance(&mut self, size: u64) {
        self.consumed += size;
        self.produced = self.consumed;
        self.peer = 0;
    }

    /// Tells what was taken, if the peer does not know yet, for a message that goes there anyway.
    /// When it returns true, [`Consumer::poll_once`] must follow after a fence.
    #[inline]
    pub fn tell_in_passing(&mut self, outbound: &impl Outbound) -> bool {
        let untold = self.told != self.consumed;
        if untold {
            self.publish_word(outbound, self.flags);
        }
        untold
    }

    /// Looks whether the peer sleeps for want of room that it was told of; returns whether to ring
    /// its doorbell.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline]
    pub fn poll_once(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        // What the word promises may be taken without another look at it.
        let word = inbound.acquire(PRODUCER);
        if word & ASLEEP == 0 {
            return Ok(false);
        }
        self.accept(word)?;
        Ok(self.wakes(word))
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
        if self.peer & layout::WANTS_ROOM == 0 {
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
        self.publish_word(outbound, ASLEEP);
        inbound.fence();
    }

    /// Says that this side does not sleep any more.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.flags & ASLEEP != 0 {
            self.publish_word(outbound, 0);
        }
    }

    /// Says that nothing more will be taken.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.publish_word(outbound, CLOSED);
        self.failed.get_or_insert(RingError::Closed);
    }

    /// Notes that the peer's memory may be gone: nothing is written there any more. What the peer
    /// sent before can still be taken.
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Whether the peer has said that it closed; looks at its word when need be.
    pub fn peer_closed(&self, inbound: &impl Inbound) -> bool {
        (self.peer | inbound.load(PRODUCER)) & CLOSED != 0
    }

    /// Tells what was taken, then looks whether the peer sleeps for want of room.
    fn release(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        self.publish_word(outbound, self.flags);
        inbound.fence();
        self.poll_once(inbound)
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
    fn publish_word(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        self.told = self.consumed;
        if !self.abandoned {
            // Whoever sees the index may overwrite what was read.
            outbound.publish(CONSUMER, self.consumed | flags);
        }
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
