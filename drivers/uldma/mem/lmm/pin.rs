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
    kernel_ext::{
        errno::edquot,
        list::List, //
    },
    mem::tpt::Tell,
    user_abi::{
        access::Access,
        events::StaleTicket, //
    }, //
};

use super::{
    area::Pinned,
    device_ops::Locker,
    map::Areas,
    pin_plan::{
        Fresh,
        Pins,
        Plan,
        Wanted, //
    },
    pinned_range::{
        self,
        in_order,
        live_parts,
        Locked,
        Part, //
    },
    range::{
        gaps,
        PageRange, //
    },
    retire::Stale,
    space::{
        Space,
        State, //
    },
    subscription::Wake, //
};

impl Space {
    /// Locks `range` of the current process, whose address space `mm` must be of this space;
    /// `ticket`, if there is one, tells when it goes stale.
    ///
    /// # Errors
    ///
    /// Those of [`PinnedPages::pin`](crate::kernel_ext::gup::PinnedPages::pin) and
    /// [`Charge::new`](crate::mem::charge::Charge::new), `ENOSPC` when a table is full,
    /// `EINTR` when a signal comes while another lock pins the same pages, `ENODEV` when the device
    /// is gone; nothing has changed then, but that the cache may be empty.
    pub(crate) fn lock(
        self: &Arc<Self>,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        mut ticket: Option<StaleTicket>,
    ) -> Result<Locked> {
        let locker = &self.host.locker();
        let wanted = &Wanted { mm, range, access };
        let result = self.pin_and_enter(wanted, &mut ticket, locker);
        match result {
            Err(err) if is_for_want(err) && self.evict_all(locker) => {
                self.pin_and_enter(wanted, &mut ticket, locker)
            }
            result => result,
        }
    }

    /// Pins what is needed without the lock of the state, and retries where the rest has gone
    /// meanwhile, which takes another lock's end.
    fn pin_and_enter(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        ticket: &mut Option<StaleTicket>,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let wake: Arc<dyn Wake> = self.attention.clone();
        loop {
            let mut state = self.state.lock();
            let plan = Plan::new(&state, wanted)?;
            let Some(range) = plan.range() else {
                let mut pins = Pins::none(wanted, self.payer())?;
                return self.enter(&mut state, wanted, &plan, &mut pins, ticket, locker);
            };
            if state.is_reserved(&range) {
                match self.entered.wait_interruptible(&mut state) {
                    true => return Err(ERESTARTNOHAND),
                    false => continue,
                }
            }
            state.reserved.push(range, GFP_KERNEL_ACCOUNT)?;
            drop(state);
            // Dropped after the lock.
            let mut pins = plan.pin(wanted, self.payer(), &wake);
            let mut state = self.state.lock();
            state.reserved.retain(|other| *other != range);
            self.entered.notify_all();
            let pins = pins.as_mut().map_err(|err| *err)?;
            if state.is_covered(wanted, &pins.fresh) {
                return self.enter(&mut state, wanted, &plan, pins, ticket, locker);
            }
        }
    }

    /// Makes the lock, of what areas cover and what was pinned.
    fn enter(
        self: &Arc<Self>,
        state: &mut State,
        wanted: &Wanted<'_>,
        plan: &Plan,
        pins: &mut Pins,
        ticket: &mut Option<StaleTicket>,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let count = pins.pages();
        let result = state
            .split_for(wanted.range, &pins.fresh)
            .and_then(|()| self.lock_split(state, wanted, pins, locker));
        if result.is_err() || count > 0 {
            state.map.unsplit(wanted.range);
        }
        let mut locked = result?;
        locked.pinned = count > 0;
        plan.trust();
        if pins.has_unlooked() {
            // Nobody found the areas, as they were not there.
            self.attention.wake();
        }
        let counters = &mut state.counters;
        counters.pins += u64::try_from(count)?;
        let counter = match count {
            0 => &mut counters.hits,
            _ => &mut counters.misses,
        };
        *counter += 1;
        if let Some(holder) = state.holders.get_mut(&locked.number) {
            holder.ticket = ticket.take();
        }
        Ok(locked)
    }

    /// The rest of [`Space::lock`], once what is needed is pinned and areas are split.
    fn lock_split(
        self: &Arc<Self>,
        state: &mut State,
        wanted: &Wanted<'_>,
        pins: &mut Pins,
        locker: &Locker<'_>,
    ) -> Result<Locked> {
        let Wanted { range, access, .. } = *wanted;
        let Pins { fresh, charge } = pins;
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
            let (locked, holder) = pinned_range::make(number, range, parts)?;
            let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
            for part in shared.iter() {
                let prepare = |pinned: &mut Pinned| pinned.prepare(access, tpt, dev);
                state.map.change(part.lineage, part.range, prepare)?;
            }
            for part in shared.iter() {
                let allow = |pinned: &mut Pinned| pinned.allow(access, tpt);
                state.map.change(part.lineage, part.range, allow)?;
            }
            Ok((locked, holder, room))
        })();
        let (locked, holder, room) = match result {
            Ok(made) => made,
            Err(err) => {
                for part in shared.iter() {
                    for area in state.map.areas(part.lineage, part.range) {
                        area.payload.forgo(tpt, dev);
                    }
                }
                // No program was told of the entries, but transfers and pages that are mapped out may
                // name entries that others had before.
                let _ = self.take_back(state, dev, (new, ()), Tell::Pages, locker);
                return Err(err);
            }
        };

        let mut gone = Stale::default();
        for (lineage, range) in stale.iter() {
            state.retire(&mut gone, *lineage, *range);
        }
        state.tell(&mut gone);
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

/// Whether locking failed for want of what the cache has.
fn is_for_want(err: Error) -> bool {
    matches!(err, ENOMEM | ENOSPC | EPERM) || err == edquot()
}

/// Whether page `page` of an area that has `range` is the one that `fresh` found there.
fn is_same(area: &Pinned, range: PageRange, page: usize, fresh: &Fresh) -> bool {
    area.memory.pages().pfn(page - range.start) == fresh.pages.pfn(page - fresh.range.start)
}

impl State {
    /// Splits the live areas in `range` at its ends, and so that each is what `fresh` found as a
    /// whole or not at all.
    fn split_for(&mut self, range: PageRange, fresh: &[Fresh]) -> Result {
        self.map.split(range.start)?;
        self.map.split(range.end)?;
        for fresh in fresh {
            self.map.split(fresh.range.start)?;
            self.map.split(fresh.range.end)?;
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
