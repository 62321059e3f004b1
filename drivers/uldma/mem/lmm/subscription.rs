// SPDX-License-Identifier: GPL-2.0

//! Subscriptions to changes of pinned addresses, which may come to mean other memory.
//!
//! The memory manager invalidates addresses before it changes them, often without changing anything
//! in the end, and in a context that must not sleep. So a subscription only records what was
//! invalidated. Twice: `invalidated` until a pin has pinned the addresses again and compared, and
//! `to_revalidate` until [`Space::revalidate`](super::space::Space::revalidate) has checked which
//! ranges went stale.

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
    Event,
    IntervalNotifier,
    Remover,
    Watcher, //
};

use super::range::PageRange;

/// Handles requests to revalidate invalidated addresses.
pub(crate) trait Revalidator: Send + Sync {
    /// Requests a revalidation; must neither sleep, nor fail, nor allocate.
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
    fn changes(&self, event: &Event) -> bool {
        // A process that cannot write without a fault can do so with one, to the same page.
        if event.change == Change::WriteProtection {
            return true;
        }
        let range = PageRange {
            start: event.range.start >> PAGE_SHIFT,
            // The end may be that of the address space.
            end: event.range.end.saturating_add(PAGE_SIZE - 1) >> PAGE_SHIFT,
        };
        let Some(range) = range.intersection(&self.range) else {
            return true;
        };
        let mut invalidations = self.invalidations.lock();
        invalidations.changes += 1;
        invalidations.invalidated = Some(range.hull(invalidations.invalidated));
        if event.change != Change::Protection {
            invalidations.to_revalidate = Some(range.hull(invalidations.to_revalidate));
            drop(invalidations);
            self.revalidator.request();
        }
        true
    }
}

/// Addresses that were pinned together.
#[derive(Clone)]
pub(super) struct Subscription(IntervalNotifier<Addresses>);

impl Subscription {
    /// Subscribes to changes of `range` of `mm`. Pages that are pinned from now on are those that
    /// are mapped there, as long as the range is not [invalidated](Self::is_invalidated).
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR`.
    pub(super) fn watch(
        mm: &MmWithUser,
        range: PageRange,
        revalidator: Arc<dyn Revalidator>,
        remover: &Arc<Remover>,
    ) -> Result<Self> {
        let addresses = pin_init!(Addresses {
            range,
            invalidations <- new_spinlock!(Invalidations::default(), "uldma::Subscription::invalidations"),
            revalidator,
        });
        let length = range.len() << PAGE_SHIFT;
        let notifier = IntervalNotifier::new(mm, range.address(), length, addresses, remover)?;
        notifier.wait_for_changes();
        Ok(Self(notifier))
    }

    /// Returns true if `other` is a subscription to the same addresses, which were pinned at once.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    fn invalidations(&self) -> &SpinLock<Invalidations> {
        &self.0.watcher().invalidations
    }

    /// Waits until all changes that have begun are complete.
    pub(super) fn wait_for_changes(&self) {
        self.0.wait_for_changes();
    }

    /// Returns true if addresses of `range` were invalidated since they were pinned.
    pub(super) fn is_invalidated(&self, range: PageRange) -> bool {
        let invalidated = self.invalidations().lock().invalidated;
        invalidated.is_some_and(|invalidated| invalidated.intersection(&range).is_some())
    }

    /// Returns the number of invalidations.
    pub(super) fn changes(&self) -> u64 {
        self.invalidations().lock().changes
    }

    /// Marks `range` as valid: it was pinned again after the first `changes` invalidations, and its
    /// pages were the same.
    pub(super) fn validate(&self, range: PageRange, changes: u64) {
        let mut invalidations = self.invalidations().lock();
        if invalidations.changes == changes {
            invalidations.invalidated = invalidations
                .invalidated
                .and_then(|invalidated| invalidated.without(&range));
        }
    }

    /// Returns true if addresses were invalidated and not revalidated.
    pub(super) fn needs_revalidation(&self) -> bool {
        self.invalidations().lock().to_revalidate.is_some()
    }

    /// Takes the addresses that have to be revalidated.
    pub(super) fn take_to_revalidate(&self) -> Option<PageRange> {
        self.invalidations().lock().to_revalidate.take()
    }
}
