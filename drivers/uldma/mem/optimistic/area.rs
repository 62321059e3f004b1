// SPDX-License-Identifier: GPL-2.0

//! Areas: page entries for a range of addresses of one process, whatever is mapped there.
//!
//! A notification of a change takes [`Area::entries`], also in a thread that reclaims memory. So nothing is
//! allocated under it, and nothing but what an invalidation takes is locked under it.

use core::ops::{
    Range,
    RangeInclusive, //
};

use kernel::{
    device::{
        Bound,
        Device, //
    },
    mm::MmWithUser,
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};

use crate::{
    hw::{
        layout::Run,
        table::optimistic::{
            AbsentBlock,
            OptimisticBlock, //
        },
        Hw, //
    },
    kernel_ext::{
        hmm::{
            Fault,
            Mapped, //
        },
        mmu_notifier::{
            Change,
            Event,
            IntervalNotifier,
            Watcher, //
        }, //
    },
    mem::{
        lmm::{
            device_access::DeviceAccess,
            range::PageRange,
            space::Space, //
        },
        tpt::{
            Indices,
            Proof, //
        }, //
    },
    user_abi::{
        access::Access,
        ledger::{
            Resource,
            Share, //
        }, //
    }, //
};

use super::ageing::{
    Ages,
    Place, //
};

const IN_BLOCK: usize = OptimisticBlock::ENTRIES;

/// A range of addresses that the device can access where something is mapped.
#[pin_data]
pub(crate) struct Area {
    pub(super) space: Arc<Space>,
    range: PageRange,
    /// How far the driver goes to have a page mapped that is missed.
    pub(super) fault: Option<Fault>,
    /// The first and the last page entry, once there are some.
    indices: SetOnce<(u32, u32)>,
    /// The same numbers, as long as they are the area's. Blocks are replaced under it.
    #[pin]
    held: Mutex<Option<Held>>,
    #[pin]
    pub(super) entries: Mutex<Entries>,
}

/// What an area has as long as the device knows it.
struct Held {
    indices: Indices,
    /// What the device finds where no page has been entered.
    absent: AbsentBlock,
}

/// The page entries of an area.
pub(super) struct Entries {
    /// None where no page has been entered. Empty once the area has ended.
    blocks: KVVec<Option<OptimisticBlock>>,
    /// True once nothing is entered any more.
    is_dead: bool,
}

impl Area {
    /// Creates an area of `range` of the current process, of which `space` is that of `mm`. The device finds
    /// entries without pages. Those that it misses are mapped by a `fault`, or only if they are mapped.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the limits of the user, which pays for the numbers of page entries; `ENOSPC` if there
    /// are not so many; `ENOMEM`; `EINTR` if a signal comes; `ENODEV` if the device is unbound.
    pub(crate) fn new(
        (space, mm): (&Arc<Space>, &MmWithUser),
        range: PageRange,
        (access, fault): (Access, Option<Fault>),
    ) -> Result<IntervalNotifier<Self>> {
        space.prepare_watching(mm)?;
        let ages = space.ages(mm)?;
        let count = range.len().div_ceil(IN_BLOCK);
        let share = Share::new(space.payer(), Resource::Pages, Indices::price(count))?;
        let mut blocks = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            blocks.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        let entries = Entries {
            blocks,
            is_dead: false,
        };
        let area = pin_init!(Self {
            space: space.clone(),
            range,
            fault,
            indices: SetOnce::new(),
            held <- new_mutex!(None, "uldma::Area::held"),
            entries <- new_mutex!(entries, "uldma::Area::entries"),
        });
        let length = range.len() * PAGE_SIZE;
        let area = IntervalNotifier::new(mm, range.address(), length, area, space.remover())?;
        let place = Ages::place(&area)?;
        Self::add_entries(&area, share, access, (ages.ageing(), place))?;
        Ok(area)
    }

    /// Adds the entries, and the area to those of the device.
    ///
    /// Apart from the rest, which is charged to the process and so may let it sleep.
    fn add_entries(
        area: &IntervalNotifier<Self>,
        share: Share,
        access: Access,
        (ages, place): (&Ages, Place),
    ) -> Result {
        let this = area.watcher();
        let (device, space) = (this.space.access(), this.space.id());
        let guard = device.gate.try_enter()?;
        let count = this.pages().div_ceil(IN_BLOCK);
        let absent = AbsentBlock::new(guard.dev(), space, access.page_flags())?;
        let room = device.optimistic.room()?;
        let indices = device.tpt.add_blocks(share, count, absent.address())?;
        this.indices.populate((indices.first(), indices.last()));
        *this.held.lock() = Some(Held { indices, absent });
        device.optimistic.add(room, area);
        // Inside of the gate: unbinding removes it after all have left.
        ages.add(place);
        Ok(())
    }

    /// Makes the block to enter page `number` into. This allocates memory, so the caller holds no lock.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the area has ended, `ENOMEM`, `EINVAL` without such a page, `ENODEV` without tables.
    pub(super) fn make_block(
        &self,
        device: &DeviceAccess<'_>,
        hw: Hw<'_>,
        number: usize,
    ) -> Result {
        let place = number / IN_BLOCK;
        let is_missing = |entries: &Entries| matches!(entries.blocks.get(place), Some(None));
        if !is_missing(&self.entries.lock()) {
            return Ok(());
        }
        let held = self.held.lock();
        let held = held.as_ref().ok_or(ESRCH)?;
        let block = OptimisticBlock::new(hw.dev(), &held.absent)?;
        let address = block.address();
        if let Some(missing) = self.entries.lock().blocks.get_mut(place) {
            *missing = Some(block);
        }
        device.tpt.set_block(&held.indices, place, address)
    }

    /// The last page entry.
    pub(super) fn last_index(&self) -> u32 {
        self.indices.copy().map_or(0, |(_, last)| last)
    }

    /// Returns the number of the page that has the entry `index`, if there is one.
    pub(super) fn number_of(&self, index: u32) -> Option<usize> {
        let (first, _) = self.indices.copy()?;
        let number = usize::try_from(index.checked_sub(first)?).ok()?;
        (number < self.range.len()).then_some(number)
    }

    /// The page entry of the page `number`, or the one after the last.
    pub(super) fn index_of(&self, number: usize) -> u32 {
        let (first, last) = self.indices.copy().unwrap_or_default();
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        first.saturating_add(number).min(last.saturating_add(1))
    }

    /// The number of the first page whose entry is `index`, or after it.
    pub(super) fn number_from(&self, index: u32) -> usize {
        let (first, _) = self.indices.copy().unwrap_or_default();
        usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX)
    }

    /// Pages of the area.
    pub(super) fn pages(&self) -> usize {
        self.range.len()
    }

    /// The addresses, in bytes.
    pub(super) fn addresses(&self) -> RangeInclusive<usize> {
        let start = self.range.address();
        start..=start + (self.pages() * PAGE_SIZE - 1)
    }

    /// Tells the memory manager nothing more.
    fn forget_age(&self) {
        if let Some(ages) = self.space.known_ages() {
            ages.ageing().remove(self);
        }
    }

    /// Returns true if the device has accessed a page that is entered in `range`, in bytes, since that was
    /// `forgotten` for the last time, or may have. Does not wait.
    pub(super) fn was_accessed(&self, range: &Range<usize>, forgotten: bool) -> bool {
        // The holder of the lock changes what is entered.
        let Some(mut entries) = self.entries.try_lock() else {
            return true;
        };
        let mut accessed = false;
        entries.for_each(self.numbers(range), |block, places| {
            accessed |= block.was_accessed(places, forgotten);
        });
        if accessed && forgotten {
            self.space.access().optimistic.count_told();
        }
        accessed
    }

    /// The address of a page.
    pub(super) fn address_of(&self, number: usize) -> usize {
        self.range.address() + number * PAGE_SIZE
    }

    /// The page entries, as the only run of a region.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are none.
    pub(crate) fn run(&self) -> Result<Run> {
        let (first, _) = self.indices.copy().ok_or(EINVAL)?;
        Ok(Run {
            page: 0,
            first,
            count: u32::try_from(self.range.len())?,
            reserved: 0,
        })
    }

    /// Makes all entries invalid. None gets a page from here on.
    pub(crate) fn retract(&self) {
        let mut entries = self.entries.lock();
        entries.is_dead = true;
        entries.retract(0..self.pages());
    }

    /// Frees the entries, which were [retracted](Area::retract) and which the device does not use any more.
    pub(crate) fn end(&self, proof: &Proof) {
        let device = self.space.access();
        // Without the device there is nothing left.
        if let Some(guard) = device.optimistic.gate.enter() {
            // Before its numbers are free: the next area may get the same.
            device.optimistic.remove(self);
            self.forget_age();
            // No block is made from here on.
            let held = self.held.lock().take();
            let blocks = {
                let mut entries = self.entries.lock();
                let ended = entries.end(guard.dev(), 0..self.pages(), proof);
                device.optimistic.count_ended(&self.space, ended);
                core::mem::take(&mut entries.blocks)
            };
            if let Some(Held { indices, absent }) = held {
                device.tpt.remove_blocks(indices);
                drop(absent);
            }
            // The device does not find them any more.
            drop(blocks);
        }
    }

    /// Takes out all pages of a device that does no DMA any more.
    pub(super) fn tear_down(&self, dev: &Device<Bound>, proof: &Proof) {
        self.forget_age();
        self.retract();
        let held = self.held.lock().take();
        let mut entries = self.entries.lock();
        entries.end(dev, 0..self.pages(), proof);
        let blocks = core::mem::take(&mut entries.blocks);
        drop(entries);
        drop((held, blocks));
    }
}

impl Watcher for Area {
    fn changes(&self, event: &Event) -> bool {
        let mut entries = match event.may_sleep {
            true => self.entries.lock(),
            false => match self.entries.try_lock() {
                Some(entries) => entries,
                None => return false,
            },
        };
        entries.is_dead |= event.change == Change::End;
        let numbers = self.numbers(&event.range);
        if !entries.retract(numbers.clone()) {
            return true;
        }
        let device = self.space.access();
        let Some(guard) = device.optimistic.gate.enter() else {
            return true;
        };
        let hw = guard.hw();
        let proof = match event.may_sleep {
            true => Some(Proof::at_any_cost(device.tpt, hw)),
            false => Proof::if_idle(device.tpt),
        };
        let Some(proof) = proof else {
            // The entries stay retracted until the next notification.
            return false;
        };
        let ended = entries.end(guard.dev(), numbers, &proof);
        device.optimistic.count_ended(&self.space, ended);
        true
    }
}

impl Area {
    /// Enters `page` as page `number` into `entries`, if it may be. Replaces what is there. Returns true if
    /// that was nothing.
    ///
    /// # Errors
    ///
    /// `ESRCH` if the area has ended, `EINVAL` without a block for it, `EREMOTEIO` if the device cannot
    /// access the page.
    pub(super) fn enter(
        &self,
        entries: &mut Entries,
        (device, hw): (&DeviceAccess<'_>, Hw<'_>),
        number: usize,
        page: &Mapped<'_>,
    ) -> Result<bool> {
        if entries.is_dead {
            return Err(ESRCH);
        }
        let (block, place) = (number / IN_BLOCK, number % IN_BLOCK);
        let block = entries.blocks.get_mut(block).and_then(Option::as_mut);
        let block = block.ok_or(EINVAL)?;
        match block.enter(hw.dev(), place, page) {
            Err(EBUSY) => {}
            result => return result,
        }
        block.retract(place..place + 1);
        let proof = Proof::at_any_cost(device.tpt, hw);
        let ended = block.end(hw.dev(), place..place + 1, &proof);
        device.optimistic.count_ended(&self.space, ended);
        block.enter(hw.dev(), place, page)
    }

    /// Takes out up to `most` pages of the first block with some, from page `from` on: with `heeds_marks`
    /// those only that the device has not accessed since the last time. Returns their number, and the
    /// number of the page to go on from, which may be after the last.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` and `EIO` if the device does not answer; the pages go with the next change then.
    pub(super) fn evict(
        &self,
        (device, hw): (&DeviceAccess<'_>, Hw<'_>),
        from: usize,
        most: usize,
        heeds_marks: bool,
    ) -> Result<(usize, usize)> {
        // Notifications wait for it, and so for the device, as for that of another notification.
        let mut entries = self.entries.lock();
        let blocks = entries.blocks.iter_mut().enumerate();
        let mut used = blocks.skip(from / IN_BLOCK).filter_map(|(number, block)| {
            let block = block.as_mut().filter(|block| block.is_used())?;
            Some((number * IN_BLOCK, block))
        });
        let Some((start, block)) = used.next() else {
            return Ok((0, usize::MAX));
        };
        let places = from.max(start) - start..IN_BLOCK;
        let (retracted, next) = block.retract_idle(places.clone(), most, heeds_marks);
        let mut ended = 0;
        if retracted > 0 {
            let proof = Proof::of_retracted_pages(device.tpt, hw)?;
            ended = block.end(hw.dev(), places, &proof);
            device.optimistic.count_ended(&self.space, ended);
        }
        Ok((ended, start + next))
    }

    /// Returns the numbers of the pages in `range`, in bytes.
    fn numbers(&self, range: &Range<usize>) -> Range<usize> {
        let start = (range.start >> PAGE_SHIFT).max(self.range.start);
        // The end may be that of the address space.
        let end = (range.end.saturating_add(PAGE_SIZE - 1) >> PAGE_SHIFT).min(self.range.end);
        let base = self.range.start;
        start.max(base) - base..end.max(base) - base
    }
}

impl Entries {
    /// Passes each block with some of the pages `numbers` to `each`, with their places in it.
    fn for_each(
        &mut self,
        numbers: Range<usize>,
        mut each: impl FnMut(&mut OptimisticBlock, Range<usize>),
    ) {
        let mut next = numbers.start;
        while next < numbers.end {
            let start = next / IN_BLOCK * IN_BLOCK;
            let end = numbers.end.min(start + IN_BLOCK);
            if let Some(Some(block)) = self.blocks.get_mut(next / IN_BLOCK) {
                each(block, next - start..end - start);
            }
            next = end;
        }
    }

    /// Makes the entries of the pages `numbers` invalid. Returns true if the device may use some.
    fn retract(&mut self, numbers: Range<usize>) -> bool {
        let mut any = false;
        self.for_each(numbers, |block, places| any |= block.retract(places));
        any
    }

    /// Ends the DMA mappings of entries that were retracted. Returns their number.
    fn end(&mut self, dev: &Device<Bound>, numbers: Range<usize>, proof: &Proof) -> usize {
        let mut ended = 0;
        self.for_each(numbers, |block, places| {
            ended += block.end(dev, places, proof)
        });
        ended
    }
}
