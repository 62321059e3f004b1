// SPDX-License-Identifier: GPL-2.0

//! The facts about a device that do not change while it is bound.

use kernel::{
    page::PAGE_MASK,
    prelude::*, //
};

use super::{
    layout::MAX_NODES,
    Backend, //
};

/// Minimum size of a section in bytes: the control channel, and as much to allocate.
pub(super) const MIN_SECTION: usize = 128 << 10;

/// Facts about a device that do not change while it is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// The kind of hardware that connects the nodes.
    pub(crate) backend: Backend,
    /// Number of this node on its link.
    pub(crate) node: u32,
    /// Number of nodes, including this one.
    pub(crate) nodes: u32,
    /// Number of register contexts, including context 0, which is the kernel's.
    pub(crate) contexts: u32,
    /// Bit mask of initiation methods.
    pub(crate) methods: u32,
    /// Number of CPUs whose context switches the device can track.
    pub(crate) cpus: u32,
    /// log2 of the bytes of shadow space per context.
    pub(crate) shadow_shift: u32,
    /// Number of page entries that the shadow space of one context can name.
    pub(crate) page_capacity: u32,
    /// Number of regions that a size word can name, including region 0, which means none.
    pub(crate) region_capacity: u32,
    /// Number of endpoints between which the device matches messages; 0 if it does not.
    pub(crate) endpoint_capacity: u32,
    /// True if endpoints can be streams.
    pub(crate) has_streams: bool,
    /// Bytes of each node's section of the window.
    pub(crate) window_size: usize,
    /// True if processes map the window like other memory, rather than write-combining.
    pub(crate) window_cached: bool,
    /// True if the device has optimistic entries: it writes a touch page, and requests pages.
    pub(crate) is_optimistic: bool,
    /// True if regions can be parts of the own section of the window.
    pub(crate) window_regions: bool,
}

impl Geometry {
    /// Checks that `peer` is another node of the link.
    pub(super) fn check_peer(&self, peer: u32) -> Result {
        if peer >= self.nodes || peer == self.node {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Fails with `ENOSPC` for more pages than there are page entries, which never fit.
    pub(crate) fn check_pages(&self, pages: usize) -> Result {
        if pages > usize::try_from(self.page_capacity)? {
            return Err(ENOSPC);
        }
        Ok(())
    }
}

/// Returns the size of a section if `nodes` nodes share `bytes` bytes.
///
/// # Errors
///
/// `EINVAL` when there are too many nodes or too few bytes.
pub(super) fn section_size(bytes: usize, nodes: u32) -> Result<usize> {
    let nodes = usize::try_from(nodes)?;
    if !(2..=MAX_NODES).contains(&nodes) {
        return Err(EINVAL);
    }
    let size = bytes / nodes.next_power_of_two() & PAGE_MASK;
    if size < MIN_SECTION {
        return Err(EINVAL);
    }
    Ok(size)
}
