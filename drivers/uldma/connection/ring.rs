// SPDX-License-Identifier: GPL-2.0

//! The rings of a connection: ranges of the window that its two programs map, each written by one of them
//! and read by the other.
//!
//! A side that offers a ring allocates it before it tells the peer. The connection has rings if both sides
//! offer one. They end with it: a side revokes what its program has mapped of the peer's ring before it
//! sends *disconnect* or *disconnected*, and of its own one before it frees the range.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    state::State,
    ConnCtx,
    Connection, //
};
use crate::{
    kernel_ext::errno::eproto,
    link::{
        message::Extent,
        segment::{
            NewSegment,
            Segment,
            Side, //
        },
        window_range::WindowRange, //
    },
    user_abi::{
        events::Events,
        ledger::Share, //
    }, //
};

/// A ring of one side, and the segment by which the program here accesses it.
pub(super) struct Ring {
    pub(super) range: WindowRange,
    segment: Option<Arc<Segment>>,
}

impl Ring {
    pub(super) fn new(range: WindowRange) -> Self {
        Self {
            range,
            segment: None,
        }
    }

    /// Returns the segment, if it has not ended.
    fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref().filter(|segment| segment.is_offered())
    }
}

impl State {
    /// Returns the ring of a side.
    ///
    /// # Errors
    ///
    /// `ENOENT` unless both sides have one.
    fn ring(&mut self, side: Side) -> Result<&mut Ring> {
        match (&mut self.own_ring, &mut self.peer_ring) {
            (Some(own), Some(peer)) => Ok(match side {
                Side::Own => own,
                Side::Peer => peer,
            }),
            _ => Err(ENOENT),
        }
    }

    /// Returns true if the program here can write the peer's ring.
    pub(super) fn writes_ring(&self) -> bool {
        let ring = self.peer_ring.as_ref();
        ring.is_some_and(|ring| ring.segment().is_some())
    }

    /// Returns the bytes of the peer's ring, or zero if the connection has no rings.
    pub(super) fn peer_ring_bytes(&self) -> usize {
        match (&self.own_ring, &self.peer_ring) {
            (Some(_), Some(ring)) => ring.range.length(),
            _ => 0,
        }
    }

    /// Returns what names the own ring in a message.
    pub(super) fn ring_extent(&self) -> Result<Extent> {
        extent(self.own_ring.as_ref().map(|ring| ring.range))
    }
}

/// Returns what names a range of the own section in a message.
pub(super) fn extent(range: Option<WindowRange>) -> Result<Extent> {
    range.map_or(Ok(Extent::NONE), |range| {
        Extent::new(range.offset(), range.length())
    })
}

/// Checks the range that `node` names in its section, if it names one.
///
/// # Errors
///
/// `EPROTO` for a range outside of the lane of this node.
pub(super) fn range_of_peer(
    ctx: &ConnCtx<'_>,
    node: u32,
    extent: Extent,
) -> Result<Option<WindowRange>> {
    if extent == Extent::NONE {
        return Ok(None);
    }
    let lane = ctx.hw.geometry().outbound(node).map_err(|_| eproto())?;
    let (offset, length) = extent.bytes();
    WindowRange::of_peer(offset, length, &lane).map(Some)
}

impl Connection {
    /// Makes the segment of the ring of one side, for an open file, which pays `share`.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the connection has no rings, `EBUSY` if there is such a segment, `ENOMEM`, `ENOSPC` if
    /// all mmap offsets are used up.
    pub(crate) fn map_ring(
        &self,
        ctx: &ConnCtx<'_>,
        owner: (u64, Share),
        events: &Arc<Events>,
        handle: u32,
        side: Side,
    ) -> Result<Arc<Segment>> {
        let segments = &ctx.segments();
        let node = match side {
            Side::Own => ctx.hw.geometry().node,
            Side::Peer => self.node,
        };
        let range = self.state.lock().ring(side)?.range;
        let new = NewSegment::of_ring(segments, owner, events, handle, (node, range))?;
        // The end of the connection takes this lock before it looks for segments.
        let mut state = self.state.lock();
        let over = side == Side::Peer && state.closing.has_begun();
        match state.ring(side).map(|ring| ring.segment().is_none()) {
            Ok(true) => (),
            other => {
                drop(state);
                new.cancel();
                return Err(other.err().unwrap_or(EBUSY));
            }
        }
        let segment = new.insert_ring(segments, (side, self.node), range, over)?;
        state.ring(side)?.segment = Some(segment.clone());
        Ok(segment)
    }

    /// Revokes what the program here has mapped of the peer's ring, if the end of the connection has
    /// begun. The lock of the state is not held: unmapping waits for locks of the process.
    pub(super) fn end_peer_ring(&self, ctx: &ConnCtx<'_>) {
        let segment = {
            let state = self.state.lock();
            let ring = state.peer_ring.as_ref();
            let segment = ring.and_then(Ring::segment).cloned();
            segment.filter(|_| state.closing.has_begun())
        };
        if let Some(segment) = segment {
            segment.end_ring(&ctx.segments());
        }
    }

    /// Ends both rings. Returns the range of the own one, which the caller frees.
    pub(super) fn end_rings(&self, ctx: &ConnCtx<'_>) -> Option<WindowRange> {
        let (own, peer) = {
            let mut state = self.state.lock();
            (state.own_ring.take(), state.peer_ring.take())
        };
        for ring in [&own, &peer].into_iter().flatten() {
            if let Some(segment) = &ring.segment {
                segment.end_ring(&ctx.segments());
            }
        }
        own.map(|ring| ring.range)
    }
}
