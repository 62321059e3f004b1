// SPDX-License-Identifier: GPL-2.0

//! The part of each section that the network has: one range for each peer, at its end.
//!
//! The place of a range never changes while the device is bound, and no other use gets it. So a peer
//! that writes a range late, after the end of a session, changes nothing that anything else reads.

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::{
    area::CHANNEL_SIZE,
    window_alloc::WindowRange, //
};
use crate::{
    hw::{
        Backend,
        Geometry, //
    },
    params, //
};

/// Smallest range, which has room for two packets of the usual MTU.
pub(crate) const LEAST: usize = 16 << 10;
/// Largest range that is chosen by default: sixteen packets of 64 KiB.
const MOST: usize = 1 << 20;
/// Largest range, by which byte counts fit 32 bits.
pub(crate) const LARGEST: usize = 1 << 30;
/// The part of a section that all ranges together have by default.
const PART: usize = 4;

/// The ranges of the network in the sections of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Byte offset of the first range.
    start: usize,
    /// Bytes of each.
    each: usize,
    node: u32,
}

/// Returns the least value of the parameter `network` by which devices of `backend` have a network.
fn least_parameter(backend: Backend) -> u8 {
    match backend {
        Backend::Adapter | Backend::Ivshmem => 1,
        // Its nodes are one machine, which reaches itself without it.
        Backend::Loopback => 2,
    }
}

impl Plan {
    /// Returns the ranges of a device, or none if it has no network.
    pub(crate) fn of(geometry: &Geometry) -> Option<Self> {
        if params::network() < least_parameter(geometry.backend) {
            return None;
        }
        Self::new(geometry, params::network_bytes())
    }

    /// Plans ranges of `chosen` bytes, or of a default size for 0. None if there is no room.
    fn new(geometry: &Geometry, chosen: usize) -> Option<Self> {
        let peers = usize::try_from(geometry.nodes.checked_sub(1)?).ok()?;
        let capacity = geometry.window_size.checked_sub(CHANNEL_SIZE)?;
        let each = match chosen {
            0 => (capacity / PART).checked_div(peers)?.min(MOST),
            chosen => chosen.min(LARGEST),
        };
        let each = each & PAGE_MASK;
        let all = each.checked_mul(peers)?;
        if each < LEAST || all > capacity {
            return None;
        }
        Some(Self {
            start: geometry.window_size - all,
            each,
            node: geometry.node,
        })
    }

    /// Returns the offset of the first byte of a section that the network has.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Returns the range of the own section that `peer` writes.
    pub(crate) fn range(&self, peer: u32) -> Option<WindowRange> {
        let place = peer - u32::from(peer > self.node);
        let offset = self.start + usize::try_from(place).ok()? * self.each;
        WindowRange::new(offset, self.each)
    }
}

const _: () = assert!(LEAST % PAGE_SIZE == 0, "a range has whole pages");

#[kunit_tests(uldma_link_network)]
mod tests {
    use super::*;

    fn geometry(node: u32, nodes: u32, window_size: usize) -> Geometry {
        Geometry {
            backend: Backend::Ivshmem,
            node,
            nodes,
            contexts: 1,
            methods: 0,
            cpus: 0,
            shadow_shift: 30,
            page_capacity: 1,
            region_capacity: 1,
            endpoint_capacity: 0,
            has_streams: false,
            window_size,
            window_cached: false,
            is_optimistic: false,
            window_regions: false,
        }
    }

    #[test]
    fn ranges_fill_the_end_of_a_section() {
        for (nodes, size) in [(2, 512 << 10), (8, 2 << 20), (2, 8 << 20), (2, 128 << 10)] {
            for node in 0..nodes {
                let plan = Plan::new(&geometry(node, nodes, size), 0).unwrap();
                let mut next = plan.start();
                for peer in (0..nodes).filter(|peer| *peer != node) {
                    let range = plan.range(peer).unwrap();
                    assert_eq!(range.offset(), next);
                    assert!(range.length() >= LEAST && range.length() <= MOST);
                    next += range.length();
                }
                assert_eq!(next, size);
                assert!(size - plan.start() <= (size - CHANNEL_SIZE) / PART);
            }
        }
    }

    #[test]
    fn ranges_that_do_not_fit_are_none() {
        assert_eq!(Plan::new(&geometry(0, 8, 128 << 10), 0), None);
        assert_eq!(Plan::new(&geometry(0, 2, 128 << 10), LEAST - 1), None);
        assert_eq!(Plan::new(&geometry(0, 2, 128 << 10), 128 << 10), None);
        assert_eq!(Plan::new(&geometry(0, 3, 128 << 10), usize::MAX), None);
        assert!(Plan::new(&geometry(0, 2, 128 << 10), 64 << 10).is_some());
    }

    #[test]
    fn no_range_is_larger_than_the_largest() {
        for chosen in [LARGEST, LARGEST + PAGE_SIZE, 4 << 30] {
            let plan = Plan::new(&geometry(0, 2, 8 << 30), chosen).unwrap();
            assert_eq!(plan.range(1).unwrap().length(), LARGEST);
        }
    }
}
