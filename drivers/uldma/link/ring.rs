// SPDX-License-Identifier: GPL-2.0

//! The two rings of messages between this node and a peer: one in the section of each.
//!
//! The counters carry the key of the session in their upper half, so that values of earlier
//! sessions are ignored.

use kernel::prelude::*;

use super::{
    area::{
        at,
        message_word,
        slot_of,
        AreaWord,
        Counter,
        TURNAROUND,
        WORDS, //
    },
    message::{
        words_of,
        Message,
        Raw, //
    }, //
};
use crate::{
    hw::{
        layout::Word,
        le::Le,
        Hw,
        LinkMessage, //
    },
    kernel_ext::{
        errno::eproto,
        window, //
    }, //
};

/// Access to the words that this node and a peer write for each other.
#[derive(Clone, Copy)]
pub(super) struct Channel<'a> {
    pub(super) hw: Hw<'a>,
    pub(super) peer: u32,
    pub(super) key: u32,
}

impl Channel<'_> {
    /// Returns the offset in the own section of the area that the peer writes.
    fn inbound(&self) -> Result<usize> {
        Ok(self.hw.geometry().inbound(self.peer)?.start)
    }

    /// Returns the offset in the section of the peer of the area that this node writes.
    fn outbound(&self) -> Result<usize> {
        Ok(self.hw.geometry().outbound(self.peer)?.start)
    }

    /// Reads a word that the peer writes.
    fn read<T: Word>(&self, word: AreaWord<T>) -> Result<T> {
        let word = self.hw.read_window::<T>(self.inbound()? + word.offset())?;
        Ok(word.get())
    }

    /// Writes a word for the peer.
    fn write<T: Word>(&self, word: AreaWord<T>, value: T) -> Result {
        let base = self.outbound()?;
        self.hw
            .write_window(self.peer, base + word.offset(), Le::new(value))
    }

    /// Writes a word for the peer, after all earlier writes.
    fn publish<T: Word>(&self, word: AreaWord<T>, value: T) -> Result {
        let base = self.outbound()?;
        self.hw
            .publish_window(self.peer, base + word.offset(), Le::new(value))
    }

    /// Reads a counter; `None` if it is of another session.
    fn read_counter(&self, word: AreaWord<Counter>) -> Result<Option<u32>> {
        let counter = self.read(word)?;
        let is_current = counter.get(Counter::KEY) == self.key;
        Ok(is_current.then_some(counter.get(Counter::COUNT)))
    }

    /// Returns the counter of this session for `count` messages.
    fn counter(&self, count: u32) -> Counter {
        Counter::NONE
            .with(Counter::KEY, self.key)
            .with(Counter::COUNT, count)
    }
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
    /// The last message for which the doorbell of the peer rang.
    rung_for: Option<u32>,
}

impl Rings {
    /// Resets both rings.
    pub(super) fn begin(channel: &Channel<'_>) -> Result<Self> {
        // The node needs doorbells until the progress worker runs.
        channel.write(at::ASLEEP, 1)?;
        channel.write(at::NEEDS_CREDITS, 0)?;
        channel.write(at::CONSUMED, channel.counter(0))?;
        channel.publish(at::PRODUCED, channel.counter(0))?;
        Ok(Self {
            asleep: true,
            ..Self::default()
        })
    }

    /// Puts a message into the peer's ring of `slots` messages. `turnaround` returns the word of
    /// that name for a message that is sent. Returns true if the peer needs a doorbell.
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
        turnaround: impl FnOnce() -> u64,
    ) -> Result<bool> {
        if self.in_flight(channel, slots)? == slots {
            self.set_needs_credits(channel, true)?;
            window::full_fence();
            if self.in_flight(channel, slots)? == slots {
                return Err(EBUSY);
            }
        }
        self.set_needs_credits(channel, false)?;
        let slot = slot_of(self.produced, slots)?;
        let produced = self.produced.wrapping_add(1);
        let base = channel.outbound()?;
        let mut words = message.encode();
        words[TURNAROUND] = Le::new(turnaround());
        let count = words_of(words[0])?;
        let is_asleep = channel.hw.send_msg(
            channel.peer,
            &LinkMessage {
                words: words.get(..count).ok_or(EINVAL)?,
                slot: base + message_word(slot, 0)?.offset(),
                produced: (
                    base + at::PRODUCED.offset(),
                    Le::new(channel.counter(produced).to_raw()),
                ),
                asleep: channel.inbound()? + at::ASLEEP.offset(),
            },
        )?;
        self.produced = produced;
        if !is_asleep || self.is_awakening(channel)? {
            return Ok(false);
        }
        self.rung_for = Some(self.produced);
        Ok(true)
    }

    /// Returns true if the peer was rung for a message that it has not taken: before it sleeps
    /// again it polls, and finds all messages that were published before this check.
    fn is_awakening(&self, channel: &Channel<'_>) -> Result<bool> {
        let Some(rung_for) = self.rung_for else {
            return Ok(false);
        };
        let consumed = channel.read_counter(at::CONSUMED)?.unwrap_or(0);
        // The counters wrap; no more than a ring is between them.
        let (waiting, since) = (
            self.produced.wrapping_sub(consumed),
            self.produced.wrapping_sub(rung_for),
        );
        Ok(waiting > since)
    }

    /// Returns the number of messages that the peer has not consumed.
    fn in_flight(&self, channel: &Channel<'_>, slots: u32) -> Result<u32> {
        let consumed = channel.read_counter(at::CONSUMED)?.unwrap_or(0);
        match self.produced.wrapping_sub(consumed) {
            in_flight if in_flight > slots => Err(eproto()),
            in_flight => Ok(in_flight),
        }
    }

    fn set_needs_credits(&mut self, channel: &Channel<'_>, needs_credits: bool) -> Result {
        if self.needs_credits != needs_credits {
            channel.publish(at::NEEDS_CREDITS, needs_credits.into())?;
            self.needs_credits = needs_credits;
        }
        Ok(())
    }

    /// Returns true if the peer waits for room in the own ring. To be called after making room.
    pub(super) fn peer_needs_credits(channel: &Channel<'_>) -> Result<bool> {
        window::full_fence();
        Ok(channel.read(at::NEEDS_CREDITS)? != 0)
    }

    /// Returns true if a message is pending.
    pub(super) fn has_message(&self, channel: &Channel<'_>) -> Result<bool> {
        let produced = channel.read_counter(at::PRODUCED)?;
        Ok(produced.is_some_and(|produced| produced != self.consumed))
    }

    /// Takes the next message from the own ring of `slots` messages, and the turnaround that it
    /// tells: 0 unless `has_turnaround`, where the word is part of no message.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer violates the protocol.
    pub(super) fn take(
        &mut self,
        channel: &Channel<'_>,
        slots: u32,
        has_turnaround: bool,
    ) -> Result<Option<(Message, u64)>> {
        let Some(produced) = channel.read_counter(at::PRODUCED)? else {
            return Ok(None);
        };
        let waiting = produced.wrapping_sub(self.consumed);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > slots {
            return Err(eproto());
        }
        let slot = slot_of(self.consumed, slots)?;
        let mut raw: Raw = [Le::new(0); WORDS];
        let base = channel.inbound()?;
        // The first word says how many there are, and is read once.
        let mut count = 1;
        for (number, word) in raw.iter_mut().enumerate() {
            if number == count {
                break;
            }
            let offset = base + message_word(slot, number)?.offset();
            *word = channel.hw.read_window(offset)?;
            if number == 0 {
                count = words_of(*word)?;
            }
        }
        let turnaround = if has_turnaround {
            core::mem::replace(&mut raw[TURNAROUND], Le::new(0)).get()
        } else {
            0
        };
        let message = Message::decode(&raw)?;
        self.consumed = self.consumed.wrapping_add(1);
        channel.publish(at::CONSUMED, channel.counter(self.consumed))?;
        Ok(Some((message, turnaround)))
    }

    /// Returns true if the peer knows that this node needs doorbells.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Returns true if the peer needs doorbells, and has taken all messages.
    pub(super) fn peer_is_idle(&self, channel: &Channel<'_>, slots: u32) -> Result<bool> {
        Ok(self.in_flight(channel, slots)? == 0 && channel.read(at::ASLEEP)? != 0)
    }

    /// Tells the peer whether this node needs doorbells. The peer may have sent a message just
    /// before.
    pub(super) fn set_asleep(&mut self, channel: &Channel<'_>, asleep: bool) -> Result {
        if self.asleep != asleep {
            channel.publish(at::ASLEEP, asleep.into())?;
            self.asleep = asleep;
        }
        Ok(())
    }
}
