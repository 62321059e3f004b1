// SPDX-License-Identifier: GPL-2.0

//! The offers of segments.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use crate::{
    hw::layout::MAX_NODES,
    kernel_ext::nospec, //
};

/// Offers by peer. For a reader: the outstanding ones. For a writer: one while the mapping is
/// valid.
pub(super) struct Offers([Atomic<u32>; MAX_NODES]);

impl Offers {
    /// Creates those of a reader, or those of a writer that is attached to a segment of `peer`.
    pub(super) fn of(peer: Option<u32>) -> Self {
        let offers = Self([const { Atomic::new(0) }; MAX_NODES]);
        if let Some(peer) = peer {
            offers.set(peer, 1);
        }
        offers
    }

    /// Returns those of `peer`.
    pub(super) fn get(&self, peer: u32) -> u32 {
        let place = usize::try_from(peer).ok();
        let offers = place.and_then(|place| nospec::get(&self.0, place));
        offers.map_or(0, |offers| offers.load(Relaxed))
    }

    /// Sets those of `peer`.
    pub(super) fn set(&self, peer: u32, count: u32) {
        let place = usize::try_from(peer).ok();
        if let Some(offers) = place.and_then(|place| nospec::get(&self.0, place)) {
            offers.store(count, Relaxed);
        }
    }

    /// Returns those of all peers.
    pub(super) fn counts(&self) -> [u32; MAX_NODES] {
        self.0.each_ref().map(|offers| offers.load(Relaxed))
    }
}
