// SPDX-License-Identifier: GPL-2.0

//! Slots of the region table, and their entries.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::Coherent,
    prelude::*, //
};

use crate::{
    hw::layout::{
        RegionEntry,
        RegionFlags,
        Run, //
    },
    kernel_ext::compat::dma_address,
    user_abi::ledger::Share, //
};

use super::{
    export_flags,
    RegionSetup,
    RegionSlot,
    Tables,
    MAX_RUNS, //
};

/// A slot in use.
pub(super) struct TakenSlot {
    _share: Share,
    /// The run array of a region that has more than one run.
    _runs: Option<RunArray>,
}

/// Runs of a region, where the device reads them.
pub(super) struct RunArray(Coherent<[Run]>);

impl RunArray {
    /// Creates an array of `runs`, if there is more than one. It is charged to the caller, so the
    /// caller has no lock of the device.
    ///
    /// # Errors
    ///
    /// `ENOSPC` for more than [`MAX_RUNS`], `ENOMEM`.
    pub(super) fn new(dev: &Device<Bound>, runs: &[Run]) -> Result<Option<Self>> {
        if runs.len() > MAX_RUNS {
            return Err(ENOSPC);
        }
        let array = || Coherent::from_slice(dev, runs, GFP_KERNEL_ACCOUNT).map(Self);
        (runs.len() > 1).then(array).transpose()
    }
}

impl Tables {
    /// Takes a slot, for which `share` is paid. It has no entry.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`.
    pub(super) fn take_slot(&mut self, dev: &Device<Bound>, share: Share) -> Result<RegionSlot> {
        // The lowest one, so there are no more places than slots in use at a time.
        let id = self.region_ids.find_unused_id(1).ok_or(ENOSPC)?;
        let (index, place) = (id.as_u32(), id.as_usize());
        if index >= self.region_capacity {
            return Err(ENOSPC);
        }
        self.regions.reserve(dev, index, 1)?;
        while self.taken_slots.len() <= place {
            self.taken_slots.push(None, GFP_KERNEL)?;
        }
        if let Some(taken) = self.taken_slots.get_mut(place) {
            *taken = Some(TakenSlot {
                _share: share,
                _runs: None,
            });
        }
        id.acquire();
        self.usage.regions += 1;
        Ok(RegionSlot {
            index,
            generation: self.generations.next(),
        })
    }

    /// Writes the entry of a slot that is taken, whose runs are in `array` if there are more than
    /// one.
    ///
    /// # Errors
    ///
    /// `EINVAL` without runs. There is no entry then.
    pub(super) fn set_slot(
        &mut self,
        slot: RegionSlot,
        setup: &RegionSetup<'_>,
        array: Option<RunArray>,
    ) -> Result {
        let first = setup.runs.first().ok_or(EINVAL)?;
        let mut entry = RegionEntry {
            flags: RegionFlags::VALID | setup.access.region_flags() | setup.wait,
            space: setup.space,
            offset: u64::try_from(setup.offset)?,
            length: setup.length,
            generation: slot.generation,
            run_count: u32::try_from(setup.runs.len())?,
            first_page: first.first,
            ..RegionEntry::default()
        };
        entry.flags |= export_flags(setup.export);
        if let Some(remote) = setup.remote {
            let flags = entry.flags | RegionFlags::REMOTE;
            let flags = flags.try_with(RegionFlags::NODE, remote.node);
            entry.flags = flags.ok_or(EINVAL)?;
            entry.peer_region = remote.region;
            entry.peer_generation = remote.generation;
            entry.link_generation = remote.link_generation;
        }
        if let Some(array) = array {
            entry.runs = dma_address(&array.0);
            let taken = self.taken_slots.get_mut(usize::try_from(slot.index)?);
            let taken = taken.and_then(Option::as_mut).ok_or(EINVAL)?;
            taken._runs = Some(array);
        }
        self.regions.insert(slot.index, entry)
    }

    /// Frees a slot, and what is paid for it.
    pub(super) fn free_slot(&mut self, slot: RegionSlot) {
        self.regions.clear(slot.index);
        let Ok(place) = usize::try_from(slot.index) else {
            return;
        };
        let taken = self.taken_slots.get_mut(place);
        if taken.and_then(Option::take).is_some() {
            self.region_ids.release_id(place);
            self.usage.regions -= 1;
        }
    }
}
