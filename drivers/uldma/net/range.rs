// SPDX-License-Identifier: GPL-2.0

//! The range of a section into which a peer writes frames: its words, and its ring.
//!
//! `Documentation/uldma/network.rst` has the same table.

use kernel::prelude::*;

use super::{
    frame::{
        self,
        Header,
        RawHeader,
        Way,
        BLOCK,
        HEADER, //
    },
    ring::Counter, //
};
use crate::{
    hw::{
        layout::Word,
        le::Le,
        Hw, //
    },
    kernel_ext::net::skb::SkBuff,
    link::window_range::WindowRange,
};

/// Blocks that the writer has filled, of the ring behind.
const PRODUCED: usize = 0x00;
/// The count of blocks by which the writer, which waits for room, is to be rung; else 0.
const WANTED: usize = 0x08;
/// Blocks that the writer has taken from its own ring.
const CONSUMED: usize = 0x40;
/// The lowest bit is set while the writer does not poll its own ring, of this key.
const ASLEEP: usize = 0x48;
/// Buffers that the writer has posted for the messages of this node.
const POSTED: usize = 0x50;
/// The ring.
const RING: usize = 0x100;

/// Returns the number of blocks of the ring in a range.
pub(super) fn ring_blocks(range: WindowRange) -> u32 {
    let blocks = range.length().saturating_sub(RING) / BLOCK;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// The pieces of a packet that begins behind the header of a frame: where they are in the range,
/// and where in the packet.
fn pieces(block: u32, blocks: u32, bytes: u32) -> Result<[(usize, u32, u32); 2]> {
    let start = usize::try_from(block)? * BLOCK + HEADER;
    let end = usize::try_from(blocks)? * BLOCK;
    let first = u32::try_from(end.checked_sub(start).ok_or(EINVAL)?)?.min(bytes);
    Ok([(RING + start, 0, first), (RING, first, bytes - first)])
}

/// The range in the own section that a peer writes.
#[derive(Clone, Copy)]
pub(super) struct OwnRange<'a> {
    pub(super) hw: Hw<'a>,
    pub(super) range: WindowRange,
}

impl OwnRange<'_> {
    fn read<W: Word>(&self, offset: usize) -> Result<W> {
        Ok(self
            .hw
            .read_window::<W>(self.range.offset() + offset)?
            .get())
    }

    /// Returns the counter of blocks that the peer has produced.
    pub(super) fn produced(&self) -> Result<Counter> {
        self.read(PRODUCED)
    }

    /// Returns the counter of blocks that the peer has taken from its ring.
    pub(super) fn consumed(&self) -> Result<Counter> {
        self.read(CONSUMED)
    }

    /// Returns the counter of consumed blocks that the peer waits for; none if it does not wait.
    pub(super) fn wanted(&self) -> Result<Counter> {
        self.read(WANTED)
    }

    /// Returns true unless the peer polls its ring `key`.
    pub(super) fn is_asleep(&self, key: u32) -> Result<bool> {
        let asleep: Counter = self.read(ASLEEP)?;
        Ok(asleep.get(Counter::KEY) != key || asleep.get(Counter::COUNT) != 0)
    }

    /// Returns the counter of buffers that the peer has posted for messages.
    pub(super) fn posted(&self) -> Result<Counter> {
        self.read(POSTED)
    }

    /// Reads the header of the frame at `block`.
    pub(super) fn header(&self, block: u32) -> Result<RawHeader> {
        let place = self.range.offset() + RING + usize::try_from(block)? * BLOCK;
        Ok([
            self.hw.read_window(place)?,
            self.hw.read_window(place + size_of::<u64>())?,
        ])
    }

    /// Copies the packet of the frame at `block` of a ring of `blocks` blocks into `skb`, of its
    /// length.
    pub(super) fn copy_packet(&self, block: u32, blocks: u32, skb: &mut SkBuff) -> Result {
        let window = self.hw.window()?;
        let node = self.hw.geometry().node;
        for (place, start, count) in pieces(block, blocks, skb.len())? {
            if count > 0 {
                let place = self.hw.in_section(node, self.range.offset() + place)?;
                skb.copy_from_window(start, count, window, place)?;
            }
        }
        Ok(())
    }
}

/// The range in the section of a peer that this node writes.
#[derive(Clone, Copy)]
pub(super) struct PeerRange<'a> {
    pub(super) hw: Hw<'a>,
    pub(super) peer: u32,
    pub(super) range: WindowRange,
}

impl PeerRange<'_> {
    fn publish<W: Word>(&self, offset: usize, value: W) -> Result {
        let offset = self.range.offset() + offset;
        self.hw.publish_window(self.peer, offset, Le::new(value))
    }

    /// Publishes the counter of blocks that this node has produced, after their contents.
    pub(super) fn publish_produced(&self, counter: Counter) -> Result {
        self.publish(PRODUCED, counter)
    }

    /// Publishes the counter of blocks that this node has taken from its ring.
    pub(super) fn publish_consumed(&self, counter: Counter) -> Result {
        self.publish(CONSUMED, counter)
    }

    /// Publishes the counter of consumed blocks that this node waits for, or none.
    pub(super) fn publish_wanted(&self, wanted: Counter) -> Result {
        self.publish(WANTED, wanted)
    }

    /// Publishes the counter of buffers that this node has posted, after what it posted.
    pub(super) fn publish_posted(&self, counter: Counter) -> Result {
        self.publish(POSTED, counter)
    }

    /// Publishes whether this node does not poll its ring `key`.
    pub(super) fn set_asleep(&self, key: u32, asleep: bool) -> Result {
        let word = Counter::NONE
            .with(Counter::KEY, key)
            .with(Counter::COUNT, asleep.into());
        self.publish(ASLEEP, word)
    }

    /// Writes a frame of `skb`, by `way`, at `block` of a ring of `blocks` blocks. It is complete when it
    /// is published. Returns its header.
    pub(super) fn write_frame(
        &self,
        (block, blocks): (u32, u32),
        way: Way,
        skb: &SkBuff,
    ) -> Result<Header> {
        let header = Header {
            bytes: skb.len(),
            way,
            offload: skb.offload()?,
        };
        if !frame::is_offered(&header.offload) {
            return Err(EINVAL);
        }
        self.write_header(block, &header)?;
        let window = self.hw.window()?;
        for (place, from, count) in pieces(block, blocks, header.bytes_in_frame())? {
            if count > 0 {
                let place = self.hw.in_section(self.peer, self.range.offset() + place)?;
                skb.copy_to_window(from, count, window, place)?;
            }
        }
        Ok(header)
    }

    /// Writes the header of the frame at `block`, which is not published.
    pub(super) fn write_header(&self, block: u32, header: &Header) -> Result {
        let start = self.range.offset() + RING + usize::try_from(block)? * BLOCK;
        for (number, word) in header.encode().into_iter().enumerate() {
            let place = start + number * size_of_val(&word);
            self.hw.write_window(self.peer, place, word)?;
        }
        Ok(())
    }
}

/// Returns the bytes of the longest packet for a range.
pub(super) fn longest(range: WindowRange) -> u32 {
    frame::longest(ring_blocks(range))
}

#[kunit_tests(uldma_net_range)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_on_at_the_start() -> Result {
        let last = 9 * BLOCK + HEADER;
        assert_eq!(
            pieces(0, 10, 100)?,
            [(RING + HEADER, 0, 100), (RING, 100, 0)]
        );
        assert_eq!(pieces(9, 10, 48)?, [(RING + last, 0, 48), (RING, 48, 0)]);
        assert_eq!(pieces(9, 10, 50)?, [(RING + last, 0, 48), (RING, 48, 2)]);
        Ok(())
    }

    #[test]
    fn no_piece_is_beyond_the_ring() {
        assert_eq!(pieces(10, 10, 1), Err(EINVAL));
        assert_eq!(pieces(u32::MAX, 10, 1), Err(EINVAL));
    }
}
