// SPDX-License-Identifier: GPL-2.0

//! Unlocking: the device first, then the pins.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use crate::mem::tpt::{
    Entered,
    InvalidateScope, //
};

use super::{
    area::PinnedArea,
    device_ops::DeviceAccess,
    map::Areas,
    pinned_range::PinnedRange,
    space::{
        Space,
        State, //
    }, //
};

impl Space {
    /// Ends a lock; unpins what no other lock uses, once the device can no longer use it.
    ///
    /// The region that had it is retracted. With `keep` the pins go into the cache.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when the device does not let go of the memory; the lock is gone all the same,
    /// and its pages stay pinned as long as this space.
    pub(crate) fn unpin(
        self: &Arc<Self>,
        pinned: PinnedRange,
        scope: InvalidateScope,
        keep: bool,
    ) -> Result {
        let device = &self.device.access();
        let mut state = self.state.lock();
        let left = match keep {
            true => self.keep(&mut state, pinned, scope, device),
            false => Some(pinned),
        };
        match left {
            Some(pinned) => self.end(&mut state, &pinned, scope, device),
            None => Ok(()),
        }
    }

    /// Ends all locks that `release` passes to its argument, and what else it returns that has page
    /// entries of this space; tells the device once that everything of this space goes.
    ///
    /// # Errors
    ///
    /// As for [`Space::unpin`].
    pub(crate) fn unpin_all<E: Entered>(
        self: &Arc<Self>,
        release: impl FnOnce(&mut dyn FnMut(PinnedRange)) -> E,
    ) -> Result<E::Freed> {
        let device = &self.device.access();
        let mut state = self.state.lock();
        let mut ended = Areas::default();
        let others = release(&mut |pinned| state.release(&pinned, &mut ended));
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
        state: &mut State,
        pinned: &PinnedRange,
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result {
        let mut ended = Areas::default();
        state.release(pinned, &mut ended);
        self.unpin_areas(state, (ended, ()), scope, device)
    }

    /// Unpins areas once the device was told what `scope` says, and has answered; so with `others`.
    fn unpin_areas<E: Entered>(
        self: &Arc<Self>,
        state: &mut State,
        ended: (Areas<PinnedArea>, E),
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result<E::Freed> {
        let (pages, others) = match device.gate.enter() {
            Some(guard) => self.remove_entries(state, guard.dev(), ended, scope, device)?,
            None => ended.free(&device.tpt.quiet().wait()),
        };
        self.pages.fetch_sub(pages, Relaxed);
        Ok(others)
    }

    /// Takes page entries back and ends what they were for; what the device does not let go of is kept
    /// until it is unbound.
    pub(super) fn remove_entries<E: Entered>(
        self: &Arc<Self>,
        state: &mut State,
        dev: &Device<Bound>,
        entered: (Areas<PinnedArea>, E),
        scope: InvalidateScope,
        device: &DeviceAccess<'_>,
    ) -> Result<(usize, E::Freed)> {
        let result = device
            .tpt
            .retract(entered)
            .invalidate(dev, device.hw, scope);
        result.map_err(|(err, (areas, _))| {
            device.hw.health().keeps_pages(areas.pages());
            // Also without areas: the entries of imports have its number.
            self.keep_in(state);
            state.retained.append(areas);
            err
        })
    }

    /// Keeps the space until the device is unbound, since entries that the device did not let go of
    /// have its number.
    pub(crate) fn keep_until_unbound(self: &Arc<Self>) {
        self.keep_in(&mut self.state.lock());
    }

    fn keep_in(self: &Arc<Self>, state: &mut State) {
        if !core::mem::replace(&mut state.is_retained, true) {
            state.retained_before = self.device.keep(self.clone());
        }
    }

    /// Lets go of the space that was kept before this one, as [`DeviceOps::keep`](super::device_ops::DeviceOps::keep)
    /// says.
    pub(crate) fn take_retained_before(&self) -> Option<Arc<Self>> {
        self.state.lock().retained_before.take()
    }
}

impl State {
    /// Takes a lock out, and what nobody else holds of it.
    fn release(&mut self, pinned: &PinnedRange, ended: &mut Areas<PinnedArea>) {
        if let Some(record) = self.records.remove(&pinned.number) {
            for part in record.parts.iter() {
                self.map.release(part.pin_id, part.range, ended);
            }
        }
    }
}
