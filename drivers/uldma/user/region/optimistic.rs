// SPDX-License-Identifier: GPL-2.0

//! Regions of memory of the process that is not pinned.

use kernel::prelude::*;

use crate::{
    device::Shared,
    hw::layout::Run,
    kernel_ext::{
        errno::eopnotsupp,
        gup::untagged,
        mmu_notifier::IntervalNotifier, //
    },
    mem::{
        lmm::range::PageRange,
        optimistic::area::Area,
        tpt::Proof, //
    },
    uapi,
    user_abi::{
        access::Access,
        miss_policy::MissPolicy, //
    }, //
};

use super::{
    Backing,
    NewRegion,
    Owner,
    Region,
    Use, //
};

/// An area of the process, and its page entries.
struct Optimistic(IntervalNotifier<Area>, [Run; 1]);

impl Backing for Optimistic {
    /// Fails with `EOPNOTSUPP` for what needs pages that stay.
    fn permits(&self, how: Use) -> Result {
        match how {
            Use::Export => Ok(()),
            Use::MapOutSource | Use::Blocks => Err(eopnotsupp()),
        }
    }

    fn flags(&self) -> u32 {
        uapi::ULDMA_REGION_OPTIMISTIC
    }

    fn runs(&self) -> &[Run] {
        &self.1
    }

    fn retract(&self, _: &Shared) {
        self.0.watcher().retract();
    }

    fn free(self: KBox<Self>, _: &Shared, proof: &Proof) {
        self.0.watcher().end(proof);
    }
}

impl Region {
    /// Registers `length` bytes from `addr` on of the current process, whatever is mapped there, without
    /// pinning them.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device has no optimistic entries, or no transfers that wait for them; `EPERM` if the process does not run in the
    /// space of the owner; `EINVAL` and `EOVERFLOW` for a wrong range; `ENOSPC` if a table is full; `EDQUOT`
    /// beyond the limits of the user; `ENOMEM`; `EINTR` if a signal comes; `ENODEV` if the device is
    /// unbound.
    pub(crate) fn register_optimistic(
        shared: &Shared,
        owner: &Owner<'_>,
        addr: u64,
        length: u64,
        (access, on_miss): (Access, MissPolicy),
    ) -> Result<Self> {
        let space = owner.space;
        let can_wait = on_miss.fault.is_none() || shared.tpt.can_answer();
        if !shared.hw.geometry().is_optimistic || !can_wait {
            return Err(eopnotsupp());
        }
        let addr = untagged(addr);
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        let pages = PageRange::of_bytes(addr, length)?;
        shared.hw.geometry().check_pages(pages.len())?;
        let (new, share) = owner.admit(addr, access, length)?;
        let place = KBox::<Optimistic>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let area = Area::new((space, mm), pages, (access, on_miss.fault))?;
        let run = area.watcher().run()?;
        let new = NewRegion {
            wait: on_miss.wait,
            ..new
        };
        new.enter(shared, share, place.write(Optimistic(area, [run])))
    }
}
