// SPDX-License-Identifier: GPL-2.0

//! Revalidation: finds out which pinned ranges went stale after the memory manager invalidated
//! addresses.

use kernel::{
    mm::{
        MmWithUser,
        MmapReadGuard, //
    },
    page::PAGE_SHIFT,
    sync::Arc,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    }, //
};

use crate::kernel_ext::gup::first_locked_file;

use super::{
    area::PinnedArea,
    deferred_work::DeferredWork,
    map::Area,
    range::PageRange,
    retire::Stale,
    space::{
        Space,
        SpaceState, //
    },
    subscription::Subscription, //
};

/// Invalidated addresses and their subscription.
struct Suspect {
    range: PageRange,
    subscription: Subscription,
}

/// The remaining time for which one run of the worker waits for file locks, for all suspects
/// together.
struct WaitBudget<'a> {
    deferred_work: &'a DeferredWork<Space>,
    left: Jiffies,
    /// Doubled each time, so that few checks are made in vain.
    step: Jiffies,
}

impl<'a> WaitBudget<'a> {
    fn new(deferred_work: &'a DeferredWork<Space>, ms: u32) -> Self {
        Self {
            deferred_work,
            left: msecs_to_jiffies(ms),
            step: 1,
        }
    }

    /// Waits for one step. Returns true if the caller should check again.
    fn wait(&mut self) -> bool {
        let step = self.step.min(self.left);
        self.left -= step;
        self.step = self.step.saturating_mul(2);
        step > 0 && self.deferred_work.sleep(step)
    }
}

impl Space {
    /// Revalidates invalidated addresses. Areas whose addresses mean other memory now are retired,
    /// reported to their ranges, and evicted from the cache.
    pub(super) fn revalidate(self: &Arc<Self>) {
        let mut budget = WaitBudget::new(&self.deferred_work, self.revalidate_ms);
        let mut from = 0;
        let mut stale = Stale::default();
        loop {
            let next = self.state.lock().next_suspect(from);
            let Some((end, suspect)) = next else {
                break;
            };
            from = end;
            // The invalidation comes before the change. Not under the lock, since the change may
            // take long.
            suspect.subscription.wait_for_changes();
            self.wait_for_file_locks(suspect.range, &mut budget, &mut stale);
            // Without users nothing is mapped any more. Taken for each suspect anew, so that the
            // exit of the process does not wait for all. Dropped after the locks, since dropping
            // the last user unmaps everything.
            let mm = self.mm.mmget_not_zero();
            // In this order, since the lock of the state must not be held while waiting for
            // `mmap_lock`.
            let mapped = mm.as_deref().map(|mm| (mm, mm.mmap_read_lock()));
            let mut state = self.state.lock();
            state.counters.revalidations += 1;
            let mapped = mapped.as_ref().map(|(mm, lock)| (*mm, lock));
            state.revalidate_suspect(&suspect, mapped, &mut stale);
        }
        let mut state = self.state.lock();
        state.report_stale(&mut stale);
        self.evict_stale(&mut state, &self.device.access());
    }

    /// Waits until no process holds the locks of files that are mapped in `range`. Others can hold
    /// such a lock for as long as they like, so there is a limit.
    fn wait_for_file_locks(
        &self,
        range: PageRange,
        budget: &mut WaitBudget<'_>,
        stale: &mut Stale,
    ) {
        let mut address = range.address();
        while let Some(mm) = self.mm.mmget_not_zero() {
            let Some(busy) = first_locked_file(&mm, address, range.end << PAGE_SHIFT) else {
                return;
            };
            address = busy;
            // Neither the exit of the process nor ranges that are known to be stale have to wait.
            drop(mm);
            self.state.lock().report_stale(stale);
            if !budget.wait() {
                return;
            }
        }
    }
}

impl SpaceState {
    /// Finds the first live area from page `from` on that needs revalidation. Returns its end and
    /// all invalidated addresses of its subscription.
    fn next_suspect(&self, from: usize) -> Option<(usize, Suspect)> {
        let rest = PageRange {
            start: from,
            end: usize::MAX,
        };
        self.map.live(rest).find_map(|(_, area)| {
            let subscription = &area.payload.subscription;
            let range = subscription.take_to_revalidate()?;
            let subscription = subscription.clone();
            Some((
                area.range.end,
                Suspect {
                    range,
                    subscription,
                },
            ))
        })
    }

    /// Retires the stale areas of a suspect.
    fn revalidate_suspect(
        &mut self,
        suspect: &Suspect,
        mapped: Option<(&MmWithUser, &MmapReadGuard<'_>)>,
        stale: &mut Stale,
    ) {
        let mut left = suspect.range;
        while left.start < left.end {
            let is_of_it =
                |area: &Area<PinnedArea>| area.payload.subscription.is_same(&suspect.subscription);
            let mut live = self.map.live(left);
            let Some((_, area)) = live.find(|(_, area)| is_of_it(area)) else {
                return;
            };
            let Some(part) = area.range.intersection(&left) else {
                return;
            };
            let (same, end) = match mapped {
                Some(mapped) => {
                    let number = |page| page - area.range.start;
                    let start = part.start << PAGE_SHIFT;
                    let (from, to) = (number(part.start), number(part.end));
                    let (same, end) = area.payload.memory.pages().compare(mapped, start, from, to);
                    (same, area.range.start + end)
                }
                None => (false, part.end),
            };
            drop(live);
            if !same {
                self.retire_part(PageRange { end, ..part }, stale);
            }
            left.start = end;
        }
    }

    /// Retires `part` of a live area; all of the area if there is no memory to split it.
    fn retire_part(&mut self, part: PageRange, stale: &mut Stale) {
        let _ = self
            .map
            .split(part.start)
            .and_then(|()| self.map.split(part.end));
        let first = PageRange {
            start: part.start,
            end: part.start + 1,
        };
        let found = self.map.live(first).next();
        if let Some((pin_id, range)) = found.map(|(pin_id, area)| (pin_id, area.range)) {
            self.retire(stale, pin_id, range);
        }
    }
}
