// SPDX-License-Identifier: GPL-2.0

//! The area at the start of a lane, which is the control channel: position and contents of each word.
//!
//! `Documentation/uldma/link.rst` has the same table.

use kernel::prelude::*;

use crate::hw::layout::{
    register::*,
    word::*, //
};

/// Size of the area, with which each lane begins.
pub(crate) const AREA_SIZE: usize = 16 << 10;
/// Maximum number of messages in flight in a ring.
pub(super) const MAX_SLOTS: u32 = 64;
/// Number of u64s of a slot: of a message, and of the private data that it can have.
pub(crate) const WORDS: usize = 24;
/// Number of u64s of a message without private data.
pub(super) const FIRST_LINE: usize = 8;
/// Number of the word with the writer's turnaround, in nanoseconds, between nodes that tell it.
pub(super) const TURNAROUND: usize = 7;

/// A word of an area.
pub(crate) type AreaWord<T> = Register<AreaRegister, T, ReadWrite>;

registers! {
    /// Words of an area.
    pub(crate) mod at;
    /// A word of an area, as a reader decodes it.
    enum AreaRegister in AREA_SIZE;

    /// "udmalink".
    MAGIC: u64 = 0x000, rw;
    /// Versions of the protocol that the writer supports.
    VERSIONS: Versions = 0x008, rw;
    /// Mask of the features that the writer supports.
    FEATURES: u64 = 0x010, rw;
    /// Bytes of a section.
    SECTION: u64 = 0x018, rw;
    /// Sizes that the writer uses.
    SHAPE: Shape = 0x020, rw;
    /// Random number of the writer's session, not all ones; 0 for no session.
    SESSION: u64 = 0x028, rw;
    /// Session of the reader that the writer has accepted, or 0.
    ECHO: u64 = 0x030, rw;
    /// Counter that the writer increments while it is alive.
    HEARTBEAT: u64 = 0x038, rw;
    /// Number of messages that the writer has put into the reader's ring.
    PRODUCED: Counter = 0x080, rw;
    /// Not 0 while the writer waits for room in the reader's ring.
    NEEDS_CREDITS: u64 = 0x088, rw;
    /// Number of messages that the writer has taken from its own ring.
    CONSUMED: Counter = 0x0c0, rw;
    /// Not 0 while the writer does not poll and needs its doorbell.
    ASLEEP: u64 = 0x0c8, rw;
    /// Words of the messages in the reader's ring, [`WORDS`] for each slot.
    MESSAGES[WORDS * MAX_SLOTS as usize]: u64 = 0x1000, rw;
}

word! {
    /// Value of [`at::VERSIONS`].
    pub(crate) struct Versions(u64);

    fields {
        /// The lowest version.
        LOWEST: u32 = 63, 32;
        /// The highest version.
        HIGHEST: u32 = 31, 0;
    }
}

word! {
    /// Value of [`at::SHAPE`].
    pub(crate) struct Shape(u64);

    fields {
        /// Number of nodes of the link.
        NODES: u32 = 63, 32;
        /// Number of slots of the ring that the writer reads, 1 to [`MAX_SLOTS`].
        SLOTS: u32 = 31, 0;
    }
}

word! {
    /// A counter of messages.
    pub(crate) struct Counter(u64);

    fields {
        /// Key of the session, so that a reader ignores values of earlier sessions.
        KEY: u32 = 63, 32;
        /// Number of messages since the session began.
        COUNT: u32 = 31, 0;
    }
}

/// Returns the slot of message `number` in a ring of `slots` messages.
///
/// # Errors
///
/// `EINVAL` for a ring without slots.
pub(super) fn slot_of(number: u32, slots: u32) -> Result<usize> {
    Ok(usize::try_from(number.checked_rem(slots).ok_or(EINVAL)?)?)
}

/// Returns word `number` of the message in a slot.
///
/// # Errors
///
/// `EINVAL` for a slot or a word outside of the ring.
pub(super) fn message_word(slot: usize, number: usize) -> Result<AreaWord<u64>> {
    at::MESSAGES.at(slot * WORDS + number).ok_or(EINVAL)
}
