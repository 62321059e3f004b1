// SPDX-License-Identifier: MIT OR Apache-2.0

//! The writing end of a ring.

use super::layout::{
    self, ASLEEP, CLOSED, CONSUMER, FLAGS, HEADER, PRODUCER, SLOT, SLOT_DATA, SLOT_SIZE, WANTS_ROOM,
};
use super::{split, Inbound, Outbound, RingError, Violation};

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The message is in the ring; if `wake`, the peer sleeps and its doorbell must be rung.
    Done {
        /// Ring the doorbell.
        wake: bool,
    },
    /// There is no room now. The flag that asks for room has been published.
    Full {
        /// The doorbell must be rung nevertheless.
        wake: bool,
    },
}

/// The writing end of a ring: writes records and the producer word to the peer, reads the peer's
/// consumer word in its own segment.
#[derive(Debug)]
pub struct Producer {
    capacity: u64,
    /// Bytes ever written, as published.
    produced: u64,
    /// Bytes ever read by the peer, as published by it; checked.
    consumed: u64,
    /// Flags of the published producer word.
    flags: u64,
    /// Consumer word at the last doorbell.
    rung: u64,
    failed: Option<RingError>,
}

impl Producer {
    /// Creates the producer of an empty ring of `capacity` bytes; none when [`layout::is_capacity`]
    /// is false.
    pub fn new(capacity: u64) -> Option<Self> {
        layout::is_capacity(capacity).then_some(Self {
            capacity,
            produced: 0,
            consumed: 0,
            flags: 0,
            rung: FLAGS,
            failed: None,
        })
    }

    /// Returns the largest number of bytes of a message.
    pub fn max_message(&self) -> usize {
        self.capacity as usize - HEADER
    }

    /// Returns the bytes ever read by the peer, as published by it.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Writes a message, when there is room.
    ///
    /// # Errors
    ///
    /// [`RingError`]; after all but `TooLong` the ring stays unusable.
    #[inline]
    pub fn push(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        message: &[u8],
    ) -> Result<Pushed, RingError> {
        self.push_vectored(inbound, outbound, &[message])
    }

    /// Writes a message that lies in pieces, when there is room.
    ///
    /// # Errors
    ///
    /// [`RingError`]; after all but `TooLong` the ring stays unusable.
    #[inline]
    pub fn push_vectored(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<Pushed, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let length = total(parts);
        let size = layout::record_size(length as u64);
        if self.produced != self.consumed {
            self.accept(inbound.load(CONSUMER))?;
        }
        if length <= SLOT_SIZE && self.produced == self.consumed {
            // The peer has consumed everything, the slot's last message included: a short message
            // may use the slot, which takes only the cache line that the peer polls.
            if let [message] = parts {
                fill_slot(outbound, message.as_ref());
            } else {
                let mut message = [0; SLOT_SIZE];
                let mut rest = &mut message[..];
                for part in parts {
                    let (head, tail) = rest.split_at_mut(part.as_ref().len());
                    head.copy_from_slice(part.as_ref());
                    rest = tail;
                }
                fill_slot(outbound, &message[..length]);
            }
            let slot = layout::slot_base(self.produced) + length as u64;
            outbound.store(SLOT, slot);
        } else if self.room() >= size {
            self.write(outbound, parts, length);
        } else if length > self.max_message() {
            let limit = self.max_message();
            return Err(RingError::TooLong { length, limit });
        } else {
            if self.flags & WANTS_ROOM == 0 {
                self.publish_word(outbound, self.flags | WANTS_ROOM);
            }
            return Ok(Pushed::Full { wake: false });
        }
        self.produced += size;
        // A peer that sees the index sees the record.
        self.publish_word(outbound, 0);
        // Store the index, then check whether the peer sleeps; the peer publishes that it sleeps,
        // then polls the index. The fences on both sides make one of the two see the other.
        inbound.fence();
        let wake = self.poll_once(inbound)?;
        Ok(Pushed::Done { wake })
    }

    /// Writes a record for which there is room.
    fn write(&self, outbound: &impl Outbound, parts: &[impl AsRef<[u8]>], length: usize) {
        // A header never wraps: records are aligned to its size.
        let (start, _) = split(self.produced, HEADER, self.capacity);
        outbound.store(start, length as u64);
        let mut position = self.produced + HEADER as u64;
        for part in parts {
            let part = part.as_ref();
            let (start, first) = split(position, part.len(), self.capacity);
            outbound.write(start, &part[..first]);
            if first < part.len() {
                outbound.write(layout::DATA, &part[first..]);
            }
            position += part.len() as u64;
        }
    }

    /// Publishes that this side goes to sleep until there is room. Check for room once more before
    /// sleeping; call [`Producer::awake`] afterwards.
    pub fn sleep(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        if self.failed.is_none() {
            self.publish_word(outbound, WANTS_ROOM | ASLEEP);
            inbound.fence();
        }
    }

    /// Publishes that this side is awake.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.flags & ASLEEP != 0 && self.failed.is_none() {
            self.publish_word(outbound, self.flags & !ASLEEP);
        }
    }

    /// Notes that the peer's memory may be unmapped: it is not written any more.
    pub fn abandon(&mut self) {
        self.fail(RingError::Closed);
    }

    /// Publishes that no message will follow.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.publish_word(outbound, CLOSED);
        self.fail(RingError::Closed);
    }

    /// Returns true if the peer has published that it has consumed all messages. It may have consumed
    /// more than it has published, unless it has closed.
    pub fn is_consumed(&mut self, inbound: &impl Inbound) -> bool {
        // An error is kept for the next call.
        let _ = self.accept(inbound.load(CONSUMER));
        self.consumed == self.produced
    }

    /// Returns true if the peer has published that it closed; reads its word if necessary.
    pub fn peer_closed(&mut self, inbound: &impl Inbound) -> bool {
        self.failed.is_some() || self.accept(inbound.load(CONSUMER)).is_err()
    }

    #[inline]
    fn room(&self) -> u64 {
        self.capacity - (self.produced - self.consumed)
    }

    #[inline]
    fn publish_word(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        outbound.publish(PRODUCER, self.produced | flags);
    }

    /// Returns the index at which the next record will start, if the ring works.
    #[inline(always)]
    pub(super) fn index(&self) -> Option<u64> {
        self.failed.is_none().then_some(self.produced)
    }

    /// Notes that a record was written and published, after the peer had consumed all earlier ones.
    #[inline(always)]
    pub(super) fn advance(&mut self, size: u64) {
        self.consumed = self.produced;
        self.produced += size;
        self.flags = 0;
    }

    /// Checks whether the peer sleeps for want of messages. Returns whether to ring its doorbell.
    #[inline]
    pub(super) fn poll_once(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        let word = inbound.load(CONSUMER);
        self.accept(word)?;
        // A peer that sleeps with an empty ring needs no doorbell: it polls before it sleeps again.
        // A peer that has not consumed the messages of the last doorbell needs no second one: it is
        // about to wake.
        let wake = word & ASLEEP != 0 && self.consumed != self.produced && word != self.rung;
        if wake {
            self.rung = word;
        }
        Ok(wake)
    }

    /// Checks the peer's consumer word and stores it.
    #[inline]
    fn accept(&mut self, word: u64) -> Result<(), RingError> {
        let index = word & !FLAGS;
        if word & FLAGS & !(ASLEEP | CLOSED) != 0 {
            return Err(self.fail(RingError::Violation(Violation::Flags)));
        }
        // The index must not go back, nor exceed the written bytes.
        if index < self.consumed || index > self.produced {
            return Err(self.fail(RingError::Violation(Violation::Index)));
        }
        self.consumed = index;
        if word & CLOSED != 0 {
            return Err(self.fail(RingError::Closed));
        }
        Ok(())
    }

    /// Makes the ring unusable, and returns the reason.
    #[cold]
    pub(super) fn fail(&mut self, error: RingError) -> RingError {
        *self.failed.get_or_insert(error)
    }
}

/// Bytes of all pieces.
#[inline]
fn total(parts: &[impl AsRef<[u8]>]) -> usize {
    let lengths = parts.iter().map(|part| part.as_ref().len());
    // The same memory may be passed several times: a larger sum is too long for any ring.
    lengths.fold(0, |sum: usize, length| {
        sum.saturating_add(length)
            .min(2 * layout::MAX_CAPACITY as usize)
    })
}

/// Stores a message that fits into the slot.
#[inline]
fn fill_slot(outbound: &impl Outbound, message: &[u8]) {
    let mut words = message.chunks_exact(8);
    let mut offset = SLOT_DATA;
    for word in words.by_ref() {
        outbound.store(offset, word_of(word));
        offset += 8;
    }
    if !words.remainder().is_empty() {
        outbound.store(offset, word_of(words.remainder()));
    }
}

/// Packs up to eight bytes into a word, which a store leaves in this order, followed by zeroes.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Ok(all) = bytes.try_into() {
        return u64::from_le_bytes(all);
    }
    let mut word = [0; 8];
    for (target, byte) in word.iter_mut().zip(bytes) {
        *target = *byte;
    }
    u64::from_le_bytes(word)
}
