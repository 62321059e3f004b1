// SPDX-License-Identifier: GPL-2.0

//! Commands of the kernel's queues, and copies by a CPU.

use super::RegionOffset;
use crate::kernel_ext::page_list::PageList;

/// A command of a kernel's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    /// Copies bytes from a region of this node to a region of a peer.
    Push {
        src: RegionOffset,
        dst: PeerRegionOffset,
        length: u64,
    },
    /// Copies bytes from a region of a peer to a region of this node.
    Pull {
        src: PeerRegionOffset,
        dst: RegionOffset,
        length: u64,
    },
    /// Invalidates a region.
    Invalidate { region: u32 },
    /// Reads the answers to requests for pages that transfers wait for.
    ReadAnswers,
}

/// An offset in an exported region of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRegionOffset {
    pub(crate) node: u32,
    /// Generation of the hardware's link to the peer.
    pub(crate) link_generation: u32,
    pub(crate) at: RegionOffset,
    /// Generation of the region.
    pub(crate) generation: u64,
}

/// A copy by a CPU between pages of this node and exported pages of a peer.
pub(crate) struct CpuCopy<'a> {
    /// True if the peer's pages are the destination.
    pub(crate) push: bool,
    pub(crate) here: &'a PageList,
    /// Byte offset in the pages of this node.
    pub(crate) from: usize,
    pub(crate) token: u64,
    /// Byte offset in the exported pages of the peer.
    pub(crate) at: usize,
    pub(crate) length: usize,
}
