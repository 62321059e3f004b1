// SPDX-License-Identifier: GPL-2.0

//! The ranges of this node's section that the peer of a connection may write.

use kernel::prelude::*;

use super::{
    ring::Ring,
    state::State,
    ConnCtx,
    Connection,
    Transport, //
};
use crate::{
    kernel_ext::errno::edquot,
    link::{
        quarantine::Hold,
        window_alloc::Payers,
        window_range::WindowRange, //
    }, //
};

/// Bytes of the window that carry one direction of a connection, if the kernels move its data.
const WINDOW_BYTES: u64 = 128 << 10;

/// The ranges of one connection.
#[derive(Clone, Copy, Default)]
pub(super) struct OwnRanges {
    /// Carries data that the kernels move, if it goes through the window.
    window: Option<WindowRange>,
    /// The ring that the programs map, if this side has one.
    ring: Option<WindowRange>,
}

impl OwnRanges {
    /// Allocates the ranges that `writer` writes: a ring of `ring` bytes, if there is room for one, unless
    /// that is zero. The payers pay.
    ///
    /// # Errors
    ///
    /// Those of the allocator of the window; a ring that has no room, or is beyond a limit, is none.
    pub(super) fn alloc(
        ctx: &ConnCtx<'_>,
        writer: u32,
        payers: Payers<'_>,
        transport: Transport,
        ring: u64,
    ) -> Result<Self> {
        let mut ranges = Self::default();
        if transport == Transport::Window {
            ranges.window = Some(alloc_zeroed(ctx, writer, payers, WINDOW_BYTES)?);
        }
        if ring > 0 {
            match alloc_zeroed(ctx, writer, payers, ring) {
                Ok(range) => ranges.ring = Some(range),
                Err(err) if err == ENOSPC || err == edquot() => (),
                Err(err) => {
                    ranges.free(ctx);
                    return Err(err);
                }
            }
        }
        Ok(ranges)
    }

    /// Gives the ranges to the state of a new connection.
    pub(super) fn give_to(self, state: &mut State) {
        state.own_window = self.window;
        state.own_ring = self.ring.map(Ring::new);
    }

    /// Frees the ranges, which the peer does not know, or does not write any more.
    pub(super) fn free(self, ctx: &ConnCtx<'_>) {
        for range in self.each() {
            ctx.window_alloc.free(range);
        }
    }

    /// Ends the use of each range, see [`WindowAllocator::end`].
    ///
    /// [`WindowAllocator::end`]: crate::link::window_alloc::WindowAllocator::end
    pub(super) fn end(self, ctx: &ConnCtx<'_>, hold: impl Fn() -> Option<Hold>) {
        for range in self.each() {
            ctx.window_alloc.end(range, &hold);
        }
    }

    fn each(self) -> impl Iterator<Item = WindowRange> {
        [self.window, self.ring].into_iter().flatten()
    }
}

impl State {
    /// Takes the ranges out of a connection whose ring no program maps.
    pub(super) fn take_ranges(&mut self) -> OwnRanges {
        OwnRanges {
            window: self.own_window.take(),
            ..self.take_ring()
        }
    }

    /// Takes the ring out, which no program maps.
    pub(super) fn take_ring(&mut self) -> OwnRanges {
        OwnRanges {
            window: None,
            ring: self.own_ring.take().map(|ring| ring.range),
        }
    }
}

impl Connection {
    /// Takes the ranges out. When this returns, the program here does not map them any more.
    pub(super) fn take_ranges(&self, ctx: &ConnCtx<'_>) -> OwnRanges {
        let ring = self.end_rings(ctx);
        let window = self.state.lock().own_window.take();
        OwnRanges { window, ring }
    }
}

fn alloc_zeroed(
    ctx: &ConnCtx<'_>,
    writer: u32,
    payers: Payers<'_>,
    bytes: u64,
) -> Result<WindowRange> {
    let range = ctx.window_alloc.alloc(writer, payers, bytes)?;
    let zeroed = ctx.gate.try_enter().and_then(|guard| {
        let hw = guard.hw();
        hw.zero_window(range.offset(), range.length())
    });
    zeroed.inspect_err(|_| ctx.window_alloc.free(range))?;
    Ok(range)
}
