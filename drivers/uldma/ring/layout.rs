// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Where everything is in a ring, and what its words say.
//!
//! A ring lies in the memory of its reader. Offsets are from its start, and are multiples of eight;
//! all words are little-endian.

/// The writer's word about the ring in the other direction, which it reads: how many records and
/// lines it has taken, in bits 63 to 48 and 47 to 24, and flags in the lowest. The *state line* begins here.
pub const TAKEN: usize = 0x00;
/// The writer's word about this ring: flags.
pub const OUT: usize = 0x08;
/// A word that no ring uses, for measuring the link itself.
pub const PROBE: usize = 0x40;
/// The *head lines*, one for each record.
pub const HEADS: usize = 0x80;
/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes of a message that lie in the head line; all others lie in *data lines*, behind the heads.
pub const INLINE: usize = 56;
/// Bytes of a message that both ends have a quick way for: a round trip of such messages costs little more
/// than one of a bare word, so every instruction counts there.
pub(super) const SHORT: usize = 8;
/// The word of a head line that says that the record is there: [`head`].
pub const HEAD: usize = INLINE;

/// Flag of both words: the writer sleeps. Ring its doorbell after the next change.
pub const ASLEEP: u64 = 1 << 0;
/// Flag of both words: the writer will not touch the channel again.
pub const CLOSED: u64 = 1 << 1;
/// Flag of [`OUT`]: the writer waits for room; publish how much was taken.
pub const WANTS_ROOM: u64 = 1 << 2;

/// Most head lines of a ring: [`TAKEN`] has 16 bits for records, and half of them tell old counts from new
/// ones.
const MAX_HEADS: u64 = 1 << 15;
/// Most data lines: [`TAKEN`] has 24 bits for them.
const MAX_LINES: u64 = 1 << 22;
const RECORD_BITS: u64 = 0xffff;
const LINE_BITS: u64 = 0xff_ffff;
const RECORD_SHIFT: u32 = 48;
const LINE_SHIFT: u32 = 24;

/// Smallest capacity of a ring.
pub const MIN_CAPACITY: u64 = LINE as u64;
/// Largest capacity of a ring.
pub const MAX_CAPACITY: u64 = MAX_LINES * LINE as u64;

/// Returns the word that says that record `index` is there, with `length` bytes. No record of the first
/// lap has the number zero, which fresh memory has, and none of a lap that of another one before 2^32
/// records.
#[inline(always)]
pub const fn head(index: u64, length: u64) -> u64 {
    (index.wrapping_add(1) << 32) | length
}

/// How many records, and how many data lines of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) lines: u64,
}

impl Counts {
    /// Returns the word that says that so many were taken, without flags.
    pub(super) const fn word(self) -> u64 {
        let records = self.records & RECORD_BITS;
        (records << RECORD_SHIFT) | ((self.lines & LINE_BITS) << LINE_SHIFT)
    }

    /// Returns the counts that a word says, as the first ones that are not below these; none if they are
    /// above `most`.
    pub(super) fn follow(self, word: u64, most: Self) -> Option<Self> {
        let records = (word >> RECORD_SHIFT).wrapping_sub(self.records) & RECORD_BITS;
        let lines = (word >> LINE_SHIFT).wrapping_sub(self.lines) & LINE_BITS;
        let next = Self {
            records: self.records + records,
            lines: self.lines + lines,
        };
        (next.records <= most.records && next.lines <= most.lines).then_some(next)
    }

    /// Returns the flags of a word.
    pub(super) const fn flags(word: u64) -> u64 {
        word & ((1 << LINE_SHIFT) - 1)
    }
}

/// How many head and data lines a ring has: powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    heads: u64,
    lines: u64,
}

impl Geometry {
    /// Returns a ring of 1 to 2^15 head lines and 1 to 2^22 data lines; none for other numbers.
    pub const fn new(heads: u64, lines: u64) -> Option<Self> {
        let heads_fit = heads.is_power_of_two() && heads <= MAX_HEADS;
        if heads_fit && lines.is_power_of_two() && lines <= MAX_LINES {
            Some(Self { heads, lines })
        } else {
            None
        }
    }

    /// Returns the ring of a channel, with data lines of `capacity` bytes: a power of two from
    /// [`MIN_CAPACITY`] to [`MAX_CAPACITY`]; none for another one. It has a quarter as many head lines,
    /// 16 to 4096.
    pub const fn of(capacity: u64) -> Option<Self> {
        if capacity % LINE as u64 != 0 {
            return None;
        }
        let lines = capacity / LINE as u64;
        let heads = match lines / 4 {
            0..16 => 16,
            heads @ 16..4096 => heads,
            _ => 4096,
        };
        Self::new(heads, lines)
    }

    /// Returns the bytes of its data lines.
    pub const fn capacity(self) -> u64 {
        self.lines * LINE as u64
    }

    /// Returns the bytes of memory of the ring.
    pub const fn length(self) -> u64 {
        HEADS as u64 + (self.heads + self.lines) * LINE as u64
    }

    /// Returns the largest number of bytes of a message.
    pub const fn max_message(self) -> usize {
        INLINE + self.capacity() as usize
    }

    /// Returns the data lines of a message of `length` bytes.
    pub(super) const fn lines_of(length: usize) -> u64 {
        length.saturating_sub(INLINE).div_ceil(LINE) as u64
    }

    /// Returns the most records, and the most data lines, that can be in the ring.
    pub(super) const fn room(self) -> Counts {
        Counts {
            records: self.heads,
            lines: self.lines,
        }
    }

    /// Returns the offset of the head line of record `index`.
    #[inline(always)]
    pub(super) const fn head(self, index: u64) -> usize {
        HEADS + (index & (self.heads - 1)) as usize * LINE
    }

    /// Returns the offset of byte `position` of the message whose record begins at `start`, and how many
    /// bytes of it follow there in one piece.
    pub(super) const fn place(self, start: Counts, position: usize) -> (usize, usize) {
        let Some(position) = position.checked_sub(INLINE) else {
            return (self.head(start.records) + position, INLINE - position);
        };
        let data = self.capacity() as usize;
        let first = (start.lines & (self.lines - 1)) as usize * LINE;
        let within = (first + position) & (data - 1);
        (HEADS + self.heads as usize * LINE + within, data - within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_its_lines_side_by_side() {
        let ring = Geometry::new(2, 4).unwrap();
        assert_eq!((ring.length(), ring.max_message()), (0x80 + 6 * 64, 312));
        let at = |records, lines, position| ring.place(Counts { records, lines }, position);
        assert_eq!(at(3, 0, 8), (0x80 + 64 + 8, 48));
        assert_eq!(at(0, 0, 56), (0x80 + 2 * 64, 256));
        // Record 9 begins with the last data line, and goes on with the first one.
        assert_eq!(at(9, 7, 56 + 60), (0x80 + 5 * 64 + 60, 4));
        assert_eq!(at(9, 7, 56 + 64), (0x80 + 2 * 64, 256));
        assert_eq!(
            [0, 56, 57, 120, 121].map(Geometry::lines_of),
            [0, 0, 1, 1, 2]
        );
    }

    #[test]
    fn a_capacity_is_a_power_of_two() {
        let of = |capacity| Geometry::of(capacity).map(|ring| (ring.heads, ring.lines));
        assert_eq!(of(MIN_CAPACITY), Some((16, 1)));
        assert_eq!(of(0x1_0000), Some((256, 1024)));
        assert_eq!(of(MAX_CAPACITY), Some((4096, MAX_LINES)));
        for capacity in [0, 32, 65, 96, 192, 2 * MAX_CAPACITY, 1 << 63] {
            assert_eq!(of(capacity), None);
        }
        assert_eq!(Geometry::new(MAX_HEADS * 2, 1), None);
    }

    #[test]
    fn counts_go_on_beyond_the_bits_of_their_word() {
        let old = Counts {
            records: 0x2_ffff,
            lines: 0x1ff_fff0,
        };
        let most = Counts {
            records: old.records + 4,
            lines: old.lines + 0x20,
        };
        for next in [old, most] {
            assert_eq!(old.follow(next.word(), most), Some(next));
        }
        assert_eq!(most.follow(old.word(), most), None);
        let beyond = Counts {
            lines: most.lines + 1,
            ..most
        };
        assert_eq!(old.follow(beyond.word(), most), None);
        assert_eq!(Counts::flags(most.word() | ASLEEP), ASLEEP);
    }
}
