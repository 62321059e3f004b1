// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the driver's hardware that the decoders use: words of the window.

use kernel::device::{Bound, Device};
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

/// The hardware, as the driver's trait of this name has it.
pub(crate) trait Hardware {
    fn geometry(&self) -> &Geometry;
    fn read_window(&self, dev: &Device<Bound>, offset: usize) -> Result<u64>;
    fn write_window(&self, dev: &Device<Bound>, peer: u32, offset: usize, value: u64) -> Result;
    fn publish_window(&self, dev: &Device<Bound>, peer: u32, offset: usize, value: u64) -> Result;
}
