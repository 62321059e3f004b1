// SPDX-License-Identifier: GPL-2.0

//! Messages about segments that wait for room in the ring of a peer.
//!
//! Each peer has its own bounded queue, so that a peer that takes no messages delays no messages to
//! others.

use kernel::prelude::*;

use crate::{
    kernel_ext::errno::eproto,
    link::message::Message, //
};

/// Maximum number of messages for one peer.
const MOST: usize = 4096;

/// A message that has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// [`Message::SegmentGone`].
    Gone(u64),
    /// [`Message::SegmentLeft`].
    Left(u64, u32),
}

impl Note {
    /// Returns the message.
    pub(super) fn message(self) -> Message {
        match self {
            Self::Gone(offset) => Message::SegmentGone(offset),
            Self::Left(offset, count) => Message::SegmentLeft(offset, count),
        }
    }
}

/// The messages for one peer, in order.
pub(super) struct Unreported(KVec<Note>);

impl Unreported {
    /// Creates an empty queue.
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a message.
    ///
    /// # Errors
    ///
    /// `EPROTO` if there are too many, since the peer takes none; `ENOMEM`.
    pub(super) fn add(&mut self, note: Note) -> Result {
        if let (Note::Left(offset, more), Some(Note::Left(other, count))) =
            (note, self.0.last_mut())
        {
            if *other == offset {
                *count = count.saturating_add(more);
                return Ok(());
            }
        }
        if self.0.len() >= MOST {
            return Err(eproto());
        }
        Ok(self.0.push(note, GFP_KERNEL)?)
    }

    /// Drops all messages.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Passes messages to `send`, in order, until it returns `EBUSY`.
    pub(super) fn send(&mut self, send: impl Fn(&Message) -> Result) {
        let mut notes = self.0.iter();
        let is_left = |note: &Note| send(&note.message()) == Err(EBUSY);
        let mut sent = notes.position(is_left).unwrap_or(self.0.len());
        if sent == 0 {
            return;
        }
        self.0.retain(|_| {
            let keep = sent == 0;
            sent = sent.saturating_sub(1);
            keep
        });
    }
}

#[kunit_tests(uldma_segment_unreported)]
mod tests {
    use core::cell::Cell;

    use super::*;

    #[test]
    fn there_is_a_limit() {
        let mut unreported = Unreported::new();
        let offsets = (0..).step_by(4096);
        let added = offsets
            .map(Note::Gone)
            .map_while(|note| unreported.add(note).ok());
        assert_eq!(added.take(2 * MOST).count(), MOST);
        assert_eq!(unreported.add(Note::Gone(7)), Err(eproto()));
    }

    #[test]
    fn the_same_is_said_once() {
        let mut unreported = Unreported::new();
        for _ in 0..2 * MOST {
            assert_eq!(unreported.add(Note::Left(4096, 1)), Ok(()));
        }
        assert_eq!(unreported.len(), 1);
        unreported.send(|message| {
            assert_eq!(*message, Message::SegmentLeft(4096, 8192));
            Ok(())
        });
        assert_eq!(unreported.len(), 0);
    }

    #[test]
    fn a_full_ring_keeps_the_rest_in_order() {
        let mut unreported = Unreported::new();
        for offset in [1, 2, 3] {
            assert_eq!(unreported.add(Note::Gone(offset)), Ok(()));
        }
        let room = Cell::new(2);
        let send = |_: &Message| match room.get() {
            0 => Err(EBUSY),
            left => {
                room.set(left - 1);
                Ok(())
            }
        };
        unreported.send(send);
        assert_eq!(unreported.len(), 1);
        unreported.send(send);
        assert_eq!(unreported.len(), 1);
        unreported.send(|message| {
            assert_eq!(*message, Message::SegmentGone(3));
            Ok(())
        });
        assert_eq!(unreported.len(), 0);
    }
}
