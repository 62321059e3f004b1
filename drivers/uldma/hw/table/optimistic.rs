// SPDX-License-Identifier: GPL-2.0

//! A block of page entries of an area that nothing pins.
//!
//! The lock of the area protects it, so that notifications of the memory manager need none of the table.

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
    prelude::*, //
};

use crate::kernel_ext::{
    compat::{
        dma_address,
        dma_read,
        dma_write, //
    },
    hmm::{
        DmaMapping,
        Mapped, //
    }, //
};

use super::{
    Entry,
    Table, //
};
use crate::hw::{
    layout::{
        PageEntry,
        PageWord, //
    },
    touch::Fenced, //
};

/// An entry, as the driver knows it.
enum Own {
    /// There is no page.
    Empty,
    /// The device may use the page.
    Valid(DmaMapping),
    /// The device does not find the page any more, but may still use it.
    Retracted(DmaMapping),
}

/// A block of entries without pages, for all blocks of an area of which none has been entered yet.
pub(crate) struct AbsentBlock {
    shared: Coherent<[PageEntry]>,
    entry: PageEntry,
}

impl AbsentBlock {
    /// Creates a block of entries of `space`, with `rights`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>, space: u32, rights: PageWord) -> Result<Self> {
        let entry = PageEntry::new(PageWord::OPTIMISTIC | rights, space, 0)?;
        let shared = absent_entries(dev, entry)?;
        Ok(Self { shared, entry })
    }

    /// Bus address of the block.
    pub(crate) fn address(&self) -> DmaAddress {
        dma_address(&self.shared)
    }
}

fn absent_entries(dev: &Device<Bound>, absent: PageEntry) -> Result<Coherent<[PageEntry]>> {
    let entries = Coherent::zeroed_slice(dev, OptimisticBlock::ENTRIES, GFP_KERNEL)?;
    for place in 0..OptimisticBlock::ENTRIES {
        absent.publish(&entries, place)?;
    }
    Ok(entries)
}

/// A block whose entries come and go with the pages that are mapped in a process.
pub(crate) struct OptimisticBlock {
    /// The copy that the device reads.
    shared: Coherent<[PageEntry]>,
    own: KVec<Own>,
    /// Number of entries that are not empty.
    used: usize,
    /// An entry without a page.
    absent: PageEntry,
}

impl OptimisticBlock {
    /// Entries of a block.
    pub(crate) const ENTRIES: usize = Table::<PageEntry>::PER_BLOCK;

    /// Creates a block to be used instead of `absent`, with the same entries.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>, absent: &AbsentBlock) -> Result<Self> {
        let mut own = KVec::with_capacity(Self::ENTRIES, GFP_KERNEL)?;
        for _ in 0..Self::ENTRIES {
            own.push(Own::Empty, GFP_KERNEL)?;
        }
        Ok(Self {
            shared: absent_entries(dev, absent.entry)?,
            own,
            used: 0,
            absent: absent.entry,
        })
    }

    /// Bus address of the block.
    pub(crate) fn address(&self) -> DmaAddress {
        dma_address(&self.shared)
    }

    /// Returns true if some entry is not empty.
    pub(crate) fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Enters `page` at `place`. If that has it already, nothing happens, and this returns false.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is another page, or the same with fewer rights; it has to be
    /// [retracted](Self::retract) and [ended](Self::end) first. `EREMOTEIO` if the device cannot access
    /// the page, `EINVAL` without such a place.
    pub(crate) fn enter(
        &mut self,
        dev: &Device<Bound>,
        place: usize,
        page: &Mapped<'_>,
    ) -> Result<bool> {
        let own = self.own.get_mut(place).ok_or(EINVAL)?;
        let may_write = self.absent.word.contains(PageWord::WRITE);
        match own {
            Own::Empty => {}
            Own::Valid(it)
                if it.is_of(page) && it.is_writable() == (may_write && page.is_writable) =>
            {
                return Ok(false)
            }
            Own::Valid(_) | Own::Retracted(_) => return Err(EBUSY),
        }
        let mapping = page.map(dev, may_write)?;
        let read_only = PageWord::READ_ONLY.when(may_write && !mapping.is_writable());
        let flags = self.absent.word | PageWord::VALID | read_only;
        let entry = PageEntry {
            word: flags.with_address(mapping.address),
            ..self.absent
        };
        *own = Own::Valid(mapping);
        self.used += 1;
        entry.publish(&self.shared, place)?;
        Ok(true)
    }

    /// Makes up to `most` valid entries of `places` invalid; with `heeds_marks` those only whose pages the
    /// device has not accessed since the last time, which is noted for the others. Returns how many may
    /// still be used until they are [fenced](Fenced), and the place to go on from.
    pub(crate) fn retract_idle(
        &mut self,
        places: Range<usize>,
        most: usize,
        heeds_marks: bool,
    ) -> (usize, usize) {
        let mut retracted = 0;
        for place in places.clone() {
            if retracted == most {
                return (retracted, place);
            }
            let Some(Own::Valid(mapping)) = self.own.get(place) else {
                continue;
            };
            if heeds_marks && self.used_by_device(place).0 {
                // Later accesses mark it anew.
                let _ = self.clear_mark(place);
                mapping.accessed();
            } else {
                retracted += usize::from(self.retract(place..place + 1));
            }
        }
        (retracted, places.end)
    }

    /// Returns true if the device has accessed a valid page of `places` since that was `forgotten` for the
    /// last time.
    pub(crate) fn was_accessed(&self, places: Range<usize>, forgotten: bool) -> bool {
        let mut accessed = false;
        if self.used == 0 {
            return accessed;
        }
        for place in places {
            let is_valid = matches!(self.own.get(place), Some(Own::Valid(_)));
            if is_valid && self.used_by_device(place).0 {
                accessed = true;
                if forgotten {
                    // The place is inside of the block. Later accesses mark it anew.
                    let _ = self.clear_mark(place);
                }
            }
        }
        accessed
    }

    fn clear_mark(&self, place: usize) -> Result {
        dma_write!(self.shared, [try: place].accessed, 0);
        Ok(())
    }

    /// Makes the entries of `places` invalid. Returns true if the device may use pages of some, until it
    /// is [fenced](Fenced).
    pub(crate) fn retract(&mut self, places: Range<usize>) -> bool {
        let mut any = false;
        if self.used == 0 {
            return any;
        }
        for place in places {
            let Some(own) = self.own.get_mut(place) else {
                break;
            };
            match core::mem::replace(own, Own::Empty) {
                Own::Empty => continue,
                Own::Valid(mapping) | Own::Retracted(mapping) => *own = Own::Retracted(mapping),
            }
            // The place is inside of the block.
            let _ = self.write_word(place, self.absent.word);
            any = true;
        }
        any
    }

    /// Ends the DMA mappings of the entries of `places` that were retracted, which are empty then. Their
    /// pages are marked as the device has used them. Returns the number of pages.
    pub(crate) fn end(
        &mut self,
        dev: &Device<Bound>,
        places: Range<usize>,
        _: &impl Fenced,
    ) -> usize {
        let mut ended = 0;
        for place in places {
            let Some(own @ Own::Retracted(_)) = self.own.get_mut(place) else {
                continue;
            };
            if let Own::Retracted(mapping) = core::mem::replace(own, Own::Empty) {
                let (accessed, dirty) = self.used_by_device(place);
                // The device writes what it may write only, whatever it says.
                let written = dirty && mapping.is_writable();
                mapping.end(dev, accessed, written);
                ended += 1;
            }
        }
        self.used -= ended;
        ended
    }

    fn write_word(&self, place: usize, word: PageWord) -> Result {
        dma_write!(self.shared, [try: place].word.0, word.bits());
        Ok(())
    }

    /// Returns whether the device has accessed a page, and whether it has written it.
    fn used_by_device(&self, place: usize) -> (bool, bool) {
        let read = || -> Result<(bool, bool)> {
            let accessed = dma_read!(self.shared, [try: place].accessed);
            let dirty = dma_read!(self.shared, [try: place].dirty);
            Ok((accessed != 0, dirty != 0))
        };
        // The place is inside of the block.
        read().unwrap_or((true, true))
    }
}
