// SPDX-License-Identifier: GPL-2.0

//! The locked memory areas of one address space.
//!
//! A *locked memory area* (LMA) is a range of pages that was pinned in one go. A new lock pins only
//! what no live area covers; it counts one user more on each area that it touches, and the last
//! user's unlock unpins. An area whose addresses were mapped anew since is *stale*: it stays pinned
//! for the regions that it belongs to, and no new lock uses it.

use kernel::{
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        Mutex, //
    }, //
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

use super::range::{
    gaps,
    PageRange, //
};

type Bound = kernel::device::Device<kernel::device::Bound>;

/// An address space that has locked memory.
///
/// Lock order: `state`, then the gate, then the locks of [`Tpt`]. `mmap_lock` is taken inside of
/// `state`, by pinning, so neither faults nor `mmap` may take `state`.
#[pin_data]
pub(crate) struct Space {
    id: u32,
    mm: ARef<Mm>,
    #[pin]
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// All areas, by number.
    areas: RBTree<u64, Area>,
    /// Numbers of the areas that new locks may use, by first page. Disjoint.
    live: RBTree<usize, u64>,
    /// Number of the next area.
    next: u64,
}

/// A locked memory area.
struct Area {
    range: PageRange,
    /// Held to be dropped: unpins, marking pages dirty if the device could write.
    pages: PinnedPages,
    /// Held to be dropped, after the pins: gives the pages back to the limit.
    _charge: Charge,
    access: Access,
    run: PageRun,
    users: usize,
}

/// What one lock holds: areas, and the runs of page entries that its range is made of.
pub(crate) struct Locked {
    areas: KVec<u64>,
    runs: KVec<Run>,
}

impl Locked {
    /// The range's page entries, in order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// What locking needs of the device.
pub(crate) struct Locker<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) tpt: &'a Tpt,
}

/// An area that is ready to be inserted.
struct Prepared {
    number: u64,
    area: Area,
    node: RBTreeNodeReservation<u64, Area>,
    live: RBTreeNode<usize, u64>,
}

/// A live area that a new lock uses.
struct Reused {
    number: u64,
    part: PageRange,
    run: PageRun,
    area: PageRange,
}

impl Space {
    /// Creates a space for `mm` without locked memory.
    pub(crate) fn new(id: u32, mm: &MmWithUser) -> impl PinInit<Self> {
        let mm: ARef<Mm> = (&**mm).into();
        pin_init!(Self {
            id,
            mm,
            state <- new_mutex!(State::default(), "uldma::Space::state"),
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
    pub(crate) fn current<'a>(
        &self,
        task: &'a kernel::task::CurrentTask,
    ) -> Option<&'a MmWithUser> {
        task.mm()
            .filter(|mm| core::ptr::eq(mm.as_raw(), self.mm.as_raw()))
    }

    /// Pages that are locked now, each counted once.
    pub(crate) fn locked_pages(&self) -> usize {
        let state = self.state.lock();
        state.areas.values().map(|area| area.range.len()).sum()
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
        let mut state = self.state.lock();
        let covered = state.covered(range);
        let missing = gaps(range, covered).map(|gap| gap.len()).sum();
        let mut charge = Charge::new(mm, missing)?;
        let mut fresh = PinnedPages::pin(mm, range.address(), range.len(), access.write)?;

        let (reused, stale) = state.sort_out(range, &fresh)?;
        let missing_now = || gaps(range, reused.iter().map(|r| r.part));
        let count: usize = missing_now().map(|gap| gap.len()).sum();
        charge.grow(count.saturating_sub(missing))?;

        let guard = locker.gate.try_enter()?;
        let dev = guard.dev();
        let mut prepared = KVec::with_capacity(missing_now().count(), GFP_KERNEL)?;
        for gap in missing_now() {
            let number = state.next;
            let result = fresh
                .take(gap.start - range.start, gap.len())
                .and_then(|pages| {
                    Prepared::new(
                        dev,
                        locker.tpt,
                        self.id,
                        number,
                        gap,
                        access,
                        pages,
                        &mut charge,
                    )
                })
                .and_then(|new| Ok(prepared.push(new, GFP_KERNEL)?));
            if let Err(err) = result {
                undo(dev, locker.tpt, prepared);
                return Err(err);
            }
            state.next += 1;
        }

        let plan = Locked::plan(range, &reused, &prepared);
        let plan = plan.and_then(|plan| {
            state.upgrade(&reused, access, locker.tpt)?;
            Ok(plan)
        });
        match plan {
            Ok(locked) => {
                state.commit(&stale, prepared, &locked);
                Ok(locked)
            }
            Err(err) => {
                undo(dev, locker.tpt, prepared);
                Err(err)
            }
        }
    }

    /// Ends a lock, that the device no longer uses; unpins what no other lock uses.
    ///
    /// `wait_quiet` has to wait until a device whose gate is closed can touch no memory any more.
    pub(crate) fn unlock(&self, locked: Locked, locker: &Locker<'_>, wait_quiet: impl FnOnce()) {
        let mut state = self.state.lock();
        let guard = locker.gate.enter();
        if guard.is_none() {
            wait_quiet();
        }
        for number in locked.areas {
            let Some(area) = state.areas.get_mut(&number) else {
                continue;
            };
            area.users -= 1;
            if area.users > 0 {
                continue;
            }
            let Some(area) = state.areas.remove(&number) else {
                continue;
            };
            if state.live.get(&area.range.start) == Some(&number) {
                state.live.remove(&area.range.start);
            }
            if let Some(guard) = &guard {
                locker.tpt.remove_pages(guard.dev(), area.run);
            }
        }
    }
}

impl State {
    /// Live areas that intersect `range`, in order.
    fn live(&self, range: PageRange) -> impl Iterator<Item = (u64, &Area)> {
        self.live
            .values()
            .filter_map(|number| Some((*number, self.areas.get(number)?)))
            .skip_while(move |(_, area)| area.range.end <= range.start)
            .take_while(move |(_, area)| area.range.start < range.end)
    }

    fn covered(&self, range: PageRange) -> impl Iterator<Item = PageRange> + '_ {
        self.live(range).map(|(_, area)| area.range)
    }

    /// Splits the live areas in `range` into those that still are what is mapped there, as `fresh`
    /// pins of the whole range tell, and those that are stale.
    fn sort_out(
        &self,
        range: PageRange,
        fresh: &PinnedPages,
    ) -> Result<(KVec<Reused>, KVec<usize>)> {
        let mut reused = KVec::new();
        let mut stale = KVec::new();
        for (number, area) in self.live(range) {
            let Some(part) = area.range.intersection(&range) else {
                continue;
            };
            let same = (part.start..part.end).all(|page| {
                area.pages.pfn(page - area.range.start) == fresh.pfn(page - range.start)
            });
            if same {
                let found = Reused {
                    number,
                    part,
                    run: area.run,
                    area: area.range,
                };
                reused.push(found, GFP_KERNEL)?;
            } else {
                stale.push(area.range.start, GFP_KERNEL)?;
            }
        }
        Ok((reused, stale))
    }

    /// Gives reused areas the rights of the new lock as well.
    fn upgrade(&mut self, reused: &[Reused], access: Access, tpt: &Tpt) -> Result {
        for reused in reused {
            let Some(area) = self.areas.get_mut(&reused.number) else {
                continue;
            };
            if !area.access.covers(access) {
                tpt.allow(area.run, access)?;
                area.access.read |= access.read;
                area.access.write |= access.write;
                if access.write {
                    area.pages.set_writable();
                }
            }
        }
        Ok(())
    }

    /// Makes a planned lock real; cannot fail.
    fn commit(&mut self, stale: &[usize], prepared: KVec<Prepared>, locked: &Locked) {
        for start in stale {
            self.live.remove(start);
        }
        for new in prepared {
            self.areas.insert(new.node.into_node(new.number, new.area));
            self.live.insert(new.live);
        }
        for number in &locked.areas {
            if let Some(area) = self.areas.get_mut(number) {
                area.users += 1;
            }
        }
    }
}

impl Prepared {
    #[expect(clippy::too_many_arguments)]
    fn new(
        dev: &Bound,
        tpt: &Tpt,
        space: u32,
        number: u64,
        range: PageRange,
        access: Access,
        pages: PinnedPages,
        charge: &mut Charge,
    ) -> Result<Self> {
        let live = RBTreeNode::new(range.start, number, GFP_KERNEL)?;
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let run = tpt.add_pages(dev, &pages, space, access)?;
        let area = Area {
            range,
            pages,
            _charge: charge.split(range.len()),
            access,
            run,
            users: 0,
        };
        Ok(Self {
            number,
            area,
            node,
            live,
        })
    }
}

/// Takes back what was prepared for a lock that failed.
fn undo(dev: &Bound, tpt: &Tpt, prepared: KVec<Prepared>) {
    for new in prepared {
        tpt.remove_pages(dev, new.area.run);
    }
}

impl Locked {
    /// Orders reused and new areas by page.
    fn plan(range: PageRange, reused: &[Reused], prepared: &[Prepared]) -> Result<Self> {
        let count = reused.len() + prepared.len();
        if count > MAX_RUNS {
            return Err(ENOSPC);
        }
        let mut areas = KVec::with_capacity(count, GFP_KERNEL)?;
        let mut runs = KVec::with_capacity(count, GFP_KERNEL)?;
        for old in reused {
            areas.push(old.number, GFP_KERNEL)?;
            runs.push(run(range, old.part, old.area, old.run)?, GFP_KERNEL)?;
        }
        for new in prepared {
            let area = &new.area;
            areas.push(new.number, GFP_KERNEL)?;
            runs.push(run(range, area.range, area.range, area.run)?, GFP_KERNEL)?;
        }
        runs.sort_unstable_by_key(|run: &Run| run.page);
        Ok(Self { areas, runs })
    }
}

/// The run of page entries for `part` of `area`, as seen from `range`.
fn run(range: PageRange, part: PageRange, area: PageRange, entries: PageRun) -> Result<Run> {
    Ok(Run {
        page: u32::try_from(part.start - range.start)?,
        first: entries.first + u32::try_from(part.start - area.start)?,
        count: u32::try_from(part.len())?,
        reserved: 0,
    })
}
