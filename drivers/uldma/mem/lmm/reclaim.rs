// SPDX-License-Identifier: GPL-2.0

//! Eviction by a thread that looks for memory, and may hold any lock, also of a folio or of the driver.
//!
//! Such a thread evicts from spaces whose lock is free, and waits for the device only. Locks below
//! [`Space::state`](super::space::Space::state) are held by threads whose allocations do not come here:
//! they allocate nothing there, or [without I/O](crate::kernel_ext::noio).

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    kernel_ext::shrinker::Shrink,
    mem::tpt::InvalidateScope, //
};

use super::{
    area::PinnedArea,
    map::Areas,
    pinned_range::PinnedRange,
    space::{
        Space,
        SpaceState, //
    }, //
};

/// The pin cache of a space, as reclaim of memory knows it.
#[pin_data]
pub(super) struct Reclaimable {
    /// Number of pages in the cache.
    pub(super) pages: Atomic<usize>,
    /// The space, as long as it has a user. Reclaim holds the lock while it uses the space, so that it
    /// never drops the last reference.
    #[pin]
    space: Mutex<Option<Arc<Space>>>,
}

impl Reclaimable {
    /// Creates the cache of no space.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            pages: Atomic::new(0),
            space <- new_mutex!(None, "uldma::Reclaimable::space"),
        })
    }

    /// Allows pages of `space` to be released, until [`Reclaimable::stop`].
    pub(super) fn start(&self, space: Arc<Space>) {
        *self.space.lock() = Some(space);
    }

    /// Ends the use of the space. Waits for the device, if a thread reclaims.
    pub(super) fn stop(&self) {
        let space = self.space.lock().take();
        drop(space);
    }
}

impl Shrink for Reclaimable {
    fn count(&self) -> usize {
        self.pages.load(Relaxed)
    }

    fn shrink(&self, pages: usize) -> usize {
        let space = self.space.try_lock();
        let space = space.as_deref().and_then(Option::as_ref);
        space.map_or(0, |space| space.reclaim(pages))
    }
}

impl Space {
    /// Evicts ranges, the oldest first, until `pages` pages are released, or no other range can be
    /// evicted now. Returns the number of released pages.
    fn reclaim(self: &Arc<Self>, pages: usize) -> usize {
        let device = &self.device.access();
        // Unbinding ends all pins, and the thread may be the one that unbinds.
        let Some(guard) = device.gate.enter() else {
            return 0;
        };
        let hw = guard.hw();
        let Some(mut state) = self.state.try_lock() else {
            return 0;
        };
        let mut released = 0;
        while released < pages && !hw.health().is_sick() {
            let Some(time) = state.cache.find(|pinned| state.mark_dirty_now(pinned)) else {
                break;
            };
            let Some(pinned) = state.cache.take(time) else {
                break;
            };
            let mut ended = Areas::<PinnedArea>::default();
            state.release(&pinned, &mut ended);
            ended.for_each_mut(|area| area.memory.set_clean());
            let scope = InvalidateScope::Pages;
            match self.remove_entries(&mut state, hw, (ended, ()), scope, device) {
                Ok((freed, ())) => released += self.uncount(&mut state, freed),
                // The pages are retained, and the timeout was logged.
                Err(_) => break,
            }
        }
        released
    }
}

impl SpaceState {
    /// Marks pages that only `pinned`, which is in the cache, has pinned as dirty where the device may have
    /// written to them, without waiting. Returns true if nothing is left to mark.
    ///
    /// The mark stays until the pages are unpinned, even if a transfer to a page that is mapped out writes
    /// to them meanwhile: what can be pinned for long is cleaned by paging out alone, which pins forbid.
    fn mark_dirty_now(&self, pinned: &PinnedRange) -> bool {
        let Some(record) = self.records.get(&pinned.number) else {
            return false;
        };
        let parts = record.parts.iter();
        let areas = parts.flat_map(|part| self.map.areas(part.pin_id, part.range));
        let mut own = areas.filter(|area| area.users == 1);
        own.all(|area| area.payload.memory.pages().mark_dirty_now())
    }
}
