// SPDX-License-Identifier: GPL-2.0

//! Where locked pages came from: addresses that are watched, as they may come to mean other memory.
//!
//! The memory manager tells of a change before it happens, often of one that in the end changes
//! nothing, and in a context where nothing can be looked up. So an origin only remembers what may
//! have changed. Twice: `invalidated` until a lock has pinned the addresses anew and compared, and
//! `to_revalidate` until [`Space::look`](super::space::Space::look) has looked which locks went stale.

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
pub(crate) trait Revalidator: Send + Sync {
    /// Wakes that somebody; must neither sleep, nor fail, nor allocate.
    fn request(&self);
}

#[derive(Default)]
struct Invalidations {
    invalidated: Option<PageRange>,
    to_revalidate: Option<PageRange>,
    changes: u64,
}

#[pin_data]
struct Addresses {
    range: PageRange,
    #[pin]
    invalidations: SpinLock<Invalidations>,
    revalidator: Arc<dyn Revalidator>,
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
        let mut invalidations = self.invalidations.lock();
        invalidations.changes += 1;
        invalidations.invalidated = Some(range.hull(invalidations.invalidated));
        if change == Change::Content {
            invalidations.to_revalidate = Some(range.hull(invalidations.to_revalidate));
            drop(invalidations);
            self.revalidator.request();
        }
    }
}

/// Addresses that were pinned in one go.
#[pin_data]
pub(super) struct Subscription {
    #[pin]
    addresses: IntervalNotifier<Addresses>,
}

impl Subscription {
    /// Watches `range` of `mm`, so that what is pinned from now on is known to be what is mapped
    /// there as long as it is not [`invalidated`](Self::is_invalidated).
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR`.
    pub(super) fn watch(
        mm: &MmWithUser,
        range: PageRange,
        revalidator: &Arc<dyn Revalidator>,
    ) -> Result<Arc<Self>> {
        let addresses = pin_init!(Addresses {
            range,
            invalidations <- new_spinlock!(Invalidations::default(), "uldma::Subscription::invalidations"),
            revalidator: revalidator.clone(),
        });
        let length = range.len() << PAGE_SHIFT;
        let notifier = IntervalNotifier::new(mm, range.address(), length, addresses);
        let subscription = try_pin_init!(Self { addresses <- notifier });
        let subscription = Arc::pin_init(subscription, GFP_KERNEL_ACCOUNT)?;
        subscription.wait_for_changes();
        Ok(subscription)
    }

    fn invalidations(&self) -> &SpinLock<Invalidations> {
        &self.addresses.watcher().invalidations
    }

    /// Waits until all changes that have begun have ended.
    pub(super) fn wait_for_changes(&self) {
        self.addresses.wait_for_changes();
    }

    /// Whether addresses of `range` may have changed since they were pinned.
    pub(super) fn is_invalidated(&self, range: PageRange) -> bool {
        let invalidated = self.invalidations().lock().invalidated;
        invalidated.is_some_and(|invalidated| invalidated.intersection(&range).is_some())
    }

    /// How many changes there have been.
    pub(super) fn changes(&self) -> u64 {
        self.invalidations().lock().changes
    }

    /// The addresses in `range` were pinned anew, after the first `changes` changes, and are what
    /// they were.
    pub(super) fn validate(&self, range: PageRange, changes: u64) {
        let mut invalidations = self.invalidations().lock();
        if invalidations.changes == changes {
            invalidations.invalidated = invalidations
                .invalidated
                .and_then(|invalidated| invalidated.without(&range));
        }
    }

    /// Whether anything may have changed that was not looked at.
    pub(super) fn needs_revalidation(&self) -> bool {
        self.invalidations().lock().to_revalidate.is_some()
    }

    /// What may have changed and was not looked at; now it is going to be.
    pub(super) fn take_to_revalidate(&self) -> Option<PageRange> {
        self.invalidations().lock().to_revalidate.take()
    }
}
