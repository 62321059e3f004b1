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
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
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
        workqueue::OwnQueue, //
    },
    mem::tpt::Entered,
    user_abi::ledger::Payer, //
};

use super::{
    area::PinnedArea,
    cache::Cache,
    deferred_work::DeferredWork,
    device_ops::DeviceOps,
    map::{
        AreaMap,
        Areas, //
    },
    members::Members,
    pinned_range::PinRecord,
    range::{
        gaps,
        PageRange, //
    },
    space_id::SpaceId,
    Options, //
};

/// An address space that has locked memory.
///
/// Lock order: `mmap_lock`, then `state`, then the gate, then the locks of the tables. Nothing that
/// faults memory in is called under `state`, so whoever takes it waits for no process's memory.
#[pin_data(PinnedDrop)]
pub(crate) struct Space {
    id: SpaceId,
    /// Who pays for what is locked.
    payer: Arc<Payer>,
    pub(super) mm: ARef<Mm>,
    /// Pages that are locked, each counted once. Outside of `state`, so that a caller that only asks
    /// does not wait for the device.
    pub(super) pages: Atomic<usize>,
    pub(super) device: Arc<dyn DeviceOps>,
    pub(super) deferred_work: Arc<DeferredWork>,
    /// Milliseconds for which a run of the worker waits for others.
    pub(super) revalidate_ms: u32,
    #[pin]
    pub(super) members: Members,
    #[pin]
    pub(super) work: Work<Space>,
    /// Told when a range is not reserved any more.
    #[pin]
    pub(super) entered: CondVar,
    #[pin]
    pub(super) state: Mutex<State>,
}

impl_has_work! {
    impl HasWork<Self> for Space { self.work }
}

/// What a space keeps under its lock.
pub(super) struct State {
    pub(super) map: AreaMap<PinnedArea>,
    /// The locks, by number.
    pub(super) records: RBTree<u64, PinRecord>,
    pub(super) next_number: u64,
    /// What is being pinned, without this lock.
    pub(super) reserved: KVec<PageRange>,
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    /// Areas that the device did not let go of: pinned until the address space's last open file and
    /// the device's binding are gone.
    pub(super) retained: Areas<PinnedArea>,
    /// Whether the device keeps this space.
    pub(super) is_retained: bool,
    /// The space that the device kept before this one, if it keeps this one.
    pub(super) retained_before: Option<Arc<Space>>,
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
    /// Times that addresses had to be revalidated.
    pub(crate) revalidations: u64,
}

/// What there is of a space, for those who ask.
pub(crate) struct Summary {
    pub(crate) areas: usize,
    pub(crate) locked: usize,
    pub(crate) cached: usize,
    pub(crate) cached_regions: usize,
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
impl Space {
    /// Creates a space for `mm` without locked memory.
    pub(super) fn new(
        id: SpaceId,
        mm: &MmWithUser,
        device: Arc<dyn DeviceOps>,
        payer: Arc<Payer>,
        options: Options,
        cached: Arc<Atomic<usize>>,
        queue: Arc<OwnQueue>,
    ) -> impl PinInit<Self, Error> {
        let mm: ARef<Mm> = (&**mm).into();
        let state = State {
            map: AreaMap::new(options.merge),
            records: RBTree::new(),
            next_number: 0,
            reserved: KVec::new(),
            cache: Cache::new(options.cache, cached),
            counters: Counters::default(),
            retained: Areas::default(),
            is_retained: false,
            retained_before: None,
        };
        try_pin_init!(Self {
            id,
            payer,
            mm,
            pages: Atomic::new(0),
            device,
            deferred_work: Arc::pin_init(DeferredWork::new(queue), GFP_KERNEL_ACCOUNT)?,
            revalidate_ms: options.revalidate_ms,
            members <- Members::new(),
            work <- new_work!("uldma::Space::work"),
            entered <- new_condvar!("uldma::Space::entered"),
            state <- new_mutex!(state, "uldma::Space::state"),
        })
    }

    /// The number by which the device knows this space.
    pub(crate) fn id(&self) -> u32 {
        self.id.number()
    }

    /// Who pays for what its open files have.
    pub(crate) fn payer(&self) -> &Arc<Payer> {
        &self.payer
    }

    /// The key under which the manager finds this space.
    pub(crate) fn key(&self) -> usize {
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
            cached_regions: state.cache.len(),
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
        let Some(record) = state.records.get(&number) else {
            return (0, 0);
        };
        let parts = record.parts.iter();
        let areas = parts.map(|part| state.map.areas(part.pin_id, part.range).count());
        (areas.sum(), record.stale)
    }
}

#[pinned_drop]
impl PinnedDrop for Space {
    fn drop(self: Pin<&mut Self>) {
        // What is left then is what the device did not let go of, or what is of a connection that
        // went with the device. Without the proof it stays pinned, and is counted.
        let device = self.device.clone();
        if let Some(proof) = device.access().tpt.quiet().proof() {
            let mut state = self.state.lock();
            let left = (state.map.take_all(), core::mem::take(&mut state.retained));
            left.free(&proof);
        }
    }
}
