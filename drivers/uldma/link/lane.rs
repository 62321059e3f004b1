// SPDX-License-Identifier: GPL-2.0

//! What the lane of a peer holds: its area of the control channel, ranges for segments and connections,
//! and at the end the range of the network.
//!
//! The place of the network's range never changes while the device is bound, and no other use gets it. So
//! a peer that writes it late, after the end of a session, changes nothing that anything else reads.

use core::ops::Range;

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::{
    area::AREA_SIZE,
    window_range::WindowRange, //
};
use crate::{
    hw::{
        layout::LANE_STEP,
        Backend,
        Geometry, //
    },
    params, //
};

/// Smallest range of the network, which has room for two packets of the usual MTU.
pub(crate) const LEAST: usize = 16 << 10;
/// Largest range of the network that is chosen by default: sixteen packets of 64 KiB.
const MOST: usize = 1 << 20;
/// Largest range of the network, by which byte counts fit 32 bits.
pub(crate) const LARGEST: usize = 1 << 30;
/// The part of a lane that the network has by default.
const PART: usize = 4;

/// A lane of the own section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    ranges: Range<usize>,
    network: Option<WindowRange>,
}

/// Returns the least value of the parameter `network` by which devices of `backend` have a network.
fn least_parameter(backend: Backend) -> u8 {
    match backend {
        Backend::Adapter | Backend::Ivshmem => 1,
        // Its nodes are one machine, which reaches itself without it.
        Backend::Loopback => 2,
    }
}

impl Lane {
    /// Returns the lane of `peer`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such peer.
    pub(crate) fn inbound(geometry: &Geometry, peer: u32) -> Result<Self> {
        let has_network = params::network() >= least_parameter(geometry.backend);
        let chosen = has_network.then(params::network_bytes);
        Ok(Self::new(geometry.inbound(peer)?, chosen))
    }

    /// Plans a lane with a network of `chosen` bytes, or of a default size for 0, if there is room.
    fn new(lane: Range<usize>, chosen: Option<usize>) -> Self {
        let start = (lane.start + AREA_SIZE).next_multiple_of(PAGE_SIZE);
        let capacity = lane.end.saturating_sub(start);
        let bytes = chosen.map_or(0, |chosen| match chosen {
            0 => (capacity / PART).clamp(LEAST, MOST),
            chosen => chosen.min(LARGEST),
        });
        let bytes = bytes & PAGE_MASK;
        if bytes < LEAST || bytes > capacity {
            return Self {
                ranges: start..lane.end,
                network: None,
            };
        }
        let end = lane.end - bytes;
        Self {
            ranges: start..end,
            network: WindowRange::new(end, bytes),
        }
    }

    /// Returns where ranges can be allocated.
    pub(crate) fn ranges(&self) -> Range<usize> {
        self.ranges.clone()
    }

    /// Returns the range of the network, if the device has one.
    pub(crate) fn network(&self) -> Option<WindowRange> {
        self.network
    }
}

const _: () = {
    assert!(LEAST % PAGE_SIZE == 0, "a range has whole pages");
    // CAST: Both are small.
    assert!(LANE_STEP as usize >= AREA_SIZE + LEAST + PAGE_SIZE);
};

#[kunit_tests(uldma_lane)]
mod tests {
    use super::*;

    const STEP: usize = 64 << 10;

    #[test]
    fn the_network_has_the_end_of_a_lane() {
        for lane in [0..STEP, STEP..2 * STEP, 3 * STEP..19 * STEP, 0..1 << 30] {
            let it = Lane::new(lane.clone(), Some(0));
            let network = it.network().unwrap();
            assert_eq!(it.ranges(), lane.start + AREA_SIZE..network.offset());
            assert_eq!(network.offset() + network.length(), lane.end);
            assert!((LEAST..=MOST).contains(&network.length()));
        }
    }

    #[test]
    fn a_network_that_does_not_fit_is_none() {
        for chosen in [LEAST - 1, STEP, usize::MAX] {
            let it = Lane::new(STEP..2 * STEP, Some(chosen));
            assert_eq!(it.network(), None);
            assert_eq!(it.ranges(), STEP + AREA_SIZE..2 * STEP);
        }
        assert_eq!(Lane::new(0..STEP, None).network(), None);
        assert!(Lane::new(0..STEP, Some(STEP / 2)).network().is_some());
    }

    #[test]
    fn no_network_is_larger_than_the_largest() {
        for chosen in [LARGEST, LARGEST + PAGE_SIZE, 4 << 30] {
            let it = Lane::new(0..8 << 30, Some(chosen));
            assert_eq!(it.network().unwrap().length(), LARGEST);
        }
    }
}
