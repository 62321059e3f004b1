// SPDX-License-Identifier: GPL-2.0

//! Pages of the driver that the device can access.
//!
//! The table has a reference to each, and the charge for them. It ends the reference to a page with
//! the entry, or when the entry names another page, but not before an invalidation has completed.

use core::ops::Range;

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

/// The pages of a run of entries, in the same order.
pub(super) struct OwnPages {
    pages: KVVec<Arc<SharedPage>>,
    _charge: Arc<Charge>,
}

impl Tables {
    /// Returns the place of page `number` of the run that begins at entry `first`, the entry of which
    /// was retracted.
    fn own_page(&mut self, first: u32, number: u32, _: &Proof) -> Result<&mut Arc<SharedPage>> {
        let own = self.taken_runs.get_mut(&first).ok_or(EINVAL)?.own.as_mut();
        let page = own.ok_or(EINVAL)?.pages.get_mut(usize::try_from(number)?);
        page.ok_or(EINVAL)
    }

    /// Lets an entry name another address, with the same rights.
    fn set_address(&mut self, index: u32, address: DmaAddress) -> Result {
        let entry = self.pages.get(index)?;
        let word = entry.word.with_address(address);
        self.pages.set(index, PageEntry { word, ..entry })
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
                let entry = PageEntry {
                    word: PageWord::of_address(page.map(dev)?) | flags,
                    space,
                    region: 0,
                };
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

    /// Lets entries of the run that begins at entry `first` name other pages, given by their numbers
    /// in the run. The device does not use the former pages any more when this returns.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EREMOTEIO` if the device cannot access a page; `ETIMEDOUT` if it does not answer;
    /// `ENODEV` without tables. Nothing has changed then.
    pub(crate) fn replace_pages(
        &self,
        hw: Hw<'_>,
        first: u32,
        pages: &[(u32, Arc<SharedPage>)],
    ) -> Result {
        let mut mapped = KVVec::with_capacity(pages.len(), GFP_KERNEL_ACCOUNT)?;
        let result = pages.iter().try_for_each(|(number, page)| {
            let address = page.map(hw.dev())?;
            // There is room for all.
            let _ = mapped.push_within_capacity((first + number, address));
            Ok(())
        });
        let result = result.and_then(|()| {
            let entries = || mapped.iter().map(|(index, _)| *index);
            self.change_entries(hw, entries, |tables, proof| {
                for ((number, page), (index, address)) in pages.iter().zip(&mapped) {
                    let old = tables.pages.get(*index)?.word.address();
                    tables.set_address(*index, *address)?;
                    dma::unmap(hw.dev(), old);
                    *tables.own_page(first, *number, proof)? = page.clone();
                }
                Ok(())
            })
        });
        if result.is_err() {
            // The device has not read these addresses.
            let addresses = mapped.iter().map(|(_, address)| *address);
            addresses.for_each(|address| dma::unmap(hw.dev(), address));
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
        let (ones, others) = (numbers.clone(), places.clone());
        let entries = || {
            let others = others.clone().map(|place| other + place);
            Iterator::chain(ones.clone().map(|number| one + number), others)
        };
        self.change_entries(hw, entries, |tables, proof| {
            for (number, place) in numbers.zip(places) {
                let page = tables.own_page(one, number, proof)?.clone();
                let page = core::mem::replace(tables.own_page(other, place, proof)?, page);
                *tables.own_page(one, number, proof)? = page;
                let (index, partner) = (one + number, other + place);
                let (entry, old) = (tables.pages.get(index)?, tables.pages.get(partner)?);
                tables.set_address(index, old.word.address())?;
                tables.set_address(partner, entry.word.address())?;
            }
            Ok(())
        })
    }

    /// Calls `change` while the device cannot use page entries. It has to write them all.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `ENODEV` without tables: the entries are as
    /// before.
    fn change_entries<I: Iterator<Item = u32>>(
        &self,
        hw: Hw<'_>,
        entries: impl Fn() -> I,
        change: impl FnOnce(&mut Tables, &Proof) -> Result,
    ) -> Result {
        self.with(|tables| {
            entries().for_each(|index| tables.pages.retract(index));
            Ok(())
        })?;
        let result = Proof::of_retracted_pages(self, hw);
        self.with(|tables| match result {
            Ok(proof) => change(tables, &proof),
            Err(err) => {
                for index in entries() {
                    let entry = tables.pages.get(index)?;
                    tables.pages.set(index, entry)?;
                }
                Err(err)
            }
        })
    }

    /// Frees page entries that no region has named, so that the device has not read them.
    pub(crate) fn forget_pages(&self, dev: &Device<Bound>, run: &PageRun) {
        self.remove_pages(dev, run);
    }
}
