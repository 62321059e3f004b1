// SPDX-License-Identifier: GPL-2.0

//! The pinned memory of one address space.
//!
//! A new lock pins only what no live area covers for sure, and counts one more on the areas, split
//! where it starts and ends, that it shares with others. The last unlock of an area unpins it.

use kernel::{
    impl_has_work,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        CondVar,
        Mutex,
        SetOnce, //
    },
    task::CurrentTask,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use crate::{
    kernel_ext::{
        accounting,
        mmu_ageing::AgeNotifier,
        mmu_notifier::{
            self,
            Remover, //
        },
        shared_pins::SharedPins,
        shrinker::Shrinkable, //
    },
    mem::{
        optimistic::{
            ageing::Ages,
            fill::Filler, //
        },
        tpt::Entered, //
    },
    user_abi::ledger::Payer, //
};

use super::{
    address_spaces::{
        AddressSpaces,
        Sharing, //
    },
    area::PinnedArea,
    cache::{
        Cache,
        Limits, //
    },
    deferred_work::DeferredWork,
    device_access::DeviceAccess,
    map::{
        AreaKey,
        AreaMap,
        AreaRoom,
        Areas, //
    },
    members::{
        Member,
        Members, //
    },
    pinned_range::PinRecord,
    range::{
        gaps,
        PageRange, //
    },
    reclaim::Reclaimable,
    space_id::SpaceId,
    PinShrinker, //
};

/// Operations of the device of a space.
pub(crate) trait DeviceOps: Send + Sync {
    /// Returns what locking needs.
    fn access(&self) -> DeviceAccess<'_>;

    /// Retains a space until unbind, since the device may still access its memory. Returns the
    /// space that was retained before, which `space` has to retain. Retains nothing after unbind.
    fn keep(&self, space: Arc<Space>) -> Option<Arc<Space>>;
}

/// Options of spaces from the module parameters.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// True if adjacent areas with the same users are merged.
    pub(crate) merge: bool,
    /// Limits of the pin cache of an address space.
    pub(crate) cache: Limits,
    /// Milliseconds for which a revalidation waits for the file locks of other processes.
    pub(crate) revalidate_ms: u32,
}

/// An address space with pinned memory.
///
/// Locks are taken in this order: 1. `mmap_lock` 2. `state` 3. the gate 4. the locks of the tables
/// 5. the table of shared pins 6. `retention`. A caller that is inside of the gate does not take
/// `state`, whose holder may wait for unbind.
/// Memory is not faulted in under `state`, so a caller that takes it does not wait for a process.
/// A thread that looks for memory takes `Reclaimable::space` and `state` if they are free, and then 3 to 6.
#[pin_data(PinnedDrop)]
pub(crate) struct Space {
    id: SpaceId,
    /// Pays for the pinned pages.
    payer: Arc<Payer>,
    pub(super) mm: ARef<Mm>,
    /// True if notifiers take no `mmap_lock` any more.
    is_watchable: Atomic<bool>,
    /// Removes notifiers of the address space that have ended.
    remover: Arc<Remover>,
    /// Number of pinned pages, each counted once. Outside of `state`, so that a reader does not
    /// wait for the device.
    pub(super) pages: Atomic<usize>,
    pub(super) device: Arc<dyn DeviceOps>,
    pub(super) deferred_work: Arc<DeferredWork<Space>>,
    /// The pin cache, for reclaim of memory.
    pub(super) reclaimable: Arc<Reclaimable>,
    /// The same as the shrinker knows it, once the cache was turned on.
    shrinkable: SetOnce<Shrinkable<Reclaimable>>,
    /// Fills its areas.
    filler: Arc<Filler>,
    /// Tells the memory manager of accesses to its areas, once there are some.
    #[pin]
    ages: Mutex<Option<AgeNotifier<Ages>>>,
    /// Milliseconds for which a run of the worker waits for file locks.
    pub(super) revalidate_ms: u32,
    /// The spaces of all devices.
    all: Arc<AddressSpaces<Space>>,
    /// The pins that the devices of the address space share.
    pub(super) sharing: Arc<Sharing>,
    members: Arc<Members>,
    #[pin]
    pub(super) work: Work<Space>,
    /// Notified when a range is not reserved any more.
    #[pin]
    pub(super) entered: CondVar,
    #[pin]
    pub(super) state: Mutex<SpaceState>,
    /// Apart from `state`, since callers that are inside of the gate take it.
    #[pin]
    pub(super) retention: Mutex<Retention>,
}

impl_has_work! {
    impl HasWork<Self> for Space { self.work }
}

/// The part of a space that its lock protects.
pub(super) struct SpaceState {
    pub(super) map: AreaMap<PinnedArea>,
    /// Records of the pinned ranges, by number.
    pub(super) records: RBTree<u64, PinRecord>,
    /// The memory of the record that was removed last, for the next one.
    pub(super) spare_record: Option<RBTreeNodeReservation<u64, PinRecord>>,
    /// The same of an area.
    pub(super) spare_area: Option<AreaRoom<PinnedArea>>,
    pub(super) next_number: u64,
    /// Ranges that callers are pinning, without this lock.
    pub(super) reserved: KVec<PageRange>,
    /// Number of callers that wait until a range is not reserved any more.
    pub(super) waiting: usize,
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    /// Areas that the device may still access, since it did not confirm their invalidation. Pinned
    /// until the last open file of the address space is closed and the device is unbound.
    pub(super) retained: Areas<PinnedArea>,
}

/// The place of a space among those that the device retains until unbind.
#[derive(Default)]
pub(super) struct Retention {
    /// True if the device retains this space.
    pub(super) is_retained: bool,
    /// The space that the device retained before this one.
    pub(super) before: Option<Arc<Space>>,
}

/// Counters of a space.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Pins that found all pages pinned.
    pub(crate) hits: u64,
    /// Pins that had to pin pages.
    pub(crate) misses: u64,
    /// Pages that were pinned.
    pub(crate) pins: u64,
    /// Revalidations of addresses.
    pub(crate) revalidations: u64,
}

impl Counters {
    /// Counts a pin that had to pin `pages` pages.
    pub(super) fn count(&mut self, pages: usize) {
        self.pins += pages as u64;
        match pages {
            0 => self.hits += 1,
            _ => self.misses += 1,
        }
    }
}

/// A snapshot of a space, for queries.
pub(crate) struct Summary {
    pub(crate) areas: usize,
    pub(crate) locked: usize,
    pub(crate) cached: usize,
    pub(crate) cached_regions: usize,
    pub(crate) counters: Counters,
}

/// The cost of pinning a range.
pub(crate) struct Cost {
    /// Pages that would be charged.
    pub(crate) charge: usize,
    /// Pages that are pinned already.
    pub(crate) locked: usize,
    /// Pages that are charged now.
    pub(crate) pinned: usize,
    /// Limit of charged bytes, if there is one.
    pub(crate) limit: Option<u64>,
}

impl Space {
    /// Creates a space for `mm` without pinned memory.
    pub(super) fn new(
        id: SpaceId,
        mm: &MmWithUser,
        device: Arc<dyn DeviceOps>,
        payer: Arc<Payer>,
        options: Options,
        cached: Arc<Atomic<usize>>,
        (all, sharing): (Arc<AddressSpaces<Self>>, Arc<Sharing>),
    ) -> impl PinInit<Self, Error> {
        let mm: ARef<Mm> = (&**mm).into();
        pin_init::pin_init_scope(move || {
            let reclaimable = Arc::pin_init(Reclaimable::new(), GFP_KERNEL)?;
            let state = SpaceState {
                map: AreaMap::new(options.merge),
                records: RBTree::new(),
                spare_record: None,
                spare_area: None,
                next_number: 0,
                reserved: KVec::new(),
                waiting: 0,
                cache: Cache::new(options.cache, reclaimable.clone(), cached),
                counters: Counters::default(),
                retained: Areas::default(),
            };
            Ok(try_pin_init!(Self {
                id,
                payer,
                mm,
                is_watchable: Atomic::new(false),
                remover: Remover::new()?,
                pages: Atomic::new(0),
                device,
                deferred_work: Arc::pin_init(DeferredWork::new(), GFP_KERNEL)?,
                reclaimable,
                shrinkable: SetOnce::new(),
                filler: Filler::new()?,
                ages <- new_mutex!(None, "uldma::Space::ages"),
                revalidate_ms: options.revalidate_ms,
                all,
                sharing,
                members: Members::new()?,
                work <- new_work!("uldma::Space::work"),
                entered <- new_condvar!("uldma::Space::entered"),
                state <- new_mutex!(state, "uldma::Space::state"),
                retention <- new_mutex!(Retention::default(), "uldma::Space::retention"),
            }))
        })
    }

    /// Returns the number by which the device knows this space.
    pub(crate) fn id(&self) -> u32 {
        self.id.number()
    }

    /// Returns the parts of the device that its memory uses.
    pub(crate) fn access(&self) -> DeviceAccess<'_> {
        self.device.access()
    }

    /// Returns what fills its areas.
    pub(crate) fn filler(&self) -> &Arc<Filler> {
        &self.filler
    }

    /// Returns the payer for its open files.
    pub(crate) fn payer(&self) -> &Arc<Payer> {
        &self.payer
    }

    /// Returns the key of this space in the manager.
    pub(crate) fn key(&self) -> usize {
        self.mm.as_raw().addr()
    }

    /// Returns the address space of the current process if it is that of this space.
    pub(crate) fn current<'a>(&self, task: &'a CurrentTask) -> Option<&'a MmWithUser> {
        task.mm()
            .filter(|mm| core::ptr::eq(mm.as_raw(), self.mm.as_raw()))
    }

    /// Prepares `mm`, the address space, for notifiers of its changes and its end. Does so once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` if a signal comes.
    pub(crate) fn prepare_watching(&self, mm: &MmWithUser) -> Result {
        if !self.is_watchable.load(Acquire) {
            mmu_notifier::prepare(mm)?;
            self.is_watchable.store(true, Release);
        }
        Ok(())
    }

    /// Returns what tells the memory manager of accesses to areas of `mm`, the address space.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` if a signal comes.
    pub(crate) fn ages(&self, mm: &MmWithUser) -> Result<AgeNotifier<Ages>> {
        if let Some(ages) = self.known_ages() {
            return Ok(ages);
        }
        let ages = Ages::watch(mm, &self.remover)?;
        // Another thread may have been first. What it has does.
        Ok(self.ages.lock().get_or_insert(ages).clone())
    }

    /// Returns the same, if there have been areas.
    pub(crate) fn known_ages(&self) -> Option<AgeNotifier<Ages>> {
        self.ages.lock().clone()
    }

    /// Lets `shrinker` release pages of the cache where the memory of the machine is short, or that of
    /// the current process's control group. Does so once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn make_shrinkable(&self, shrinker: &Arc<PinShrinker>) -> Result {
        if self.shrinkable.as_ref().is_none() {
            let shrinkable = Shrinkable::new(shrinker.clone(), self.reclaimable.clone())?;
            self.shrinkable.populate(shrinkable);
        }
        Ok(())
    }

    /// Returns what removes notifiers of the address space that have ended.
    pub(crate) fn remover(&self) -> &Arc<Remover> {
        &self.remover
    }

    /// Adds a member.
    pub(crate) fn add_member(&self) -> Member {
        self.members.add()
    }

    /// Calls `run` with the number of members. None is added until `run` returns, but some may be
    /// dropped.
    pub(crate) fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        self.members.while_closed(run)
    }

    /// Returns the number of pinned pages, each counted once.
    pub(crate) fn locked_pages(&self) -> usize {
        self.pages.load(Relaxed)
    }

    /// Returns a snapshot.
    pub(crate) fn summary(&self) -> Summary {
        let state = self.state.lock();
        Summary {
            areas: state.map.count(),
            locked: self.locked_pages(),
            cached: state.cache.pages(),
            cached_regions: state.cache.len(),
            counters: state.counters,
        }
    }

    /// Returns the cost of pinning `range` of the current process.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` if a signal comes.
    pub(crate) fn cost(&self, range: PageRange) -> Result<Cost> {
        self.complete_shared_pins()?;
        let state = self.state.lock();
        let covered = state.map.live(range).map(|(_, area)| area.range);
        let charge = gaps(range, covered)
            .map(|gap| gap.len() - self.pinned_by_others(gap))
            .sum();
        Ok(Cost {
            charge,
            locked: range.len() - charge,
            pinned: accounting::charged(&self.mm),
            limit: accounting::limit(),
        })
    }

    /// Shares the pins of all devices of the address space that were made while there was only one,
    /// if that was not done. The caller holds no lock of a space.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` if a signal comes. The next call goes on.
    pub(super) fn complete_shared_pins(&self) -> Result {
        let Some(table) = self.sharing.incomplete_table() else {
            return Ok(());
        };
        for space in self.all.of(self.key())? {
            space.share_pins(table)?;
        }
        self.sharing.completed();
        Ok(())
    }

    /// Shares the pins that the space has with other devices. Pins that are made meanwhile are
    /// shared from the beginning.
    fn share_pins(&self, table: &Arc<SharedPins>) -> Result {
        // An area can go from one list to the next only, so none is missed.
        for list in [AreaList::Live, AreaList::Stale, AreaList::Retained] {
            let mut next = Some(AreaKey::default());
            while let Some(from) = next {
                if kernel::current!().signal_pending() {
                    return Err(ERESTARTNOHAND);
                }
                // Others get the lock after each area.
                next = self.state.lock().share_area(list, from, table)?;
            }
        }
        Ok(())
    }

    /// Returns the number of pages of `range` that devices of the address space have pinned and
    /// share. If the addresses mean other pages now, these have to be pinned and charged.
    pub(super) fn pinned_by_others(&self, range: PageRange) -> usize {
        let shared = self.sharing.table();
        shared.map_or(0, |shared| shared.count(range.start, range.end))
    }

    /// Returns the number of areas of pinned range `number`, and the number of its stale pages.
    pub(crate) fn describe(&self, number: u64) -> (usize, usize) {
        let state = self.state.lock();
        let Some(record) = state.records.get(&number) else {
            return (0, 0);
        };
        let parts = record.parts.iter();
        let areas = parts.map(|part| state.map.areas(part.pin_id, part.range).count());
        (areas.sum(), record.stale)
    }
}

/// The lists of areas of a space.
#[derive(Clone, Copy)]
enum AreaList {
    Live,
    Stale,
    Retained,
}

impl SpaceState {
    /// Shares the pins of the first area of `list` from `from` on. Returns where to go on, if there
    /// was one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing has changed then.
    fn share_area(
        &mut self,
        list: AreaList,
        from: AreaKey,
        table: &Arc<SharedPins>,
    ) -> Result<Option<AreaKey>> {
        let share = |area: &mut PinnedArea| area.memory.share(table);
        match list {
            AreaList::Live => self.map.change_next_live(from, share),
            AreaList::Stale => self.map.change_next_stale(from, share),
            AreaList::Retained => self.retained.change_next(from, share),
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Space {
    fn drop(self: Pin<&mut Self>) {
        // Areas are left if the device may still access them, or if they belonged to a connection
        // of a device that was unbound. Without the proof they stay pinned, and are counted.
        let device = self.device.clone();
        if let Some(proof) = device.access().tpt.quiet().proof() {
            let mut state = self.state.lock();
            let left = (state.map.take_all(), core::mem::take(&mut state.retained));
            left.free(&proof);
        }
    }
}
