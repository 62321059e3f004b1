// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fast path of short messages: one word from an idle side to an idle side.
//!
//! A round trip of such messages costs little more than one of a bare word, so every instruction
//! counts here. Each function first checks, by comparing whole words, that the general path would
//! do exactly this, and otherwise uses the general path, which handles all other words of a hostile
//! peer.

use super::layout::{self, ASLEEP, CONSUMER, PRODUCER, SLOT, SLOT_DATA};
use super::{Duplex, Inbound, Outbound, RingError};

/// Bytes of a message of the fast path.
const SIZE: u64 = 8;
/// Bytes of its record in the ring.
const RECORD: u64 = layout::record_size(SIZE);

impl Duplex {
    /// Sends a message of eight bytes to a peer that has taken everything and does not sleep.
    ///
    /// Returns none if this is another case (and nothing has happened), else whether to ring the
    /// peer's doorbell.
    ///
    /// # Errors
    ///
    /// [`RingError`]
    #[inline(always)]
    pub fn push_fast(
        &mut self,
        inbound: &impl Inbound,
        outbound: &impl Outbound,
        message: &[u8],
    ) -> Option<Result<bool, RingError>> {
        let message = <[u8; SIZE as usize]>::try_from(message).ok()?;
        // No flags, and all that was ever written.
        let index = self.producer.index()?;
        if inbound.load(CONSUMER) != index {
            return None;
        }
        outbound.store(SLOT_DATA, u64::from_le_bytes(message));
        outbound.store(SLOT, layout::slot_base(index) + SIZE);
        let published = self.consumer.piggyback(outbound);
        outbound.publish(PRODUCER, index + RECORD);
        self.producer.advance(RECORD);
        // As in `Producer::push`.
        inbound.fence();
        let mut asleep = inbound.load(CONSUMER);
        if published {
            asleep |= inbound.load(PRODUCER);
        }
        if asleep & ASLEEP == 0 {
            return Some(Ok(false));
        }
        Some(self.poll_once(inbound))
    }

    /// Waits for a message of eight bytes, for `polls` polls, and consumes it if it came by the
    /// fast path and is the only one.
    ///
    /// Returns none if this is another case; then nothing has happened, and a message may be there
    /// all the same.
    #[inline(always)]
    pub fn pop_fast(
        &mut self,
        inbound: &impl Inbound,
        target: &mut [u8],
        polls: u32,
    ) -> Option<usize> {
        let target = target.first_chunk_mut::<{ SIZE as usize }>()?;
        let index = self.consumer.idle_at()?;
        let word = inbound.await_change(PRODUCER, self.consumer.idle_word(), polls);
        // No flags, and exactly one record more.
        if word != index + RECORD || inbound.load(SLOT) != layout::slot_base(index) + SIZE {
            return None;
        }
        *target = inbound.load(SLOT_DATA).to_le_bytes();
        self.consumer.advance(RECORD);
        Some(SIZE as usize)
    }

    /// Polls both of the peer's words. Returns whether to ring its doorbell.
    #[cold]
    fn poll_once(&mut self, inbound: &impl Inbound) -> Result<bool, RingError> {
        let consumer = self.producer.poll_once(inbound)?;
        let producer = self.check_room(inbound)?;
        Ok(consumer || producer)
    }
}
