// SPDX-License-Identifier: GPL-2.0

//! The positions in a ring of frames, in blocks.
//!
//! Counters count blocks since the ring began, modulo 2^32, and carry the key of the ring in their
//! upper half. A counter with another key is of an earlier ring and is ignored.

use kernel::prelude::*;

use crate::{
    hw::layout::word::*,
    kernel_ext::errno::eproto, //
};

word! {
    /// A counter of blocks.
    pub(super) struct Counter(u64);

    fields {
        /// Key of the ring.
        KEY: u32 = 63, 32;
        /// Number of blocks since the ring began.
        COUNT: u32 = 31, 0;
    }
}

/// A place in the ring, and how often blocks were passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    count: u32,
    /// The number of the block, which has another remainder than the count when that wraps.
    block: u32,
}

impl Position {
    fn advance(&mut self, by: u32, blocks: u32) {
        self.count = self.count.wrapping_add(by);
        // Both are at most the blocks of the ring, which are far fewer than 2^31.
        self.block = self.block.saturating_add(by);
        if self.block >= blocks {
            self.block -= blocks;
        }
    }
}

/// Returns the counter of the ring `key`.
fn counter(key: u32, count: u32) -> Counter {
    Counter::NONE
        .with(Counter::KEY, key)
        .with(Counter::COUNT, count)
}

/// Returns true if `count` is at `wanted`, or beyond it.
fn has_passed(count: u32, wanted: u32) -> bool {
    count.wrapping_sub(wanted) <= u32::MAX / 2
}

/// The writer's side of a ring, which is in the section of a peer.
#[derive(Debug)]
pub(super) struct Producer {
    key: u32,
    blocks: u32,
    produced: Position,
    /// The part of these blocks that the peer was told of.
    published: u32,
    consumed: u32,
    /// The part of these that was reported.
    completed: u32,
    /// The counter for which the peer's doorbell rang last.
    rung_for: Option<u32>,
}

impl Producer {
    /// Begins to write the ring `key` of `blocks` blocks.
    pub(super) fn new(key: u32, blocks: u32) -> Self {
        Self {
            key,
            blocks,
            produced: Position::default(),
            published: 0,
            consumed: 0,
            completed: 0,
            rung_for: None,
        }
    }

    /// Returns the key.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Returns the number of blocks of the ring.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of the block where the next frame begins.
    pub(super) fn block(&self) -> u32 {
        self.produced.block
    }

    /// Returns the number of free blocks, as far as is known.
    pub(super) fn room(&self) -> u32 {
        self.blocks.saturating_sub(self.in_flight())
    }

    /// Returns the number of blocks that the peer has not consumed, as far as is known.
    pub(super) fn in_flight(&self) -> u32 {
        self.produced.count.wrapping_sub(self.consumed)
    }

    /// Returns the number of blocks that were consumed since the last call.
    pub(super) fn take_completed(&mut self) -> u32 {
        let before = core::mem::replace(&mut self.completed, self.consumed);
        self.consumed.wrapping_sub(before)
    }

    /// Returns the counter by which half of what is on its way is consumed, and `least` blocks are
    /// free: the peer is to ring when it has consumed so much.
    pub(super) fn wanted(&self, least: u32) -> Counter {
        let kept = (self.in_flight() / 2).min(self.blocks.saturating_sub(least));
        counter(self.key, self.produced.count.wrapping_sub(kept))
    }

    /// Returns true if the peer has consumed as much as `wanted` says.
    pub(super) fn has(&self, wanted: Counter) -> bool {
        wanted.get(Counter::KEY) == self.key
            && has_passed(self.consumed, wanted.get(Counter::COUNT))
    }

    /// Notes the counter of consumed blocks that the peer wrote. Returns true if it has changed.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer consumed what was not published, or takes something back.
    pub(super) fn consumed(&mut self, counter: Counter) -> Result<bool> {
        if counter.get(Counter::KEY) != self.key {
            return Ok(false);
        }
        let consumed = counter.get(Counter::COUNT);
        let more = consumed.wrapping_sub(self.consumed);
        if more > self.published.wrapping_sub(self.consumed) {
            return Err(eproto());
        }
        self.consumed = consumed;
        Ok(more > 0)
    }

    /// Passes a frame of `blocks` blocks, for which there is room.
    pub(super) fn produce(&mut self, blocks: u32) {
        self.produced.advance(blocks, self.blocks);
    }

    /// Returns the number of blocks that were produced.
    pub(super) fn produced(&self) -> u32 {
        self.produced.count
    }

    /// Returns the number of blocks that were consumed, as far as is known.
    pub(super) fn consumed_blocks(&self) -> u32 {
        self.consumed
    }

    /// Publishes the blocks up to the count `produced`. Returns the counter for the peer, or none if it
    /// knows of them.
    pub(super) fn publish(&mut self, produced: u32) -> Option<Counter> {
        let before = core::mem::replace(&mut self.published, produced);
        (before != produced).then(|| counter(self.key, produced))
    }

    /// Returns true if the doorbell of a peer that says that it sleeps has to ring, and notes that
    /// it rings. A peer that was rung for a frame that it has not taken will see all frames.
    pub(super) fn needs_doorbell(&mut self) -> bool {
        let is_awakening = self.rung_for.is_some_and(|rung_for| {
            let waiting = self.published.wrapping_sub(self.consumed);
            let since = self.published.wrapping_sub(rung_for);
            waiting > since
        });
        if !is_awakening {
            self.rung_for = Some(self.published);
        }
        !is_awakening
    }
}

/// The reader's side of a ring, which is in the own section.
#[derive(Debug)]
pub(super) struct Consumer {
    key: u32,
    blocks: u32,
    consumed: Position,
    /// The counter that the peer waited for when its doorbell rang last.
    rung_for: Option<u32>,
}

impl Consumer {
    /// Begins to read the ring `key` of `blocks` blocks.
    pub(super) fn new(key: u32, blocks: u32) -> Self {
        Self {
            key,
            blocks,
            consumed: Position::default(),
            rung_for: None,
        }
    }

    /// Returns the key.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Returns the number of blocks of the ring.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of the block where the next frame begins.
    pub(super) fn block(&self) -> u32 {
        self.consumed.block
    }

    /// Returns true if the doorbell of a peer that waits until `wanted` is consumed has to ring, and
    /// notes that it rings. It rings once for each counter.
    pub(super) fn needs_doorbell(&mut self, wanted: Counter) -> bool {
        let count = wanted.get(Counter::COUNT);
        let rings = wanted.get(Counter::KEY) == self.key
            && has_passed(self.consumed.count, count)
            && self.rung_for != Some(count);
        if rings {
            self.rung_for = Some(count);
        }
        rings
    }

    /// Returns the number of blocks that the peer has produced and this side has not consumed, by
    /// the counter that the peer wrote.
    ///
    /// # Errors
    ///
    /// `EPROTO` if these are more than the ring has.
    pub(super) fn pending(&self, counter: Counter) -> Result<u32> {
        if counter.get(Counter::KEY) != self.key {
            return Ok(0);
        }
        let pending = counter
            .get(Counter::COUNT)
            .wrapping_sub(self.consumed.count);
        if pending > self.blocks {
            return Err(eproto());
        }
        Ok(pending)
    }

    /// Passes a frame of `blocks` blocks.
    pub(super) fn consume(&mut self, blocks: u32) {
        self.consumed.advance(blocks, self.blocks);
    }

    /// Returns the counter of consumed blocks.
    pub(super) fn counter(&self) -> Counter {
        counter(self.key, self.consumed.count)
    }
}

#[kunit_tests(uldma_net_ring)]
mod tests {
    use super::*;

    const KEY: u32 = 77;

    /// Produces and publishes blocks.
    fn send(writer: &mut Producer, blocks: u32) -> Counter {
        writer.produce(blocks);
        writer.publish(writer.produced()).unwrap()
    }

    /// Begins to count somewhere.
    fn count_from(writer: &mut Producer, start: u32) {
        writer.produced.count = start;
        writer.published = start;
        writer.consumed = start;
        writer.completed = start;
    }

    #[test]
    fn a_ring_that_wraps_keeps_order_and_room() {
        // No divisor of 2^32, so that count and block differ.
        let blocks = 100;
        let (mut writer, mut reader) = (Producer::new(KEY, blocks), Consumer::new(KEY, blocks));
        count_from(&mut writer, u32::MAX - 250);
        reader.consumed.count = writer.produced.count;
        for size in [30, 50, 1, 49, 100, 7].into_iter().cycle().take(60) {
            assert_eq!(writer.room(), blocks);
            assert_eq!(writer.block(), reader.block());
            let produced = send(&mut writer, size);
            assert_eq!(writer.room(), blocks - size);
            assert_eq!(reader.pending(produced), Ok(size));
            reader.consume(size);
            assert_eq!(reader.pending(produced), Ok(0));
            assert_eq!(writer.consumed(reader.counter()), Ok(true));
            assert_eq!(writer.consumed(reader.counter()), Ok(false));
        }
    }

    #[test]
    fn counters_of_another_ring_are_ignored() {
        let (mut writer, reader) = (Producer::new(KEY, 8), Consumer::new(KEY, 8));
        send(&mut writer, 4);
        assert_eq!(writer.consumed(counter(KEY + 1, 4)), Ok(false));
        assert_eq!(reader.pending(counter(KEY + 1, 4)), Ok(0));
        assert_eq!(reader.pending(Counter::NONE), Ok(0));
        assert_eq!(writer.room(), 4);
    }

    #[test]
    fn no_counter_names_what_is_not_there() {
        let (mut writer, mut reader) = (Producer::new(KEY, 8), Consumer::new(KEY, 8));
        for count in [9, u32::MAX, 1 << 31] {
            assert_eq!(reader.pending(counter(KEY, count)), Err(eproto()));
        }
        send(&mut writer, 4);
        // What is not published is not there.
        writer.produce(2);
        for count in [5, u32::MAX, 1 << 31] {
            assert_eq!(writer.consumed(counter(KEY, count)), Err(eproto()));
        }
        assert_eq!(writer.consumed(counter(KEY, 3)), Ok(true));
        // It takes one back.
        assert_eq!(writer.consumed(counter(KEY, 2)), Err(eproto()));
        reader.consume(3);
        assert_eq!(reader.pending(counter(KEY, 2)), Err(eproto()));
    }

    #[test]
    fn a_writer_that_waits_is_rung_once_when_half_is_free() {
        let (mut writer, mut reader) = (Producer::new(KEY, 10), Consumer::new(KEY, 10));
        for start in [0, u32::MAX - 7] {
            count_from(&mut writer, start);
            reader.consumed.count = start;
            send(&mut writer, 10);
            for (least, free) in [(1, 5), (7, 7)] {
                let wanted = writer.wanted(least);
                assert_eq!(wanted.get(Counter::COUNT), start.wrapping_add(free));
            }
            let wanted = writer.wanted(1);
            reader.consume(4);
            assert_eq!(writer.consumed(reader.counter()), Ok(true));
            assert!(!writer.has(wanted) && !reader.needs_doorbell(wanted));
            assert_eq!((writer.take_completed(), writer.take_completed()), (4, 0));
            reader.consume(1);
            assert_eq!(writer.consumed(reader.counter()), Ok(true));
            assert!(writer.has(wanted));
            assert!(reader.needs_doorbell(wanted) && !reader.needs_doorbell(wanted));
            // No writer waits, or one of another ring.
            assert!(!reader.needs_doorbell(Counter::NONE));
            assert!(!reader.needs_doorbell(counter(KEY + 1, start)));
            reader.consume(5);
        }
    }

    #[test]
    fn a_peer_is_rung_once_for_what_it_has_not_taken() {
        let mut writer = Producer::new(KEY, 8);
        send(&mut writer, 2);
        assert!(writer.needs_doorbell());
        send(&mut writer, 2);
        assert!(!writer.needs_doorbell());
        // It has taken the frame that it was rung for, and not the other.
        assert_eq!(writer.consumed(counter(KEY, 2)), Ok(true));
        assert!(writer.needs_doorbell());
        assert!(!writer.needs_doorbell());
        assert_eq!(writer.consumed(counter(KEY, 4)), Ok(true));
        send(&mut writer, 1);
        assert!(writer.needs_doorbell());
    }

    #[test]
    fn a_peer_learns_only_of_what_is_published() {
        let mut writer = Producer::new(KEY, 8);
        writer.produce(2);
        writer.produce(3);
        assert_eq!(writer.room(), 3);
        assert_eq!(writer.publish(0), None);
        assert_eq!(writer.publish(2), Some(counter(KEY, 2)));
        assert_eq!(writer.consumed(counter(KEY, 5)), Err(eproto()));
        assert_eq!(writer.publish(5), Some(counter(KEY, 5)));
        assert_eq!(writer.consumed(counter(KEY, 5)), Ok(true));
    }
}
