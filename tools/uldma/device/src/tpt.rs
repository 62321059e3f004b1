// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads the translation and protection tables in a node's memory.
//!
//! The driver may change an entry at any time, and a hostile one may write anything there. So
//! entries are copied first and checked afterwards, and every number in them is taken as untrusted.

use std::cell::Cell;

use crate::abi::Status;
use crate::layout::{
    EndpointEntry, EndpointFlags, PageEntry, PageWord, RegionEntry, RegionFlags, Run, Segment,
    MAX_ENDPOINTS, MAX_SEGMENTS, TABLE_BLOCK_SIZE,
};
use crate::location::List;
use crate::memory::{Bus, BusError, Right};

const PAGE_ENTRY_SIZE: u64 = size_of::<PageEntry>() as u64;
const REGION_ENTRY_SIZE: u64 = size_of::<RegionEntry>() as u64;
const ENDPOINT_ENTRY_SIZE: u64 = size_of::<EndpointEntry>() as u64;
const RUN_SIZE: u64 = size_of::<Run>() as u64;
const SEGMENT_SIZE: u64 = size_of::<Segment>() as u64;

/// Page entries of a block of the table.
pub const PAGES_PER_BLOCK: u32 = TABLE_BLOCK_SIZE as u32 / PAGE_ENTRY_SIZE as u32;

/// Limit of runs that are searched for a page entry; the other runs of a region can be used by the
/// kernel only.
pub const MAX_RUNS_SEARCHED: u32 = 1 << 16;

/// Locations of the tables, from the node's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Bus address of the page table's directory.
    pub page_directory: u64,
    /// Bus address of the region table's directory.
    pub region_directory: u64,
    /// Page entries that the directory can name.
    pub page_capacity: u32,
    /// Region entries that the directory can name.
    pub region_capacity: u32,
    /// Bus address of the endpoint table's directory.
    pub endpoint_directory: u64,
    /// Endpoint entries that the directory can name.
    pub endpoint_capacity: u32,
    /// log2 of the bytes of a page.
    pub page_shift: u32,
}

/// Reason for which an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// There is none, it is not valid, or it was changed while it was read.
    NotValid,
    /// A table, a directory or an array of runs is at a bus address that does not answer.
    Unreadable,
}

impl From<BusError> for EntryError {
    fn from(_: BusError) -> Self {
        EntryError::Unreadable
    }
}

impl From<EntryError> for Status {
    fn from(miss: EntryError) -> Self {
        match miss {
            EntryError::NotValid => Status::NotValid,
            EntryError::Unreadable => Status::BusError,
        }
    }
}

/// Page entries of consecutive pages, up to the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRange {
    /// Index of the first of them.
    pub entry: u32,
    /// Number of entries; not zero.
    pub pages: u32,
}

/// A direct-mapped cache of entries.
struct EntryCache<T, const SLOTS: usize>([Cell<Option<(u32, T)>>; SLOTS]);

impl<T: Copy, const SLOTS: usize> EntryCache<T, SLOTS> {
    const fn new() -> Self {
        Self([const { Cell::new(None) }; SLOTS])
    }

    fn place(&self, index: u32) -> Option<&Cell<Option<(u32, T)>>> {
        self.0.get(index as usize % SLOTS)
    }

    fn get(&self, index: u32) -> Option<T> {
        let (found, entry) = self.place(index)?.get()?;
        (found == index).then_some(entry)
    }

    fn keep(&self, index: u32, entry: T) {
        if let Some(place) = self.place(index) {
            place.set(Some((index, entry)));
        }
    }
}

/// A view of one node's tables at one moment. It caches entries, so it must not be kept across an
/// invalidation.
pub struct View<'a, B: ?Sized> {
    tables: &'a Tables,
    bus: &'a B,
    pages: EntryCache<(PageEntry, u64), 8>,
    regions: EntryCache<RegionEntry, 4>,
}

impl<'a, B: Bus + ?Sized> View<'a, B> {
    /// Creates a view of the tables that `tables` locates in the memory behind `bus`.
    pub fn new(tables: &'a Tables, bus: &'a B) -> Self {
        Self {
            tables,
            bus,
            pages: EntryCache::new(),
            regions: EntryCache::new(),
        }
    }

    /// log2 of the bytes of a page.
    pub fn page_shift(&self) -> u32 {
        self.tables.page_shift
    }

    /// Returns the bus address of an entry.
    fn locate(
        &self,
        directory: u64,
        capacity: u32,
        index: u32,
        entry_size: u64,
    ) -> Result<u64, EntryError> {
        if index >= capacity || directory == 0 {
            return Err(EntryError::NotValid);
        }
        let per_block = TABLE_BLOCK_SIZE as u64 / entry_size;
        let slot = u64::from(index) / per_block * 8;
        let block = self.load(directory, slot)?;
        if block == 0 {
            return Err(EntryError::NotValid);
        }
        block
            .checked_add(u64::from(index) % per_block * entry_size)
            .ok_or(EntryError::Unreadable)
    }

    fn load(&self, base: u64, offset: u64) -> Result<u64, EntryError> {
        let address = base.checked_add(offset).ok_or(EntryError::Unreadable)?;
        Ok(self.bus.load64(address)?)
    }

    /// A page entry that is valid, or optimistic.
    pub fn page(&self, index: u32) -> Result<PageEntry, EntryError> {
        Ok(self.placed_page(index)?.0)
    }

    /// The same, with its bus address.
    fn placed_page(&self, index: u32) -> Result<(PageEntry, u64), EntryError> {
        if let Some(page) = self.pages.get(index) {
            return Ok(page);
        }
        let tables = self.tables;
        let place = self.locate(
            tables.page_directory,
            tables.page_capacity,
            index,
            PAGE_ENTRY_SIZE,
        )?;
        let mut words = [[0; 3]];
        self.bus.load_pairs(place, &mut words)?;
        let page = (page_entry(words[0])?, place);
        self.pages.keep(index, page);
        Ok(page)
    }

    /// Has it counted that the engine has looked up a page entry, whose page is at this address, or missing.
    pub fn looked_up(&self, entry: u32, page: Option<u64>) {
        self.bus.looked_up(entry, page);
    }

    /// Calls `each` with the page entries `first`, `first + 1`, … in order, and their bus addresses.
    pub fn pages(
        &self,
        range: EntryRange,
        mut each: impl FnMut(PageEntry, u64) -> Result<(), Status>,
    ) -> Result<(), Status> {
        if range.pages == 1 {
            let (page, place) = self.placed_page(range.entry)?;
            return each(page, place);
        }
        let tables = self.tables;
        let mut index = range.entry;
        let mut left = range.pages;
        let mut batch = [[0; 3]; 64];
        while left > 0 {
            let place = self.locate(
                tables.page_directory,
                tables.page_capacity,
                index,
                PAGE_ENTRY_SIZE,
            )?;
            let count = (PAGES_PER_BLOCK - index % PAGES_PER_BLOCK)
                .min(left)
                .min(tables.page_capacity - index)
                .min(batch.len() as u32);
            let batch = batch
                .get_mut(..count as usize)
                .ok_or(EntryError::NotValid)?;
            self.bus
                .load_pairs(place, batch)
                .map_err(EntryError::from)?;
            let places = (place..).step_by(size_of::<PageEntry>());
            for (words, place) in batch.iter().zip(places) {
                each(page_entry(*words)?, place)?;
            }
            index = index.checked_add(count).ok_or(EntryError::NotValid)?;
            left -= count;
        }
        Ok(())
    }

    /// Reads a valid region entry; index 0 names none.
    pub fn region(&self, index: u32) -> Result<RegionEntry, EntryError> {
        let tables = self.tables;
        if index == 0 {
            return Err(EntryError::NotValid);
        }
        if let Some(region) = self.regions.get(index) {
            return Ok(region);
        }
        let place = self.locate(
            tables.region_directory,
            tables.region_capacity,
            index,
            REGION_ENTRY_SIZE,
        )?;
        let head = self.load(place, 0)?;
        let flags = RegionFlags::from_bits(head as u32);
        if !flags.contains(RegionFlags::VALID) {
            return Err(EntryError::NotValid);
        }
        let runs = self.load(place, 32)?;
        let peer = self.load(place, 48)?;
        let entry = RegionEntry {
            flags,
            space: (head >> 32) as u32,
            offset: self.load(place, 8)?,
            length: self.load(place, 16)?,
            generation: self.load(place, 24)?,
            run_count: runs as u32,
            first_page: (runs >> 32) as u32,
            runs: self.load(place, 40)?,
            peer_region: peer as u32,
            link_generation: (peer >> 32) as u32,
            peer_generation: self.load(place, 56)?,
        };
        if self.load(place, 0)? != head || !self.is_well_formed(&entry) {
            return Err(EntryError::NotValid);
        }
        self.regions.keep(index, entry);
        Ok(entry)
    }

    /// Returns false for a region in the window that is an import, too, or leaves the section.
    fn is_well_formed(&self, region: &RegionEntry) -> bool {
        let end = region.offset.checked_add(region.length);
        !region.flags.contains(RegionFlags::WINDOW)
            || !region.flags.contains(RegionFlags::REMOTE)
                && end.is_some_and(|end| end <= self.bus.section_size())
    }

    /// Reads a valid endpoint entry.
    pub fn endpoint(&self, index: u32) -> Result<EndpointEntry, EntryError> {
        let tables = self.tables;
        let place = self.locate(
            tables.endpoint_directory,
            tables.endpoint_capacity.min(MAX_ENDPOINTS),
            index,
            ENDPOINT_ENTRY_SIZE,
        )?;
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let head = self.load(place, 0)?;
        let (flags, space) = halves(head);
        let flags = EndpointFlags::from_bits(flags);
        if !flags.contains(EndpointFlags::VALID) {
            return Err(EntryError::NotValid);
        }
        let (timeout_ms, peer_endpoint) = halves(self.load(place, 32)?);
        let (link_generation, reserved) = halves(self.load(place, 48)?);
        let entry = EndpointEntry {
            flags,
            space,
            generation: self.load(place, 8)?,
            receive_ring: self.load(place, 16)?,
            receive_status: self.load(place, 24)?,
            timeout_ms,
            peer_endpoint,
            peer_generation: self.load(place, 40)?,
            link_generation,
            reserved,
            most_bytes: self.load(place, 56)?,
        };
        if self.load(place, 0)? != head {
            return Err(EntryError::NotValid);
        }
        Ok(entry)
    }

    fn run(&self, region: &RegionEntry, number: u32) -> Result<Run, EntryError> {
        let offset = u64::from(number) * RUN_SIZE;
        let head = self.load(region.runs, offset)?;
        let count = self.load(region.runs, offset + 8)?;
        Ok(Run {
            page: head as u32,
            first: (head >> 32) as u32,
            count: count as u32,
            reserved: 0,
        })
    }

    /// Returns the number of pages that the region touches.
    fn page_count(&self, region: &RegionEntry) -> u64 {
        let bytes = region.offset.saturating_add(region.length);
        bytes.div_ceil(1 << self.tables.page_shift)
    }

    /// Number of the page in the region that a page entry stands for, if it is one of the region's.
    pub fn page_of_entry(&self, region: &RegionEntry, entry: u32) -> Result<u64, EntryError> {
        let pages = self.page_count(region);
        let within = |run: Run| {
            let page = u64::from(run.page) + u64::from(entry.checked_sub(run.first)?);
            let end = u64::from(run.page) + u64::from(run.count);
            (page < end.min(pages)).then_some(page)
        };
        if region.run_count == 1 {
            return within(single_run(region)).ok_or(EntryError::NotValid);
        }
        for number in 0..region.run_count.min(MAX_RUNS_SEARCHED) {
            if let Some(page) = within(self.run(region, number)?) {
                return Ok(page);
            }
        }
        Err(EntryError::NotValid)
    }

    /// Returns the page entries of a page of the region and of the pages after it.
    pub fn entries_of_page(
        &self,
        region: &RegionEntry,
        page: u64,
    ) -> Result<EntryRange, EntryError> {
        let run = match region.run_count {
            1 => single_run(region),
            count => {
                // Finds the last run that starts at or before the page.
                let (mut low, mut high) = (0, count);
                let mut found = None;
                while low < high {
                    let middle = low + (high - low) / 2;
                    let run = self.run(region, middle)?;
                    if u64::from(run.page) <= page {
                        found = Some(run);
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                found.ok_or(EntryError::NotValid)?
            }
        };
        let skip = page
            .checked_sub(u64::from(run.page))
            .filter(|skip| *skip < u64::from(run.count))
            .ok_or(EntryError::NotValid)? as u32;
        Ok(EntryRange {
            entry: run.first.checked_add(skip).ok_or(EntryError::NotValid)?,
            pages: run.count - skip,
        })
    }

    /// Passes bus address and number of the `bytes` bytes behind the first `skip` of a list to
    /// `each`, by segment. [`Status::Bounds`] if the list is too long, or has fewer bytes.
    pub fn listed(
        &self,
        list: List,
        skip: u64,
        bytes: u64,
        mut each: impl FnMut(u64, u64),
    ) -> Result<(), Status> {
        if list.segments > MAX_SEGMENTS {
            return Err(Status::Bounds);
        }
        let (mut skip, mut left) = (skip, bytes);
        for number in 0..u64::from(list.segments) {
            if left == 0 {
                break;
            }
            let place = number * SEGMENT_SIZE;
            let (address, length) = (
                self.load(list.address, place)?,
                self.load(list.address, place + 8)?,
            );
            let skipped = skip.min(length);
            skip -= skipped;
            let taken = left.min(length - skipped);
            left -= taken;
            if taken > 0 {
                each(address.checked_add(skipped).ok_or(Status::BusError)?, taken);
            }
        }
        (left == 0).then_some(()).ok_or(Status::Bounds)
    }
}

/// Decodes a page entry from its first word, its second, and its first again; fails if it is neither
/// valid nor optimistic. An optimistic page that comes or goes meanwhile is missing.
fn page_entry([word, owner, again]: [u64; 3]) -> Result<PageEntry, EntryError> {
    let (word, again) = (PageWord::from_bits(word), PageWord::from_bits(again));
    let stays = (word & again).contains(PageWord::OPTIMISTIC);
    let has_owner = word.contains(PageWord::VALID) || stays;
    if !has_owner || (word != again && !stays) {
        return Err(EntryError::NotValid);
    }
    Ok(PageEntry {
        word: again.without(PageWord::VALID.when(word != again)),
        space: owner as u16,
        accessed: (owner >> 16) as u8,
        dirty: (owner >> 24) as u8,
        region: (owner >> 32) as u32,
    })
}

/// Returns the only run of a region that has one.
fn single_run(region: &RegionEntry) -> Run {
    Run {
        page: 0,
        first: region.first_page,
        count: u32::MAX,
        reserved: 0,
    }
}

/// Returns the bit that a page entry must have for an access.
pub fn page_right(right: Right) -> PageWord {
    match right {
        Right::Read => PageWord::READ,
        Right::Write => PageWord::WRITE,
    }
}

/// Returns the bit that a region entry must have for an access by its own node.
pub fn region_right(right: Right) -> RegionFlags {
    match right {
        Right::Read => RegionFlags::READ,
        Right::Write => RegionFlags::WRITE,
    }
}

/// Returns the bit that a region entry must have for an access by the peer.
pub fn export_right(right: Right) -> RegionFlags {
    match right {
        Right::Read => RegionFlags::EXPORT_READ,
        Right::Write => RegionFlags::EXPORT_WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINNED: PageWord = PageWord::VALID.union(PageWord::READ);
    const MISSING: PageWord = PageWord::OPTIMISTIC.union(PageWord::READ);
    const THERE: PageWord = MISSING.union(PageWord::VALID);

    fn decoded(before: PageWord, after: PageWord) -> Option<PageWord> {
        let [before, after] = [before, after].map(|word| word.with_address(0x5000).bits());
        let entry = page_entry([before, 7, after]).ok()?;
        Some(entry.word.with_address(0))
    }

    #[test]
    fn an_entry_that_changes_is_not_valid() {
        assert_eq!(decoded(PINNED, PINNED), Some(PINNED));
        assert_eq!(decoded(PINNED, PageWord::NONE), None);
        assert_eq!(decoded(PageWord::NONE, PINNED), None);
        assert_eq!(decoded(PINNED, PINNED | PageWord::WRITE), None);
    }

    #[test]
    fn an_optimistic_page_that_comes_or_goes_is_missing() {
        assert_eq!(decoded(THERE, THERE), Some(THERE));
        assert_eq!(decoded(MISSING, MISSING), Some(MISSING));
        assert_eq!(decoded(THERE, MISSING), Some(MISSING));
        assert_eq!(decoded(MISSING, THERE), Some(MISSING));
        assert_eq!(decoded(THERE, PINNED), None);
        assert_eq!(decoded(THERE, PageWord::NONE), None);
    }
}
