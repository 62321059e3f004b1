// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the driver's hardware that the decoders use: words of the window.

use std::ops::Range;

use kernel::error::{Result, EINVAL};

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/hw/layout.rs"]
pub(crate) mod layout;
#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/hw/le.rs"]
pub(crate) mod le;

use layout::{Lanes, Word};
use le::Le;

/// Properties that do not change while the device exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    pub(crate) lanes: Lanes,
}

impl Geometry {
    pub(crate) fn inbound(&self, peer: u32) -> Result<Range<usize>> {
        self.lane(self.node, peer)
    }

    pub(crate) fn outbound(&self, peer: u32) -> Result<Range<usize>> {
        self.lane(peer, self.node)
    }

    fn lane(&self, owner: u32, writer: u32) -> Result<Range<usize>> {
        let lane = self.lanes.lane(owner, writer).ok_or(EINVAL)?;
        Ok(usize::try_from(lane.start)?..usize::try_from(lane.end)?)
    }
}

/// Words of a window.
pub(crate) trait Words {
    fn geometry(&self) -> &Geometry;
    fn read(&self, offset: usize) -> Result<u64>;
    fn write(&self, peer: u32, offset: usize, value: u64) -> Result;
}

/// The right to use the hardware, as the driver's type of this name has it.
#[derive(Clone, Copy)]
pub(crate) struct Hw<'a>(pub(crate) &'a dyn Words);

impl<'a> Hw<'a> {
    pub(crate) fn geometry(self) -> &'a Geometry {
        self.0.geometry()
    }

    pub(crate) fn read_window<W: Word>(self, offset: usize) -> Result<Le<W>> {
        Ok(Le::from_memory(self.0.read(offset)?))
    }

    pub(crate) fn write_window<W>(self, peer: u32, offset: usize, word: Le<W>) -> Result {
        self.0.write(peer, offset, word.in_memory())
    }

    pub(crate) fn publish_window<W>(self, peer: u32, offset: usize, word: Le<W>) -> Result {
        self.0.write(peer, offset, word.in_memory())
    }
}
