// SPDX-License-Identifier: GPL-2.0

//! What an IOMMU lets the device do with pages: what their entries say, and no more.
//!
//! A page is mapped for reading, or for reading and writing. The rights of a mapping do not change,
//! so a page that was locked for reading and is to be written, too, is mapped once more. The device
//! may have found the old mapping in the entry and use it later, so it stays until the entry is taken
//! back, with the same [proof](super::Proof).
//!
//! Mapping can fail, and a lock that fails is to change nothing. So a lock first
//! [prepares](Tpt::prepare_writing) all that it needs, and then [gives](Tpt::allow) the rights.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*,
    rbtree::RBTree, //
};

use crate::{
    hw::layout::{
        page_flags,
        PageEntry, //
    },
    kernel_ext::dma::{
        self,
        Use, //
    },
    user_abi::access::Access, //
};

use super::{
    PageRun,
    Reachable,
    Tables,
    Tpt, //
};

impl From<Access> for Use {
    fn from(access: Access) -> Self {
        match access.write {
            true => Self::Write,
            false => Self::Read,
        }
    }
}

/// What the page is mapped for that a page entry with this word names.
pub(super) fn use_of(word: u64) -> Use {
    match word & page_flags::WRITE {
        0 => Use::Read,
        _ => Use::Write,
    }
}

/// One more mapping of some pages each, by page entry, and what it is for.
#[derive(Default)]
pub(super) struct SecondMappings(RBTree<u32, (DmaAddress, Use)>);

impl SecondMappings {
    /// Ends that of one entry, if there is one.
    pub(super) fn end(&mut self, dev: &Device<Bound>, index: u32) {
        if let Some((address, how)) = self.0.remove(&index) {
            dma::unmap_pinned(dev, address, how);
        }
    }

    fn end_all(&mut self, dev: &Device<Bound>, run: &PageRun) {
        for index in run.first..run.first + run.count {
            self.end(dev, index);
        }
    }
}

impl Tables {
    /// Gives an entry more rights; for writing, the page's second mapping is for that, and the
    /// first becomes the second.
    fn allow(&mut self, index: u32, access: Access) -> Result {
        let entry = self.pages.get(index)?;
        let mut word = entry.word;
        if access.write && use_of(word) == Use::Read {
            let second = self.second_mappings.0.get_mut(&index).ok_or(EINVAL)?;
            let first = (word & page_flags::ADDRESS_MASK, Use::Read);
            let (address, _) = core::mem::replace(second, first);
            word = word & !page_flags::ADDRESS_MASK | address;
        }
        word |= access.page_flags();
        self.pages.set(index, PageEntry { word, ..entry })
    }
}

impl Tpt {
    /// Maps pages, which are locked for reading only, for writing as well, so that [`Tpt::allow`] can
    /// give that right. The device is not told.
    ///
    /// # Errors
    ///
    /// Those of [`dma::map_pinned`], and `ENOMEM`; nothing has changed then.
    pub(crate) fn prepare_writing(&self, dev: &Device<Bound>, memory: &Reachable) -> Result {
        let run = memory.run();
        self.with(|tables| {
            let mut index = run.first;
            let second = &mut tables.second_mappings;
            let result = dma::map_pinned(dev, memory.pages(), Use::Write, |address| {
                let mapping = (address, Use::Write);
                second
                    .0
                    .try_create_and_insert(index, mapping, GFP_KERNEL_ACCOUNT)?;
                index += 1;
                Ok(())
            });
            result.inspect_err(|_| second.end_all(dev, run))
        })
    }

    /// Takes back what [`Tpt::prepare_writing`] did.
    pub(crate) fn forgo_writing(&self, dev: &Device<Bound>, run: &PageRun) {
        // Without tables nothing is mapped.
        let _ = self.with(|tables| {
            tables.second_mappings.end_all(dev, run);
            Ok(())
        });
    }

    /// Gives pages that are locked already more rights; for writing, once that was prepared.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it was not, `ENODEV` without tables.
    pub(crate) fn allow(&self, run: &PageRun, access: Access) -> Result {
        self.with(|tables| {
            let mut indices = run.first..run.first + run.count;
            indices.try_for_each(|index| tables.allow(index, access))
        })
    }
}
