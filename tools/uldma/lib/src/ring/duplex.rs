// SPDX-License-Identifier: MIT OR Apache-2.0

//! Both directions together.

use super::{Consumer, Inbound, Outbound, Popped, Producer, Pushed, RingError};

/// The writing end of one ring and the reading end of the other, over one pair of segments.
///
/// The consumed index of one ring is published along with messages of the other: both words lie in
/// one cache line.
#[derive(Debug)]
pub struct Duplex {
    pub(super) producer: Producer,
    pub(super) consumer: Consumer,
}

impl Duplex {
    /// Creates both ends, of rings of `capacity` bytes; none when [`super::layout::is_capacity`] is
    /// false.
    pub fn new(capacity: u64) -> Option<Self> {
        Self::of(capacity, capacity)
    }

    /// Creates the writing end of a ring of `out` bytes, and the reading end of one of `own` bytes.
    pub(crate) fn of(out: u64, own: u64) -> Option<Self> {
        let (producer, consumer) = (Producer::new(out)?, Consumer::new(own)?);
        Some(Self { producer, consumer })
    }

    /// Returns the largest number of bytes of a message.
    pub fn max_message(&self) -> usize {
        self.producer.max_message()
    }

    /// Returns the largest number of bytes of a message of the peer.
    pub(crate) fn max_received(&self) -> usize {
        self.consumer.max_message()
    }

    /// Returns the known numbers of bytes that the peer has ever consumed and written: while these
    /// do not change, the peer has not shown that it is awake.
    pub(crate) fn peer_position(&self) -> (u64, u64) {
        (self.producer.consumed(), self.consumer.produced())
    }

    /// Writes a message, when there is room.
    ///
    /// # Errors
    ///
    /// [`RingError`].
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
    /// [`RingError`].
    #[inline]
    pub fn push_vectored(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<Pushed, RingError> {
        let published = self.consumer.piggyback(outbound);
        let pushed = self.producer.push_vectored(inbound, outbound, parts)?;
        if !published {
            return Ok(pushed);
        }
        if matches!(pushed, Pushed::Full { .. }) {
            // Nothing was pushed, so no fence was executed yet.
            inbound.fence();
        }
        let wake = self.check_room(inbound)?;
        Ok(match pushed {
            Pushed::Done { wake: already } => Pushed::Done {
                wake: already || wake,
            },
            Pushed::Full { wake: already } => Pushed::Full {
                wake: already || wake,
            },
        })
    }

    /// Calls [`Consumer::poll_once`] while sending a message to the peer: after an error nothing
    /// more is sent, either.
    pub(super) fn check_room(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        let polled = self.consumer.poll_once(inbound);
        polled.map_err(|error| self.producer.fail(error))
    }

    /// Consumes the next message, if there is one, into the start of `target`. Also returns whether
    /// to ring the peer's doorbell, with or without a message.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    #[inline]
    pub fn pop(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        target: &mut [u8],
    ) -> Result<(Option<usize>, bool), RingError> {
        match self.consumer.pop(inbound, outbound, target)? {
            Some(Popped { length, wake }) => Ok((Some(length), wake)),
            None => Ok((None, self.consumer.notify_room(inbound, outbound)?)),
        }
    }

    /// Consumes all pending messages, see [`Consumer::pop_batch`]. Also returns whether to ring the
    /// peer's doorbell, with or without messages.
    ///
    /// # Errors
    ///
    /// [`RingError`].
    pub fn pop_batch(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        target: &mut [u8],
        most: usize,
        taken: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), RingError> {
        let popped = self
            .consumer
            .pop_batch(inbound, outbound, target, most, taken)?;
        match popped {
            (0, _) => Ok((0, self.consumer.notify_room(inbound, outbound)?)),
            some => Ok(some),
        }
    }

    /// Publishes that this side goes to sleep until there is a message; poll once more afterwards.
    pub fn sleep_for_message(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.consumer.sleep(inbound, outbound);
    }

    /// Publishes that this side goes to sleep until there is room; poll once more afterwards.
    pub fn sleep_for_room(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.producer.sleep(inbound, outbound);
    }

    /// Publishes that this side is awake.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        self.consumer.awake(outbound);
        self.producer.awake(outbound);
    }

    /// Publishes that this side will not access the channel again.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.producer.close(outbound);
        self.consumer.close(outbound);
    }

    /// Notes that the peer's memory may be unmapped: it is not written any more. Messages that the
    /// peer sent before can still be consumed.
    pub fn abandon(&mut self) {
        self.producer.abandon();
        self.consumer.abandon();
    }

    /// Returns true if the peer has published that it closed, by its words in this side's segment.
    pub fn peer_closed(&mut self, inbound: &impl Inbound) -> bool {
        self.consumer.peer_closed(inbound) || self.producer.peer_closed(inbound)
    }
}
