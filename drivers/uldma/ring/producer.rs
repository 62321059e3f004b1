// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! The writing end of a ring.

use super::layout::{self, Counts, Geometry, ASLEEP, CLOSED, HEAD, OUT, SHORT, TAKEN, WANTS_ROOM};
use super::{Inbound, Outbound, RingError, Violation};

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The message is in the ring; if `wake`, the peer sleeps and its doorbell must be rung.
    Done {
        /// Ring the doorbell.
        wake: bool,
    },
    /// There is no room now. The flag that asks for room has been published.
    Full,
}

/// The writing end of a ring: writes records and its own word to the peer, reads how much the peer has
/// taken in its own memory.
#[derive(Debug)]
pub struct Producer {
    geometry: Geometry,
    written: Counts,
    /// Taken by the peer, as published by it; checked.
    taken: Counts,
    /// The word that says so if the peer does not sleep.
    seen: u64,
    /// Flags of the published word.
    flags: u64,
    /// Records below this one fit, if they have no data lines; none does after a failure, or while the
    /// published word has flags.
    quick: u64,
    /// Records that the peer had taken at the last doorbell.
    rung: Option<u64>,
    failed: Option<RingError>,
}

impl Producer {
    /// Creates the producer of an empty ring.
    pub fn new(geometry: Geometry) -> Self {
        let start = Counts::default();
        Self {
            geometry,
            written: start,
            taken: start,
            seen: start.word(),
            flags: 0,
            quick: geometry.room().records,
            rung: None,
            failed: None,
        }
    }

    /// Clears what a reader could find of an earlier ring at this place. The word by
    /// which the reader learns that the ring has begun has to be published.
    pub fn clear(&self, outbound: &impl Outbound) {
        outbound.store(TAKEN, 0);
        outbound.store(OUT, 0);
        for index in 0..self.geometry.room().records {
            outbound.store(self.geometry.head(index) + HEAD, 0);
        }
    }

    /// Returns the largest number of bytes of a message.
    pub fn max_message(&self) -> usize {
        self.geometry.max_message()
    }

    /// Returns the number of records that the peer is known to have taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.records
    }

    /// Writes a message of eight bytes to a peer that has room for it and does not sleep. Returns whether
    /// to ring its doorbell, as it may have gone to sleep meanwhile; none if this is another case, which is
    /// that of [`Producer::push`], and nothing has happened.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline(always)]
    pub fn push_short(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        message: &[u8],
    ) -> Option<Result<bool, RingError>> {
        let message = <[u8; SHORT]>::try_from(message).ok()?;
        let index = self.written.records;
        // A peer that has closed is not written any more.
        if index >= self.quick || inbound.load(TAKEN) != self.seen {
            return None;
        }
        let place = self.geometry.head(index);
        outbound.store(place, u64::from_le_bytes(message));
        outbound.publish(place + HEAD, layout::head(index, SHORT as u64));
        self.written.records += 1;
        // As in `push_vectored`.
        inbound.fence();
        let word = inbound.load(TAKEN);
        match word == self.seen {
            true => Some(Ok(false)),
            false => Some(self.check_sleeper(word)),
        }
    }

    /// Writes a message, when there is room.
    ///
    /// # Errors
    ///
    /// [`RingError`]; after all but `TooLong` the ring stays unusable.
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
    pub fn push_vectored(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<Pushed, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let limit = self.max_message();
        let length = parts.iter().fold(0, |sum: usize, part| {
            sum.saturating_add(part.as_ref().len())
        });
        if length > limit {
            return Err(RingError::TooLong { length, limit });
        }
        let lines = Geometry::lines_of(length);
        // A peer that has closed is not written any more.
        self.accept(inbound.load(TAKEN))?;
        if !self.has_room(lines) {
            if self.flags & WANTS_ROOM == 0 {
                self.say(outbound, self.flags | WANTS_ROOM);
            }
            return Ok(Pushed::Full);
        }
        if self.flags != 0 {
            self.flags = 0;
            outbound.store(OUT, 0);
            self.note_room();
        }
        let mut position = 0;
        for part in parts {
            let mut rest = part.as_ref();
            while !rest.is_empty() {
                let (offset, room) = self.geometry.place(self.written, position);
                let (piece, later) = rest.split_at(rest.len().min(room));
                outbound.write(offset, piece);
                position += piece.len();
                rest = later;
            }
        }
        let index = self.written.records;
        // A peer that sees the head sees the message.
        let place = self.geometry.head(index) + HEAD;
        outbound.publish(place, layout::head(index, length as u64));
        self.written.records += 1;
        self.written.lines += lines;
        // Store the head, then check whether the peer sleeps; the peer publishes that it sleeps, then
        // polls the head. The fences on both sides make one of the two see the other.
        inbound.fence();
        let wake = self.check_sleeper(inbound.load(TAKEN))?;
        Ok(Pushed::Done { wake })
    }

    /// Checks whether the peer sleeps for want of messages, by its word. Returns whether to ring its
    /// doorbell.
    fn check_sleeper(&mut self, word: u64) -> Result<bool, RingError> {
        self.accept(word)?;
        // A peer that sleeps with an empty ring needs no doorbell: it polls before it sleeps again.
        // A peer that has taken nothing since the last doorbell needs no second one: it is about to
        // wake.
        let taken = self.taken.records;
        let wake = word & ASLEEP != 0 && taken != self.written.records && self.rung != Some(taken);
        if wake {
            self.rung = Some(taken);
        }
        Ok(wake)
    }

    /// Publishes that this side goes to sleep until there is room. Check for room once more before
    /// sleeping; call [`Producer::awake`] afterwards.
    pub fn sleep(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        if self.failed.is_none() {
            self.say(outbound, WANTS_ROOM | ASLEEP);
            inbound.fence();
        }
    }

    /// Publishes that this side is awake.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.flags & ASLEEP != 0 && self.failed.is_none() {
            self.say(outbound, self.flags & !ASLEEP);
        }
    }

    /// Notes that the peer's memory may be unmapped: it is not written any more.
    pub fn abandon(&mut self) {
        self.fail(RingError::Closed);
    }

    /// Publishes that no message will follow.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.say(outbound, CLOSED);
        self.fail(RingError::Closed);
    }

    /// Returns true if the peer has published that it has taken all messages. It may have taken more than
    /// it has published, unless it has closed.
    pub fn is_consumed(&mut self, inbound: &impl Inbound) -> bool {
        // An error is kept for the next call.
        let _ = self.accept(inbound.load(TAKEN));
        self.taken == self.written
    }

    /// Returns true if the peer sleeps, and has published that it has taken all messages.
    pub fn peer_is_idle(&mut self, inbound: &impl Inbound) -> bool {
        let word = inbound.load(TAKEN);
        self.accept(word).is_ok() && self.taken == self.written && word & ASLEEP != 0
    }

    /// Returns true if the peer has published that it closed; reads its word if necessary.
    pub fn peer_closed(&mut self, inbound: &impl Inbound) -> bool {
        self.failed.is_some() || self.accept(inbound.load(TAKEN)).is_err()
    }

    /// Returns true if a record with so many data lines fits.
    fn has_room(&self, lines: u64) -> bool {
        let room = self.geometry.room();
        self.written.records - self.taken.records < room.records
            && self.written.lines - self.taken.lines + lines <= room.lines
    }

    /// Notes which records fit.
    fn note_room(&mut self) {
        self.quick = match (self.failed, self.flags) {
            (None, 0) => self.taken.records + self.geometry.room().records,
            _ => 0,
        };
    }

    fn say(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        self.note_room();
        outbound.publish(OUT, flags);
    }

    /// Checks the peer's word and stores what it says.
    fn accept(&mut self, word: u64) -> Result<(), RingError> {
        let flags = Counts::flags(word);
        if flags & !(ASLEEP | CLOSED) != 0 {
            return Err(self.fail(RingError::Violation(Violation::Flags)));
        }
        // No count goes back, nor beyond what was written.
        let Some(taken) = self.taken.follow(word, self.written) else {
            return Err(self.fail(RingError::Violation(Violation::Count)));
        };
        self.taken = taken;
        self.note_room();
        self.seen = taken.word();
        if flags & CLOSED != 0 {
            return Err(self.fail(RingError::Closed));
        }
        Ok(())
    }

    /// Makes the ring unusable, and returns the reason.
    #[cold]
    fn fail(&mut self, error: RingError) -> RingError {
        self.quick = 0;
        *self.failed.get_or_insert(error)
    }
}
