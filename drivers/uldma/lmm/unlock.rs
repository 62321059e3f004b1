// SPDX-License-Identifier: GPL-2.0

//! Unlocking: the device first, then the pins.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use super::{
    area::Pinned,
    host::{
        Locker,
        Tell, //
    },
    locked::Locked,
    map::Areas,
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

    /// Ends all of `locks`, and tells the device once that everything of this space goes.
    ///
    /// # Errors
    ///
    /// As for [`Space::unlock`].
    pub(crate) fn unlock_all(self: &Arc<Self>, locks: impl Iterator<Item = Locked>) -> Result {
        let locker = &self.host.locker();
        let mut state = self.state.lock();
        let mut ended = Areas::default();
        for locked in locks {
            state.release(&locked, &mut ended);
        }
        self.unpin(&mut state, ended, Tell::Space, locker)
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
        self.unpin(state, ended, tell, locker)
    }

    /// Unpins areas once the device was told what `tell` says, and has answered.
    fn unpin(
        self: &Arc<Self>,
        state: &mut State,
        ended: Areas<Pinned>,
        tell: Tell,
        locker: &Locker<'_>,
    ) -> Result {
        let Some(guard) = locker.gate.enter() else {
            locker.quiet.wait_for_completion();
            self.pages.fetch_sub(ended.pages(), Relaxed);
            return Ok(());
        };
        let (dev, hw) = (guard.dev(), locker.hw);
        for (_, area) in ended.iter() {
            locker.tpt.retract_pages(area.payload.run);
        }
        let result = match tell {
            Tell::Region(region) => hw.invalidate_region(dev, region),
            Tell::Space => hw.invalidate_space(dev, self.id()),
            Tell::Nobody => Ok(()),
            Tell::Pages if ended.is_empty() => Ok(()),
            Tell::Pages => hw.invalidate_region(dev, 0),
        };
        if let Err(err) = result {
            dev_err!(dev, "{} pages stay pinned: {err:?}\n", ended.pages());
            state.keep_stuck(ended);
            self.host.keep(self);
            return Err(err);
        }
        for (_, area) in ended.iter() {
            locker.tpt.remove_pages(dev, area.payload.run);
        }
        self.pages.fetch_sub(ended.pages(), Relaxed);
        Ok(())
    }

    /// Whether the device did not let go of some memory.
    pub(super) fn is_stuck(&self) -> bool {
        !self.state.lock().stuck.is_empty()
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

    fn keep_stuck(&mut self, ended: Areas<Pinned>) {
        for pinned in ended.into_payloads() {
            if self.stuck.reserve(1, GFP_KERNEL).is_err() {
                // Pinned for ever is bad; freed under the device would be worse.
                core::mem::forget(pinned);
                continue;
            }
            // There is room for one more.
            let _ = self.stuck.push(pinned, GFP_KERNEL);
        }
    }
}
