// SPDX-License-Identifier: MIT OR Apache-2.0

//! What of the driver's tables the decoders need.

/// What an entry for a peer's region names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) node: u32,
    pub(crate) region: u32,
    pub(crate) generation: u64,
    pub(crate) link_generation: u32,
}
