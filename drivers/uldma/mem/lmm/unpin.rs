// SPDX-License-Identifier: GPL-2.0

//! Unpinning: the device first, then the pins.

use kernel::{
    prelude::*,
    rbtree::RBTreeNode,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use crate::{
    hw::Hw,
    mem::tpt::{
        Entered,
        InvalidateScope, //
    }, //
};

use super::{
    area::{
        Freed,
        PinnedArea, //
    },
    device_access::DeviceAccess,
    map::Areas,
    pinned_range::PinnedRange,
    space::{
        Space,
        SpaceState, //
    }, //
};

impl Space {
    /// Ends a pinned range. Unpins pages that no other range uses, once the device cannot access
    /// them any more.
    ///
    /// The caller has retracted its region. With `keep` the pins go to the cache.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not confirm the invalidation. The range is ended
    /// nevertheless, but its pages stay pinned as long as this space.
    pub(crate) fn unpin(
        self: &Arc<Self>,
        pinned: PinnedRange,
        scope: InvalidateScope,
        keep: bool,
    ) -> Result {
        let device = &self.device.access();
        let mut state = self.state.lock();
        let left = if keep {
            self.keep(&mut state, pinned, scope, device)
        } else {
            Some(pinned)
        };
        match left {
            Some(pinned) => self.end(&mut state, &pinned, scope, device),
            None => Ok(()),
        }
    }

    /// Ends all ranges that `release` passes to its argument, and everything else with page entries
    /// of this space that it returns, with one invalidation of the whole space.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not confirm the invalidation.
    pub(crate) fn unpin_all<E: Entered>(
        self: &Arc<Self>,
        release: impl FnOnce(&mut dyn FnMut(&PinnedRange)) -> E,
    ) -> Result<E::Freed> {
        let device = &self.device.access();
        let mut state = self.state.lock();
        let mut ended = Areas::default();
        let others = release(&mut |pinned| state.release(pinned, &mut ended));
        self.unpin_areas(
            &mut state,
            (ended, others),
            InvalidateScope::Space(self.id()),
            device,
        )
    }

    /// Ends `pinned`.
    pub(super) fn end(
        self: &Arc<Self>,
        state: &mut SpaceState,
        pinned: &PinnedRange,
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result {
        let mut ended = Areas::default();
        state.release(pinned, &mut ended);
        self.unpin_areas(state, (ended, ()), scope, device)
    }

    /// Unpins areas, and frees others, after the device has confirmed the invalidation of `scope`.
    fn unpin_areas<E: Entered>(
        self: &Arc<Self>,
        state: &mut SpaceState,
        ended: (Areas<PinnedArea>, E),
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result<E::Freed> {
        let (freed, others) = match device.gate.enter() {
            Some(guard) => {
                let hw = guard.hw();
                self.remove_entries(state, hw, ended, scope, device)?
            }
            None => ended.free(&device.tpt.quiet().wait()),
        };
        self.uncount(state, freed);
        Ok(others)
    }

    /// Counts pages that were unpinned, and keeps the memory of an area. Returns the number of pages.
    pub(super) fn uncount(&self, state: &mut SpaceState, freed: Freed) -> usize {
        self.pages.fetch_sub(freed.pages, Relaxed);
        state.spare_area = freed.spare.or(state.spare_area.take());
        freed.pages
    }

    /// Removes page entries and frees what they were for. Areas that the device may still access
    /// are retained until unbind.
    pub(super) fn remove_entries<E: Entered>(
        self: &Arc<Self>,
        state: &mut SpaceState,
        hw: Hw<'_>,
        entered: (Areas<PinnedArea>, E),
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result<(Freed, E::Freed)> {
        let result = device.tpt.retract(entered).invalidate(hw, scope);
        result.map_err(|(err, (areas, _))| {
            hw.health().keeps_pages(areas.pages());
            // Also without areas, since entries of imports have the number of the space.
            self.keep_until_unbound();
            state.retained.append(areas);
            err
        })
    }

    /// Retains the space until unbind, since entries that the device may still use have its number.
    pub(crate) fn keep_until_unbound(self: &Arc<Self>) {
        let mut retention = self.retention.lock();
        if !core::mem::replace(&mut retention.is_retained, true) {
            retention.before = self.device.keep(self.clone());
        }
    }

    /// Takes the space that was retained before this one; see
    /// [`DeviceOps::keep`](super::space::DeviceOps::keep).
    pub(crate) fn take_retained_before(&self) -> Option<Arc<Self>> {
        self.retention.lock().before.take()
    }
}

impl SpaceState {
    /// Removes the record of a range, and moves areas without other users to `ended`.
    pub(super) fn release(&mut self, pinned: &PinnedRange, ended: &mut Areas<PinnedArea>) {
        let Some(record) = self.records.get(&pinned.number) else {
            return;
        };
        for part in record.parts.iter() {
            self.map.release(part.pin_id, part.range, ended);
        }
        let removed = self.records.remove_node(&pinned.number);
        self.spare_record = removed.map(RBTreeNode::into_reservation);
    }
}
