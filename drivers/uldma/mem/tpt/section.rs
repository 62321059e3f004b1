// SPDX-License-Identifier: GPL-2.0

//! Regions in the own section of the window, which have no page entries.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

use crate::{
    hw::layout::{
        RegionEntry,
        RegionFlags, //
    },
    user_abi::{
        access::Access,
        ledger::Share, //
    }, //
};

use super::{
    Proof,
    RegionSlot,
    Tpt, //
};

/// The content of the entry of a region in the section.
pub(crate) struct SectionSetup {
    pub(crate) space: u32,
    pub(crate) access: Access,
    /// First byte in the section.
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// A range of the section that the device can access by a region. It is freed with a proof.
pub(crate) struct Section<R>(R);

impl<R> Section<R> {
    /// Returns the range, which is free.
    pub(crate) fn free(self, _: &Proof) -> R {
        self.0
    }
}

impl Tpt {
    /// Adds a region of a range of the section, for which `share` is paid. The device may know it
    /// when this returns.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`, `ENODEV` if the device is unbound, with the range.
    /// There is no entry then, so nothing has to be invalidated.
    pub(crate) fn add_section<R>(
        &self,
        dev: &Device<Bound>,
        share: Share,
        setup: &SectionSetup,
        range: R,
    ) -> Result<(RegionSlot, Section<R>), (Error, R)> {
        let slot = self.with(|tables| {
            let slot = tables.take_slot(dev, share)?;
            let entry = RegionEntry {
                flags: RegionFlags::VALID | RegionFlags::WINDOW | setup.access.region_flags(),
                space: setup.space,
                offset: u64::try_from(setup.offset)?,
                length: u64::try_from(setup.length)?,
                generation: slot.generation,
                ..RegionEntry::default()
            };
            let entered = tables.regions.insert(slot.index, entry);
            entered.inspect_err(|_| tables.free_slot(slot))?;
            Ok(slot)
        });
        match slot {
            Ok(slot) => Ok((slot, Section(range))),
            Err(err) => Err((err, range)),
        }
    }
}
