// SPDX-License-Identifier: GPL-2.0

//! The rights of DMA mappings, by which an IOMMU allows exactly what the page entries allow.
//!
//! A page is mapped for reading, or for reading and writing. The rights of a mapping do not change,
//! so a page that was pinned for reading and is to be written, too, is mapped a second time. The
//! device may have read the first mapping from the entry and use it later, so that mapping stays
//! until the entry is freed, with the same [proof](super::Proof).
//!
//! Mapping can fail, and a failed pin must change nothing. So a pin first
//! [prepares](Tpt::prepare_writing) all mappings, and then [gives](Tpt::allow) the rights.

use core::ops::Range;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    page::PAGE_SIZE,
    prelude::*,
    rbtree::RBTree, //
};

use crate::{
    hw::layout::{
        PageEntry,
        PageWord, //
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
        if access.write {
            Self::Write
        } else {
            Self::Read
        }
    }
}

/// Returns what the page is mapped for that a page entry with this word names.
pub(super) fn use_of(word: PageWord) -> Use {
    if word.contains(PageWord::WRITE) {
        Use::Write
    } else {
        Use::Read
    }
}

/// Second mappings of pages and their uses, by page entry.
#[derive(Default)]
pub(super) struct SecondMappings(RBTree<u32, (DmaAddress, Use)>);

impl SecondMappings {
    /// Ends the second mapping of an entry, if there is one.
    fn end(&mut self, dev: &Device<Bound>, index: u32) {
        if let Some((address, how)) = self.0.remove(&index) {
            dma::unmap_pinned(dev, address, how);
        }
    }

    /// Takes all mappings of `others` over.
    fn take_all(&mut self, others: &mut Self) {
        while let Some(cursor) = others.0.cursor_front_mut() {
            let (_, node) = cursor.remove_current();
            self.0.insert(node);
        }
    }

    /// Ends the second mappings of `entries`.
    pub(super) fn end_all(&mut self, dev: &Device<Bound>, entries: Range<u32>) {
        if !self.0.is_empty() {
            entries.for_each(|index| self.end(dev, index));
        }
    }
}

impl Tables {
    /// Gives an entry more rights. For writing, the second mapping of the page takes the place of
    /// the first.
    fn allow(&mut self, index: u32, access: Access) -> Result {
        let entry = self.pages.get(index)?;
        let mut word = entry.word;
        if access.write && use_of(word) == Use::Read {
            let second = self.second_mappings.0.get_mut(&index).ok_or(EINVAL)?;
            let first = (word.address(), Use::Read);
            let (address, _) = core::mem::replace(second, first);
            word = word.with_address(address);
        }
        word |= access.page_flags();
        self.pages.update(index, PageEntry { word, ..entry })
    }
}

impl Tpt {
    /// Maps pages that are pinned for reading also for writing, so that [`Tpt::allow`] can give
    /// that right. The entries do not change.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EREMOTEIO` if the device cannot access a page, `ENODEV` without tables; nothing
    /// has changed then.
    pub(crate) fn prepare_writing(&self, dev: &Device<Bound>, memory: &Reachable) -> Result {
        let run = memory.run();
        let mut index = run.first;
        let mut made = SecondMappings::default();
        let result = dma::map_pinned(dev, memory.pages(), Use::Write, |address, count| {
            for number in 0..count {
                let address = address + u64::try_from(number * PAGE_SIZE)?;
                let mapping = (address, Use::Write);
                // Not charged: the caller holds the lock of its address space.
                made.0.try_create_and_insert(index, mapping, GFP_KERNEL)?;
                index += 1;
            }
            Ok(())
        });
        let entered = result.and_then(|()| {
            self.with(|tables| {
                tables.second_mappings.take_all(&mut made);
                Ok(())
            })
        });
        entered.inspect_err(|_| made.end_all(dev, run.entries()))
    }

    /// Undoes [`Tpt::prepare_writing`].
    pub(crate) fn forgo_writing(&self, dev: &Device<Bound>, run: &PageRun) {
        // Without tables nothing is mapped.
        let _ = self.with(|tables| {
            tables.second_mappings.end_all(dev, run.entries());
            Ok(())
        });
    }

    /// Gives pages more rights; for writing, after that was prepared.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it was not prepared, `ENODEV` without tables.
    pub(crate) fn allow(&self, run: &PageRun, access: Access) -> Result {
        self.with(|tables| {
            run.entries()
                .try_for_each(|index| tables.allow(index, access))
        })
    }
}
