// SPDX-License-Identifier: GPL-2.0

//! Regions in the own section of the window: the process writes or reads, and the device the other
//! way round.
//!
//! The peer whose lane it is can write it, so nothing but data of the process is there, which goes to that
//! peer or has come from it. The driver chooses the range, which has no other user until the device and all
//! processes have lost it.

use kernel::prelude::*;

use crate::{
    device::Shared,
    kernel_ext::errno::eopnotsupp,
    link::window_range::WindowRange,
    mem::tpt::{
        Proof,
        RegionSlot,
        Section,
        SectionSetup, //
    },
    user_abi::{
        access::Access,
        ledger::Share,
        mmap_offset::{
            self,
            MmapRange, //
        }, //
    }, //
};

use super::{
    Backing,
    Owner,
    Region,
    Use, //
};

/// A part of the section, which has no page entries, so that nothing is mapped out from or to it.
struct Window(Section<WindowRange>);

impl Backing for Window {
    /// Fails with `EINVAL` for what needs page entries.
    fn permits(&self, wanted: Use) -> Result {
        match wanted {
            Use::Export | Use::Blocks => Err(EINVAL),
            Use::MapOutSource => Ok(()),
        }
    }

    fn free(self: KBox<Self>, shared: &Shared, proof: &Proof) {
        let window = KBox::into_inner(self).0.free(proof);
        shared.window_alloc.free(window);
    }
}

impl Region {
    /// Creates a region in a zeroed range of at least `length` bytes of the lane of `peer`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the process does not run in the space of the owner, `EOPNOTSUPP` if the device
    /// cannot access the window, `EINVAL` for no bytes, `ENOSPC` if the section or a table is full,
    /// `EDQUOT` beyond the limits of the user, `ENOMEM`, `ENODEV` if the device is unbound.
    pub(crate) fn create_in_window(
        shared: &Shared,
        owner: &Owner<'_>,
        (peer, length): (u32, u64),
        access: Access,
    ) -> Result<Self> {
        let space = owner.space;
        if space.current(kernel::current!()).is_none() {
            return Err(EPERM);
        }
        if !shared.hw.geometry().window_regions {
            return Err(eopnotsupp());
        }
        let (mut new, share) = owner.admit(0, access, length)?;
        let place = KBox::<Window>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let window = shared
            .window_alloc
            .alloc(peer, (space.payer(), None), length)?;
        let entered = Self::enter_section(shared, owner, share, window, access);
        // No device has seen it, and no process has it mapped any more.
        let entered = entered.inspect_err(|_| shared.window_alloc.free(window));
        let (slot, range, section) = entered?;
        new.length = u64::try_from(window.length())?;
        Ok(new.into_region(slot, range, place.write(Window(section))))
    }

    /// Makes a range of the section mappable, and enters it into the table of the device.
    fn enter_section(
        shared: &Shared,
        owner: &Owner<'_>,
        share: Share,
        window: WindowRange,
        access: Access,
    ) -> Result<(RegionSlot, MmapRange, Section<WindowRange>)> {
        let guard = shared.gate.try_enter()?;
        guard.hw().zero_window(window.offset(), window.length())?;
        let backing =
            mmap_offset::Backing::Window(shared.hw.geometry().node, window.offset(), None);
        let offsets = &shared.mmap_offsets;
        let range = offsets.add(owner.open_file, window.pages(), backing, true)?;
        let setup = SectionSetup {
            space: owner.space.id(),
            access,
            offset: window.offset(),
            length: window.length(),
        };
        // Last, since an entry that the device has seen has to be invalidated.
        match shared.tpt.add_section(guard.dev(), share, &setup, window) {
            Ok((slot, section)) => Ok((slot, range, section)),
            Err((err, _)) => {
                offsets.remove(range);
                Err(err)
            }
        }
    }
}
