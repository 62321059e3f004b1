// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! The reading end of a ring.

use super::layout::{self, Counts, Geometry, ASLEEP, CLOSED, HEAD, OUT, SHORT, TAKEN, WANTS_ROOM};
use super::{Inbound, Outbound, RingError, Violation};

/// The reading end of a ring: reads records and the peer's word in its own memory, writes how much it
/// has taken to the peer.
#[derive(Debug)]
pub struct Consumer {
    geometry: Geometry,
    taken: Counts,
    /// Taken, as last published.
    published: Counts,
    /// Records below this one can be taken, if they have no data lines, before that has to be published;
    /// none can after a failure, or by a side that sleeps.
    quick: u64,
    /// Flags of the published word.
    flags: u64,
    /// Flags of the peer's word when it was last read.
    peer: u64,
    /// Records that were published as taken at the last doorbell.
    rung: Option<u64>,
    /// The peer has ended: publish nothing.
    abandoned: bool,
    failed: Option<RingError>,
}

/// What a pop has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popped {
    /// Bytes of the message, if there was one.
    pub length: Option<usize>,
    /// The peer sleeps until there is room: ring its doorbell.
    pub wake: bool,
}

impl Consumer {
    /// Creates the consumer of an empty ring.
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            taken: Counts::default(),
            published: Counts::default(),
            quick: quarter(geometry.room().records) - 1,
            flags: 0,
            peer: 0,
            rung: None,
            abandoned: false,
            failed: None,
        }
    }

    /// Returns the largest number of bytes of a message.
    pub fn max_message(&self) -> usize {
        self.geometry.max_message()
    }

    /// Returns the number of records that were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.records
    }

    /// Takes the next message into the start of `target` if it has eight bytes, is there at one of `looks`
    /// looks, at least one, and nothing has to be published then. Returns its length; none says nothing:
    /// whatever the reason is, [`Consumer::pop`] finds it.
    #[inline(always)]
    pub fn pop_short(
        &mut self,
        inbound: &impl Inbound,
        target: &mut [u8],
        looks: u32,
    ) -> Option<usize> {
        let target = target.first_chunk_mut::<SHORT>()?;
        let index = self.taken.records;
        let place = self.geometry.head(index);
        let wanted = layout::head(index, SHORT as u64);
        if inbound.await_upper(place + HEAD, wanted, looks) != wanted || index >= self.quick {
            return None;
        }
        *target = inbound.load(place).to_le_bytes();
        self.taken.records += 1;
        Some(SHORT)
    }

    /// Takes the next message into the start of `target`, if one is there.
    ///
    /// # Errors
    ///
    /// [`RingError`]; after all but `TooLong` the ring stays unusable. `Closed` comes after the last
    /// message.
    pub fn pop(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        target: &mut [u8],
    ) -> Result<Popped, RingError> {
        let length = self.take(inbound, target)?;
        let wake = match length {
            Some(_) => self.release_when_due(inbound, outbound)?,
            None => self.notify_room(inbound, outbound)?,
        };
        Ok(Popped { length, wake })
    }

    /// Takes all pending messages, at most `most` and no more than the ring can hold. Each is copied to
    /// the start of `target` and passed to `taken`; the peer is notified once for all of them. Returns
    /// their number, and whether to ring the peer's doorbell.
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
        // A fast peer cannot keep this side here.
        let most = most.min(self.geometry.room().records as usize);
        let mut count = 0;
        while count < most {
            match self.take(inbound, target) {
                Ok(Some(length)) => taken(&target[..length]),
                Ok(None) => break,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += 1;
        }
        let wake = match count {
            0 => self.notify_room(inbound, outbound)?,
            _ => self.release_when_due(inbound, outbound)?,
        };
        Ok((count, wake))
    }

    /// Takes the next message, and publishes nothing.
    fn take(
        &mut self,
        inbound: &impl Inbound,
        target: &mut [u8],
    ) -> Result<Option<usize>, RingError> {
        let Some(length) = self.next_length(inbound)? else {
            return Ok(None);
        };
        let limit = target.len();
        let Some(target) = target.get_mut(..length) else {
            return Err(RingError::TooLong { length, limit });
        };
        let mut position = 0;
        let mut rest = target;
        while !rest.is_empty() {
            let (offset, room) = self.geometry.place(self.taken, position);
            let (piece, later) = rest.split_at_mut(rest.len().min(room));
            inbound.read(offset, piece);
            position += piece.len();
            rest = later;
        }
        self.taken.records += 1;
        self.taken.lines += Geometry::lines_of(length);
        Ok(Some(length))
    }

    /// Returns the bytes of the next message, if it is there. The head is loaded once: the checked
    /// value is the one that is used.
    fn next_length(&mut self, inbound: &impl Inbound) -> Result<Option<usize>, RingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let index = self.taken.records;
        let place = self.geometry.head(index) + HEAD;
        let empty = layout::head(index, 0);
        let mut length = inbound.acquire(place) ^ empty;
        if length >> 32 != 0 {
            self.load_flags(inbound)?;
            if self.peer & CLOSED == 0 {
                return Ok(None);
            }
            // The peer has said so after its last record.
            length = inbound.acquire(place) ^ empty;
            if length >> 32 != 0 {
                return Err(self.fail(RingError::Closed));
            }
        }
        if length > self.max_message() as u64 {
            return Err(self.fail(RingError::Violation(Violation::Length)));
        }
        Ok(Some(length as usize))
    }

    /// Publishes how much was taken when that is due: with each quarter of the ring, and at once by a side
    /// that has published that it sleeps, which need not come back to say more. Returns whether to ring the
    /// peer's doorbell.
    fn release_when_due(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        let room = self.geometry.room();
        let is_due = self.is_asleep()
            || self.taken.records - self.published.records >= quarter(room.records)
            || self.taken.lines - self.published.lines >= quarter(room.lines);
        if !is_due {
            return Ok(false);
        }
        self.release(inbound, outbound)
    }

    /// Publishes how much was taken if the peer waits for room. Returns whether to ring its doorbell.
    fn notify_room(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        if self.peer & WANTS_ROOM == 0 {
            return Ok(false);
        }
        if self.published != self.taken {
            return self.release(inbound, outbound);
        }
        // It was published, but the peer may have gone to sleep just before.
        Ok(self.wakes())
    }

    /// Looks for the next message, and leaves it there; notifies the peer as [`Consumer::pop`] does
    /// where there is none.
    ///
    /// # Errors
    ///
    /// [`RingError`]; the ring stays unusable. `Closed` comes after the last message.
    pub fn peek(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<Popped, RingError> {
        let length = self.next_length(inbound)?;
        let wake = match length {
            Some(_) => false,
            None => self.notify_room(inbound, outbound)?,
        };
        Ok(Popped { length, wake })
    }

    /// Returns true if this side has published that it sleeps.
    pub fn is_asleep(&self) -> bool {
        self.flags & ASLEEP != 0
    }

    /// Publishes that this side goes to sleep until there is a message. Poll once more before
    /// sleeping; call [`Consumer::awake`] afterwards.
    pub fn sleep(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.say(outbound, ASLEEP);
        inbound.fence();
    }

    /// Publishes that this side is awake.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        if self.is_asleep() {
            self.say(outbound, 0);
        }
    }

    /// Publishes that this side takes nothing more.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.say(outbound, CLOSED);
        self.fail(RingError::Closed);
    }

    /// Notes that the peer's memory may be unmapped: it is not written any more. Messages that the
    /// peer sent before can still be taken.
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Returns true if the peer has published that it closed; reads its word if necessary.
    pub fn peer_closed(&self, inbound: &impl Inbound) -> bool {
        (self.peer | inbound.load(OUT)) & CLOSED != 0
    }

    /// Publishes how much was taken, then checks whether the peer sleeps for want of room.
    fn release(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
    ) -> Result<bool, RingError> {
        self.say(outbound, self.flags);
        inbound.fence();
        self.load_flags(inbound)?;
        Ok(self.wakes())
    }

    /// Returns true if the peer sleeps and has to be rung. One doorbell is enough until more is
    /// published: the peer may sleep again when the room is still too small for its message.
    fn wakes(&mut self) -> bool {
        let published = Some(self.published.records);
        let wake = self.peer & ASLEEP != 0 && self.rung != published;
        if wake {
            self.rung = published;
        }
        wake
    }

    /// Publishes how much was taken, and flags.
    fn say(&mut self, outbound: &impl Outbound, flags: u64) {
        self.flags = flags;
        self.published = self.taken;
        let quick = self.taken.records + quarter(self.geometry.room().records) - 1;
        self.quick = match flags & ASLEEP {
            0 if self.failed.is_none() => quick,
            _ => 0,
        };
        if !self.abandoned {
            // From this store on the peer may overwrite what was taken.
            outbound.release(TAKEN, self.taken.word() | flags);
        }
    }

    /// Checks the peer's word and stores its flags.
    fn load_flags(&mut self, inbound: &impl Inbound) -> Result<(), RingError> {
        let word = inbound.acquire(OUT);
        if word & !(ASLEEP | CLOSED | WANTS_ROOM) != 0 {
            return Err(self.fail(RingError::Violation(Violation::Flags)));
        }
        self.peer = word;
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: RingError) -> RingError {
        self.quick = 0;
        *self.failed.get_or_insert(error)
    }
}

/// Returns how much of a ring is published as taken at once.
fn quarter(room: u64) -> u64 {
    (room / 4).max(1)
}
