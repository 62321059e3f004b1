// SPDX-License-Identifier: GPL-2.0

//! The two rings of messages between this node and a peer: one in the section of each.
//!
//! The counters carry the key of the session in their upper half, so that values of earlier
//! sessions are ignored.

use kernel::{
    prelude::*, //
};

use super::{
    handshake::{
        area,
        pair,
        unpair, //
    },
    message::{
        Message,
        Raw,
        WORDS, //
    }, //
};
use crate::{
    hw::Hw,
    kernel_ext::{
        errno::eproto,
        window, //
    }, //
};

const PRODUCED_AT: usize = 0x080;
const NEEDS_CREDITS_AT: usize = 0x088;
const CONSUMED_AT: usize = 0x0c0;
const ASLEEP_AT: usize = 0x0c8;
const MESSAGES_AT: usize = 0x1000;

/// Access to the words that this node and a peer write for each other.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a> {
    pub(super) hw: Hw<'a>,
    pub(super) peer: u32,
    pub(super) key: u32,
}

impl Channel<'_> {
    /// Reads a word that the peer writes.
    fn read(&self, at: usize) -> Result<u64> {
        self.hw.read_window(area(self.peer)? + at)
    }

    /// Writes a word for the peer.
    fn write(&self, at: usize, value: u64) -> Result {
        let base = area(self.hw.geometry().node)?;
        self.hw.write_window(self.peer, base + at, value)
    }

    /// Writes a word for the peer, after all earlier writes.
    fn publish(&self, at: usize, value: u64) -> Result {
        let base = area(self.hw.geometry().node)?;
        self.hw.publish_window(self.peer, base + at, value)
    }

    fn read_counter(&self, at: usize) -> Result<Option<u32>> {
        let (key, count) = unpair(self.read(at)?);
        Ok((key == self.key).then_some(count))
    }
}

fn slot_at(number: u32, slots: u32) -> Result<usize> {
    let slot = number.checked_rem(slots).ok_or(EINVAL)?;
    Ok(MESSAGES_AT + usize::try_from(slot)? * size_of::<Raw>())
}

/// The positions in the two rings.
#[derive(Default)]
pub(super) struct Rings {
    produced: u32,
    consumed: u32,
    /// The peer knows that this node needs doorbells.
    asleep: bool,
    /// The peer knows that this node waits for room.
    needs_credits: bool,
}

impl Rings {
    /// Resets both rings.
    pub(super) fn begin(channel: &Channel<'_>) -> Result<Self> {
        // The node needs doorbells until the progress worker runs.
        channel.write(ASLEEP_AT, 1)?;
        channel.write(NEEDS_CREDITS_AT, 0)?;
        channel.write(CONSUMED_AT, pair(channel.key, 0))?;
        channel.publish(PRODUCED_AT, pair(channel.key, 0))?;
        Ok(Self {
            asleep: true,
            ..Self::default()
        })
    }

    /// Puts a message into the peer's ring of `slots` messages. Returns true if the peer needs a
    /// doorbell.
    ///
    /// # Errors
    ///
    /// `EBUSY` while the ring is full, `EPROTO` if the peer has consumed messages that were never
    /// produced.
    pub(super) fn put(
        &mut self,
        channel: &Channel<'_>,
        slots: u32,
        message: &Message,
    ) -> Result<bool> {
        if self.in_flight(channel, slots)? == slots {
            self.set_needs_credits(channel, true)?;
            window::full_fence();
            if self.in_flight(channel, slots)? == slots {
                return Err(EBUSY);
            }
        }
        self.set_needs_credits(channel, false)?;
        let base = slot_at(self.produced, slots)?;
        for (number, word) in message.encode().iter().enumerate() {
            channel.write(base + number * size_of::<u64>(), *word)?;
        }
        self.produced = self.produced.wrapping_add(1);
        channel.publish(PRODUCED_AT, pair(channel.key, self.produced))?;
        window::full_fence();
        Ok(channel.read(ASLEEP_AT)? != 0)
    }

    /// Returns the number of messages that the peer has not consumed.
    fn in_flight(&self, channel: &Channel<'_>, slots: u32) -> Result<u32> {
        let consumed = channel.read_counter(CONSUMED_AT)?.unwrap_or(0);
        match self.produced.wrapping_sub(consumed) {
            in_flight if in_flight > slots => Err(eproto()),
            in_flight => Ok(in_flight),
        }
    }

    fn set_needs_credits(&mut self, channel: &Channel<'_>, needs_credits: bool) -> Result {
        if self.needs_credits != needs_credits {
            channel.publish(NEEDS_CREDITS_AT, needs_credits.into())?;
            self.needs_credits = needs_credits;
        }
        Ok(())
    }

    /// Returns true if the peer waits for room in the own ring. To be called after making room.
    pub(super) fn peer_needs_credits(channel: &Channel<'_>) -> Result<bool> {
        window::full_fence();
        Ok(channel.read(NEEDS_CREDITS_AT)? != 0)
    }

    /// Returns true if a message is pending.
    pub(super) fn has_message(&self, channel: &Channel<'_>) -> Result<bool> {
        let produced = channel.read_counter(PRODUCED_AT)?;
        Ok(produced.is_some_and(|produced| produced != self.consumed))
    }

    /// Takes the next message from the own ring of `slots` messages.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer violates the protocol.
    pub(super) fn take(&mut self, channel: &Channel<'_>, slots: u32) -> Result<Option<Message>> {
        let Some(produced) = channel.read_counter(PRODUCED_AT)? else {
            return Ok(None);
        };
        let waiting = produced.wrapping_sub(self.consumed);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > slots {
            return Err(eproto());
        }
        let base = slot_at(self.consumed, slots)?;
        let mut raw: Raw = [0; WORDS];
        for (number, word) in raw.iter_mut().enumerate() {
            *word = channel.read(base + number * size_of::<u64>())?;
        }
        let message = Message::decode(&raw)?;
        self.consumed = self.consumed.wrapping_add(1);
        channel.publish(CONSUMED_AT, pair(channel.key, self.consumed))?;
        Ok(Some(message))
    }

    /// Tells the peer whether this node needs doorbells. The peer may have sent a message just
    /// before.
    pub(super) fn set_asleep(&mut self, channel: &Channel<'_>, asleep: bool) -> Result {
        if self.asleep != asleep {
            channel.publish(ASLEEP_AT, asleep.into())?;
            self.asleep = asleep;
        }
        Ok(())
    }
}
