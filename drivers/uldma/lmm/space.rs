// SPDX-License-Identifier: GPL-2.0

//! The locked memory of one address space.
//!
//! A new lock pins only what no live area covers for sure, and counts one more on the areas, split
//! where it starts and ends, that it shares with others. The last unlock of an area unpins it.

use kernel::{
    impl_has_work,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Completion,
        Mutex, //
    },
    task::CurrentTask,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use crate::{
    access::Access,
    hw::Hardware,
    kernel_ext::{
        accounting::{
            self,
            Charge, //
        },
        gate::Gate,
        gup::PinnedPages, //
    },
    tpt::Tpt, //
};

use super::{
    area::Pinned,
    attention::{
        Attention,
        Host, //
    },
    cache::Cache,
    locked::{
        self,
        in_order,
        live_parts,
        Holder,
        Listener,
        Locked,
        Part, //
    },
    map::{
        Area,
        AreaMap,
        Ended,
        NewArea, //
    },
    origin::{
        Origin,
        Wake, //
    },
    range::{
        gaps,
        PageRange, //
    },
    Options, //
};

/// An address space that has locked memory.
///
/// Lock order: `state`, then the gate, then the locks of [`Tpt`]. `mmap_lock` is taken inside of
/// `state`, by pinning, so neither faults nor `mmap` nor those who change mappings may take `state`.
#[pin_data]
pub(crate) struct Space {
    id: u32,
    pub(super) mm: ARef<Mm>,
    /// Pages that are locked, each counted once. Outside of `state`, so that whoever only asks
    /// does not wait for a process that is faulting memory in.
    pages: Atomic<usize>,
    pub(super) host: Arc<dyn Host>,
    pub(super) attention: Arc<Attention>,
    #[pin]
    pub(super) work: Work<Space>,
    #[pin]
    pub(super) state: Mutex<State>,
}

impl_has_work! {
    impl HasWork<Self> for Space { self.work }
}

/// What a space keeps under its lock.
pub(super) struct State {
    pub(super) map: AreaMap<Pinned>,
    /// The locks, by number.
    pub(super) holders: RBTree<u64, Holder>,
    next_number: u64,
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    /// Areas that the device did not let go of: pinned until the address space's last opener and
    /// the device's binding are gone.
    stuck: KVec<Pinned>,
}

/// How often things happened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Locks that had to pin nothing.
    pub(crate) hits: u64,
    /// Locks that had to.
    pub(crate) misses: u64,
    /// Pages that were pinned.
    pub(crate) pins: u64,
    /// Times that somebody had to look at addresses.
    pub(crate) looks: u64,
}

/// What there is of a space, for those who ask.
pub(crate) struct Summary {
    pub(crate) areas: usize,
    pub(crate) locked: usize,
    pub(crate) cached: usize,
    pub(crate) cached_locks: usize,
    pub(crate) counters: Counters,
}

/// What locking a range would cost.
pub(crate) struct Cost {
    /// Pages that would be charged.
    pub(crate) charge: usize,
    /// Pages that are locked already.
    pub(crate) locked: usize,
    /// Pages that are charged now.
    pub(crate) pinned: usize,
    /// Bytes that may be charged; none without a limit.
    pub(crate) limit: Option<u64>,
}

/// What locking needs of the device.
pub(crate) struct Locker<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
    pub(crate) hw: &'a dyn Hardware,
    /// Complete once a device whose gate is closed can touch no memory any more.
    pub(crate) quiet: &'a Completion,
}

/// What the device has to be told when a lock ends.
#[derive(Clone, Copy)]
pub(crate) enum Tell {
    /// This region is retracted, and may be in use.
    Region(u32),
    /// Pages go, if any do.
    Pages,
    /// All regions of the space are retracted, and may be in use.
    Space,
}

/// Pins of a range that no area covers for sure.
struct Fresh {
    range: PageRange,
    origin: Arc<Origin>,
    pages: PinnedPages,
}

/// An area that may be stale, and its origin's changes before the range was pinned anew.
struct Doubted {
    origin: Arc<Origin>,
    range: PageRange,
    changes: u64,
}

impl Space {
    /// Creates a space for `mm` without locked memory.
    pub(super) fn new(
        id: u32,
        mm: &MmWithUser,
        host: Arc<dyn Host>,
        options: Options,
        cached: Arc<Atomic<usize>>,
    ) -> impl PinInit<Self, Error> {
        let mm: ARef<Mm> = (&**mm).into();
        let state = State {
            map: AreaMap::new(options.merge),
            holders: RBTree::new(),
            next_number: 0,
            cache: Cache::new(options.cache, cached),
            counters: Counters::default(),
            stuck: KVec::new(),
        };
        try_pin_init!(Self {
            id,
            mm,
            pages: Atomic::new(0),
            host,
            attention: Arc::pin_init(Attention::new(), GFP_KERNEL_ACCOUNT)?,
            work <- new_work!("uldma::Space::work"),
            state <- new_mutex!(state, "uldma::Space::state"),
        })
    }

    /// The number by which the device knows this space.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The key under which the manager finds this space.
    pub(super) fn key(&self) -> usize {
        self.mm.as_raw().addr()
    }

    /// Whether the current process runs in this space; its address space then.
    pub(crate) fn current<'a>(&self, task: &'a CurrentTask) -> Option<&'a MmWithUser> {
        task.mm()
            .filter(|mm| core::ptr::eq(mm.as_raw(), self.mm.as_raw()))
    }

    /// Pages that are locked now, each counted once.
    pub(crate) fn locked_pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// What there is.
    pub(crate) fn summary(&self) -> Summary {
        let state = self.state.lock();
        Summary {
            areas: state.map.count(),
            locked: self.locked_pages(),
            cached: state.cache.pages(),
            cached_locks: state.cache.len(),
            counters: state.counters,
        }
    }

    /// What locking `range` of the current process would cost.
    pub(crate) fn cost(&self, range: PageRange) -> Cost {
        let state = self.state.lock();
        let covered = state.map.live(range).map(|(_, area)| area.range);
        let charge = gaps(range, covered).map(|gap| gap.len()).sum();
        Cost {
            charge,
            locked: range.len() - charge,
            pinned: accounting::charged(&self.mm),
            limit: accounting::limit(),
        }
    }

    /// Number of areas that make up lock `number`, and pages of it that went stale.
    pub(crate) fn describe(&self, number: u64) -> (usize, usize) {
        let state = self.state.lock();
        let Some(holder) = state.holders.get(&number) else {
            return (0, 0);
        };
        let parts = holder.parts.iter();
        let areas = parts.map(|part| state.map.areas(part.lineage, part.range).count());
        (areas.sum(), holder.stale)
    }

    /// Locks `range` of the current process, whose address space `mm` must be of this space;
    /// `listener` is told when it goes stale.
    ///
    /// # Errors
    ///
    /// Those of [`PinnedPages::pin`] and [`Charge::new`], `ENOSPC` when a table is full, `ENODEV`
    /// when the device is gone; nothing has changed then, but that the cache may be empty.
    pub(crate) fn lock(
        self: &Arc<Self>,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Locked> {
        let locker = &self.host.locker();
        let mut state = self.state.lock();
        let result = self.lock_in(&mut state, mm, range, access, listener.clone(), locker);
        match result {
            Err(ENOMEM | ENOSPC | EPERM) if state.cache.len() > 0 => {
                while self.evict(&mut state, locker) {}
                self.lock_in(&mut state, mm, range, access, listener, locker)
            }
            result => result,
        }
    }

    fn lock_in(
        &self,
        state: &mut State,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        listener: Option<Arc<dyn Listener>>,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let doubted = state.doubted(range, access)?;
        let covered = state.map.live(range).map(|(_, area)| area.range);
        let missing = gaps(range, covered).map(|gap| gap.len()).sum();
        let charge = Charge::new(mm, missing)?;
        let fresh = self.pin_doubtful(state, mm, range, access)?;
        let pins: usize = fresh.iter().map(|fresh| fresh.pages.len()).sum();

        let result = state.split_for(range, &fresh).and_then(|()| {
            let parts = (missing, charge, fresh);
            self.lock_split(state, range, access, listener, parts, locker)
        });
        match &result {
            Ok(_) => {
                for doubted in doubted {
                    doubted.origin.trust(doubted.range, doubted.changes);
                }
                let counters = &mut state.counters;
                counters.pins += u64::try_from(pins)?;
                let counter = match pins {
                    0 => &mut counters.hits,
                    _ => &mut counters.misses,
                };
                *counter += 1;
            }
            Err(_) => {
                state.map.unsplit(range);
            }
        }
        result
    }

    /// Pins what no live area of `range` covers for sure with the rights of `access`.
    fn pin_doubtful(
        &self,
        state: &State,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
    ) -> Result<KVVec<Fresh>> {
        let wake: Arc<dyn Wake> = self.attention.clone();
        let live = state.map.live(range).map(|(_, area)| area);
        let sure = live.filter(|area| is_sure(area, &range, access));
        let mut fresh = KVVec::new();
        for range in gaps(range, sure.map(|area| area.range)) {
            let origin = Origin::watch(mm, range, &wake)?;
            let pages = PinnedPages::pin(mm, range.address(), range.len(), access.write)?;
            let pinned = Fresh {
                range,
                origin,
                pages,
            };
            fresh.push(pinned, GFP_KERNEL)?;
        }
        Ok(fresh)
    }

    /// The rest of [`Space::lock`], once what is needed is pinned and areas are split.
    fn lock_split(
        &self,
        state: &mut State,
        range: PageRange,
        access: Access,
        listener: Option<Arc<dyn Listener>>,
        (missing, mut charge, fresh): (usize, Charge, KVVec<Fresh>),
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        // In the order of addresses, as live areas are.
        let mut stale = KVVec::new();
        for fresh in &fresh {
            for (lineage, area) in state.map.live(fresh.range) {
                if !is_same(&area.payload, area.range, area.range.start, fresh) {
                    stale.push((lineage, area.range), GFP_KERNEL)?;
                }
            }
        }
        let is_stale = |range: PageRange| {
            let found = stale.binary_search_by_key(&range.start, |(_, stale)| stale.start);
            found.is_ok()
        };
        let shared = live_parts(&state.map, range, is_stale)?;
        let missing_now = || gaps(range, shared.iter().map(|part| part.range));
        let count: usize = missing_now().map(|gap| gap.len()).sum();
        charge.grow(count.saturating_sub(missing))?;

        let guard = locker.gate.try_enter()?;
        let (dev, tpt) = (guard.dev(), locker.tpt);
        let mut new: KVVec<NewArea<Pinned>> = KVVec::new();
        let result = (|| {
            let mut fresh = fresh.into_iter().peekable();
            for gap in missing_now() {
                while fresh
                    .next_if(|fresh| fresh.range.end <= gap.start)
                    .is_some()
                {}
                let fresh = fresh.peek_mut().ok_or(EINVAL)?;
                let (origin, pages) = fresh.take(gap)?;
                let charge = charge.split(gap.len());
                new.reserve(1, GFP_KERNEL)?;
                let area = NewArea::new(state.map.new_lineage(), gap, || {
                    Pinned::new(origin, pages, charge, access, |pages| {
                        tpt.add_pages(dev, pages, self.id, access)
                    })
                })?;
                new.push(area, GFP_KERNEL)?;
            }
            let number = state.next_number + 1;
            let parts = in_order(shared.iter().copied(), new.iter().map(Part::of));
            let (locked, holder) = locked::make(number, range, parts, listener)?;
            let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
            for part in &shared {
                let allow = |pinned: &mut Pinned| pinned.allow(access, tpt);
                state.map.change(part.lineage, part.range, allow)?;
            }
            Ok((locked, holder, room))
        })();
        let (locked, holder, room) = match result {
            Ok(made) => made,
            Err(err) => {
                for area in new {
                    tpt.remove_pages(dev, area.payload.run);
                }
                return Err(err);
            }
        };

        for (lineage, range) in stale {
            state.retire(lineage, range);
        }
        for area in new {
            self.pages.fetch_add(area.range.len(), Relaxed);
            state.map.insert(area);
        }
        state.next_number = locked.number;
        for part in holder.parts.iter() {
            state.map.hold(part.lineage, part.range);
        }
        state.holders.insert(room.into_node(locked.number, holder));
        Ok(locked)
    }

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
        let mut ended = Ended::default();
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
        let mut ended = Ended::default();
        state.release(locked, &mut ended);
        self.unpin(state, ended, tell, locker)
    }

    /// Unpins areas once the device was told what `tell` says, and has answered.
    fn unpin(
        self: &Arc<Self>,
        state: &mut State,
        ended: Ended<Pinned>,
        tell: Tell,
        locker: &Locker<'_>,
    ) -> Result {
        let Some(guard) = locker.gate.enter() else {
            locker.quiet.wait_for_completion();
            self.pages.fetch_sub(ended.pages(), Relaxed);
            return Ok(());
        };
        let (dev, hw) = (guard.dev(), locker.hw);
        for area in ended.iter() {
            locker.tpt.retract_pages(area.payload.run);
        }
        let result = match tell {
            Tell::Region(region) => hw.invalidate_region(dev, region),
            Tell::Space => hw.invalidate_space(dev, self.id),
            Tell::Pages if ended.is_empty() => Ok(()),
            Tell::Pages => hw.invalidate_region(dev, 0),
        };
        if let Err(err) = result {
            dev_err!(dev, "{} pages stay pinned: {err:?}\n", ended.pages());
            state.keep_stuck(ended);
            self.host.keep(self);
            return Err(err);
        }
        for area in ended.iter() {
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

impl Fresh {
    /// Takes out the pins of `gap`; those before it, which areas have already, end.
    fn take(&mut self, gap: PageRange) -> Result<(Arc<Origin>, PinnedPages)> {
        let head = gap.start.checked_sub(self.range.start).ok_or(EINVAL)?;
        let mut pages = self.pages.split_off(head);
        let rest = pages.split_off(gap.len());
        if pages.len() != gap.len() {
            return Err(EINVAL);
        }
        self.pages = rest;
        self.range.start = gap.end;
        Ok((self.origin.clone(), pages))
    }
}

/// Whether an area gives the rights of `access`, and is for sure what is mapped in `range`.
fn is_sure(area: &Area<Pinned>, range: &PageRange, access: Access) -> bool {
    let common = area.range.intersection(range).unwrap_or(area.range);
    area.payload.access.covers(access) && !area.payload.origin.is_unsure(common)
}

/// Whether page `page` of an area that has `range` is the one that `fresh` found there.
fn is_same(area: &Pinned, range: PageRange, page: usize, fresh: &Fresh) -> bool {
    area.pages.pfn(page - range.start) == fresh.pages.pfn(page - fresh.range.start)
}

impl State {
    /// The live areas in `range` that may be stale, or lack rights of `access`.
    fn doubted(&self, range: PageRange, access: Access) -> Result<KVVec<Doubted>> {
        let mut doubted = KVVec::new();
        for (_, area) in self.map.live(range) {
            // What is pinned for reading says nothing of the right to write.
            let Some(range) = area
                .range
                .intersection(&range)
                .filter(|_| !is_sure(area, &range, access))
                .filter(|_| access.write || !area.payload.access.write)
            else {
                continue;
            };
            let origin = area.payload.origin.clone();
            let changes = origin.changes();
            let entry = Doubted {
                origin,
                range,
                changes,
            };
            doubted.push(entry, GFP_KERNEL)?;
        }
        Ok(doubted)
    }

    /// Splits the live areas in `range` at its ends, and so that each is what `fresh` found as a
    /// whole or not at all.
    fn split_for(&mut self, range: PageRange, fresh: &[Fresh]) -> Result {
        self.map.split(range.start)?;
        self.map.split(range.end)?;
        for fresh in fresh {
            let mut from = fresh.range;
            while let Some(at) = self.first_change(from, fresh) {
                self.map.split(at)?;
                from.start = at;
            }
        }
        Ok(())
    }

    /// The first page in a live area of `range` that differs from the one before it in whether it
    /// is what `fresh` found.
    fn first_change(&self, range: PageRange, fresh: &Fresh) -> Option<usize> {
        self.map.live(range).find_map(|(_, area)| {
            let first = is_same(&area.payload, area.range, area.range.start, fresh);
            (area.range.start..area.range.end)
                .find(|&page| is_same(&area.payload, area.range, page, fresh) != first)
        })
    }

    /// Lets no new lock use an area that is stale, and tells the locks that have it.
    pub(super) fn retire(&mut self, lineage: u64, range: PageRange) {
        self.map.retire(lineage, range.start);
        for holder in self.holders.values_mut() {
            holder.went_stale(lineage, range);
        }
    }

    /// Takes a lock out, and what nobody else holds of it.
    fn release(&mut self, locked: &Locked, ended: &mut Ended<Pinned>) {
        if let Some(holder) = self.holders.remove(&locked.number) {
            for part in holder.parts.iter() {
                self.map.release(part.lineage, part.range, ended);
            }
        }
    }

    fn keep_stuck(&mut self, ended: Ended<Pinned>) {
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
