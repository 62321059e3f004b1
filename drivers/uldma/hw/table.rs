// SPDX-License-Identifier: GPL-2.0

//! Tables in host memory that the device reads: a directory of blocks, which are allocated on
//! demand.

use core::{
    iter::zip,
    ops::Range, //
};

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    page::PAGE_SIZE,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

use crate::kernel_ext::{
    compat::{
        dma_address,
        dma_write, //
    },
    dma::wmb, //
};

use super::layout::{
    EndpointEntry,
    PageEntry,
    PageWord,
    RegionEntry,
    RegionFlags,
    Run,
    TABLE_BLOCK_SIZE, //
};

const _: () = assert!(
    cfg!(target_endian = "little"),
    "entries are stored in the order of this CPU, and the device reads them as little-endian"
);

pub(crate) mod optimistic;
mod publication;

use publication::Publication;

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

// SAFETY: Integers without padding, as the size assertions in `layout` and the field sizes show.
unsafe impl AsBytes for EndpointEntry {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for EndpointEntry {}

/// An entry whose valid flag is written last and cleared first.
pub(crate) trait Entry: AsBytes + FromBytes + Copy + Default {
    /// Writes `self` to `index`, the valid flag last.
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result;

    /// Makes the entry at `index` invalid.
    fn retract(block: &Coherent<[Self]>, index: usize) -> Result;
}

/// Writes `entry` to `index` of `block`, in any order.
fn write_entry<T: Copy>(block: &Coherent<[T]>, index: usize, entry: T) -> Result {
    if index >= block.len() {
        return Err(EINVAL);
    }
    // SAFETY: The place is inside of the allocation, and valid for volatile writes: the device may
    // be reading.
    unsafe {
        block
            .as_mut_ptr()
            .cast::<T>()
            .add(index)
            .write_volatile(entry)
    };
    Ok(())
}

impl Entry for PageEntry {
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].space, self.space);
        dma_write!(block, [try: index].accessed, self.accessed);
        dma_write!(block, [try: index].dirty, self.dirty);
        dma_write!(block, [try: index].region, self.region);
        wmb();
        dma_write!(block, [try: index].word.0, self.word.bits());
        Ok(())
    }

    fn retract(block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].word.0, 0u64);
        Ok(())
    }
}

impl Entry for RegionEntry {
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result {
        let flags = self.flags;
        let invalid = Self {
            flags: RegionFlags::NONE,
            ..self
        };
        Self::retract(block, index)?;
        write_entry(block, index, invalid)?;
        wmb();
        dma_write!(block, [try: index].flags.0, flags.bits());
        Ok(())
    }

    fn retract(block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].flags.0, 0u32);
        Ok(())
    }
}

impl Entry for EndpointEntry {
    fn publish(self, block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].flags.0, 0u32);
        dma_write!(block, [try: index].space, self.space);
        dma_write!(block, [try: index].generation, self.generation);
        dma_write!(block, [try: index].receive_ring, self.receive_ring);
        dma_write!(block, [try: index].receive_status, self.receive_status);
        dma_write!(block, [try: index].timeout_ms, self.timeout_ms);
        dma_write!(block, [try: index].most_bytes, self.most_bytes);
        self.publish_peer(block, index)
    }

    fn retract(block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].flags.0, 0u32);
        Ok(())
    }
}

impl EndpointEntry {
    /// Writes the fields that the device uses of a connected endpoint only, then the flags.
    fn publish_peer(self, block: &Coherent<[Self]>, index: usize) -> Result {
        dma_write!(block, [try: index].peer_endpoint, self.peer_endpoint);
        dma_write!(block, [try: index].peer_generation, self.peer_generation);
        dma_write!(block, [try: index].link_generation, self.link_generation);
        wmb();
        dma_write!(block, [try: index].flags.0, self.flags.bits());
        Ok(())
    }
}

/// A block of a table. It stays until the driver is unbound, whichever entries were the first in
/// it, so it is charged to no caller.
struct Block<T> {
    /// The copy that the device reads.
    shared: Coherent<[T]>,
    /// A copy that the device cannot write, so that the driver never trusts the device about its
    /// own writes.
    own: KVec<T>,
    /// What the device finds at each entry.
    states: KVec<Publication>,
}

impl<T: Entry> Block<T> {
    fn new(dev: &Device<Bound>, count: usize) -> Result<Self> {
        let mut own = KVec::with_capacity(count, GFP_KERNEL)?;
        own.resize(count, T::default(), GFP_KERNEL)?;
        let mut states = KVec::with_capacity(count, GFP_KERNEL)?;
        states.resize(count, Publication::Empty, GFP_KERNEL)?;
        Ok(Self {
            shared: Coherent::zeroed_slice(dev, count, GFP_KERNEL)?,
            own,
            states,
        })
    }
}

/// A table of `T`.
pub(crate) struct Table<T: Entry> {
    directory: Coherent<[u64]>,
    blocks: KVVec<Option<Block<T>>>,
}

impl<T: Entry> Table<T> {
    const PER_BLOCK: usize = TABLE_BLOCK_SIZE / size_of::<T>();

    /// Creates an empty table for `capacity` entries.
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
        dma_address(&self.directory)
    }

    /// Allocates memory for entries `[first, first + count)`.
    pub(crate) fn reserve(&mut self, dev: &Device<Bound>, first: u32, count: u32) -> Result {
        let first = usize::try_from(first)?;
        let end = first
            .checked_add(usize::try_from(count)?)
            .ok_or(EOVERFLOW)?;
        for number in first / Self::PER_BLOCK..end.div_ceil(Self::PER_BLOCK) {
            let slot = self.blocks.get_mut(number).ok_or(ENOSPC)?;
            if slot.is_none() {
                let block = Block::new(dev, Self::PER_BLOCK)?;
                wmb();
                dma_write!(self.directory, [try: number], dma_address(&block.shared));
                *slot = Some(block);
            }
        }
        Ok(())
    }

    /// Lets the device find another block, at `address`, in place of block `number`; or, without an
    /// address, that of the table again.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the table has no such block.
    pub(crate) fn lend(&mut self, number: u32, address: Option<DmaAddress>) -> Result {
        let number = usize::try_from(number)?;
        let own = self.blocks.get(number).ok_or(EINVAL)?.as_ref();
        let address = address.unwrap_or_else(|| own.map_or(0, |own| dma_address(&own.shared)));
        wmb();
        dma_write!(self.directory, [try: number], address);
        Ok(())
    }

    /// The block of `index`, and the entry's place in it.
    fn place(&mut self, index: u32) -> Result<(&mut Block<T>, usize)> {
        let index = usize::try_from(index)?;
        let block = self.blocks.get_mut(index / Self::PER_BLOCK);
        let block = block.and_then(Option::as_mut).ok_or(EINVAL)?;
        Ok((block, index % Self::PER_BLOCK))
    }

    /// Enters a new entry at `index`, whose memory was reserved.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is an entry.
    pub(crate) fn insert(&mut self, index: u32, entry: T) -> Result {
        let (block, index) = self.place(index)?;
        block.states.get_mut(index).ok_or(EINVAL)?.enter()?;
        *block.own.get_mut(index).ok_or(EINVAL)? = entry;
        entry.publish(&block.shared, index)
    }

    /// Changes the entry at `index`. The device sees an entry that was retracted once it is
    /// restored.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no entry.
    pub(crate) fn update(&mut self, index: u32, entry: T) -> Result {
        self.change(index, entry, T::publish)
    }

    /// Changes the entry at `index`, for the device by `write`.
    fn change(
        &mut self,
        index: u32,
        entry: T,
        write: impl FnOnce(T, &Coherent<[T]>, usize) -> Result,
    ) -> Result {
        let (block, index) = self.place(index)?;
        let state = *block.states.get(index).ok_or(EINVAL)?;
        if state == Publication::Empty {
            return Err(EINVAL);
        }
        *block.own.get_mut(index).ok_or(EINVAL)? = entry;
        if state == Publication::Valid {
            write(entry, &block.shared, index)?;
        }
        Ok(())
    }

    /// Returns the entry at `index`, even if it was retracted.
    pub(crate) fn get(&self, index: u32) -> Result<T> {
        let index = usize::try_from(index)?;
        let block = self.blocks.get(index / Self::PER_BLOCK);
        let block = block.and_then(Option::as_ref).ok_or(EINVAL)?;
        let entry = block.own.get(index % Self::PER_BLOCK);
        entry.copied().ok_or(EINVAL)
    }

    /// Makes the entry at `index` invalid. The device may still use it until it is invalidated.
    pub(crate) fn retract(&mut self, index: u32) {
        if let Ok((block, index)) = self.place(index) {
            // `place` returned an index inside of the block.
            let _ = T::retract(&block.shared, index);
            if let Some(state) = block.states.get_mut(index) {
                state.retract();
            }
        }
    }

    /// Retracts and clears the entry at `index`.
    pub(crate) fn clear(&mut self, index: u32) {
        self.retract(index);
        if let Ok((block, index)) = self.place(index) {
            if let Some(entry) = block.own.get_mut(index) {
                *entry = T::default();
            }
            if let Some(state) = block.states.get_mut(index) {
                *state = Publication::Empty;
            }
        }
    }

    /// The indices of the first block that has memory and begins at `from` or later.
    pub(crate) fn block_from(&self, from: u32) -> Option<Range<u32>> {
        let blocks = self.blocks.iter().enumerate();
        blocks
            .filter(|(_, block)| block.is_some())
            .find_map(|(number, _)| {
                let first = u32::try_from(number.checked_mul(Self::PER_BLOCK)?).ok()?;
                let end = first.checked_add(u32::try_from(Self::PER_BLOCK).ok()?)?;
                (first >= from).then_some(first..end)
            })
    }
}

impl Block<PageEntry> {
    /// Passes the entries of `range` and their states to `write`, with the place that the device
    /// reads.
    ///
    /// These are loops over many entries, so `write` is called with pointers, which are valid for
    /// volatile writes: the device may be reading.
    fn for_each(
        &mut self,
        range: Range<usize>,
        write: impl Fn(*mut PageEntry, &PageEntry, &mut Publication),
    ) -> Result {
        if range.end > self.shared.len() {
            return Err(EINVAL);
        }
        let own = self.own.get(range.clone()).ok_or(EINVAL)?;
        let states = self.states.get_mut(range.clone()).ok_or(EINVAL)?;
        for (number, (entry, state)) in zip(own, states).enumerate() {
            // SAFETY: The range is inside of the allocation.
            let place = unsafe {
                self.shared
                    .as_mut_ptr()
                    .cast::<PageEntry>()
                    .add(range.start + number)
            };
            write(place, entry, state);
        }
        Ok(())
    }

    /// Writes the words of the entries of `range` that `is_published` lets the device see.
    fn publish_words(
        &mut self,
        range: Range<usize>,
        is_published: impl Fn(&mut Publication) -> bool,
    ) -> Result {
        self.for_each(range, |place, entry, state| {
            if is_published(state) {
                // SAFETY: The place is valid for volatile writes.
                unsafe { (&raw mut (*place).word).write_volatile(entry.word) };
            }
        })
    }

    /// Makes the entries of `range` invalid for the device.
    fn retract_words(&mut self, range: Range<usize>) -> Result {
        self.for_each(range, |place, _, state| {
            state.retract();
            // SAFETY: The place is valid for volatile writes.
            unsafe { (&raw mut (*place).word).write_volatile(PageWord::NONE) };
        })
    }

    /// Writes all but the words to the entries of `range`.
    fn write_rest(&mut self, range: Range<usize>) -> Result {
        self.for_each(range, |place, entry, _| {
            // SAFETY: The place is valid for volatile writes.
            unsafe {
                (&raw mut (*place).space).write_volatile(entry.space);
                (&raw mut (*place).region).write_volatile(entry.region);
            }
        })
    }
}

impl Table<PageEntry> {
    /// Stores entries for `count` indices from `first` on, whose memory was reserved: `entry`, and
    /// the same for the pages behind its page. The device sees them once they are
    /// [published](Self::publish).
    pub(crate) fn prepare(&mut self, first: u32, count: u32, mut entry: PageEntry) -> Result {
        let step = u64::try_from(PAGE_SIZE)?;
        for (number, range) in Self::parts(first, count)? {
            let block = self.blocks.get_mut(number).and_then(Option::as_mut);
            let own = block.ok_or(EINVAL)?.own.get_mut(range).ok_or(EINVAL)?;
            for place in own {
                *place = entry;
                // The last address may be the end of the address space.
                entry.word = PageWord::from_bits(entry.word.bits().wrapping_add(step));
            }
        }
        Ok(())
    }

    /// Enters `count` entries from `first` on that were [prepared](Self::prepare). Those that there
    /// are already do not change.
    pub(crate) fn publish(&mut self, first: u32, count: u32) -> Result {
        self.publish_if(first, count, |state| state.enter().is_ok())
    }

    /// Ends one retraction of `count` entries from `first` on. The device sees those that nothing
    /// else has retracted.
    pub(crate) fn restore_all(&mut self, first: u32, count: u32) {
        // Entries without memory were not retracted.
        let _ = self.publish_if(first, count, Publication::restore);
    }

    fn publish_if(
        &mut self,
        first: u32,
        count: u32,
        is_published: impl Fn(&mut Publication) -> bool,
    ) -> Result {
        self.each_part(first, count, |block, range| {
            block.write_rest(range.clone())?;
            wmb();
            block.publish_words(range, &is_published)
        })
    }

    /// Makes `count` entries from `first` on invalid. The device may still use them until they are
    /// invalidated.
    pub(crate) fn retract_all(&mut self, first: u32, count: u32) {
        // Entries without memory are invalid.
        let _ = self.each_part(first, count, Block::retract_words);
    }

    /// Clears `count` entries from `first` on.
    pub(crate) fn clear_all(&mut self, first: u32, count: u32) {
        self.retract_all(first, count);
        // As above.
        let _ = self.each_part(first, count, |block, range| {
            let states = block.states.get_mut(range.clone()).ok_or(EINVAL)?;
            states.fill(Publication::Empty);
            let own = block.own.get_mut(range).ok_or(EINVAL)?;
            own.fill(PageEntry::default());
            Ok(())
        });
    }

    /// Calls `part` for each block with some of the `count` entries from `first` on, and their
    /// indices in it.
    fn each_part(
        &mut self,
        first: u32,
        count: u32,
        part: impl Fn(&mut Block<PageEntry>, Range<usize>) -> Result,
    ) -> Result {
        for (number, range) in Self::parts(first, count)? {
            let block = self.blocks.get_mut(number).and_then(Option::as_mut);
            part(block.ok_or(EINVAL)?, range)?;
        }
        Ok(())
    }

    /// Iterates over the blocks with some of the `count` entries from `first` on: the number of the
    /// block, and their indices in it.
    fn parts(first: u32, count: u32) -> Result<impl Iterator<Item = (usize, Range<usize>)>> {
        let mut next = usize::try_from(first)?;
        let end = next.checked_add(usize::try_from(count)?).ok_or(EOVERFLOW)?;
        Ok(core::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let number = next / Self::PER_BLOCK;
            let start = number * Self::PER_BLOCK;
            let stop = end.min(start + Self::PER_BLOCK);
            let range = next - start..stop - start;
            next = stop;
            Some((number, range))
        }))
    }
}

impl Table<RegionEntry> {
    /// Changes the flags of an entry, which is one write.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no entry.
    pub(crate) fn set_flags(&mut self, index: u32, flags: RegionFlags) -> Result {
        let entry = RegionEntry {
            flags,
            ..self.get(index)?
        };
        self.change(index, entry, |entry, block, index| {
            dma_write!(block, [try: index].flags.0, entry.flags.bits());
            Ok(())
        })
    }
}

impl Table<EndpointEntry> {
    /// Adds the peer to an entry. The entry is valid all the time.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no entry.
    pub(crate) fn connect(&mut self, index: u32, entry: EndpointEntry) -> Result {
        self.change(index, entry, EndpointEntry::publish_peer)
    }
}

#[kunit_tests(uldma_table)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_entries_are_divided_at_blocks() -> Result {
        const IN_BLOCK: usize = Table::<PageEntry>::PER_BLOCK;
        let last = u32::try_from(IN_BLOCK - 1)?;
        let all = [(0, IN_BLOCK - 1..IN_BLOCK), (1, 0..IN_BLOCK), (2, 0..1)];
        let parts = Table::<PageEntry>::parts(last, u32::try_from(IN_BLOCK + 2)?)?;
        assert!(parts.eq(all));
        assert_eq!(Table::<PageEntry>::parts(last, 0)?.count(), 0);
        Ok(())
    }
}
