// SPDX-License-Identifier: GPL-2.0

//! Regions: registered memory of an open file, exchangeable memory, message slots, parts of the
//! window, and imports from peers.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    hw::{
        layout::Run,
        Hw,
        RegionOffset, //
    },
    kernel_ext::{
        gup::untagged,
        list::List, //
    },
    link::{
        message::ExportedRegion,
        peer::Peer,
        window_alloc::WindowRange, //
    },
    mem::{
        exchange::Exchange,
        lmm::{
            members::Member,
            pinned_range::PinnedRange,
            range::{
                offset_in_page,
                PageRange, //
            },
            space::Space, //
        },
        tpt::{
            Entered,
            InvalidateScope, //
            PageRun,
            Proof,
            RegionSetup,
            RegionSlot,
            Section,
        }, //
    },
    user::message::MessageSlots,
    user_abi::{
        access::Access,
        events::Events,
        ledger::{
            Resource,
            Share, //
        },
        mmap_offset::{
            Backing,
            MmapRange, //
        }, //
    }, //
};

mod description;
mod exchangeable;
mod slots;
mod window;

/// The owner of the page entries of a region.
enum Pages {
    /// Locked memory of this node.
    Local(Arc<Space>, PinnedRange),
    /// Page entries that name the region of a peer.
    Remote(Arc<Space>, PageRun),
    /// Exchangeable memory of this node.
    Exchangeable(Arc<Space>, PageRun, Arc<Exchange>),
    /// Message slots of this node.
    Slots(Arc<Space>, PageRun, Arc<MessageSlots>),
    /// None: a part of the own section of the window.
    Window(Arc<Space>, Section<WindowRange>),
}

/// The owner of a new region.
pub(crate) struct Owner<'a> {
    pub(crate) open_file: u64,
    pub(crate) space: &'a Arc<Space>,
    pub(crate) events: &'a Arc<Events>,
    /// The handle of the region.
    pub(crate) handle: u32,
}

/// Slots of regions that end together, and the page entries or parts of the window of those without
/// pinned memory.
pub(crate) struct Leaving(KVVec<Entries>);

impl Leaving {
    /// Room for `count` regions.
    pub(crate) fn with_room_for(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL)?))
    }
}

impl Entered for Leaving {
    type Freed = Self;

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        let pages = self.0.iter().filter_map(|entries| entries.pages.as_ref());
        pages.for_each(each);
    }

    fn free(mut self, proof: &Proof) -> Self {
        for entries in &mut self.0 {
            entries.freed = entries.section.take().map(|section| section.free(proof));
        }
        self
    }
}

/// Entries of a retracted region in the tables of the device, without those of pinned memory.
struct Entries {
    slot: RegionSlot,
    /// Those of the pages of an import, of exchangeable memory or of message slots.
    pages: Option<PageRun>,
    /// The part of the window, while the device may access it.
    section: Option<Section<WindowRange>>,
    /// The same afterwards.
    freed: Option<WindowRange>,
}

/// One registration, exchangeable memory, part of the window or import. [`Region::release`] has to be called in the end.
pub(crate) struct Region {
    slot: RegionSlot,
    /// First byte, in the open file's address space; zero for an import.
    addr: u64,
    access: Access,
    length: u64,
    range: MmapRange,
    pages: Pages,
    /// Name under which the region is exported.
    export: Option<u64>,
    /// Dropped last, when the device cannot find it any more.
    _member: Member,
}

impl Region {
    /// Registers `length` bytes from `addr` on of the current process.
    ///
    /// # Errors
    ///
    /// `EPERM` if the process does not run in the space of the owner, or `RLIMIT_MEMLOCK` is 0;
    /// `EINVAL` and `EOVERFLOW` for a wrong range; `EFAULT` for addresses that are not mapped with
    /// these rights; `EOPNOTSUPP` for memory that cannot be pinned; `ENOSPC` if a table is full;
    /// `EDQUOT` beyond the limits of the user; `ENOMEM` beyond `RLIMIT_MEMLOCK` or without memory;
    /// `EINTR` if a signal comes; `EREMOTEIO` if the device cannot access a page; `ENODEV` if the
    /// device is unbound.
    pub(crate) fn register(
        shared: &Shared,
        owner: &Owner<'_>,
        addr: u64,
        length: u64,
        access: Access,
    ) -> Result<Self> {
        let space = owner.space;
        let addr = untagged(addr);
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        let pages = PageRange::of_bytes(addr, length)?;
        // More pages than page entries never fit; do not pin them.
        if pages.len() > usize::try_from(shared.hw.geometry().page_capacity)? {
            return Err(ENOSPC);
        }
        let member = space.add_member();
        let share = Share::new(space.payer(), Resource::Regions, 1)?;
        let ticket = Events::add_stale_ticket(owner.events, owner.handle)?;
        let pinned = space.pin(mm, pages, access, Some(ticket))?;
        let setup = RegionSetup {
            space: space.id(),
            access,
            offset: offset_in_page(addr)?,
            length,
            runs: pinned.runs(),
            remote: None,
            export: None,
        };
        // Charged to the process, which is not inside of the gate yet.
        let shadow = List::of(setup.runs);
        let entered =
            shadow.and_then(|shadow| Self::enter(shared, owner.open_file, share, &setup, shadow));
        match entered {
            Ok((slot, range)) => Ok(Self {
                slot,
                addr,
                access,
                length,
                range,
                pages: Pages::Local(space.clone(), pinned),
                export: None,
                _member: member,
            }),
            Err(err) => {
                // The region's shadow pages may have been mapped for a moment.
                let _ = space.unpin(pinned, InvalidateScope::Pages, false);
                Err(err)
            }
        }
    }

    /// Enters a region into the table of the device and makes its shadow pages mappable, of which
    /// `shadow` has the runs.
    fn enter(
        shared: &Shared,
        open_file: u64,
        share: Share,
        setup: &RegionSetup<'_>,
        shadow: List<Run>,
    ) -> Result<(RegionSlot, MmapRange)> {
        let guard = shared.gate.try_enter()?;
        let range = Self::add_shadow(shared, open_file, shadow, setup.access)?;
        // Last, since an entry that the device has seen has to be invalidated.
        let slot = shared.tpt.add_region(guard.dev(), share, setup);
        let slot = slot.inspect_err(|_| shared.mmap_offsets.remove(range))?;
        Ok((slot, range))
    }

    /// Makes the shadow pages of a region of these runs mappable.
    fn add_shadow(
        shared: &Shared,
        open_file: u64,
        runs: List<Run>,
        access: Access,
    ) -> Result<MmapRange> {
        let count = runs.last().map_or(0, |run| run.page + run.count);
        let (pages, writable) = (usize::try_from(count)?, access.write);
        let backing = Backing::Shadow(runs);
        shared.mmap_offsets.add(open_file, pages, backing, writable)
    }

    /// Imports a region that `peer` exports.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if a table is full, `ENOTCONN` while the link is down, `ENODEV` if the device is
    /// unbound, `ENOMEM`, `EDQUOT` beyond the limits of the user, which pays for as many page
    /// entries as the peer names.
    pub(crate) fn import(
        shared: &Shared,
        owner: &Owner<'_>,
        peer: &Peer,
        remote: &ExportedRegion,
        access: Access,
    ) -> Result<Self> {
        let pages = remote.length.div_ceil(u64::try_from(PAGE_SIZE)?);
        let pages = u32::try_from(pages).map_err(|_| ENOSPC)?;
        let member = owner.space.add_member();
        let payer = owner.space.payer();
        let share = Share::new(payer, Resource::Regions, 1)?;
        let entries = Share::new(payer, Resource::Pages, usize::try_from(pages)?)?;
        let guard = shared.gate.try_enter()?;
        let dev = guard.dev();
        let generation = peer.hw_generation()?;
        let slot = shared.tpt.reserve_region(dev, share)?;
        let run = shared
            .tpt
            .add_remote_pages(dev, entries, pages, owner.space.id(), slot.index, access)
            .inspect_err(|_| shared.tpt.free_region(slot))?;
        let setup = RegionSetup {
            space: owner.space.id(),
            access,
            offset: 0,
            length: remote.length,
            runs: &[whole(&run)],
            remote: Some(remote.remote(peer.node(), generation)),
            export: None,
        };
        let shadow = List::One(whole(&run));
        let shadow = Self::add_shadow(shared, owner.open_file, shadow, access);
        let entered = shadow.and_then(|range| {
            // Last, since an entry that the device has seen has to be invalidated.
            let set = shared.tpt.set_region(dev, slot, &setup);
            set.inspect_err(|_| shared.mmap_offsets.remove(range))?;
            Ok(range)
        });
        let range = match entered {
            Ok(range) => range,
            Err(err) => {
                // The shadow pages may have been mapped for a moment.
                let scope = InvalidateScope::Region(slot.index);
                let result = shared
                    .tpt
                    .retract(run)
                    .invalidate(Hw::new(dev, &*shared.hw), scope);
                if result.is_ok() {
                    shared.tpt.free_region(slot);
                } else {
                    // Entries that the device may still use have its number.
                    owner.space.keep_until_unbound();
                }
                return Err(err);
            }
        };
        Ok(Self {
            slot,
            addr: 0,
            access,
            length: remote.length,
            range,
            pages: Pages::Remote(owner.space.clone(), run),
            export: None,
            _member: member,
        })
    }

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

    /// Returns true if this is an import.
    pub(crate) fn is_import(&self) -> bool {
        matches!(self.pages, Pages::Remote(..))
    }

    /// Returns true if this is a part of the window.
    fn is_window(&self) -> bool {
        matches!(self.pages, Pages::Window(..))
    }

    /// Pages that the region touches.
    fn pages(&self) -> usize {
        match &self.pages {
            Pages::Local(_, pinned) => pinned.range().len(),
            Pages::Remote(_, run) | Pages::Exchangeable(_, run, _) | Pages::Slots(_, run, _) => {
                usize::try_from(run.count).unwrap_or(usize::MAX)
            }
            Pages::Window(_, section) => section.range().pages(),
        }
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
        if source.is_import() {
            return Err(EINVAL);
        }
        source.check_whole(from, pages)?;
        if let Some((destination, to)) = destination {
            destination.check_whole(to, pages)?;
        }
        if !source.access.read || destination.is_some_and(|(region, _)| !region.access.write) {
            return Err(EACCES);
        }
        source.with_runs(|runs| match destination {
            Some((destination, to)) => destination
                .with_runs(|other| shared.tpt.map_out((runs, from), Some((other, to)), pages)),
            None => shared.tpt.map_out((runs, from), None, pages),
        })
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

    /// Passes the page entries of the region to `f`, in order.
    fn with_runs<R>(&self, f: impl FnOnce(&[Run]) -> R) -> R {
        match &self.pages {
            Pages::Local(_, pinned) => f(pinned.runs()),
            Pages::Remote(_, run) | Pages::Exchangeable(_, run, _) | Pages::Slots(_, run, _) => {
                f(&[whole(run)])
            }
            Pages::Window(..) => f(&[]),
        }
    }

    /// Exports the region to `peer`, or to all.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an import, a part of the window, or name 0, `EACCES` for more rights than the region has, `EEXIST` if
    /// the name is in use or the region is exported already, `ENOMEM`.
    pub(crate) fn export(
        &mut self,
        shared: &Shared,
        name: u64,
        peer: Option<u32>,
        access: Access,
    ) -> Result {
        if self.is_import() || self.is_window() {
            return Err(EINVAL);
        }
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
        let hw = Hw::new(guard.dev(), &*shared.hw);
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
        let result = match self.pages {
            Pages::Local(space, pinned) => {
                space.unpin(pinned, InvalidateScope::Region(self.slot.index), keep)
            }
            Pages::Remote(space, run)
            | Pages::Exchangeable(space, run, _)
            | Pages::Slots(space, run, _) => {
                match shared.gate.enter() {
                    Some(guard) => {
                        let scope = InvalidateScope::Region(self.slot.index);
                        let retracted = shared.tpt.retract(run);
                        let result = retracted.invalidate(Hw::new(guard.dev(), &*shared.hw), scope);
                        result.map_err(|(err, _)| {
                            // Entries that the device did not release still name it.
                            space.keep_until_unbound();
                            err
                        })
                    }
                    None => Ok(()),
                }
            }
            Pages::Window(space, section) => {
                Self::free_section(shared, (&space, self.slot), section)
            }
        };
        if result.is_ok() {
            shared.tpt.free_region(self.slot);
        }
        result
    }

    /// Ends `regions`, which are all members of `space`, by one invalidation. `left` has to be
    /// empty, with room for as many.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer.
    pub(crate) fn release_all(
        shared: &Shared,
        space: &Arc<Space>,
        mut regions: KVVec<Self>,
        mut left: Leaving,
    ) -> Result {
        // Without the lock of the space: exchangeable memory waits for calls that change its pages.
        for region in &mut regions {
            region.retract(shared);
        }
        let left = space.unpin_all(|end| {
            for region in regions {
                let (pages, section) = match region.pages {
                    Pages::Local(_, pinned) => {
                        end(pinned);
                        (None, None)
                    }
                    Pages::Remote(_, run)
                    | Pages::Exchangeable(_, run, _)
                    | Pages::Slots(_, run, _) => (Some(run), None),
                    Pages::Window(_, section) => (None, Some(section)),
                };
                // There is room for all; without it, the slot would be lost.
                let _ = left.0.push_within_capacity(Entries {
                    slot: region.slot,
                    pages,
                    section,
                    freed: None,
                });
            }
            left
        })?;
        for entries in left.0 {
            shared.tpt.free_region(entries.slot);
            if let Some(window) = entries.freed {
                shared.window_alloc.free(window);
            }
        }
        Ok(())
    }

    /// Retracts the region, so that no transfer can start with it any more.
    fn retract(&mut self, shared: &Shared) {
        shared.mmap_offsets.remove(self.range);
        if let Pages::Exchangeable(_, run, exchange) = &self.pages {
            exchange.remove(run.first, &shared.mmap_offsets);
        }
        if let Some(name) = self.export.take() {
            shared.exports.remove(name);
        }
        shared.tpt.retract_region(self.slot);
    }
}

/// Returns the only run of a region that consists of `run`.
fn whole(run: &PageRun) -> Run {
    Run {
        page: 0,
        first: run.first,
        count: run.count,
        reserved: 0,
    }
}
