// SPDX-License-Identifier: GPL-2.0

//! The locked memory of one address space.
//!
//! A new lock pins only what no live area covers, and counts one more on the areas, split where it
//! starts and ends, that it shares with others. The last unlock of an area unpins it.

use kernel::{
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
    },
    task::CurrentTask, //
};

use crate::{
    access::Access,
    hw::layout::Run,
    kernel_ext::{
        accounting::Charge,
        gate::Gate,
        gup::PinnedPages, //
    },
    tpt::{
        PageRun,
        Tpt,
        MAX_RUNS, //
    }, //
};

use super::{
    area::{
        Areas,
        Ended,
        NewArea, //
    },
    range::{
        gaps,
        PageRange, //
    }, //
};

type Bound = kernel::device::Device<kernel::device::Bound>;

/// An address space that has locked memory.
///
/// Lock order: `areas`, then the gate, then the locks of [`Tpt`]. `mmap_lock` is taken inside of
/// `areas`, by pinning, so neither faults nor `mmap` may take `areas`.
#[pin_data]
pub(crate) struct Space {
    id: u32,
    mm: ARef<Mm>,
    /// Pages that are locked, each counted once. Outside of `areas`, so that whoever only asks
    /// does not wait for a process that is faulting memory in.
    pages: Atomic<usize>,
    #[pin]
    areas: Mutex<Areas>,
}

/// A part of a lock: pages of one lineage.
#[derive(Clone, Copy)]
struct Part {
    lineage: u64,
    range: PageRange,
    run: PageRun,
}

/// What one lock holds.
pub(crate) struct Locked {
    parts: KVec<Part>,
    runs: KVec<Run>,
}

impl Locked {
    /// The range's page entries, in order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// A lock of `range`, made of two sorted lists of parts that have nothing in common.
    fn new(range: PageRange, some: &[Part], others: &[Part]) -> Result<Self> {
        let count = some.len() + others.len();
        if count > MAX_RUNS {
            return Err(ENOSPC);
        }
        let mut parts = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut runs = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let (mut some, mut others) = (some.iter().peekable(), others.iter().peekable());
        loop {
            let next = match (some.peek(), others.peek()) {
                (Some(a), Some(b)) if a.range.start > b.range.start => others.next(),
                (Some(_), _) => some.next(),
                (None, _) => others.next(),
            };
            let Some(part) = next else {
                return Ok(Self { parts, runs });
            };
            let run = Run {
                page: u32::try_from(part.range.start - range.start)?,
                first: part.run.first,
                count: part.run.count,
                reserved: 0,
            };
            runs.push(run, GFP_KERNEL_ACCOUNT)?;
            parts.push(*part, GFP_KERNEL_ACCOUNT)?;
        }
    }
}

/// What locking needs of the device.
pub(crate) struct Locker<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
}

impl Space {
    /// Creates a space for `mm` without locked memory.
    pub(crate) fn new(id: u32, mm: &MmWithUser) -> impl PinInit<Self> {
        let mm: ARef<Mm> = (&**mm).into();
        pin_init!(Self {
            id,
            mm,
            pages: Atomic::new(0),
            areas <- new_mutex!(Areas::default(), "uldma::Space::areas"),
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

    /// Locks `range` of the current process, whose address space `mm` must be of this space.
    ///
    /// # Errors
    ///
    /// Those of [`PinnedPages::pin`] and [`Charge::new`], `ENOSPC` when a table is full, `ENODEV`
    /// when the device is gone; nothing has changed then.
    pub(crate) fn lock(
        &self,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let mut areas = self.areas.lock();
        let covered = areas.live(range).map(|(_, area)| area.range);
        let missing = gaps(range, covered).map(|gap| gap.len()).sum();
        let mut charge = Charge::new(mm, missing)?;
        let mut fresh = PinnedPages::pin(mm, range.address(), range.len(), access.write)?;

        areas.split(range.start)?;
        areas.split(range.end)?;
        areas.split_stale(range, &fresh)?;
        let (shared, stale) = sort_out(&areas, range, &fresh)?;

        let mut missing_now = KVec::new();
        for gap in gaps(range, shared.iter().map(|part| part.range)) {
            missing_now.push(gap, GFP_KERNEL)?;
        }
        let count: usize = missing_now.iter().map(PageRange::len).sum();
        charge.grow(count.saturating_sub(missing))?;

        let guard = locker.gate.try_enter()?;
        let (dev, tpt) = (guard.dev(), locker.tpt);
        let mut new = KVec::with_capacity(missing_now.len(), GFP_KERNEL)?;
        let result = (|| {
            let mut own = KVec::new();
            for gap in missing_now {
                let lineage = areas.new_lineage();
                let pages = fresh.take(gap.start - range.start, gap.len())?;
                let charge = charge.split(gap.len());
                let area = NewArea::new(lineage, gap, access, pages, charge, |pages| {
                    tpt.add_pages(dev, pages, self.id, access)
                })?;
                let part = Part {
                    lineage,
                    range: area.range(),
                    run: area.run(),
                };
                new.push(area, GFP_KERNEL)?;
                own.push(part, GFP_KERNEL)?;
            }
            let locked = Locked::new(range, &shared, &own)?;
            for part in &shared {
                areas.allow(part.lineage, part.range, access, tpt)?;
            }
            Ok(locked)
        })();
        if result.is_err() {
            for area in new {
                tpt.remove_pages(dev, area.run());
            }
            return result;
        }

        for start in stale {
            areas.retire(start);
        }
        for area in new {
            self.pages.fetch_add(area.range().len(), Relaxed);
            areas.insert(area);
        }
        result.inspect(|locked| {
            for part in &locked.parts {
                areas.hold(part.lineage, part.range);
            }
        })
    }

    /// Ends a lock; unpins what no other lock uses, once the device can no longer use it.
    ///
    /// `invalidate` has to make the device end whatever uses entries that are invalid now, and
    /// `wait_quiet` has to wait until a device whose gate is closed can touch no memory any more.
    ///
    /// # Errors
    ///
    /// What `invalidate` says; the lock is gone all the same, and its pages stay pinned as long as
    /// this space.
    pub(crate) fn unlock(
        &self,
        locked: Locked,
        locker: &Locker<'_>,
        invalidate: impl FnOnce(&Bound) -> Result,
        wait_quiet: impl FnOnce(),
    ) -> Result {
        let mut areas = self.areas.lock();
        let mut ended = Ended::default();
        for part in &locked.parts {
            areas.release(part.lineage, part.range, &mut ended);
        }
        let Some(guard) = locker.gate.enter() else {
            wait_quiet();
            self.pages.fetch_sub(ended.pages(), Relaxed);
            return Ok(());
        };
        for run in ended.runs() {
            locker.tpt.retract_pages(run);
        }
        if let Err(err) = invalidate(guard.dev()) {
            areas.keep(ended);
            return Err(err);
        }
        for run in ended.runs() {
            locker.tpt.remove_pages(guard.dev(), run);
        }
        self.pages.fetch_sub(ended.pages(), Relaxed);
        Ok(())
    }
}

/// Sorts the live areas in `range`, split by [`Areas::split_stale`], into those that still are what is mapped
/// there, as `fresh` pins of the whole range tell, and the starts of those that are stale.
fn sort_out(
    areas: &Areas,
    range: PageRange,
    fresh: &PinnedPages,
) -> Result<(KVec<Part>, KVec<usize>)> {
    let mut parts = KVec::new();
    let mut stale = KVec::new();
    for (lineage, area) in areas.live(range) {
        if area.is_fresh(fresh, range.start) {
            let part = Part {
                lineage,
                range: area.range,
                run: area.run,
            };
            parts.push(part, GFP_KERNEL_ACCOUNT)?;
        } else {
            stale.push(area.range.start, GFP_KERNEL)?;
        }
    }
    Ok((parts, stale))
}
