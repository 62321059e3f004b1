// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings: messages between the nodes over a pair of window segments.
//!
//! Each side writes into the peer's memory and reads its own; no side reads across the link. The
//! layout, the memory ordering and the rules against a hostile peer are in
//! `Documentation/uldma/ring.rst`. This module implements that page, over any memory that has the
//! two halves [`Inbound`] and [`Outbound`]; [`crate::Channel`] runs it over the window.

mod consumer;
mod duplex;
mod fast;
mod producer;

pub use consumer::{Consumer, Popped};
pub use duplex::Duplex;
pub use producer::{Producer, Pushed};

/// Version of layout and rules, which both sides of a channel say.
pub(crate) const VERSION: u16 = 2;

/// Offsets in a segment. All words are 64 bits, little-endian.
pub mod layout {
    /// The writer's producer word: bytes that it ever wrote to [`DATA`], and flags. The *state
    /// line* starts here: one cache line with all words of a short message.
    pub const PRODUCER: usize = 0x080;
    /// The writer's consumer word: bytes that it ever read on its own side, and flags.
    pub const CONSUMER: usize = 0x088;
    /// The writer's slot word: the record that lies in [`SLOT_DATA`] and not in [`DATA`], as its
    /// index times 32, plus the length of its payload plus one; zero at first.
    pub const SLOT: usize = 0x090;
    /// The payload of that record.
    pub const SLOT_DATA: usize = 0x098;
    /// Bytes of [`SLOT_DATA`]; the state line ends there.
    pub const SLOT_SIZE: usize = 40;
    /// A word that no ring uses, for measuring the link itself.
    pub const PROBE: usize = 0x100;
    /// The ring's bytes, a power of two of them.
    pub const DATA: usize = 0x1000;

    /// Bytes of a record's header: length of the payload, and four zero bytes.
    pub const HEADER: usize = 8;
    /// Records start at multiples of this, and indices are multiples of it.
    pub const ALIGN: u64 = 8;

    /// Flag of both words: the writer sleeps; ring its doorbell after the next change.
    pub const ASLEEP: u64 = 1 << 0;
    /// Flag of both words: the writer will not touch the channel again.
    pub const CLOSED: u64 = 1 << 1;
    /// Flag of the producer word: the writer waits for room; publish the consumed index.
    pub const WANTS_ROOM: u64 = 1 << 2;
    /// All flags; the other bits of a word are the index.
    pub const FLAGS: u64 = ALIGN - 1;

    /// Smallest ring.
    pub const MIN_CAPACITY: u64 = 64;
    /// Largest ring.
    pub const MAX_CAPACITY: u64 = 1 << 30;

    /// Returns true if a ring can have this many bytes.
    pub const fn is_capacity(capacity: u64) -> bool {
        capacity.is_power_of_two() && capacity >= MIN_CAPACITY && capacity <= MAX_CAPACITY
    }

    /// Returns the bytes of a segment with a ring of `capacity` bytes.
    pub const fn length(capacity: u64) -> u64 {
        DATA as u64 + capacity
    }

    /// Returns the bytes that a message of `length` bytes takes in the ring.
    #[inline]
    pub const fn record_size(length: u64) -> u64 {
        (length + HEADER as u64).next_multiple_of(ALIGN)
    }

    /// Returns the slot word of an empty message at `index`; longer ones add their length.
    #[inline]
    pub(super) const fn slot_base(index: u64) -> u64 {
        (index << 5) + 1
    }
}

/// This side's segment, to which the peer may write any bytes at any time.
///
/// It may be write-combining memory, where loads pass each other even if they would be ordered for
/// cached memory: only [`Inbound::acquire`] keeps them in order.
///
/// Words are little-endian in memory, and loads convert them.
pub trait Inbound {
    /// Loads the word at `offset` (a multiple of eight) once. Later stores come after it.
    fn load(&self, offset: usize) -> u64;

    /// Loads the word at `offset` (a multiple of eight) once. All later accesses come after it:
    /// they see all that the peer wrote before it published the word.
    fn acquire(&self, offset: usize) -> u64;

    /// Acquires the word until it differs from `old`, at most `polls` times and at least once.
    /// Returns the last value.
    #[inline]
    fn await_change(&self, offset: usize, old: u64, polls: u32) -> u64 {
        let mut word = self.acquire(offset);
        for _ in 1..polls {
            if word != old {
                break;
            }
            word = self.acquire(offset);
        }
        word
    }

    /// Copies bytes at `offset`, each of them once.
    fn read(&self, offset: usize, target: &mut [u8]);

    /// Orders all earlier accesses, stores among them, before all later ones.
    fn fence(&self);
}

/// The peer's segment, which this side only writes.
///
/// It may be write-combining memory, which stores reach in any order, and late: only
/// [`Outbound::publish`] keeps them in order, and a side that waits afterwards needs an
/// [`Inbound::fence`].
///
/// Words are little-endian in memory, and stores convert them.
pub trait Outbound {
    /// Stores the word at `offset` (a multiple of eight).
    fn store(&self, offset: usize, value: u64);

    /// Stores the word at `offset` (a multiple of eight) after all earlier accesses: a reader that
    /// acquires the word sees all that was written before.
    fn publish(&self, offset: usize, value: u64);

    /// Copies bytes to `offset`.
    fn write(&self, offset: usize, source: &[u8]);
}

/// A violation of the rules by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// An index went back, or beyond the room or the data.
    #[error("an index is out of range")]
    Index,
    /// A flag is set that does not exist.
    #[error("an unknown flag is set")]
    Flags,
    /// A message is longer than the written bytes, or its header has bits that must be zero.
    #[error("the length of a message is out of range")]
    Length,
    /// The peer's handshake record is invalid.
    #[error("the handshake is not of this protocol")]
    Handshake,
    /// The peer names a place outside of the memory that it may write.
    #[error("a place is outside of the memory")]
    Place,
}

/// Reason for which a message could not be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The peer broke the rules; the ring stays unusable.
    Violation(Violation),
    /// The peer has closed its side.
    Closed,
    /// The message has more bytes than the ring or the buffer can hold.
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Largest number of bytes that fits.
        limit: usize,
    },
}

/// Splits a range of the ring: returns its start, and how many bytes lie before the wrap.
#[inline]
fn split(position: u64, length: usize, capacity: u64) -> (usize, usize) {
    let start = (position & (capacity - 1)) as usize;
    (layout::DATA + start, length.min(capacity as usize - start))
}
