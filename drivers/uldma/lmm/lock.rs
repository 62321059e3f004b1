// SPDX-License-Identifier: GPL-2.0

//! Locking: what is not covered for sure is pinned, the rest is counted.

use kernel::{
    mm::MmWithUser,
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use crate::{
    access::Access,
    events::StaleTicket,
    kernel_ext::{
        accounting::Charge,
        gup::PinnedPages, //
    },
    list::List,
    tpt::Tell, //
};

use super::{
    area::Pinned,
    host::Locker,
    locked::{
        self,
        in_order,
        live_parts,
        Locked,
        Part, //
    },
    map::{
        Area,
        Areas, //
    },
    origin::{
        Origin,
        Wake, //
    },
    range::{
        gaps,
        PageRange, //
    },
    space::{
        Space,
        State, //
    }, //
};

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
    /// Locks `range` of the current process, whose address space `mm` must be of this space;
    /// `ticket`, if there is one, tells when it goes stale.
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
        ticket: Option<StaleTicket>,
    ) -> Result<Locked> {
        let locker = &self.host.locker();
        let mut state = self.state.lock();
        let locked = match self.lock_in(&mut state, mm, range, access, locker) {
            Err(ENOMEM | ENOSPC | EPERM) if state.cache.len() > 0 => {
                while self.evict(&mut state, locker) {}
                self.lock_in(&mut state, mm, range, access, locker)
            }
            result => result,
        }?;
        if let Some(holder) = state.holders.get_mut(&locked.number) {
            holder.ticket = ticket;
        }
        Ok(locked)
    }

    fn lock_in(
        self: &Arc<Self>,
        state: &mut State,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let doubted = state.doubted(range, access)?;
        let covered = state.map.live(range).map(|(_, area)| area.range);
        let missing = gaps(range, covered).map(|gap| gap.len()).sum();
        let charge = Charge::new(mm, missing)?;
        let mut fresh = self.pin_doubtful(state, mm, range, access)?;
        let pins: usize = fresh.iter().map(|fresh| fresh.pages.len()).sum();

        let mut result = state
            .split_for(range, &fresh)
            .and_then(|()| self.lock_split(state, range, access, charge, &mut fresh, locker));
        match &mut result {
            Ok(locked) => {
                locked.pinned = pins > 0;
                for doubted in doubted.iter() {
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
    ) -> Result<List<Fresh>> {
        let wake: Arc<dyn Wake> = self.attention.clone();
        let live = state.map.live(range).map(|(_, area)| area);
        let sure = live.filter(|area| is_sure(area, &range, access));
        let mut fresh = List::Empty;
        for range in gaps(range, sure.map(|area| area.range)) {
            let origin = Origin::watch(mm, range, &wake)?;
            let pages = PinnedPages::pin(mm, range.address(), range.len(), access.write)?;
            fresh.push(Fresh {
                range,
                origin,
                pages,
            })?;
        }
        Ok(fresh)
    }

    /// The rest of [`Space::lock`], once what is needed is pinned and areas are split.
    fn lock_split(
        self: &Arc<Self>,
        state: &mut State,
        range: PageRange,
        access: Access,
        mut charge: Charge,
        fresh: &mut [Fresh],
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        // In the order of addresses, as live areas are.
        let mut stale = List::Empty;
        for fresh in fresh.iter() {
            for (lineage, area) in state.map.live(fresh.range) {
                if !is_same(&area.payload, area.range, area.range.start, fresh) {
                    stale.push((lineage, area.range))?;
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
        charge.grow(count.saturating_sub(charge.pages()))?;

        let guard = locker.gate.try_enter()?;
        let (dev, tpt) = (guard.dev(), locker.tpt);
        let mut new = Areas::default();
        let result = (|| {
            let mut fresh = fresh.iter_mut().peekable();
            for gap in missing_now() {
                while fresh
                    .next_if(|fresh| fresh.range.end <= gap.start)
                    .is_some()
                {}
                let fresh = fresh.peek_mut().ok_or(EINVAL)?;
                let (origin, pages) = fresh.take(gap)?;
                let charge = charge.split(gap.len());
                new.add(state.map.new_lineage(), gap, || {
                    Ok(Pinned {
                        memory: tpt.add_pages(dev, pages, charge, self.id(), access)?,
                        access,
                        origin,
                    })
                })?;
            }
            let number = state.next_number + 1;
            let parts = in_order(shared.iter().copied(), new.iter().map(Part::of));
            let (locked, holder) = locked::make(number, range, parts)?;
            let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
            for part in shared.iter() {
                let allow = |pinned: &mut Pinned| pinned.allow(access, tpt);
                state.map.change(part.lineage, part.range, allow)?;
            }
            Ok((locked, holder, room))
        })();
        let (locked, holder, room) = match result {
            Ok(made) => made,
            Err(err) => {
                // No program was told of the entries, but transfers and pages that are mapped out may
                // name entries that others had before.
                let _ = self.take_back(state, dev, (new, ()), Tell::Pages, locker);
                return Err(err);
            }
        };

        for (lineage, range) in stale.iter() {
            state.retire(*lineage, *range);
        }
        self.pages.fetch_add(new.pages(), Relaxed);
        state.map.insert(new);
        state.next_number = locked.number;
        for part in holder.parts.iter() {
            state.map.hold(part.lineage, part.range);
        }
        state.holders.insert(room.into_node(locked.number, holder));
        Ok(locked)
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
    area.memory.pages().pfn(page - range.start) == fresh.pages.pfn(page - fresh.range.start)
}

impl State {
    /// The live areas in `range` that may be stale, or lack rights of `access`.
    fn doubted(&self, range: PageRange, access: Access) -> Result<List<Doubted>> {
        let mut doubted = List::Empty;
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
            doubted.push(Doubted {
                origin,
                range,
                changes,
            })?;
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
}
