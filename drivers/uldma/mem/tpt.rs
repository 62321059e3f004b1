// SPDX-License-Identifier: GPL-2.0

//! The translation and protection table of the device.
//!
//! There are two tables. The page table has one entry per pinned page and address space, which all
//! regions over that page share; a shadow page names a page entry. The region table has one entry
//! per registration or import, which names *runs* of page entries, so that its cost does not depend
//! on the number of pages. Runs do not change when areas are split, merged or go stale, since each
//! names entries, not addresses.
//!
//! The tables keep the share of each entry in use, including entries that the device may still
//! access, until the driver is unbound. Entries of pinned pages are charged with the pages.

use core::ops::Range;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    id_pool::IdPool,
    new_mutex,
    prelude::*,
    rbtree::RBTree,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use crate::{
    hw::{
        layout::{
            PageEntry,
            PageWord,
            RegionEntry,
            RegionFlags,
            Run, //
        },
        table::Table,
        Geometry,
        Hw,
        TableSetup, //
    },
    kernel_ext::{
        dma,
        noio::without_io,
        random,
        range_alloc::RangeAllocator,
        wakeup, //
    },
    mem::charged_pages::ChargedPages,
    user_abi::{
        access::Access,
        ledger::Share, //
    }, //
};

mod fence;
mod indices;
mod own;
mod reach;
mod retraction;
mod rights;
mod runs;
mod section;
mod slots;

use rights::{
    use_of,
    SecondMappings, //
};

use fence::Fence;
pub(crate) use fence::Fences;

pub(crate) use indices::Indices;

pub(crate) use own::NewPages;

pub(crate) use section::{
    Section,
    SectionSetup, //
};

pub(crate) use reach::{
    leaked,
    Entered,
    InvalidateScope, //
    Invalidator,
    PageRun,
    Proof,
    Quiet,
    Reachable,
};

use runs::TakenRun;
use slots::{
    RunArray,
    TakenSlot, //
};

/// Maximum number of runs of a region.
pub(crate) const MAX_RUNS: usize = 4096;

/// The slot of a region in the region table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionSlot {
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

/// The region of a peer that an import names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) node: u32,
    pub(crate) region: u32,
    pub(crate) generation: u64,
    pub(crate) link_generation: u32,
}

/// The content of a region entry.
pub(crate) struct RegionSetup<'a> {
    pub(crate) space: u32,
    pub(crate) access: Access,
    /// Bytes from the start of the first page to the first byte.
    pub(crate) offset: usize,
    pub(crate) length: u64,
    pub(crate) runs: &'a [Run],
    pub(crate) remote: Option<Remote>,
    /// For how long a transfer waits for a page of it; nothing if it does not.
    pub(crate) wait: RegionFlags,
    /// Rights of peers from the beginning.
    pub(crate) export: Option<Access>,
}

/// Usage of the tables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) pages: u32,
    pub(crate) regions: u32,
}

struct Tables {
    pages: Table<PageEntry>,
    page_runs: Pin<KBox<RangeAllocator>>,
    /// Runs in use, by first entry.
    taken_runs: RBTree<u32, TakenRun>,
    /// For pages that are mapped twice, for reading and for writing, the mapping that is not in the
    /// entry.
    second_mappings: SecondMappings,
    /// The run that was freed last, kept for the next one of as many entries.
    spare_run: Option<u32>,
    page_capacity: u32,
    regions: Table<RegionEntry>,
    region_ids: IdPool,
    region_capacity: u32,
    /// Slots in use, by number, up to the last one that was ever in use.
    taken_slots: KVVec<Option<TakenSlot>>,
    generations: random::Sequence,
    usage: Usage,
}

/// The tables of a device, until it is unbound.
#[pin_data]
pub(crate) struct Tpt {
    #[pin]
    tables: Mutex<Option<Tables>>,
    #[pin]
    fence: Fence,
    #[pin]
    quiet: Quiet,
    /// None if the device has only registers.
    invalidator: Option<Arc<dyn Invalidator>>,
}

impl Tpt {
    /// Creates tables without entries.
    pub(crate) fn new<'a>(
        dev: &'a Device<Bound>,
        geometry: &'a Geometry,
        invalidator: Option<Arc<dyn Invalidator>>,
    ) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || {
            let regions = usize::try_from(geometry.region_capacity)?;
            let mut tables = Tables {
                pages: Table::new(dev, geometry.page_capacity)?,
                page_runs: KBox::pin_init(RangeAllocator::new(), GFP_KERNEL)?,
                taken_runs: RBTree::new(),
                second_mappings: SecondMappings::default(),
                spare_run: None,
                page_capacity: geometry.page_capacity,
                regions: Table::new(dev, geometry.region_capacity)?,
                region_ids: IdPool::with_capacity(regions, GFP_KERNEL)?,
                region_capacity: geometry.region_capacity,
                taken_slots: KVVec::new(),
                generations: random::Sequence::new(),
                usage: Usage::default(),
            };
            // Region 0 means none in a size word.
            tables.region_ids.find_unused_id(0).ok_or(ENOSPC)?.acquire();
            Ok(try_pin_init!(Self {
                tables <- new_mutex!(Some(tables), "uldma::Tpt::tables"),
                fence <- Fence::new(dev, geometry),
                quiet <- Quiet::new(),
                invalidator,
            }))
        })
    }

    /// Calls `f` under the lock of the tables. Reclaim of memory takes that, too, to evict what is in pin
    /// caches, so no allocation of `f` waits for such reclaim.
    fn with<R>(&self, f: impl FnOnce(&mut Tables) -> Result<R>) -> Result<R> {
        let mut tables = self.tables.lock();
        let tables = Option::as_mut(&mut *tables).ok_or(ENODEV)?;
        without_io(|| f(tables))
    }

    /// Returns the state from which a proof comes that the device cannot access memory any more.
    pub(crate) fn quiet(&self) -> &Quiet {
        &self.quiet
    }

    /// Invalidates `region` in the device, and waits for that; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer.
    pub(crate) fn invalidate_region(&self, hw: Hw<'_>, region: u32) -> Result {
        match &self.invalidator {
            Some(invalidator) => invalidator.invalidate_region(hw, region),
            None => hw.invalidate_region(region),
        }
    }

    /// Returns the time that waiting for an invalidation costs at least.
    fn invalidation_cost(&self) -> Delta {
        let invalidator = self.invalidator.as_ref();
        invalidator.map_or_else(wakeup::cost, |it| it.cost())
    }

    /// Has the device read the answers to its requests for pages, some time later. Only a caller that
    /// `may_wait` waits for room in the queue; bounded.
    pub(crate) fn read_answers(&self, hw: Hw<'_>, may_wait: bool) {
        if let Some(invalidator) = &self.invalidator {
            // If it does not, transfers wait as long as their regions allow, and no longer.
            let _ = invalidator.read_answers(hw, may_wait);
        }
    }

    /// Returns true if transfers can wait for answers, which a queue tells the device to read.
    pub(crate) fn can_answer(&self) -> bool {
        self.invalidator.is_some()
    }

    /// Returns the configuration of the tables for the device.
    pub(crate) fn setup(&self) -> Result<TableSetup> {
        self.with(|tables| {
            Ok(TableSetup {
                pages: tables.pages.directory(),
                page_capacity: tables.page_capacity,
                regions: tables.regions.directory(),
                region_capacity: tables.region_capacity,
                touch_page: self.fence.address(),
                ..TableSetup::default()
            })
        })
    }

    /// Returns the usage of the tables.
    pub(crate) fn usage(&self) -> Usage {
        self.tables
            .lock()
            .as_ref()
            .map_or_else(Usage::default, |tables| tables.usage)
    }

    /// Returns the number of fences.
    pub(crate) fn fences(&self) -> Fences {
        self.fence.count()
    }

    /// Maps `pages` for DMA and gives each a page entry of `space`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`, `EREMOTEIO` if the device cannot access a page. The
    /// pages, which the device has not seen, are unpinned then.
    pub(crate) fn add_pages(
        &self,
        dev: &Device<Bound>,
        pages: ChargedPages,
        space: u32,
        access: Access,
    ) -> Result<Reachable> {
        self.with(|tables| {
            let run = tables.take_run(dev, u32::try_from(pages.pages().len())?)?;
            let mut index = run.first;
            let entries = &mut tables.pages;
            let result = dma::map_pinned(dev, pages.pages(), access.into(), |address, count| {
                let word = PageWord::of_address(address) | PageWord::VALID | access.page_flags();
                let entry = PageEntry::new(word, space, 0)?;
                let count = u32::try_from(count)?;
                entries.prepare(index, count, entry)?;
                index += count;
                Ok(())
            });
            if let Err(err) = result {
                tables.drop_run(dev, &run);
                return Err(err);
            }
            let (first, count) = (run.first, run.count);
            let reachable = Reachable::new(pages, run);
            // The memory is reserved, so this does not fail; if it did, the pages would stay
            // pinned.
            tables.pages.publish(first, count)?;
            Ok(reachable)
        })
    }

    /// Maps `pages` pages out to others, or ends that; each side is given as runs and number of the
    /// first page.
    ///
    /// # Errors
    ///
    /// `EINVAL` if runs do not have these pages.
    pub(crate) fn map_out(
        &self,
        (from_runs, from): (&[Run], u32),
        to: Option<(&[Run], u32)>,
        pages: u32,
    ) -> Result {
        self.with(|tables| {
            for number in 0..pages {
                let index = entry_of(from_runs, from, number)?;
                let region = match to {
                    Some((runs, to)) => entry_of(runs, to, number)? + 1,
                    None => 0,
                };
                let entry = tables.pages.get(index)?;
                tables.pages.update(index, PageEntry { region, ..entry })?;
            }
            Ok(())
        })
    }

    /// Adds page entries for the pages of an import, for which `share` is paid; `region` is its
    /// index on this node.
    pub(crate) fn add_remote_pages(
        &self,
        dev: &Device<Bound>,
        share: Share,
        count: u32,
        space: u32,
        region: u32,
        access: Access,
    ) -> Result<PageRun> {
        self.with(|tables| {
            let run = tables.take_run(dev, count)?;
            tables.pay_for_run(&run, share);
            let flags = PageWord::VALID | PageWord::REMOTE | access.page_flags();
            for number in 0..run.count {
                let offset = u64::from(number) << kernel::page::PAGE_SHIFT;
                let entry = PageEntry::new(PageWord::of_address(offset) | flags, space, region)?;
                tables.pages.insert(run.first + number, entry)?;
            }
            Ok(run)
        })
    }

    /// Frees page entries that were retracted and then invalidated, and their DMA mappings.
    fn remove_pages(&self, dev: &Device<Bound>, run: &PageRun) {
        // Without tables the device was unbound, which freed everything.
        let _ = self.with(|tables| {
            tables.drop_run(dev, run);
            Ok(())
        });
    }

    /// Passes the bus addresses of the pages of `runs` to `visit`, from page number `first` on,
    /// until it returns false.
    pub(crate) fn addresses(
        &self,
        runs: &[Run],
        first: usize,
        mut visit: impl FnMut(u64) -> bool,
    ) -> Result {
        let first = u32::try_from(first)?;
        self.with(|tables| {
            for run in runs {
                let skip = first.saturating_sub(run.page).min(run.count);
                for index in run.first + skip..run.first + run.count {
                    let entry = tables.pages.get(index)?;
                    if !visit(entry.word.address()) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// Adds a region, for which `share` is paid. The device may know it when this returns.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full or the region has too many runs, `ENOMEM`, `ENODEV` if the device
    /// is unbound. There is no entry then, so nothing has to be invalidated.
    pub(crate) fn add_region(
        &self,
        dev: &Device<Bound>,
        share: Share,
        setup: &RegionSetup<'_>,
    ) -> Result<RegionSlot> {
        let array = RunArray::new(dev, setup.runs)?;
        self.with(|tables| {
            let slot = tables.take_slot(dev, share)?;
            let result = tables.set_slot(slot, setup, array);
            result.inspect_err(|_| tables.free_slot(slot))?;
            Ok(slot)
        })
    }

    /// Reserves a slot of the region table, without an entry; `share` is paid for it.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`, `ENODEV` if the device is unbound.
    pub(crate) fn reserve_region(&self, dev: &Device<Bound>, share: Share) -> Result<RegionSlot> {
        self.with(|tables| tables.take_slot(dev, share))
    }

    /// Writes the entry of a reserved slot.
    pub(crate) fn set_region(
        &self,
        dev: &Device<Bound>,
        slot: RegionSlot,
        setup: &RegionSetup<'_>,
    ) -> Result {
        let array = RunArray::new(dev, setup.runs)?;
        self.with(|tables| tables.set_slot(slot, setup, array))
    }

    /// Sets the rights of peers to a region; `None` for no rights.
    pub(crate) fn set_export(&self, slot: RegionSlot, access: Option<Access>) -> Result {
        self.with(|tables| {
            const EXPORT: RegionFlags = RegionFlags::EXPORT_READ.union(RegionFlags::EXPORT_WRITE);
            let flags = tables.regions.get(slot.index)?.flags.without(EXPORT);
            let flags = flags | export_flags(access);
            tables.regions.set_flags(slot.index, flags)
        })
    }

    /// Makes a region entry invalid. The region has to be invalidated in the device before
    /// [`Tpt::free_region`].
    pub(crate) fn retract_region(&self, slot: RegionSlot) {
        let _ = self.with(|tables| {
            tables.regions.retract(slot.index);
            Ok(())
        });
    }

    /// Frees a slot of the region table.
    pub(crate) fn free_region(&self, slot: RegionSlot) {
        let _ = self.with(|tables| {
            tables.free_slot(slot);
            Ok(())
        });
    }

    /// Returns true if the device does no DMA any more, until it is bound anew.
    pub(crate) fn is_off(&self) -> bool {
        self.fence.is_off()
    }

    /// Has the device do no DMA any more, until it is bound anew.
    pub(crate) fn end_dma(&self, hw: Hw<'_>) -> Proof {
        Proof::of_end(self, hw)
    }

    /// Ends all DMA mappings and frees the tables. The device does no DMA any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        if let Some(mut tables) = self.tables.lock().take() {
            tables.drop_pages(dev);
        }
        self.fence.tear_down();
        self.quiet.complete();
    }
}

/// Returns the page entry of page `first + number` of `runs`.
fn entry_of(runs: &[Run], first: u32, number: u32) -> Result<u32> {
    let page = first.checked_add(number).ok_or(EINVAL)?;
    let after = runs.partition_point(|run| run.page <= page);
    let run = after.checked_sub(1).and_then(|place| runs.get(place));
    let run = run.ok_or(EINVAL)?;
    let skip = page - run.page;
    if skip >= run.count {
        return Err(EINVAL);
    }
    Ok(run.first + skip)
}

/// Returns the flags of a region entry for the rights of peers; `None` for no rights.
fn export_flags(access: Option<Access>) -> RegionFlags {
    access.map_or(RegionFlags::NONE, Access::export_flags)
}

impl Tables {
    /// Ends the mappings that `entries` name, and clears these.
    fn drop_entries(&mut self, dev: &Device<Bound>, entries: Range<u32>) {
        if dma::needs_unmapping(dev) {
            for index in entries.clone() {
                self.unmap_page(dev, index);
            }
        }
        self.second_mappings.end_all(dev, entries.clone());
        self.pages
            .clear_all(entries.start, entries.end - entries.start);
    }

    fn unmap_page(&self, dev: &Device<Bound>, index: u32) {
        let Ok(entry) = self.pages.get(index) else {
            return;
        };
        let word = entry.word;
        if word.contains(PageWord::VALID) && !word.contains(PageWord::REMOTE) {
            dma::unmap_pinned(dev, word.address(), use_of(word));
        }
    }

    fn drop_pages(&mut self, dev: &Device<Bound>) {
        let mut next = 0;
        while let Some(block) = self.pages.block_from(next) {
            next = block.end;
            self.drop_entries(dev, block);
        }
    }
}

#[kunit_tests(uldma_tpt)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_pages_are_found_across_runs() {
        let run = |page, first, count| Run {
            page,
            first,
            count,
            reserved: 0,
        };
        let runs = [run(0, 100, 2), run(2, 50, 3)];
        let entry = |first, number| entry_of(&runs, first, number);
        assert_eq!(entry(0, 0), Ok(100));
        assert_eq!(entry(0, 1), Ok(101));
        assert_eq!(entry(1, 1), Ok(50));
        assert_eq!(entry(4, 0), Ok(52));
        assert_eq!(entry(4, 1), Err(EINVAL));
        assert_eq!(entry(u32::MAX, 1), Err(EINVAL));
        assert_eq!(entry_of(&[], 0, 0), Err(EINVAL));
    }
}
