// SPDX-License-Identifier: GPL-2.0

//! Regions of memory of the process, which is pinned.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    hw::layout::Run,
    kernel_ext::gup::untagged,
    mem::{
        lmm::{
            pinned_range::PinnedRange,
            range::PageRange,
            space::Space, //
        },
        tpt::InvalidateScope, //
    },
    user_abi::{
        access::Access,
        events::Events, //
    }, //
};

use super::{
    Backing,
    Owner,
    Region, //
};

/// A range of the process.
struct Pinned(PinnedRange);

impl Backing for Pinned {
    fn runs(&self) -> &[Run] {
        self.0.runs()
    }

    fn pinned(&self) -> Option<&PinnedRange> {
        Some(&self.0)
    }

    fn release(
        self: KBox<Self>,
        _: &Shared,
        (space, scope): (&Arc<Space>, InvalidateScope),
        keep: bool,
    ) -> Result {
        space.unpin(KBox::into_inner(self).0, scope, keep)
    }
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
        shared.hw.geometry().check_pages(pages.len())?;
        let (new, share) = owner.admit(addr, access, length)?;
        let ticket = Events::add_stale_ticket(owner.events, owner.handle)?;
        let place = KBox::<Pinned>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let pinned = space.pin(mm, pages, access, Some(ticket))?;
        new.enter(shared, share, place.write(Pinned(pinned)))
    }
}
