// SPDX-License-Identifier: GPL-2.0

//! Copies between memory of this node and of the peer.

use kernel::prelude::*;

use super::{
    buffer::Buffer,
    stream::{
        Offer,
        Piece, //
    }, //
};
use crate::{
    hw::{
        Command,
        CpuCopy,
        Hardware,
        Hw,
        PeerRegionOffset,
        RegionOffset, //
    },
    kernel_ext::{
        page_list::PageList,
        window::Window, //
    },
    link::window_range::WindowRange, //
};

/// The remote side of a copy.
#[derive(Clone, Copy)]
pub(super) struct PeerSide {
    pub(super) node: u32,
    /// Generation of the hardware's link to the peer.
    pub(super) link_generation: u32,
    /// True if the memory of the peer is the destination.
    pub(super) push: bool,
}

/// Returns the command by which the engine moves `length` bytes between `piece` and `offer`.
pub(super) fn command(
    piece: &Piece<'_, Buffer>,
    offer: &Offer,
    peer: PeerSide,
    length: u64,
) -> Result<Command> {
    let here = RegionOffset {
        region: piece.buffer.region()?,
        offset: piece.offset,
    };
    let there = PeerRegionOffset {
        node: peer.node,
        link_generation: peer.link_generation,
        at: RegionOffset {
            region: u32::try_from(offer.token)?,
            offset: offer.offset,
        },
        generation: offer.generation,
    };
    Ok(match peer.push {
        true => Command::Push {
            src: here,
            dst: there,
            length,
        },
        false => Command::Pull {
            src: there,
            dst: here,
            length,
        },
    })
}

/// Moves `length` bytes between `piece` and `offer` with this CPU.
pub(super) fn by_cpu(
    hw: &dyn Hardware,
    piece: &Piece<'_, Buffer>,
    offer: &Offer,
    peer: PeerSide,
    length: u64,
) -> Result {
    let copy = CpuCopy {
        push: peer.push,
        here: piece.buffer.pages()?,
        from: usize::try_from(piece.offset)?,
        token: offer.token,
        at: usize::try_from(offer.offset)?,
        length: usize::try_from(length)?,
    };
    hw.copy(peer.node, &copy)
}

/// A range of a section that carries one direction of a connection: byte `n` of the direction is at
/// `n` modulo the length of the range.
#[derive(Clone, Copy)]
pub(super) struct ByteRing {
    pub(super) node: u32,
    pub(super) window: WindowRange,
}

impl ByteRing {
    /// Calls `visit` for the bytes from `position` on, in up to two pieces, with offset in the
    /// section, bytes before, and bytes.
    fn pieces(
        &self,
        position: u64,
        length: usize,
        mut visit: impl FnMut(usize, usize, usize) -> Result,
    ) -> Result {
        let size = self.window.length();
        let at = position.checked_rem(u64::try_from(size)?).ok_or(EINVAL)?;
        let at = usize::try_from(at)?;
        let first = length.min(size - at);
        visit(self.window.offset() + at, 0, first)?;
        match length - first {
            0 => Ok(()),
            rest if rest <= size => visit(self.window.offset(), first, rest),
            _ => Err(EINVAL),
        }
    }

    /// Copies `length` bytes of `piece` to `position` in the window.
    pub(super) fn push(
        &self,
        hw: Hw<'_>,
        position: u64,
        piece: &Piece<'_, Buffer>,
        length: u64,
    ) -> Result {
        self.copy(hw, position, (piece, length), Window::copy_in)
    }

    /// Copies `length` bytes from `position` in the window to `piece`.
    pub(super) fn pull(
        &self,
        hw: Hw<'_>,
        position: u64,
        piece: &Piece<'_, Buffer>,
        length: u64,
    ) -> Result {
        self.copy(hw, position, (piece, length), Window::copy_out)
    }

    /// Calls `copy` with window and offset, pages and offset, and number of bytes.
    fn copy(
        &self,
        hw: Hw<'_>,
        position: u64,
        (piece, length): (&Piece<'_, Buffer>, u64),
        copy: impl Fn(&Window, usize, &PageList, usize, usize) -> Result,
    ) -> Result {
        let (pages, start) = (piece.buffer.pages()?, usize::try_from(piece.offset)?);
        self.pieces(position, usize::try_from(length)?, |at, before, bytes| {
            let at = hw.in_section(self.node, at)?;
            copy(hw.window()?, at, pages, start + before, bytes)
        })
    }
}
