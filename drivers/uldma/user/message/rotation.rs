// SPDX-License-Identifier: GPL-2.0

//! The order in which messages use slots.

use kernel::prelude::*;

/// Slots that are used in turns: which is next, and what each was sent as last.
#[derive(Default)]
pub(super) struct Rotation {
    /// Messages so far.
    used: u64,
    /// The next slot.
    slot: usize,
    /// For each slot, the last message that was sent from it: context and ticket.
    sent: KVec<Option<(u64, u64)>>,
}

impl Rotation {
    /// Creates a rotation of `count` unused slots.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(count: usize) -> Result<Self> {
        let mut sent = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            sent.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            used: 0,
            slot: 0,
            sent,
        })
    }

    /// Returns the next slot.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the number of the next message, counted from one.
    pub(super) fn next(&self) -> u64 {
        self.used + 1
    }

    /// Returns the ticket that has to end before the next slot is free. The transfers of contexts
    /// other than `context` have ended with these.
    pub(super) fn last_sent(&self, context: u64) -> Option<u64> {
        let (sent_by, ticket) = (*self.sent.get(self.slot)?)?;
        (sent_by == context).then_some(ticket)
    }

    /// Notes that the next slot was sent.
    pub(super) fn sent(&mut self, context: u64, ticket: u64) {
        if let Some(sent) = self.sent.get_mut(self.slot) {
            *sent = Some((context, ticket));
        }
        self.advance();
    }

    /// Notes that the message in the next slot was received.
    pub(super) fn received(&mut self) {
        self.advance();
    }

    fn advance(&mut self) {
        self.used += 1;
        self.slot += 1;
        if self.slot >= self.sent.len() {
            self.slot = 0;
        }
    }
}

#[kunit_tests(uldma_rotation)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_waits_for_its_last_message() -> Result {
        let mut rotation = Rotation::new(2)?;
        assert_eq!((rotation.slot(), rotation.last_sent(1)), (0, None));
        rotation.sent(1, 10);
        assert_eq!((rotation.slot(), rotation.last_sent(1)), (1, None));
        rotation.sent(1, 11);
        assert_eq!((rotation.slot(), rotation.last_sent(1)), (0, Some(10)));
        rotation.sent(1, 12);
        assert_eq!((rotation.slot(), rotation.last_sent(1)), (1, Some(11)));
        Ok(())
    }

    #[test]
    fn the_messages_of_an_earlier_context_have_ended() -> Result {
        let mut rotation = Rotation::new(1)?;
        rotation.sent(1, 10);
        assert_eq!(rotation.last_sent(2), None);
        rotation.sent(2, 1);
        assert_eq!(rotation.last_sent(2), Some(1));
        Ok(())
    }

    #[test]
    fn receptions_are_numbered_from_one() -> Result {
        let mut rotation = Rotation::new(3)?;
        for number in 1..=7 {
            assert_eq!(rotation.next(), number);
            assert_eq!(rotation.slot() as u64, (number - 1) % 3);
            rotation.received();
        }
        Ok(())
    }
}
