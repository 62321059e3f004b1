// SPDX-License-Identifier: GPL-2.0

//! Snapshots of regions for queries: their properties, and the addresses of their pages.

use kernel::prelude::*;

use crate::{
    device::Shared,
    mem::lmm::{
        pinned_range::PinnedRange,
        range::pages_to_bytes, //
    },
    user_abi::access::Access, //
};

use super::{
    Region,
    Use, //
};

/// A snapshot of a region, for queries.
pub(crate) struct Description {
    pub(crate) access: Access,
    /// Those of its kind, as in a query.
    pub(crate) flags: u32,
    pub(crate) exported: bool,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) pages: usize,
    /// The number of the pinned range in its space, if there is one.
    pub(crate) lock: Option<u64>,
}

/// Memory that is contiguous for the device: bus address and bytes.
pub(crate) type Block = (u64, u64);

impl Region {
    /// Returns a snapshot of the region.
    pub(crate) fn describe(&self) -> Description {
        Description {
            access: self.access,
            flags: self.backing.flags(),
            exported: self.export.is_some(),
            addr: self.addr,
            length: self.length,
            pages: self.range.pages(),
            lock: self.backing.pinned().map(PinnedRange::number),
        }
    }

    /// Returns the bus addresses of the pages from page `first` on, as up to `limit` blocks, and
    /// the number of the page after them. With `merge` adjacent pages are one block.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an import or a part of the window, and for a page that the region does not have;
    /// `ENOMEM`.
    pub(crate) fn blocks(
        &self,
        shared: &Shared,
        first: usize,
        limit: usize,
        merge: bool,
    ) -> Result<(KVec<Block>, usize)> {
        self.backing.permits(Use::Blocks)?;
        if first > self.range.pages() {
            return Err(EINVAL);
        }
        let page_size = pages_to_bytes(1);
        let mut blocks: KVec<Block> = KVec::with_capacity(limit, GFP_KERNEL)?;
        let mut next = first;
        let add = |address| {
            let last = blocks.last_mut();
            let taken = match last.filter(|(start, length)| merge && *start + *length == address) {
                Some((_, length)) => {
                    *length += page_size;
                    true
                }
                None => blocks.push_within_capacity((address, page_size)).is_ok(),
            };
            next += usize::from(taken);
            taken
        };
        shared.tpt.addresses(self.backing.runs(), first, add)?;
        Ok((blocks, next))
    }
}
