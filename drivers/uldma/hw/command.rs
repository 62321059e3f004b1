// SPDX-License-Identifier: GPL-2.0

//! How the kernel says what is to be copied between nodes: by an engine or by a CPU.

use super::RegionOffset;
use crate::kernel_ext::page_list::PageList;

/// What a kernel's descriptor asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    /// Copies bytes from a place here to a place at a peer.
    Push {
        src: RegionOffset,
        dst: PeerRegionOffset,
        length: u64,
    },
    /// Copies bytes from a place at a peer to a place here.
    Pull {
        src: PeerRegionOffset,
        dst: RegionOffset,
        length: u64,
    },
    /// Ends what uses a region.
    Invalidate { region: u32 },
}

/// A place in a region of a peer, which has to be exported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRegionOffset {
    pub(crate) node: u32,
    /// Generation of the hardware's link to it.
    pub(crate) link_generation: u32,
    pub(crate) at: RegionOffset,
    /// Generation of the region.
    pub(crate) generation: u64,
}

/// A copy by a CPU between pages of this node and pages that a peer lent.
pub(crate) struct CpuCopy<'a> {
    /// Whether the peer's pages are the destination.
    pub(crate) push: bool,
    pub(crate) here: &'a PageList,
    /// Byte offset in the pages of this node.
    pub(crate) from: usize,
    pub(crate) token: u64,
    /// Byte offset in the pages that the peer lent.
    pub(crate) at: usize,
    pub(crate) length: usize,
}
