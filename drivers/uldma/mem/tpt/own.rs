// SPDX-License-Identifier: GPL-2.0

//! Pages of the driver that the device can access.
//!
//! The table has a reference to each, and the charge for them. It ends the reference to a page with
//! the entry, or when the entry names another page, but not before an invalidation has completed.

use core::{
    iter::zip,
    ops::Range, //
};

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*,
    sync::Arc, //
};

use crate::{
    hw::{
        layout::{
            PageEntry,
            PageWord, //
        },
        Hw, //
    },
    kernel_ext::dma::{
        self,
        SharedPage, //
    },
    mem::charge::Charge,
    user_abi::access::Access, //
};

use super::{
    PageRun,
    Proof,
    Tables,
    Tpt, //
};

/// Returns the entry of page `number` of the run that begins at entry `first`, as a run.
fn entry(first: u32, number: u32) -> Range<u32> {
    let index = first.saturating_add(number);
    index..index.saturating_add(1)
}

/// The pages of a run of entries, in the same order.
pub(super) struct OwnPages {
    pages: KVVec<Arc<SharedPage>>,
    _charge: Arc<Charge>,
}

impl OwnPages {
    /// Returns the place of a page, by its number in the run.
    fn place(&mut self, number: u32) -> Result<&mut Arc<SharedPage>> {
        let place = self.pages.get_mut(usize::try_from(number)?);
        place.ok_or(EINVAL)
    }
}

impl Tables {
    /// Exchanges `page`, which is mapped, with page `number` of the run that begins at entry
    /// `first`, which was retracted.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the run has no such page; nothing has changed then.
    fn exchange(&mut self, first: u32, number: u32, page: &mut Mapped, _: &Proof) -> Result {
        let index = first.checked_add(number).ok_or(EINVAL)?;
        let entry = self.pages.get(index)?;
        let word = entry.word.with_address(page.address);
        let run = self.taken_runs.get_mut(&first).ok_or(EINVAL)?;
        let own = run.own.as_mut().ok_or(EINVAL)?;
        let place = own.place(number)?;
        self.pages.update(index, PageEntry { word, ..entry })?;
        core::mem::swap(place, &mut page.page);
        page.address = entry.word.address();
        Ok(())
    }
}

/// A page of the driver and its bus address.
struct Mapped {
    page: Arc<SharedPage>,
    address: DmaAddress,
}

/// Pages for [`Tpt::replace_pages`], by their numbers in the run: what a process pays for, which may
/// make that process sleep.
pub(crate) struct NewPages {
    pages: KVVec<(u32, Arc<SharedPage>)>,
    mapped: KVVec<Mapped>,
}

impl NewPages {
    /// Allocates room for `count` pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn with_capacity(count: usize) -> Result<Self> {
        Ok(Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            mapped: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Returns for how many pages there is room.
    pub(crate) fn room(&self) -> usize {
        self.pages.capacity().min(self.mapped.capacity())
    }

    /// Adds the page that page `number` of the run becomes.
    ///
    /// # Errors
    ///
    /// `EINVAL` without room for it.
    pub(crate) fn add(&mut self, number: u32, page: Arc<SharedPage>) -> Result {
        let added = self.pages.push_within_capacity((number, page));
        added.map_err(|_| EINVAL)
    }
}

impl Tpt {
    /// Maps `pages`, for which `charge` is paid, and gives each a page entry of `space`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table is full, `ENOMEM`, `EREMOTEIO` if the device cannot access a page,
    /// `ENODEV` without tables.
    pub(crate) fn add_own_pages(
        &self,
        dev: &Device<Bound>,
        pages: KVVec<Arc<SharedPage>>,
        charge: Arc<Charge>,
        space: u32,
    ) -> Result<PageRun> {
        let flags = PageWord::VALID | Access::ALL.page_flags();
        self.with(|tables| {
            let run = tables.take_run(dev, u32::try_from(pages.len())?)?;
            let result = run.entries().zip(&pages).try_for_each(|(index, page)| {
                let word = PageWord::of_address(page.map(dev)?) | flags;
                let entry = PageEntry::new(word, space, 0)?;
                tables.pages.prepare(index, 1, entry)
            });
            if let Err(err) = result {
                tables.drop_run(dev, &run);
                return Err(err);
            }
            let own = OwnPages {
                pages,
                _charge: charge,
            };
            tables.own_pages(&run, own);
            // The memory is reserved, so this does not fail; if it did, the entries would stay
            // invalid.
            tables.pages.publish(run.first, run.count)?;
            Ok(run)
        })
    }

    /// Lets entries of the run that begins at entry `first` name other pages. The device does not
    /// use the former pages any more when this returns.
    ///
    /// # Errors
    ///
    /// `EREMOTEIO` if the device cannot access a page; `ETIMEDOUT` if it does not answer; `ENODEV`
    /// without tables. Nothing has changed then.
    pub(crate) fn replace_pages(
        &self,
        hw: Hw<'_>,
        first: u32,
        NewPages { pages, mut mapped }: NewPages,
    ) -> Result {
        let result = pages.iter().try_for_each(|(_, page)| {
            let page = Mapped {
                address: page.map(hw.dev())?,
                page: page.clone(),
            };
            // There is room for all.
            let _ = mapped.push_within_capacity(page);
            Ok(())
        });
        let result = result.and_then(|()| {
            let runs = |each: &mut dyn FnMut(_)| {
                for (number, _) in &pages {
                    each(entry(first, *number));
                }
            };
            self.change_entries(hw, &runs, |tables, proof| {
                let mut all = zip(&pages, &mut mapped);
                all.try_for_each(|((number, _), page)| {
                    tables.exchange(first, *number, page, &proof)
                })
            })
        });
        // The former pages, and without the exchange the new ones, which the device has not read.
        for page in &mapped {
            dma::unmap(hw.dev(), page.address);
        }
        result
    }

    /// Exchanges pages between entries, given by the first entry of their runs and numbers in them.
    /// The device does not use a page by its former entry any more when this returns.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; `ENODEV` without tables. Nothing has changed then.
    pub(crate) fn swap_pages(
        &self,
        hw: Hw<'_>,
        (one, numbers): (u32, Range<u32>),
        (other, places): (u32, Range<u32>),
    ) -> Result {
        let runs = |each: &mut dyn FnMut(_)| {
            each(one + numbers.start..one + numbers.end);
            each(other + places.start..other + places.end);
        };
        self.change_entries(hw, &runs, |tables, proof| {
            for (number, place) in zip(numbers.clone(), places.clone()) {
                let run = tables.taken_runs.get_mut(&other).ok_or(EINVAL)?;
                let own = run.own.as_mut().ok_or(EINVAL)?;
                let mut page = Mapped {
                    page: own.place(place)?.clone(),
                    address: tables.pages.get(other + place)?.word.address(),
                };
                tables.exchange(one, number, &mut page, &proof)?;
                tables.exchange(other, place, &mut page, &proof)?;
            }
            Ok(())
        })
    }

    /// Frees page entries that no region has named, so that the device has not read them.
    pub(crate) fn forget_pages(&self, dev: &Device<Bound>, run: &PageRun) {
        self.remove_pages(dev, run);
    }
}
