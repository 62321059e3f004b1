// SPDX-License-Identifier: GPL-2.0

//! Finding out which locks went stale, after the memory manager told of changes.

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
        State, //
    },
    subscription::Subscription, //
};

/// What may have changed, and where it came from.
struct Suspect {
    range: PageRange,
    subscription: Arc<Subscription>,
}

/// What is left of the time for which one run of the worker waits for others, all its suspects
/// together.
struct WaitBudget<'a> {
    deferred_work: &'a DeferredWork,
    left: Jiffies,
    /// Longer each time, so that few looks are made in vain.
    step: Jiffies,
}

impl<'a> WaitBudget<'a> {
    fn new(deferred_work: &'a DeferredWork, ms: u32) -> Self {
        Self {
            deferred_work,
            left: msecs_to_jiffies(ms),
            step: 1,
        }
    }

    /// Waits a little; whether it is worth while to look again.
    fn wait(&mut self) -> bool {
        let step = self.step.min(self.left);
        self.left -= step;
        self.step = self.step.saturating_mul(2);
        step > 0 && self.deferred_work.sleep(step)
    }
}

impl Space {
    /// Looks at what may have changed: areas whose addresses mean other memory now serve no new
    /// lock, their locks are told, and the cache gives them up.
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
            // The change is told of before it is made. Not under the lock, since others can draw it
            // out.
            suspect.subscription.wait_for_changes();
            self.wait_for_file_locks(suspect.range, &mut budget, &mut stale);
            // Without users nothing is mapped any more. For one suspect only, so that the end of the
            // process does not wait for the others; dropped after the locks, as the last user's end
            // unmaps everything.
            let mm = self.mm.mmget_not_zero();
            // In this order: nobody waits for the process's memory under the lock of the state.
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

    /// Waits for the end of what is being done to the files that are mapped in `range`. Others can hold
    /// a file's lock for as long as they like, so there is a limit.
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
            // Neither the process's end nor the locks that are stale for sure wait.
            drop(mm);
            self.state.lock().report_stale(stale);
            if !budget.wait() {
                return;
            }
        }
    }
}

impl State {
    /// The first live area from page `from` on that is to be looked at: where it ends, and all that
    /// may have changed with it.
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

    /// Retires what is stale of a suspect.
    fn revalidate_suspect(
        &mut self,
        suspect: &Suspect,
        mapped: Option<(&MmWithUser, &MmapReadGuard<'_>)>,
        stale: &mut Stale,
    ) {
        let mut left = suspect.range;
        while left.start < left.end {
            let is_of_it = |area: &Area<PinnedArea>| {
                Arc::ptr_eq(&area.payload.subscription, &suspect.subscription)
            };
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
