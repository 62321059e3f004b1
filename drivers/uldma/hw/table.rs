// SPDX-License-Identifier: GPL-2.0

//! Tables in host memory that the device reads: a directory of blocks that come when needed.

use core::ops::Range;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    dma_read,
    dma_write,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

use crate::kernel_ext::dma::wmb;

use super::layout::{
    PageEntry,
    RegionEntry,
    Run,
    TABLE_BLOCK_SIZE, //
};

// SAFETY: Integers without padding, as the size assertions in `layout` and the field sizes show.
unsafe impl AsBytes for PageEntry {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for PageEntry {}
// SAFETY: Integers without padding, as the size assertions in `layout` and the field sizes show.
unsafe impl AsBytes for RegionEntry {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for RegionEntry {}

// SAFETY: Integers without padding, as the size assertions in `layout` and the field sizes show.
unsafe impl AsBytes for Run {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for Run {}

/// An entry that is made valid last and taken back first.
pub(crate) trait Entry: AsBytes + FromBytes + Copy + Default {
    /// Writes `self` to place `index`, the part that makes it valid last.
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result;

    /// Makes place `index` invalid.
    fn retract(block: &Coherent<[Self]>, index: usize) -> Result;
}

impl Entry for PageEntry {
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].space, self.space);
        dma_write!(block, [try: index].region, self.region);
        wmb();
        dma_write!(block, [try: index].word, self.word);
        Ok(())
    }

    fn retract(block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].word, 0u64);
        Ok(())
    }
}

impl Entry for RegionEntry {
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index], Self { flags: 0, ..self });
        wmb();
        dma_write!(block, [try: index].flags, self.flags);
        Ok(())
    }

    fn retract(block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].flags, 0u32);
        Ok(())
    }
}

/// A table of `T`.
pub(crate) struct Table<T: Entry> {
    directory: Coherent<[u64]>,
    blocks: KVVec<Option<Coherent<[T]>>>,
}

impl<T: Entry> Table<T> {
    const PER_BLOCK: usize = TABLE_BLOCK_SIZE / size_of::<T>();

    /// Creates a table that can hold `capacity` entries and holds none.
    pub(crate) fn new(dev: &Device<Bound>, capacity: u32) -> Result<Self> {
        let count = usize::try_from(capacity)?.div_ceil(Self::PER_BLOCK);
        let mut blocks = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            blocks.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            directory: Coherent::zeroed_slice(dev, count, GFP_KERNEL)?,
            blocks,
        })
    }

    /// Bus address of the directory.
    pub(crate) fn directory(&self) -> DmaAddress {
        self.directory.dma_handle()
    }

    /// Makes sure that entries `[first, first + count)` have memory.
    pub(crate) fn reserve(&mut self, dev: &Device<Bound>, first: u32, count: u32) -> Result {
        let first = usize::try_from(first)?;
        let end = first
            .checked_add(usize::try_from(count)?)
            .ok_or(EOVERFLOW)?;
        for number in first / Self::PER_BLOCK..end.div_ceil(Self::PER_BLOCK) {
            let slot = self.blocks.get_mut(number).ok_or(ENOSPC)?;
            if slot.is_none() {
                let block = Coherent::zeroed_slice(dev, Self::PER_BLOCK, GFP_KERNEL)?;
                wmb();
                dma_write!(self.directory, [try: number], block.dma_handle());
                *slot = Some(block);
            }
        }
        Ok(())
    }

    fn place(&self, index: u32) -> Result<(&Coherent<[T]>, usize)> {
        let index = usize::try_from(index)?;
        let block = self.blocks.get(index / Self::PER_BLOCK);
        let block = block.and_then(Option::as_ref).ok_or(EINVAL)?;
        Ok((block, index % Self::PER_BLOCK))
    }

    /// Puts `entry` at `index`, for which memory was reserved.
    pub(crate) fn set(&self, index: u32, entry: T) -> Result {
        let (block, index) = self.place(index)?;
        entry.publish(block, index)
    }

    /// Reads back what was put at `index`.
    pub(crate) fn get(&self, index: u32) -> Result<T> {
        let (block, index) = self.place(index)?;
        Ok(dma_read!(block, [try: index]))
    }

    /// Makes `index` invalid; the device may still have it cached.
    pub(crate) fn clear(&self, index: u32) {
        if let Ok((block, index)) = self.place(index) {
            // `place` returned an index inside of the block.
            let _ = T::retract(block, index);
        }
    }

    /// The indices of all entries that have memory, block by block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<u32>> + use<T> {
        let per_block = Self::PER_BLOCK;
        let count = self.blocks.len();
        (0..count).filter_map(move |number| {
            let first = u32::try_from(number * per_block).ok()?;
            Some(first..first + u32::try_from(per_block).ok()?)
        })
    }
}

impl Table<RegionEntry> {
    /// Changes the flags of an entry, which is one write.
    pub(crate) fn set_flags(&self, index: u32, flags: u32) -> Result {
        let (block, index) = self.place(index)?;
        dma_write!(block, [try: index].flags, flags);
        Ok(())
    }
}
