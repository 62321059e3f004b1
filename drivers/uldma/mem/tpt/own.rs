// SPDX-License-Identifier: GPL-2.0

//! Pages of the driver that the device can access.
//!
//! The table has a reference to each, and the charge for them. It ends the reference to a page with
//! the entry, or when the entry names another page, but not before an invalidation has completed.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

use crate::{
    hw::layout::{
        PageEntry,
        PageWord, //
    },
    kernel_ext::dma::SharedPage,
    mem::charge::Charge,
    user_abi::access::Access, //
};

use super::{
    PageRun,
    Tpt, //
};

/// The pages of a run of entries, in the same order.
pub(super) struct OwnPages {
    _pages: KVVec<Arc<SharedPage>>,
    _charge: Charge,
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
        charge: Charge,
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
                _pages: pages,
                _charge: charge,
            };
            tables.own_pages(&run, own);
            // The memory is reserved, so this does not fail; if it did, the entries would stay
            // invalid.
            tables.pages.publish(run.first, run.count)?;
            Ok(run)
        })
    }

    /// Frees page entries that no region has named, so that the device has not read them.
    pub(crate) fn forget_pages(&self, dev: &Device<Bound>, run: &PageRun) {
        self.remove_pages(dev, run);
    }
}
