// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! The window: a section for each node, which that node reads, and in it a lane for each other node,
//! which that one writes.

use core::ops::Range;

/// Lanes begin and end at multiples of this, which pages of all sizes divide.
pub const LANE_STEP: u64 = 64 << 10;

/// The lanes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    nodes: u32,
    section: u64,
    lane: u64,
}

impl Lanes {
    /// Divides sections of `section` bytes, one of each of `nodes` nodes. Returns none where a lane has
    /// no room.
    pub fn new(nodes: u32, section: u64) -> Option<Self> {
        let writers = u64::from(nodes.checked_sub(1)?);
        let lane = section.checked_div(writers)? / LANE_STEP * LANE_STEP;
        (lane > 0).then_some(Self {
            nodes,
            section,
            lane,
        })
    }

    /// Returns the bytes of a section.
    pub fn section(self) -> u64 {
        self.section
    }

    /// Returns where in the section of `owner` the lane of `writer` is. Only the lanes of other nodes
    /// are there.
    pub fn lane(self, owner: u32, writer: u32) -> Option<Range<u64>> {
        if owner >= self.nodes || writer >= self.nodes || owner == writer {
            return None;
        }
        let start = u64::from(writer - u32::from(writer > owner)) * self.lane;
        Some(start..start + self.lane)
    }
}
