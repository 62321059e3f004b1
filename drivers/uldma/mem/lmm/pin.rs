// SPDX-License-Identifier: GPL-2.0

//! Pinning: pages that no valid area covers are pinned, the others get one more user.

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
    mem::{
        charged_pages::ChargedPages,
        tpt::InvalidateScope, //
    },
    user_abi::{
        access::Access,
        events::StaleTicket, //
    }, //
};

use super::{
    area::PinnedArea,
    device_access::DeviceAccess,
    map::{
        AreaRoom,
        Areas, //
    },
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
        Part,
        PinRecord,
        PinnedRange, //
    },
    range::{
        gaps,
        PageRange, //
    },
    retire::Stale,
    space::{
        Space,
        SpaceState, //
    },
    subscription::{
        Revalidator,
        Subscription, //
    }, //
};

impl Space {
    /// Pins `range` of the current process, whose address space `mm` must be that of this space.
    /// `ticket`, if any, reports when the range goes stale.
    ///
    /// # Errors
    ///
    /// `EFAULT` for addresses that are not mapped with these rights, `EOPNOTSUPP` for memory that
    /// cannot be pinned, `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it or without memory,
    /// `EDQUOT` beyond the limits of the user, `ENOSPC` if a table is full, `EINTR` if a signal
    /// comes, `EREMOTEIO` if the device cannot access a page, `ENODEV` if the device is unbound. On
    /// errors nothing has changed, except that the cache may be empty.
    pub(crate) fn pin(
        self: &Arc<Self>,
        mm: &MmWithUser,
        range: PageRange,
        access: Access,
        mut ticket: Option<StaleTicket>,
    ) -> Result<PinnedRange> {
        let device = &self.device.access();
        let wanted = &Wanted { mm, range, access };
        let result = self.pin_and_enter(wanted, &mut ticket, device);
        match result {
            Err(err) if is_for_want(err) && self.evict_all(device) => {
                self.pin_and_enter(wanted, &mut ticket, device)
            }
            result => result,
        }
    }

    /// Pins the missing pages without the lock of the state. Retries if covered pages were unpinned
    /// or went stale meanwhile.
    fn pin_and_enter(
        self: &Arc<Self>,
        wanted: &Wanted<'_>,
        ticket: &mut Option<StaleTicket>,
        device: &DeviceAccess<'_>,
    ) -> Result<PinnedRange> {
        self.complete_shared_pins()?;
        loop {
            let mut state = self.state.lock();
            let plan = Plan::new(self, &state, wanted)?;
            let Some(range) = plan.range() else {
                let mut pins = Pins::none(wanted, self.payer())?;
                return self.enter(&mut state, wanted, &plan, &mut pins, ticket, device);
            };
            if state.is_reserved(&range) {
                state.waiting += 1;
                let interrupted = self.entered.wait_interruptible(&mut state);
                state.waiting -= 1;
                if interrupted {
                    return Err(ERESTARTNOHAND);
                }
                continue;
            }
            state.reserved.push(range, GFP_KERNEL)?;
            drop(state);
            // Dropped after the guard.
            let watch = |range| {
                let revalidator = self.deferred_work.clone();
                Subscription::watch(wanted.mm, range, revalidator, self.remover())
            };
            let mut pins = plan.pin(wanted, self.payer(), watch);
            let mut state = self.state.lock();
            state.reserved.retain(|other| *other != range);
            if state.waiting > 0 {
                self.entered.notify_all();
            }
            let pins = pins.as_mut().map_err(|err| *err)?;
            if pins.are_all_of(wanted) && state.map.is_vacant(wanted.range) {
                return self.enter_new(&mut state, wanted, pins, ticket, device);
            }
            if state.is_covered(wanted, &pins.fresh) {
                return self.enter(&mut state, wanted, &plan, pins, ticket, device);
            }
        }
    }

    /// Creates the pinned range from new pins alone, the most frequent case: no live area has any
    /// of the pages.
    fn enter_new(
        self: &Arc<Self>,
        state: &mut SpaceState,
        wanted: &Wanted<'_>,
        pins: &mut Pins,
        ticket: &mut Option<StaleTicket>,
        device: &DeviceAccess<'_>,
    ) -> Result<PinnedRange> {
        let guard = device.gate.try_enter()?;
        let record_room = state.room_for_record()?;
        let area_room = state.room_for_area()?;
        let (fresh, charge) = pins.take_all().ok_or(EINVAL)?;
        let (subscription, pages) = (fresh.subscription, fresh.pages);
        let count = pages.len();
        let pages = ChargedPages::all_of(pages, charge, self.sharing.table())?;
        let memory = (device.tpt).add_pages(guard.dev(), pages, self.id(), wanted.access)?;
        // The device may access the pages from here on, and nothing fails.
        let needs_revalidation = subscription.needs_revalidation();
        let number = state.next_number + 1;
        let part = Part {
            pin_id: state.map.new_pin_id(),
            range: wanted.range,
            first: memory.run().first,
        };
        let run = memory.run().count;
        let (mut pinned, mut record) = pinned_range::of_one(number, part, run);
        pinned.has_new_pins = true;
        record.ticket = ticket.take();
        let area = PinnedArea {
            memory,
            access: wanted.access,
            subscription,
        };
        let (pin_id, range) = (part.pin_id, part.range);
        state.map.insert_held(pin_id, range, area, area_room);
        state.records.insert(record_room.into_node(number, record));
        state.next_number = number;
        self.pages.fetch_add(count, Relaxed);
        state.counters.count(count);
        if needs_revalidation {
            // A revalidation before that did not find the area.
            self.deferred_work.request();
        }
        Ok(pinned)
    }

    /// Creates the pinned range from covered pages and new pins.
    fn enter(
        self: &Arc<Self>,
        state: &mut SpaceState,
        wanted: &Wanted<'_>,
        plan: &Plan,
        pins: &mut Pins,
        ticket: &mut Option<StaleTicket>,
        device: &DeviceAccess<'_>,
    ) -> Result<PinnedRange> {
        let count = pins.pages();
        let mut pinned = if state.map.is_vacant(wanted.range) {
            self.pin_split_areas(state, wanted, pins, device)?
        } else {
            let result = state
                .split_for(wanted.range, &pins.fresh)
                .and_then(|()| self.pin_split_areas(state, wanted, pins, device));
            if result.is_err() || count > 0 {
                state.map.unsplit(wanted.range);
            }
            result?
        };
        pinned.has_new_pins = count > 0;
        plan.validate();
        if pins.needs_revalidation() {
            // A revalidation since then did not find these areas, as they were not in the map.
            self.deferred_work.request();
        }
        state.counters.count(count);
        if let Some(record) = state.records.get_mut(&pinned.number) {
            record.ticket = ticket.take();
        }
        Ok(pinned)
    }

    /// Does the rest of [`Space::pin`] when missing pages are pinned and areas are split.
    fn pin_split_areas(
        self: &Arc<Self>,
        state: &mut SpaceState,
        wanted: &Wanted<'_>,
        pins: &mut Pins,
        device: &DeviceAccess<'_>,
    ) -> Result<PinnedRange> {
        let Wanted { range, access, .. } = *wanted;
        let Pins { fresh, charge } = pins;
        let charge = charge.as_mut().ok_or(EINVAL)?;
        // In the order of addresses, as live areas are.
        let mut stale = List::Empty;
        for fresh in fresh.iter() {
            for (pin_id, area) in state.map.live(fresh.range) {
                if !is_same(&area.payload, area.range, area.range.start, fresh) {
                    stale.push((pin_id, area.range))?;
                }
            }
        }
        let is_stale = |range: PageRange| {
            let found = stale.binary_search_by_key(&range.start, |(_, stale)| stale.start);
            found.is_ok()
        };
        let shared = live_parts(&state.map, range, is_stale)?;
        let missing_now = || gaps(range, shared.iter().map(|part| part.range));

        let guard = device.gate.try_enter()?;
        let hw = guard.hw();
        let (dev, tpt) = (hw.dev(), device.tpt);
        let mut new = Areas::default();
        let result = (|| {
            let mut fresh = fresh.iter_mut().peekable();
            for gap in missing_now() {
                while fresh
                    .next_if(|fresh| fresh.range.end <= gap.start)
                    .is_some()
                {}
                let fresh = fresh.peek_mut().ok_or(EINVAL)?;
                let (subscription, pages) = fresh.take(gap)?;
                let pages = ChargedPages::new(pages, charge, self.sharing.table())?;
                new.add(state.map.new_pin_id(), gap, || {
                    Ok(PinnedArea {
                        memory: tpt.add_pages(dev, pages, self.id(), access)?,
                        access,
                        subscription,
                    })
                })?;
            }
            let number = state.next_number + 1;
            let parts = in_order(shared.iter().copied(), new.iter().map(Part::of));
            let (pinned, record) = pinned_range::make(number, range, parts)?;
            let room = state.room_for_record()?;
            for part in shared.iter() {
                let prepare = |area: &mut PinnedArea| area.prepare(access, tpt, dev);
                state.map.change(part.pin_id, part.range, prepare)?;
            }
            for part in shared.iter() {
                let allow = |area: &mut PinnedArea| area.allow(access, tpt);
                state.map.change(part.pin_id, part.range, allow)?;
            }
            Ok((pinned, record, room))
        })();
        let (pinned, record, room) = match result {
            Ok(made) => made,
            Err(err) => {
                for part in shared.iter() {
                    for area in state.map.areas(part.pin_id, part.range) {
                        area.payload.forgo(tpt, dev);
                    }
                }
                // No program knows the entries, but transfers and mapped-out pages may name earlier
                // uses of them.
                let _ = self.remove_entries(state, hw, (new, ()), InvalidateScope::Pages, device);
                return Err(err);
            }
        };

        let mut gone = Stale::default();
        for (pin_id, range) in stale.iter() {
            state.retire(&mut gone, *pin_id, *range);
        }
        state.report_stale(&mut gone);
        self.pages.fetch_add(new.pages(), Relaxed);
        state.map.insert(new);
        state.next_number = pinned.number;
        for part in record.parts.iter() {
            state.map.hold(part.pin_id, part.range);
        }
        state.records.insert(room.into_node(pinned.number, record));
        Ok(pinned)
    }
}

/// Returns true if evicting the cache may resolve the error.
fn is_for_want(err: Error) -> bool {
    matches!(err, ENOMEM | ENOSPC | EPERM) || err == edquot()
}

/// Returns true if `page` of an area of `range` is the page that `fresh` has pinned there.
fn is_same(area: &PinnedArea, range: PageRange, page: usize, fresh: &Fresh) -> bool {
    area.memory.pages().pfn(page - range.start) == fresh.pages.pfn(page - fresh.range.start)
}

impl SpaceState {
    /// Returns memory for a record, which is charged to no caller: workers take this lock.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn room_for_record(&mut self) -> Result<RBTreeNodeReservation<u64, PinRecord>> {
        match self.spare_record.take() {
            Some(spare) => Ok(spare),
            None => Ok(RBTreeNodeReservation::new(GFP_KERNEL)?),
        }
    }

    /// Returns memory for an area, which is charged to no caller, as above.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn room_for_area(&mut self) -> Result<AreaRoom<PinnedArea>> {
        match self.spare_area.take() {
            Some(spare) => Ok(spare),
            None => Ok(RBTreeNodeReservation::new(GFP_KERNEL)?),
        }
    }

    /// Splits the live areas in `range` at its ends, and so that each area equals the new pins as a
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

    /// Returns the first page in a live area of `range` where equality with `fresh` changes.
    fn first_change(&self, range: PageRange, fresh: &Fresh) -> Option<usize> {
        self.map.live(range).find_map(|(_, area)| {
            let first = is_same(&area.payload, area.range, area.range.start, fresh);
            (area.range.start..area.range.end)
                .find(|&page| is_same(&area.payload, area.range, page, fresh) != first)
        })
    }
}
