// SPDX-License-Identifier: GPL-2.0

//! Adding ranges to the pin cache, and evicting them.
//!
//! The oldest ranges are evicted when the cache is full, and all of them when memory or a limit is
//! short. A stale range is evicted as soon as it is known to be stale.

use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::Arc, //
};

use crate::{
    mem::tpt::InvalidateScope, //
};

use super::{
    device_access::DeviceAccess,
    pinned_range::PinnedRange,
    space::{
        Space,
        SpaceState, //
    }, //
};

impl Space {
    /// Adds `pinned`, whose region was retracted, to the cache. Returns it if it cannot be cached.
    pub(super) fn keep(
        self: &Arc<Self>,
        state: &mut SpaceState,
        pinned: PinnedRange,
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Option<PinnedRange> {
        let range = pinned.range();
        let record = state.records.get_mut(&pinned.number);
        let Some(record) = record.filter(|record| record.stale == 0) else {
            return Some(pinned);
        };
        if !state.cache.can_take(range) {
            return Some(pinned);
        }
        let Ok(room) = RBTreeNodeReservation::new(GFP_KERNEL) else {
            return Some(pinned);
        };
        let Some(guard) = device.gate.enter() else {
            return Some(pinned);
        };
        if let InvalidateScope::Region(region) = scope {
            // Transfers that name its pages without the region have to end, too.
            let own = || {
                let parts = record.parts.iter();
                let areas = parts.flat_map(|part| state.map.areas(part.pin_id, part.range));
                areas.filter(|area| area.users == 1)
            };
            let runs = |each: &mut dyn FnMut(_)| {
                own().for_each(|area| each(area.payload.memory.run().entries()));
            };
            let hw = guard.hw();
            if device.tpt.end_transfers(hw, region, &runs).is_err() {
                return Some(pinned);
            }
        }
        drop(guard);
        record.ticket = None;
        let before = state.cache.find(|other| other.range() == range);
        state.cache.put(pinned, room);
        if let Some(time) = before {
            self.drop_cached(state, time, device);
        }
        while state.cache.is_full() && self.evict(state, device) {}
        None
    }

    fn drop_cached(self: &Arc<Self>, state: &mut SpaceState, time: u64, device: &DeviceAccess<'_>) {
        if let Some(pinned) = state.cache.take(time) {
            // Pages that the device may still access are retained, and the timeout was logged.
            let _ = self.end(state, &pinned, InvalidateScope::Pages, device);
        }
    }

    /// Evicts the oldest range. Returns true if there was one.
    pub(super) fn evict(
        self: &Arc<Self>,
        state: &mut SpaceState,
        device: &DeviceAccess<'_>,
    ) -> bool {
        let oldest = state.cache.find(|_| true);
        if let Some(time) = oldest {
            self.drop_cached(state, time, device);
        }
        oldest.is_some()
    }

    /// Evicts all ranges. Returns true if there were any.
    pub(super) fn evict_all(self: &Arc<Self>, device: &DeviceAccess<'_>) -> bool {
        let mut state = self.state.lock();
        let any = state.cache.len() > 0;
        while self.evict(&mut state, device) {}
        any
    }

    /// Evicts all stale ranges.
    pub(super) fn evict_stale(self: &Arc<Self>, state: &mut SpaceState, device: &DeviceAccess<'_>) {
        loop {
            let records = &state.records;
            let is_stale = |pinned: &PinnedRange| {
                let record = records.get(&pinned.number);
                record.is_some_and(|record| record.stale > 0)
            };
            let Some(time) = state.cache.find(is_stale) else {
                return;
            };
            self.drop_cached(state, time, device);
        }
    }
}
