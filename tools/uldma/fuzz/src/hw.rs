// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the driver's hardware that the decoders use: words of the window.

use kernel::error::Result;

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/hw/layout.rs"]
pub(crate) mod layout;

/// Properties that do not change while the device exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    pub(crate) window_size: usize,
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

    pub(crate) fn read_window(self, offset: usize) -> Result<u64> {
        self.0.read(offset)
    }

    pub(crate) fn write_window(self, peer: u32, offset: usize, value: u64) -> Result {
        self.0.write(peer, offset, value)
    }

    pub(crate) fn publish_window(self, peer: u32, offset: usize, value: u64) -> Result {
        self.0.write(peer, offset, value)
    }
}
