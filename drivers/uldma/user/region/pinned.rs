// SPDX-License-Identifier: GPL-2.0

//! Regions of memory of the process, which is pinned.

use kernel::prelude::*;

use crate::{
    device::Shared,
    kernel_ext::gup::untagged,
    mem::lmm::range::PageRange,
    user_abi::{
        access::Access,
        events::Events, //
    }, //
};

use super::{
    Owner,
    Pages,
    Region, //
};

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
        let (new, share) = owner.admit(addr, access, length)?;
        let ticket = Events::add_stale_ticket(owner.events, owner.handle)?;
        let pinned = space.pin(mm, pages, access, Some(ticket))?;
        new.enter(shared, share, Pages::Local(pinned))
    }
}
