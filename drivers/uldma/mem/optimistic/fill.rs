// SPDX-License-Identifier: GPL-2.0

//! Entering pages that the device has missed.
//!
//! Each space has a work item, which looks up what is mapped: for that it waits for `mmap_lock` and for
//! changes, as long as the process likes. So nothing waits for it, and what waits for it is bounded.

use kernel::{
    impl_has_work,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    hw::{
        layout::PageRequest,
        Hw, //
    },
    kernel_ext::{
        hmm::Snapshot,
        mmu_notifier::IntervalNotifier,
        workqueue, //
    },
};

use super::area::Area;

/// Maximum number of misses of a space that wait.
const MOST_MISSES: usize = 64;

/// Maximum number of pages of one miss.
const MOST_PAGES: usize = PageRequest::MOST_PAGES as usize;

/// How often a look-up is repeated that a change has met.
const ATTEMPTS: usize = 3;

/// Pages that the device has missed.
pub(crate) struct Miss {
    area: IntervalNotifier<Area>,
    first: usize,
    count: usize,
}

impl Miss {
    /// Returns the miss of up to `count` pages of `area`, from number `first` on, if that has some.
    pub(super) fn new(area: IntervalNotifier<Area>, first: usize, count: usize) -> Option<Self> {
        let left = area.watcher().pages().checked_sub(first)?;
        let count = count.min(left).min(MOST_PAGES);
        (count > 0).then_some(Self { area, first, count })
    }

    /// Enters the pages that are mapped now.
    fn fill(&self) -> Result {
        let area = self.area.watcher();
        for _ in 0..ATTEMPTS {
            let address = area.address_of(self.first);
            let found = match Snapshot::<MOST_PAGES>::take(&self.area, address, self.count) {
                Err(EBUSY) => continue,
                found => found?,
            };
            let device = area.space.access();
            let guard = device.gate.try_enter()?;
            let hw = Hw::new(guard.dev(), device.hw);
            let mut entries = area.entries.lock();
            let is_current = found.if_current(&self.area, &mut *entries, |entries, pages| {
                for (number, page) in (self.first..).zip(pages) {
                    // A page that the device cannot have is missed again.
                    let entered = page.map(|page| entries.enter(&device, hw, number, &page));
                    if entered == Some(Ok(())) {
                        device.optimistic.filled.fetch_add(1, Relaxed);
                    }
                }
            });
            if is_current {
                break;
            }
        }
        Ok(())
    }
}

/// Fills the areas of one space.
#[pin_data]
pub(crate) struct Filler {
    #[pin]
    misses: SpinLock<KVec<Miss>>,
    #[pin]
    work: Work<Filler>,
}

impl_has_work! {
    impl HasWork<Self> for Filler { self.work }
}

impl Filler {
    /// Creates one that has nothing to do.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let misses = KVec::with_capacity(MOST_MISSES, GFP_KERNEL)?;
        let filler = pin_init!(Self {
            misses <- new_spinlock!(misses, "uldma::Filler::misses"),
            work <- new_work!("uldma::Filler::work"),
        });
        Arc::pin_init(filler, GFP_KERNEL)
    }
}

/// Has the pages of `miss` entered. Returns false if too many wait.
pub(super) fn request(miss: Miss) -> bool {
    let Some(queue) = workqueue::waiting() else {
        // The module ends.
        return false;
    };
    let filler = miss.area.watcher().space.filler().clone();
    if filler.misses.lock().push_within_capacity(miss).is_err() {
        return false;
    }
    // If it is queued already, it has not begun yet.
    let _ = queue.enqueue(filler);
    true
}

impl WorkItem for Filler {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let next = || this.misses.lock().remove(0);
        while let Ok(miss) = next() {
            // A process that has ended needs no pages.
            let _ = miss.fill();
        }
    }
}
