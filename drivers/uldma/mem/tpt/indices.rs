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

    /// The number of block `place` in the directory of the table.
    fn number(&self, place: usize) -> Result<u32> {
        let place = u32::try_from(place)?;
        if place >= self.blocks {
            return Err(EINVAL);
        }
        Ok(self.first / u32::try_from(IN_BLOCK)? + place)
    }

    /// Number of entries that `blocks` blocks take, to be paid for: where the numbers that are free
    /// begin is not known before.
    pub(crate) fn price(blocks: usize) -> usize {
        (blocks + 1).saturating_mul(IN_BLOCK) - 1
    }
}

impl Tpt {
    /// Takes the numbers of `count` blocks, for which `share` is paid. The device finds the block at
    /// `absent` by all of them.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are not so many, `ENOMEM`, `ENODEV` without tables.
    pub(crate) fn add_blocks(
        &self,
        share: Share,
        count: usize,
        absent: DmaAddress,
    ) -> Result<Indices> {
        let blocks = u32::try_from(count)?;
        self.with(|tables| {
            let size = Indices::price(count);
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
            for place in 0..count {
                // The numbers are in the table.
                tables.pages.lend(indices.number(place)?, Some(absent))?;
            }
            Ok(indices)
        })
    }

    /// Lets the device find another block, at `address`, by the numbers of block `place`. It may still use
    /// the one before.
    ///
    /// # Errors
    ///
    /// `EINVAL` without such a block, `ENODEV` without tables.
    pub(crate) fn set_block(&self, indices: &Indices, place: usize, address: DmaAddress) -> Result {
        let number = indices.number(place)?;
        self.with(|tables| tables.pages.lend(number, Some(address)))
    }

    /// Frees numbers, whose blocks the device does not use any more.
    pub(crate) fn remove_blocks(&self, indices: Indices) {
        // Without tables there is nothing to free.
        let _ = self.with(|tables| {
            let count = usize::try_from(indices.blocks)?;
            for place in 0..count {
                tables.pages.lend(indices.number(place)?, None)?;
            }
            tables.page_runs.give_back(indices.taken);
            let size = Indices::price(count);
            tables.usage.pages -= u32::try_from(size)?;
            Ok(())
        });
    }
}
