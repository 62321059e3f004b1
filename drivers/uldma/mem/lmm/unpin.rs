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
    Tell, //
};

use super::{
    area::Pinned,
    device_ops::Locker,
    map::Areas,
    pinned_range::Locked,
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
    pub(crate) fn unlock(self: &Arc<Self>, locked: Locked, tell: Tell, keep: bool) -> Result {
        let locker = &self.host.locker();
        let mut state = self.state.lock();
        let left = match keep {
            true => self.keep(&mut state, locked, tell, locker),
            false => Some(locked),
        };
        match left {
            Some(locked) => self.end(&mut state, &locked, tell, locker),
            None => Ok(()),
        }
    }

    /// Ends all locks that `release` passes to its argument, and what else it returns that has page
    /// entries of this space; tells the device once that everything of this space goes.
    ///
    /// # Errors
    ///
    /// As for [`Space::unlock`].
    pub(crate) fn unlock_all<E: Entered>(
        self: &Arc<Self>,
        release: impl FnOnce(&mut dyn FnMut(Locked)) -> E,
    ) -> Result<E::Freed> {
        let locker = &self.host.locker();
        let mut state = self.state.lock();
        let mut ended = Areas::default();
        let others = release(&mut |locked| state.release(&locked, &mut ended));
        self.unpin(&mut state, (ended, others), Tell::Space(self.id()), locker)
    }

    /// Ends `locked`.
    pub(super) fn end(
        self: &Arc<Self>,
        state: &mut State,
        locked: &Locked,
        tell: Tell,
        locker: &Locker<'_>,
    ) -> Result {
        let mut ended = Areas::default();
        state.release(locked, &mut ended);
        self.unpin(state, (ended, ()), tell, locker)
    }

    /// Unpins areas once the device was told what `tell` says, and has answered; so with `others`.
    fn unpin<E: Entered>(
        self: &Arc<Self>,
        state: &mut State,
        ended: (Areas<Pinned>, E),
        tell: Tell,
        locker: &Locker<'_>,
    ) -> Result<E::Freed> {
        let (pages, others) = match locker.gate.enter() {
            Some(guard) => self.take_back(state, guard.dev(), ended, tell, locker)?,
            None => ended.free(&locker.tpt.quiet().wait()),
        };
        self.pages.fetch_sub(pages, Relaxed);
        Ok(others)
    }

    /// Takes page entries back and ends what they were for; what the device does not let go of is kept
    /// until it is unbound.
    pub(super) fn take_back<E: Entered>(
        self: &Arc<Self>,
        state: &mut State,
        dev: &Device<Bound>,
        entered: (Areas<Pinned>, E),
        tell: Tell,
        locker: &Locker<'_>,
    ) -> Result<(usize, E::Freed)> {
        let told = locker.tpt.retract(entered).invalidate(dev, locker.hw, tell);
        told.map_err(|(err, (areas, _))| {
            locker.hw.health().keeps_pages(areas.pages());
            // Also without areas: the entries of imports have its number.
            self.keep_in(state);
            state.stuck.append(areas);
            err
        })
    }

    /// Keeps the space until the device is unbound, since entries that the device did not let go of
    /// have its number.
    pub(crate) fn keep_until_unbound(self: &Arc<Self>) {
        self.keep_in(&mut self.state.lock());
    }

    fn keep_in(self: &Arc<Self>, state: &mut State) {
        if !core::mem::replace(&mut state.is_kept, true) {
            state.kept_before = self.host.keep(self.clone());
        }
    }

    /// Lets go of the space that was kept before this one, as [`Host::keep`](super::device_ops::Host::keep)
    /// says.
    pub(crate) fn take_kept_before(&self) -> Option<Arc<Self>> {
        self.state.lock().kept_before.take()
    }
}

impl State {
    /// Takes a lock out, and what nobody else holds of it.
    fn release(&mut self, locked: &Locked, ended: &mut Areas<Pinned>) {
        if let Some(holder) = self.holders.remove(&locked.number) {
            for part in holder.parts.iter() {
                self.map.release(part.lineage, part.range, ended);
            }
        }
    }
}
