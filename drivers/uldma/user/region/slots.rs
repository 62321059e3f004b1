// SPDX-License-Identifier: GPL-2.0

//! Regions of message slots.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    mem::slots::{
        SlotMemory,
        SlotSizes, //
    },
    user::message::{
        Direction,
        EndpointRef,
        MessageSlots, //
    }, //
};

use super::{
    backing::OwnRun,
    Backing,
    Owner,
    Region, //
};

/// Message slots, which the driver has allocated.
struct Slots(OwnRun, Arc<MessageSlots>);

impl Backing for Slots {
    fn own_run(&self) -> Option<&OwnRun> {
        Some(&self.0)
    }

    fn slots(&self) -> Result<&Arc<MessageSlots>> {
        Ok(&self.1)
    }
}

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
        let (tpt, space) = (&shared.tpt, owner.space);
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        // More pages than page entries never fit; do not allocate them.
        shared.hw.geometry().check_pages(sizes.pages())?;
        let length = u64::try_from(sizes.count() * sizes.slot_bytes())?;
        let (new, share) = owner.admit(0, direction.access(), length)?;
        let place = KBox::<Slots>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let (memory, pages, charge) = SlotMemory::allocate((space, mm), sizes)?;
        let slots = MessageSlots::new(memory, endpoint, direction)?;
        let run = {
            // Only now: what is charged to the process may let it sleep.
            let guard = shared.gate.try_enter()?;
            tpt.add_own_pages(guard.dev(), pages, charge, space.id())?
        };
        new.enter(shared, share, place.write(Slots(run.into(), slots)))
    }

    /// Returns the message slots of the region.
    ///
    /// # Errors
    ///
    /// `ENOENT` if these are no message slots, `EINVAL` if they have another direction.
    pub(crate) fn slots(&self, direction: Direction) -> Result<&Arc<MessageSlots>> {
        let slots = self.backing.slots()?;
        if slots.direction() != direction {
            return Err(EINVAL);
        }
        Ok(slots)
    }
}
