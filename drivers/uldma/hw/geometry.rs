// SPDX-License-Identifier: GPL-2.0

//! The facts about a device that do not change while it is bound.

use core::ops::Range;

use kernel::{
    page::PAGE_MASK,
    prelude::*, //
};

use super::{
    layout::{
        Lanes,
        LANE_STEP,
        MAX_NODES, //
    },
    Backend, //
};

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
    /// Sections and lanes of the window.
    pub(crate) lanes: Lanes,
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

    /// Returns the bytes of a section of the window.
    pub(crate) fn section_size(&self) -> Result<usize> {
        Ok(usize::try_from(self.lanes.section())?)
    }

    /// Returns where in the own section the lane of `peer` is, which that peer alone writes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such peer.
    pub(crate) fn inbound(&self, peer: u32) -> Result<Range<usize>> {
        self.lane(self.node, peer)
    }

    /// Returns where in the section of `peer` the lane of this node is.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such peer.
    pub(crate) fn outbound(&self, peer: u32) -> Result<Range<usize>> {
        self.lane(peer, self.node)
    }

    fn lane(&self, owner: u32, writer: u32) -> Result<Range<usize>> {
        let lane = self.lanes.lane(owner, writer).ok_or(EINVAL)?;
        Ok(usize::try_from(lane.start)?..usize::try_from(lane.end)?)
    }

    /// Fails with `ENOSPC` for more pages than there are page entries, which never fit.
    pub(crate) fn check_pages(&self, pages: usize) -> Result {
        if pages > usize::try_from(self.page_capacity)? {
            return Err(ENOSPC);
        }
        Ok(())
    }
}

/// Returns the lanes of `nodes` nodes that share `bytes` bytes.
///
/// # Errors
///
/// `EINVAL` when there are too many nodes or too few bytes.
pub(super) fn lanes_of(bytes: usize, nodes: u32) -> Result<Lanes> {
    let count = usize::try_from(nodes)?;
    if !(2..=MAX_NODES).contains(&count) {
        return Err(EINVAL);
    }
    let section = bytes / count.next_power_of_two() & PAGE_MASK;
    Lanes::new(nodes, section.try_into()?).ok_or(EINVAL)
}

/// Returns the least bytes of a section of a link of `nodes` nodes.
pub(super) fn least_section(nodes: u32) -> u64 {
    u64::from(nodes.saturating_sub(1)) * LANE_STEP
}
