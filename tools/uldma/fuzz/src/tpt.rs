// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the driver's tables that the decoders use.

/// The peer's region that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) node: u32,
    pub(crate) region: u32,
    pub(crate) generation: u64,
    pub(crate) link_generation: u32,
}
