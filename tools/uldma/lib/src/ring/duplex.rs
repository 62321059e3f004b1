// SPDX-License-Identifier: MIT OR Apache-2.0

//! Both directions together.

use super::{Consumer, Inbound, Outbound, Popped, Producer, Pushed, RingError};

/// The writing end of one ring and the reading end of the other, over one pair of segments.
///
/// What was taken from the one ring is told along with what is put into the other: both words lie
/// in one cache line.
#[derive(Debug)]
pub struct Duplex {
    pub(super) producer: Producer,
    pub(super) consumer: Consumer,
}

impl Duplex {
    /// Both ends, of rings of `capacity` bytes; none when [`super::layout::is_capacity`] says no.
    pub fn new(capacity: u64) -> Option<Self> {
        let (producer, consumer) = (Producer::new(capacity)?, Consumer::new(capacity)?);
        Some(Self { producer, consumer })
    }

    /// Bytes that a message can have.
    pub fn max_message(&self) -> usize {
        self.producer.max_message()
    }

    /// Bytes that the peer has ever taken and written, as far as is known: as long as these stay, it has not
    /// shown that it is awake.
    pub(crate) fn peer_position(&self) -> (u64, u64) {
        (self.producer.consumed(), self.consumer.produced())
    }

    /// As [`Producer::push`].
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

    /// As [`Producer::push_vectored`].
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
        let told = self.consumer.tell_in_passing(outbound);
        let pushed = self.producer.push_vectored(inbound, outbound, parts)?;
        if !told {
            return Ok(pushed);
        }
        if matches!(pushed, Pushed::Full { .. }) {
            // Nothing was pushed, so there was no fence yet.
            inbound.fence();
        }
        let wake = self.look_for_room(inbound)?;
        Ok(match pushed {
            Pushed::Done { wake: already } => Pushed::Done {
                wake: already || wake,
            },
            Pushed::Full { wake: already } => Pushed::Full {
                wake: already || wake,
            },
        })
    }

    /// As [`Consumer::poll_once`], on the way of a message to the peer: after an error nothing more is sent, either.
    pub(super) fn look_for_room(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        let looked = self.consumer.poll_once(inbound);
        looked.map_err(|error| self.producer.fail(error))
    }

    /// Takes the next message, when there is one, into the start of `target`. Also returns whether
    /// to ring the peer's doorbell, message or not.
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
            None => Ok((None, self.consumer.feed(inbound, outbound)?)),
        }
    }

    /// Takes all messages that are there, as [`Consumer::pop_batch`]. Also returns whether to ring the
    /// peer's doorbell, messages or not.
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
            (0, _) => Ok((0, self.consumer.feed(inbound, outbound)?)),
            some => Ok(some),
        }
    }

    /// Says that this side is going to sleep until there is a message; then look once more.
    pub fn sleep_for_message(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.consumer.sleep(inbound, outbound);
    }

    /// Says that this side is going to sleep until there is room; then look once more.
    pub fn sleep_for_room(&mut self, inbound: &impl Inbound, outbound: &impl Outbound) {
        self.producer.sleep(inbound, outbound);
    }

    /// Says that this side sleeps no more.
    pub fn awake(&mut self, outbound: &impl Outbound) {
        self.consumer.awake(outbound);
        self.producer.awake(outbound);
    }

    /// Says that this side will not touch the channel again.
    pub fn close(&mut self, outbound: &impl Outbound) {
        self.producer.close(outbound);
        self.consumer.close(outbound);
    }

    /// Notes that the peer's memory may be gone: nothing is written there any more. What the peer
    /// sent before can still be taken.
    pub fn abandon(&mut self) {
        self.producer.abandon();
        self.consumer.abandon();
    }

    /// Whether the peer has said that, as far as its words in this side's segment go.
    pub fn peer_closed(&mut self, inbound: &impl Inbound) -> bool {
        self.consumer.peer_closed(inbound) || self.producer.peer_closed(inbound)
    }
}
