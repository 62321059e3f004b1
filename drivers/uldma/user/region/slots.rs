// SPDX-License-Identifier: GPL-2.0

//! Regions of message slots.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    hw::Hw,
    kernel_ext::list::List,
    mem::{
        slots::{
            SlotMemory,
            SlotSizes, //
        },
        tpt::{
            InvalidateScope,
            RegionSetup, //
        }, //
    },
    user::message::{
        Direction,
        EndpointRef,
        MessageSlots, //
    },
    user_abi::ledger::{
        Resource,
        Share, //
    }, //
};

use super::{
    whole,
    Owner,
    Pages,
    Region, //
};

impl Region {
    /// Creates a region of message slots of `endpoint`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the process does not run in the space of the owner or `RLIMIT_MEMLOCK` is 0,
    /// `ENOSPC` if a table is full, `EDQUOT` beyond the limits of the user, `ENOMEM` beyond
    /// `RLIMIT_MEMLOCK` or without memory, `EINTR` if a signal comes, `EREMOTEIO` if the device
    /// cannot access a page, `ENODEV` if the device is unbound.
    pub(crate) fn create_slots(
        shared: &Shared,
        owner: &Owner<'_>,
        sizes: SlotSizes,
        (endpoint, direction): (EndpointRef, Direction),
    ) -> Result<Self> {
        let space = owner.space;
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        // More pages than page entries never fit; do not allocate them.
        if sizes.pages() > usize::try_from(shared.hw.geometry().page_capacity)? {
            return Err(ENOSPC);
        }
        let length = u64::try_from(sizes.count() * sizes.slot_bytes())?;
        let member = space.add_member();
        let share = Share::new(space.payer(), Resource::Regions, 1)?;
        let access = direction.access();
        let (memory, pages, charge) = SlotMemory::allocate((space, mm), sizes)?;
        let slots = MessageSlots::new(memory, endpoint, direction)?;
        // Only now: what is charged to the process may let it sleep.
        let guard = shared.gate.try_enter()?;
        let dev = guard.dev();
        let run = shared.tpt.add_own_pages(dev, pages, charge, space.id())?;
        let setup = RegionSetup {
            space: space.id(),
            access,
            offset: 0,
            length,
            runs: &[whole(&run)],
            remote: None,
            export: None,
        };
        let shadow = List::One(whole(&run));
        match Self::enter(shared, owner.open_file, share, &setup, shadow) {
            Ok((slot, range)) => Ok(Self {
                slot,
                addr: 0,
                access,
                length,
                range,
                pages: Pages::Slots(space.clone(), run, slots),
                export: None,
                _member: member,
            }),
            Err(err) => {
                // The shadow pages may have been mapped for a moment. Without an answer of the
                // device, the table keeps the pages.
                let hw = Hw::new(guard.dev(), &*shared.hw);
                let retracted = shared.tpt.retract(run);
                if retracted.invalidate(hw, InvalidateScope::Pages).is_err() {
                    space.keep_until_unbound();
                }
                Err(err)
            }
        }
    }

    /// Returns the message slots of the region.
    ///
    /// # Errors
    ///
    /// `ENOENT` if these are no message slots, `EINVAL` if they have another direction.
    pub(crate) fn slots(&self, direction: Direction) -> Result<&Arc<MessageSlots>> {
        let Pages::Slots(_, _, slots) = &self.pages else {
            return Err(ENOENT);
        };
        if slots.direction() != direction {
            return Err(EINVAL);
        }
        Ok(slots)
    }
}
