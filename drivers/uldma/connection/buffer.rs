// SPDX-License-Identifier: GPL-2.0

//! Posted buffers: memory of a program that is pinned as a region is, and accessible to the mover
//! of the data.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    transport::Transport,
    ConnCtx, //
};
use crate::{
    hw::layout::RegionFlags,
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

/// The access path to the memory.
enum Reach {
    /// By the engine, as a region without a handle.
    Engine(RegionSlot, RegionState),
    /// By CPUs, with the token of the export if peers access it.
    Cpu(Arc<PageList>, Option<u64>),
}

/// Validity of a region for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegionState {
    /// The device may access it, even if it was retracted.
    Reachable,
    Invalidated,
    /// The invalidation failed.
    Failed,
}

/// A posted buffer. [`Buffer::release`] has to be called in the end.
pub(super) struct Buffer {
    space: Arc<Space>,
    pinned: PinnedRange,
    reach: Reach,
    /// Dropped last, when the device cannot find the memory any more.
    _member: Member,
}

impl Buffer {
    /// Pins `length` bytes from `addr` on of the current process, which has to run in `space`. With
    /// `export` the peer may access them.
    ///
    /// # Errors
    ///
    /// `EPERM` if the process does not run in `space`, `EINVAL` and `EOVERFLOW` for a wrong range,
    /// `ENOSPC` if a table is full, and the errors of [`Space::pin`].
    pub(super) fn new(
        ctx: &ConnCtx<'_>,
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
        // More pages than page entries never fit; do not pin them.
        ctx.hw.geometry().check_pages(pages.len())?;
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
                engine(ctx, space, place, &pinned, range, access, export)
            }
            None => {
                let export_pages = export && transport == Transport::Memory;
                cpu(ctx, space, &pinned, (offset, length), export_pages)
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
                // There is no region of it, but other regions may have had its pages.
                let _ = space.unpin(pinned, InvalidateScope::Pages, false);
                Err(err)
            }
        }
    }

    /// Returns true if pages had to be pinned for it.
    pub(super) fn was_pinned(&self) -> bool {
        self.pinned.was_pinned()
    }

    /// Returns the token and the generation by which the peer names the buffer.
    pub(super) fn token(&self) -> (u64, u64) {
        match &self.reach {
            Reach::Engine(slot, _) => (slot.index.into(), slot.generation),
            Reach::Cpu(_, token) => (token.unwrap_or(0), 0),
        }
    }

    /// Returns the region, if the engine moves the data.
    pub(super) fn region(&self) -> Result<u32> {
        match &self.reach {
            Reach::Engine(slot, _) => Ok(slot.index),
            Reach::Cpu(..) => Err(EINVAL),
        }
    }

    /// Retracts the region, so that no new command can use it. Returns the region, which has to be
    /// invalidated before the program may reuse the memory.
    pub(super) fn retract(&self, tpt: &Tpt) -> Result<u32> {
        match &self.reach {
            Reach::Engine(slot, _) => {
                tpt.retract_region(*slot);
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

    /// Returns the pages, if CPUs move the data.
    pub(super) fn pages(&self) -> Result<&PageList> {
        match &self.reach {
            Reach::Engine(..) => Err(EINVAL),
            Reach::Cpu(pages, _) => Ok(pages),
        }
    }

    /// Invalidates and unpins the memory. With `keep` its pins may stay in the pin cache.
    ///
    /// Waits for the device, so it must not be called under locks that are taken to move data.
    pub(super) fn release(self, ctx: &ConnCtx<'_>, keep: bool) {
        let mut free = None;
        let scope = match self.reach {
            Reach::Engine(slot, region_state) => {
                let is_out_of_reach = match region_state {
                    RegionState::Invalidated => true,
                    RegionState::Failed => false,
                    RegionState::Reachable => {
                        ctx.tpt.retract_region(slot);
                        ctx.invalidate(slot.index).is_ok()
                    }
                };
                if is_out_of_reach {
                    free = Some(slot);
                    // The region is invalid, but transfers that name its pages only may still run.
                    InvalidateScope::Pages
                } else {
                    // Descriptors may still name the slot, so it is never used again.
                    InvalidateScope::Region(slot.index)
                }
            }
            Reach::Cpu(_, token) => {
                if let Some(token) = token {
                    ctx.hw.unexport_pages(token);
                }
                InvalidateScope::Pages
            }
        };
        // Pages that the device may still access are retained, and the timeout was logged.
        let result = self.space.unpin(self.pinned, scope, keep);
        if let (Ok(()), Some(slot)) = (result, free) {
            ctx.tpt.free_region(slot);
        }
    }
}

fn engine(
    ctx: &ConnCtx<'_>,
    space: &Space,
    place: Share,
    pinned: &PinnedRange,
    (offset, length): (usize, u64),
    access: Access,
    export: bool,
) -> Result<Reach> {
    let guard = ctx.gate.try_enter()?;
    let setup = RegionSetup {
        space: space.id(),
        access,
        offset,
        length,
        runs: pinned.runs(),
        remote: None,
        wait: RegionFlags::NONE,
        export: export.then_some(access),
    };
    let slot = ctx.tpt.add_region(guard.dev(), place, &setup)?;
    Ok(Reach::Engine(slot, RegionState::Reachable))
}

fn cpu(
    ctx: &ConnCtx<'_>,
    space: &Space,
    pinned: &PinnedRange,
    (offset, length): (usize, u64),
    export_pages: bool,
) -> Result<Reach> {
    let pages = space.page_list(pinned, offset, usize::try_from(length)?)?;
    let pages = Arc::new(pages, GFP_KERNEL_ACCOUNT)?;
    let token = if export_pages {
        Some(ctx.hw.export_pages(pages.clone())?)
    } else {
        None
    };
    Ok(Reach::Cpu(pages, token))
}
