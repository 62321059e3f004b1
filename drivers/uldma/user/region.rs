// SPDX-License-Identifier: GPL-2.0

//! Regions: what the device can access for an open file, whatever [backs](Backing) it.
//!
//! Each kind has a file: [pinned] memory, [optimistic] memory, [exchangeable] memory, message
//! [slots], parts of the [window], and [imported] regions of peers.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    hw::{
        layout::{
            RegionFlags,
            Run, //
        },
        RegionOffset, //
    },
    kernel_ext::list::List,
    mem::{
        lmm::{
            members::Member,
            range::offset_in_page,
            space::Space, //
        },
        tpt::{
            Entered,
            InvalidateScope,
            PageRun,
            Proof,
            RegionSetup,
            RegionSlot, //
        }, //
    },
    user_abi::{
        access::Access,
        events::Events,
        ledger::{
            Resource,
            Share, //
        },
        mmap_offset::{
            self,
            MmapRange, //
        }, //
    }, //
};

mod backing;
mod description;
mod exchangeable;
mod imported;
mod optimistic;
mod pinned;
mod slots;
mod window;

use backing::{
    Backing,
    Use, //
};

/// The owner of a new region.
pub(crate) struct Owner<'a> {
    pub(crate) open_file: u64,
    pub(crate) space: &'a Arc<Space>,
    pub(crate) events: &'a Arc<Events>,
    /// The handle of the region.
    pub(crate) handle: u32,
}

impl Owner<'_> {
    /// Adds a region to the space, and pays for it.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the limits of the user, `ENOMEM`.
    fn admit(&self, addr: u64, access: Access, length: u64) -> Result<(NewRegion<'_>, Share)> {
        let new = NewRegion {
            owner: self,
            wait: RegionFlags::NONE,
            member: self.space.add_member(),
            addr,
            access,
            length,
        };
        let share = Share::new(self.space.payer(), Resource::Regions, 1)?;
        Ok((new, share))
    }
}

/// A region that the device does not know yet.
struct NewRegion<'a> {
    owner: &'a Owner<'a>,
    /// For how long transfers wait for its pages.
    wait: RegionFlags,
    member: Member,
    addr: u64,
    access: Access,
    length: u64,
}

impl NewRegion<'_> {
    /// Enters the region, for which `share` is paid, into the table of the device, and makes its shadow
    /// pages mappable. Releases `backing` on failure, so the caller is outside of the gate.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a table is full, `ENOMEM`, `ENODEV` if the device is unbound.
    fn enter(self, shared: &Shared, share: Share, backing: KBox<dyn Backing>) -> Result<Region> {
        let tpt = &shared.tpt;
        let entered = self.enter_by(shared, backing, |dev, setup| {
            tpt.add_region(dev, share, &setup)
        });
        entered.map_err(|(err, _)| err)
    }

    /// The same by `add`, whose errors it returns too; on failure with the result of the release.
    fn enter_by(
        self,
        shared: &Shared,
        backing: KBox<dyn Backing>,
        add: impl FnOnce(&Device<Bound>, RegionSetup<'_>) -> Result<RegionSlot>,
    ) -> Result<Region, (Error, Result)> {
        match self.try_enter(shared, backing.runs(), add) {
            Ok((slot, range)) => Ok(self.into_region(slot, range, backing)),
            Err(err) => {
                backing.retract(shared);
                // The shadow pages may have been mapped for a moment.
                let left = (self.owner.space, InvalidateScope::Pages);
                Err((err, backing.release(shared, left, false)))
            }
        }
    }

    /// Enters the region of `runs` by `add`.
    fn try_enter(
        &self,
        shared: &Shared,
        runs: &[Run],
        add: impl FnOnce(&Device<Bound>, RegionSetup<'_>) -> Result<RegionSlot>,
    ) -> Result<(RegionSlot, MmapRange)> {
        // Charged to the process, which is not inside of the gate yet.
        let shadow = mmap_offset::Backing::Shadow(List::of(runs)?);
        let count = runs.last().map_or(0, |run| run.page + run.count);
        let setup = RegionSetup {
            space: self.owner.space.id(),
            access: self.access,
            offset: offset_in_page(self.addr)?,
            length: self.length,
            runs,
            remote: None,
            wait: self.wait,
            export: None,
        };
        let guard = shared.gate.try_enter()?;
        let (offsets, pages) = (&shared.mmap_offsets, usize::try_from(count)?);
        let range = offsets.add(self.owner.open_file, pages, shadow, self.access.write)?;
        // Last, since an entry that the device has seen has to be invalidated.
        let slot = add(guard.dev(), setup).inspect_err(|_| offsets.remove(range))?;
        Ok((slot, range))
    }

    /// Returns the region, which is in the table of the device.
    fn into_region(self, slot: RegionSlot, range: MmapRange, backing: KBox<dyn Backing>) -> Region {
        Region {
            slot,
            space: self.owner.space.clone(),
            addr: self.addr,
            access: self.access,
            length: self.length,
            range,
            backing,
            export: None,
            _member: self.member,
        }
    }
}

/// Retracted regions that end together; the caller keeps their space.
struct Leaving<'a>(&'a Shared, KVVec<Region>);

impl Entered for Leaving<'_> {
    type Freed = ();

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        let own = self.1.iter().filter_map(|region| region.backing.own_run());
        own.for_each(|own| each(&own.run));
    }

    fn free(self, proof: &Proof) {
        for region in self.1 {
            region.backing.free(self.0, proof);
            self.0.tpt.free_region(region.slot);
        }
    }
}

/// Memory that the device can access by one index. [`Region::release`] has to be called in the end.
pub(crate) struct Region {
    slot: RegionSlot,
    space: Arc<Space>,
    /// First byte, in the open file's address space; zero if the process has not chosen it.
    addr: u64,
    access: Access,
    length: u64,
    /// Shadow pages, or the part of the window: as many as the region touches.
    range: MmapRange,
    backing: KBox<dyn Backing>,
    /// Name under which the region is exported.
    export: Option<u64>,
    /// Dropped last, when the device cannot find it any more.
    _member: Member,
}

impl Region {
    /// The index that a size word names.
    pub(crate) fn index(&self) -> u32 {
        self.slot.index
    }

    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The range of shadow pages.
    pub(crate) fn range(&self) -> MmapRange {
        self.range
    }

    /// Returns the location of `length` bytes at `offset`, for use with `access`.
    ///
    /// # Errors
    ///
    /// `EACCES` if the region does not give these rights, `EINVAL` if it is too short.
    pub(crate) fn place(&self, offset: u64, length: u64, access: Access) -> Result<RegionOffset> {
        if !self.access.covers(access) {
            return Err(EACCES);
        }
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if end > self.length {
            return Err(EINVAL);
        }
        Ok(RegionOffset {
            region: self.slot.index,
            offset,
        })
    }

    /// Maps `pages` pages of `source`, from a page number on, out to those of another region or
    /// import. Without a destination, ends that.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a source that is an import, and for pages that a region does not have or that
    /// it has in part only; `EACCES` when the source cannot be read or the destination not written.
    pub(crate) fn map_out(
        shared: &Shared,
        (source, from): (&Self, u32),
        destination: Option<(&Self, u32)>,
        pages: u32,
    ) -> Result {
        source.backing.permits(Use::MapOutSource)?;
        source.check_whole(from, pages)?;
        if let Some((destination, to)) = destination {
            destination.check_whole(to, pages)?;
        }
        if !source.access.read || destination.is_some_and(|(region, _)| !region.access.write) {
            return Err(EACCES);
        }
        let from = (source.backing.runs(), from);
        let to = destination.map(|(region, to)| (region.backing.runs(), to));
        shared.tpt.map_out(from, to, pages)
    }

    /// Fails with `EINVAL` unless the region has all bytes of `pages` pages from page `first` on.
    fn check_whole(&self, first: u32, pages: u32) -> Result {
        let size = u64::try_from(PAGE_SIZE)?;
        let offset = u64::try_from(offset_in_page(self.addr)?)?;
        let start = u64::from(first) * size;
        let end = start + u64::from(pages) * size;
        if pages == 0 || start < offset || end > offset.saturating_add(self.length) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Exports the region to `peer`, or to all.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an import, a part of the window, or name 0, `EACCES` for more rights than the
    /// region has, `EEXIST` if the name is in use or the region is exported already, `ENOMEM`.
    pub(crate) fn export(
        &mut self,
        shared: &Shared,
        name: u64,
        peer: Option<u32>,
        access: Access,
    ) -> Result {
        self.backing.permits(Use::Export)?;
        if !self.access.covers(access) {
            return Err(EACCES);
        }
        if self.export.is_some() {
            return Err(EEXIST);
        }
        let (slot, length) = (self.slot, self.length);
        shared.exports.add(name, peer, slot, length, access)?;
        if let Err(err) = shared.tpt.set_export(self.slot, Some(access)) {
            shared.exports.remove(name);
            return Err(err);
        }
        self.export = Some(name);
        Ok(())
    }

    /// Ends the export. Transfers of peers are stopped before this returns.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the region is not exported, `ETIMEDOUT` if the device does not answer, `ENODEV`
    /// if it is unbound.
    pub(crate) fn unexport(&mut self, shared: &Shared) -> Result {
        let name = self.export.ok_or(ENOENT)?;
        let guard = shared.gate.try_enter()?;
        shared.exports.remove(name);
        self.export = None;
        shared.tpt.set_export(self.slot, None)?;
        let hw = guard.hw();
        shared.tpt.invalidate_region(hw, self.slot.index)
    }

    /// Ends the region: mappings, transfers, entries and pins, in this order. With `keep` the pins
    /// may stay in the pin cache.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer. The region has ended nevertheless, but the memory
    /// stays pinned until the device is unbound.
    pub(crate) fn release(mut self, shared: &Shared, keep: bool) -> Result {
        self.retract(shared);
        let left = (&self.space, InvalidateScope::Region(self.slot.index));
        self.backing.release(shared, left, keep)?;
        shared.tpt.free_region(self.slot);
        Ok(())
    }

    /// Ends `regions`, which are all members of `space`, by one invalidation.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer.
    pub(crate) fn release_all(
        shared: &Shared,
        space: &Arc<Space>,
        mut regions: KVVec<Self>,
    ) -> Result {
        // Without the lock of the space: exchangeable memory waits for calls that change its pages.
        for region in &mut regions {
            region.retract(shared);
        }
        space.unpin_all(|end| {
            let pinned = regions.iter().filter_map(|region| region.backing.pinned());
            pinned.for_each(end);
            Leaving(shared, regions)
        })
    }

    /// Retracts the region, so that no transfer can start with it any more.
    fn retract(&mut self, shared: &Shared) {
        shared.mmap_offsets.remove(self.range);
        self.backing.retract(shared);
        if let Some(name) = self.export.take() {
            shared.exports.remove(name);
        }
        shared.tpt.retract_region(self.slot);
    }
}
