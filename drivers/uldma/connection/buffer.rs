// SPDX-License-Identifier: GPL-2.0

//! Memory that a program gave to a connection: locked as a region is, and reachable for whoever
//! moves the data.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    transport::Transport,
    Site, //
};
use crate::{
    kernel_ext::{
        gup::untagged,
        page_list::PageList, //
    },
    mem::{
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
            InvalidateScope,
            RegionSetup,
            RegionSlot,
            Tpt, //
        }, //
    },
    user_abi::{
        access::Access,
        ledger::{
            Resource,
            Share, //
        }, //
    }, //
};

/// How the memory is reached.
enum Reach {
    /// By the engine, as a region that no program has a handle of.
    Engine(RegionSlot, RegionState),
    /// By CPUs; with the token under which peers reach it, if they do.
    Cpu(Arc<PageList>, Option<u64>),
}

/// Whether the engine can still reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegionState {
    Valid,
    /// The device was asked.
    Requested,
    Invalidated,
    /// The device did not do as it was told.
    Failed,
}

/// Memory of a connection. [`Buffer::release`] has to be called in the end.
pub(super) struct Buffer {
    space: Arc<Space>,
    pinned: PinnedRange,
    reach: Reach,
    /// Dropped last, when the device cannot find it any more.
    _member: Member,
}

impl Buffer {
    /// Locks `length` bytes from `addr` on of the current process, which runs in `space`; with
    /// `export` for the peer to reach.
    ///
    /// # Errors
    ///
    /// Those of [`Region::register`](crate::user::region::Region::register).
    pub(super) fn new(
        site: &Site<'_>,
        space: &Arc<Space>,
        transport: Transport,
        (addr, length): (u64, u64),
        access: Access,
        export: bool,
    ) -> Result<Self> {
        let addr = untagged(addr);
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        let pages = PageRange::of_bytes(addr, length)?;
        // More pages than page entries can never fit; do not even pin them.
        if pages.len() > usize::try_from(site.hw.geometry().page_capacity)? {
            return Err(ENOSPC);
        }
        let member = space.add_member();
        let place = match transport {
            Transport::Engine => Some(Share::new(space.payer(), Resource::Regions, 1)?),
            Transport::Memory | Transport::Window => None,
        };
        let pinned = space.pin(mm, pages, access, None)?;
        let offset = offset_in_page(addr)?;
        let reach = match place {
            Some(place) => {
                let range = (offset, length);
                engine(site, space, place, &pinned, range, access, export)
            }
            None => {
                let export_pages = export && transport == Transport::Memory;
                cpu(site, space, &pinned, (offset, length), export_pages)
            }
        };
        match reach {
            Ok(reach) => Ok(Self {
                space: space.clone(),
                pinned,
                reach,
                _member: member,
            }),
            Err(err) => {
                // No region has it, but there may be others over its pages, or were.
                let _ = space.unpin(pinned, InvalidateScope::Pages, false);
                Err(err)
            }
        }
    }

    /// Whether pages had to be pinned for it.
    pub(super) fn was_pinned(&self) -> bool {
        self.pinned.was_pinned()
    }

    /// What the peer has to name to reach it, and the generation.
    pub(super) fn token(&self) -> (u64, u64) {
        match &self.reach {
            Reach::Engine(slot, _) => (slot.index.into(), slot.generation),
            Reach::Cpu(_, token) => (token.unwrap_or(0), 0),
        }
    }

    /// The region, where the engine moves the data.
    pub(super) fn region(&self) -> Result<u32> {
        match &self.reach {
            Reach::Engine(slot, _) => Ok(slot.index),
            Reach::Cpu(..) => Err(EINVAL),
        }
    }

    /// Takes the memory out of the reach of commands to come; gives the region that has to be
    /// invalidated before the memory is the program's again.
    pub(super) fn retract(&mut self, tpt: &Tpt) -> Result<u32> {
        match &mut self.reach {
            Reach::Engine(slot, region_state) => {
                tpt.retract_region(*slot);
                *region_state = RegionState::Requested;
                Ok(slot.index)
            }
            Reach::Cpu(..) => Err(EINVAL),
        }
    }

    /// Notes that the device has invalidated the region, or failed to.
    pub(super) fn set_region_state(&mut self, result: Result) {
        if let Reach::Engine(_, region_state) = &mut self.reach {
            *region_state = match result {
                Ok(()) => RegionState::Invalidated,
                Err(_) => RegionState::Failed,
            };
        }
    }

    /// The pages, where CPUs move the data.
    pub(super) fn pages(&self) -> Result<&PageList> {
        match &self.reach {
            Reach::Engine(..) => Err(EINVAL),
            Reach::Cpu(pages, _) => Ok(pages),
        }
    }

    /// Takes the memory out of everybody's reach and unlocks it; with `keep` its pins may stay for
    /// who gives the memory again.
    ///
    /// Not to be called under locks that moving data takes: this waits for the device.
    pub(super) fn release(self, site: &Site<'_>, keep: bool) {
        let mut free = None;
        let scope = match self.reach {
            Reach::Engine(slot, region_state) => {
                let is_out_of_reach = match region_state {
                    RegionState::Invalidated => true,
                    RegionState::Failed => false,
                    RegionState::Valid | RegionState::Requested => {
                        site.tpt.retract_region(slot);
                        let requested = region_state == RegionState::Requested;
                        site.invalidate(slot.index, requested).is_ok()
                    }
                };
                if is_out_of_reach {
                    free = Some(slot);
                    // The region is gone, but what names its pages only was not ended with it.
                    InvalidateScope::Pages
                } else {
                    // Descriptors may still name the slot, so nobody can have it any more.
                    InvalidateScope::Region(slot.index)
                }
            }
            Reach::Cpu(_, token) => {
                if let Some(token) = token {
                    site.hw.unexport_pages(token);
                }
                InvalidateScope::Pages
            }
        };
        // What the device does not let go of is kept for it, and was logged.
        let result = self.space.unpin(self.pinned, scope, keep);
        if let (Ok(()), Some(slot)) = (result, free) {
            site.tpt.free_region(slot);
        }
    }
}

fn engine(
    site: &Site<'_>,
    space: &Space,
    place: Share,
    pinned: &PinnedRange,
    (offset, length): (usize, u64),
    access: Access,
    export: bool,
) -> Result<Reach> {
    let guard = site.gate.try_enter()?;
    let slot = site.tpt.reserve_region(guard.dev(), place)?;
    let setup = RegionSetup {
        space: space.id(),
        access,
        offset,
        length,
        runs: pinned.runs(),
        remote: None,
        export: export.then_some(access),
    };
    site.tpt
        .set_region(guard.dev(), slot, &setup)
        // The entry was never made, so there is nothing to invalidate.
        .inspect_err(|_| site.tpt.free_region(slot))?;
    Ok(Reach::Engine(slot, RegionState::Valid))
}

fn cpu(
    site: &Site<'_>,
    space: &Space,
    pinned: &PinnedRange,
    (offset, length): (usize, u64),
    export_pages: bool,
) -> Result<Reach> {
    let pages = space.page_list(pinned, offset, usize::try_from(length)?)?;
    let pages = Arc::new(pages, GFP_KERNEL_ACCOUNT)?;
    let token = match export_pages {
        true => Some(site.hw.export_pages(pages.clone())?),
        false => None,
    };
    Ok(Reach::Cpu(pages, token))
}
