// SPDX-License-Identifier: GPL-2.0

//! What the memory manager learns of the device's accesses to pages that are entered.
//!
//! A page that only the device accesses looks idle to the process's page table, and would be reclaimed
//! first. So the memory manager asks, and takes the device's mark off a page, as it does with that of a
//! processor.

use core::ops::Range;

use kernel::{
    mm::MmWithUser,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use crate::kernel_ext::{
    interval_tree::{
        IntervalTree,
        Single, //
    },
    mmu_ageing::{
        AgeNotifier,
        Ageing, //
    },
    mmu_notifier::{
        IntervalNotifier,
        Remover, //
    }, //
};

use super::area::Area;

/// The areas of one address space, by addresses.
#[pin_data]
pub(crate) struct Ages {
    /// Taken under locks of the memory manager. A value that is taken out is dropped without it.
    #[pin]
    areas: SpinLock<IntervalTree<IntervalNotifier<Area>>>,
}

/// The place of an area that is not in [`Ages`] yet.
pub(super) type Place = Single<IntervalNotifier<Area>>;

impl Ages {
    /// Has the memory manager ask about `mm`, until `remover` ends that.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` if a signal comes.
    pub(crate) fn watch(mm: &MmWithUser, remover: &Arc<Remover>) -> Result<AgeNotifier<Self>> {
        let ages = pin_init!(Self {
            areas <- new_spinlock!(IntervalTree::new(), "uldma::Ages::areas"),
        });
        AgeNotifier::new(mm, ages, remover)
    }

    /// Returns the memory to add `area`, and a reference to it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn place(area: &IntervalNotifier<Area>) -> Result<Place> {
        Single::new(area.watcher().addresses(), area.clone())
    }

    /// Adds an area.
    pub(super) fn add(&self, place: Place) {
        self.areas.lock().insert(place);
    }

    /// Removes an area, if it was added.
    pub(super) fn remove(&self, area: &Area) {
        let is_it = |it: &IntervalNotifier<Area>| core::ptr::eq(it.watcher(), area);
        let removed = self.areas.lock().remove(area.addresses(), is_it);
        drop(removed);
    }
}

impl Ageing for Ages {
    fn was_accessed(&self, range: Range<usize>, forgotten: bool) -> bool {
        let Some(last) = range.end.checked_sub(1) else {
            return false;
        };
        let areas = self.areas.lock();
        let mut accessed = false;
        // Each forgets.
        for area in areas.overlapping(range.start..=last) {
            accessed |= area.watcher().was_accessed(&range, forgotten);
        }
        accessed
    }
}
