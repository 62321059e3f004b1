// SPDX-License-Identifier: GPL-2.0

//! A message that one node passes to another as a whole.

use super::le::Le;

/// A message to a peer, and the words of the window that pass it where the hardware has no other
/// way.
pub(crate) struct LinkMessage<'a> {
    /// The words of the message.
    pub(crate) words: &'a [Le<u64>],
    /// Byte offset in the peer's section of the first word.
    pub(crate) slot: usize,
    /// Byte offset in the peer's section of the counter that makes the message visible, and its
    /// new value.
    pub(crate) produced: (usize, Le<u64>),
    /// Byte offset in the own section of the word that is not 0 while the peer needs a doorbell.
    pub(crate) asleep: usize,
}
