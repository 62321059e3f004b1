// SPDX-License-Identifier: GPL-2.0

//! Where locked pages came from: addresses that are watched, as they may come to mean other memory.
//!
//! The memory manager tells of a change before it happens, often of one that in the end changes
//! nothing, and in a context where nothing can be looked up. So an origin only remembers what may
//! have changed. Twice: `unsure` until a lock has pinned the addresses anew and compared, and
//! `unlooked` until [`Space::look`](super::space::Space::look) has looked which locks went stale.

use core::ops::Range;

use kernel::{
    mm::MmWithUser,
    new_spinlock,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use crate::kernel_ext::mmu_notifier::{
    Change,
    IntervalNotifier,
    Watcher, //
};

use super::range::PageRange;

/// Gets somebody to look at what may have changed.
pub(crate) trait Wake: Send + Sync {
    /// Wakes that somebody; must neither sleep, nor fail, nor allocate.
    fn wake(&self);
}

#[derive(Default)]
struct Doubt {
    unsure: Option<PageRange>,
    unlooked: Option<PageRange>,
    changes: u64,
}

#[pin_data]
struct Addresses {
    range: PageRange,
    #[pin]
    doubt: SpinLock<Doubt>,
    wake: Arc<dyn Wake>,
}

impl Watcher for Addresses {
    fn changes(&self, range: Range<usize>, change: Change) {
        let range = PageRange {
            start: range.start >> PAGE_SHIFT,
            // The end may be that of all addresses.
            end: range.end.saturating_add(PAGE_SIZE - 1) >> PAGE_SHIFT,
        };
        let Some(range) = range.intersection(&self.range) else {
            return;
        };
        let mut doubt = self.doubt.lock();
        doubt.changes += 1;
        doubt.unsure = Some(range.hull(doubt.unsure));
        if change == Change::Content {
            doubt.unlooked = Some(range.hull(doubt.unlooked));
            drop(doubt);
            self.wake.wake();
        }
    }
}

/// Addresses that were pinned in one go.
#[pin_data]
pub(super) struct Origin {
    #[pin]
    addresses: IntervalNotifier<Addresses>,
}

impl Origin {
    /// Watches `range` of `mm`, so that what is pinned from now on is known to be what is mapped
    /// there as long as it is not [`unsure`](Self::is_unsure).
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR`.
    pub(super) fn watch(
        mm: &MmWithUser,
        range: PageRange,
        wake: &Arc<dyn Wake>,
    ) -> Result<Arc<Self>> {
        let addresses = pin_init!(Addresses {
            range,
            doubt <- new_spinlock!(Doubt::default(), "uldma::Origin::doubt"),
            wake: wake.clone(),
        });
        let length = range.len() << PAGE_SHIFT;
        let notifier = IntervalNotifier::new(mm, range.address(), length, addresses);
        let origin = try_pin_init!(Self { addresses <- notifier });
        let origin = Arc::pin_init(origin, GFP_KERNEL_ACCOUNT)?;
        origin.settle();
        Ok(origin)
    }

    fn doubt(&self) -> &SpinLock<Doubt> {
        &self.addresses.watcher().doubt
    }

    /// Waits until all changes that have begun have ended.
    pub(super) fn settle(&self) {
        self.addresses.settle();
    }

    /// Whether addresses of `range` may have changed since they were pinned.
    pub(super) fn is_unsure(&self, range: PageRange) -> bool {
        let unsure = self.doubt().lock().unsure;
        unsure.is_some_and(|unsure| unsure.intersection(&range).is_some())
    }

    /// How many changes there have been.
    pub(super) fn changes(&self) -> u64 {
        self.doubt().lock().changes
    }

    /// The addresses in `range` were pinned anew, after the first `changes` changes, and are what
    /// they were.
    pub(super) fn trust(&self, range: PageRange, changes: u64) {
        let mut doubt = self.doubt().lock();
        if doubt.changes == changes {
            doubt.unsure = doubt.unsure.and_then(|unsure| unsure.without(&range));
        }
    }

    /// Whether anything may have changed that was not looked at.
    pub(super) fn has_unlooked(&self) -> bool {
        self.doubt().lock().unlooked.is_some()
    }

    /// What may have changed and was not looked at; now it is going to be.
    pub(super) fn take_unlooked(&self) -> Option<PageRange> {
        self.doubt().lock().unlooked.take()
    }
}
