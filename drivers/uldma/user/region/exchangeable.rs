// SPDX-License-Identifier: GPL-2.0

//! Regions of exchangeable memory.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    mem::exchange::{
        Exchange,
        NewMemory,
        Part, //
    },
    user_abi::{
        access::Access,
        mmap_offset::MmapRange, //
    }, //
};

use super::{
    backing::OwnRun,
    Backing,
    Owner,
    Region, //
};

/// One of the memories of an [`Exchange`].
struct Exchangeable(OwnRun, Arc<Exchange>);

impl Backing for Exchangeable {
    fn own_run(&self) -> Option<&OwnRun> {
        Some(&self.0)
    }

    fn memory(&self) -> Result<u32> {
        Ok(self.0.run.first)
    }

    fn retract(&self, shared: &Shared) {
        self.1.remove(self.0.run.first, &shared.mmap_offsets);
    }
}

impl Region {
    /// Creates a region of `length` bytes of new memory in `exchange`, and returns the range where
    /// that can be mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` unless `length` is a multiple of a page, `EPERM` if the process does not run in the
    /// space of the owner or `RLIMIT_MEMLOCK` is 0, `ENOSPC` if a table is full, `EDQUOT` beyond the
    /// limits of the user, `ENOMEM` beyond `RLIMIT_MEMLOCK` or without memory, `EINTR` if a signal
    /// comes, `EREMOTEIO` if the device cannot access a page, `ENODEV` if the device is unbound.
    pub(crate) fn create_exchangeable(
        shared: &Shared,
        owner: &Owner<'_>,
        exchange: &Arc<Exchange>,
        length: u64,
    ) -> Result<(Self, MmapRange)> {
        let space = owner.space;
        let task = kernel::current!();
        let mm = space.current(task).ok_or(EPERM)?;
        let bytes = usize::try_from(length).map_err(|_| ENOSPC)?;
        if bytes == 0 || bytes % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let count = bytes / PAGE_SIZE;
        // More pages than page entries never fit; do not allocate them.
        shared.hw.geometry().check_pages(count)?;
        let (new, share) = owner.admit(0, Access::ALL, length)?;
        let place = KBox::<Exchangeable>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let memory = NewMemory::allocate((space, mm), count)?;
        let (run, mappable) = {
            // Only now: what is charged to the process may let it sleep.
            let guard = shared.gate.try_enter()?;
            let device = (guard.dev(), &shared.tpt, &shared.mmap_offsets);
            exchange.add(device, (owner.open_file, space), memory)?
        };
        let backing = place.write(Exchangeable(run.into(), exchange.clone()));
        Ok((new.enter(shared, share, backing)?, mappable))
    }

    /// Returns the pages of `length` bytes from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `ENOENT` unless this is exchangeable memory, `EINVAL` for no bytes, or bytes that it does not
    /// have.
    pub(crate) fn exchangeable_part(&self, offset: u64, length: u64) -> Result<Part> {
        let memory = self.backing.memory()?;
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if length == 0 || end > self.length {
            return Err(EINVAL);
        }
        let (first, end) = (usize::try_from(offset)?, usize::try_from(end)?);
        Ok(Part {
            memory,
            pages: first / PAGE_SIZE..end.div_ceil(PAGE_SIZE),
        })
    }
}
