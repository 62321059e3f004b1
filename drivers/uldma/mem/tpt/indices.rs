// SPDX-License-Identifier: GPL-2.0

//! Page entries in blocks that the table does not have: their numbers only.

use kernel::{
    dma::DmaAddress,
    prelude::*, //
};

use crate::{
    hw::table::optimistic::OptimisticBlock,
    user_abi::ledger::Share, //
};

use super::Tpt;

/// Entries of a block.
const IN_BLOCK: usize = OptimisticBlock::ENTRIES;

/// Consecutive numbers of page entries, from the beginning of a block on.
pub(crate) struct Indices {
    /// What the allocator knows them by, which begins somewhere in a block.
    taken: usize,
    first: u32,
    blocks: u32,
    _share: Share,
}

impl Indices {
    /// The first one.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// The last one.
    pub(crate) fn last(&self) -> u32 {
        // The table has all of them.
        self.first + (self.blocks * u32::try_from(IN_BLOCK).unwrap_or(u32::MAX)).saturating_sub(1)
    }

    /// Number of entries that `blocks` blocks take, to be paid for: where the numbers that are free
    /// begin is not known before.
    pub(crate) fn price(blocks: usize) -> usize {
        (blocks + 1).saturating_mul(IN_BLOCK) - 1
    }
}

impl Tpt {
    /// Lets the device find blocks at `addresses`, by numbers for which `share` is paid.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not so many, `ENOMEM`, `ENODEV` without tables.
    pub(crate) fn add_blocks(&self, share: Share, addresses: &[DmaAddress]) -> Result<Indices> {
        let blocks = u32::try_from(addresses.len())?;
        self.with(|tables| {
            let size = Indices::price(addresses.len());
            let range = 0..usize::try_from(tables.page_capacity)?;
            let taken = match tables.page_runs.take(size, range.clone()) {
                Err(ENOSPC) if tables.free_spare_run() => tables.page_runs.take(size, range),
                result => result,
            }?;
            let first = taken.next_multiple_of(IN_BLOCK);
            tables.usage.pages += u32::try_from(size)?;
            let indices = Indices {
                taken,
                first: u32::try_from(first)?,
                blocks,
                _share: share,
            };
            for (number, address) in (first / IN_BLOCK..).zip(addresses) {
                // The numbers are in the table.
                tables.pages.lend(u32::try_from(number)?, Some(*address))?;
            }
            Ok(indices)
        })
    }

    /// Frees numbers, whose blocks the device does not use any more.
    pub(crate) fn remove_blocks(&self, indices: Indices) {
        // Without tables there is nothing to free.
        let _ = self.with(|tables| {
            let first = indices.first / u32::try_from(IN_BLOCK)?;
            for number in first..first + indices.blocks {
                tables.pages.lend(number, None)?;
            }
            tables.page_runs.give_back(indices.taken);
            let size = Indices::price(usize::try_from(indices.blocks)?);
            tables.usage.pages -= u32::try_from(size)?;
            Ok(())
        });
    }
}
