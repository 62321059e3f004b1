// SPDX-License-Identifier: GPL-2.0

//! What a locked memory area consists of.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    access::Access,
    kernel_ext::{
        accounting::Charge,
        gup::PinnedPages, //
    },
    tpt::{
        PageRun,
        Tpt, //
    }, //
};

use super::{
    map::Payload,
    origin::Origin, //
};

/// Pages that are pinned, charged and entered in the page table.
pub(super) struct Pinned {
    /// Dropped to unpin; marks pages dirty if the device could write.
    pub(super) pages: PinnedPages,
    /// Dropped, after the pins, to give the pages back to the limit.
    charge: Charge,
    pub(super) access: Access,
    /// The page entries, in the same order.
    pub(super) run: PageRun,
    pub(super) origin: Arc<Origin>,
}

impl Pinned {
    /// Enters `pages`, which came from `origin`, in the page table by `enter`.
    pub(super) fn new(
        origin: Arc<Origin>,
        pages: PinnedPages,
        charge: Charge,
        access: Access,
        enter: impl FnOnce(&PinnedPages) -> Result<PageRun>,
    ) -> Result<Self> {
        let run = enter(&pages)?;
        Ok(Self {
            pages,
            charge,
            access,
            run,
            origin,
        })
    }

    /// Gives the pages the rights of one more lock.
    pub(super) fn allow(&mut self, access: Access, tpt: &Tpt) -> Result {
        if !self.access.covers(access) {
            tpt.allow(self.run, access)?;
            self.access.read |= access.read;
            self.access.write |= access.write;
            if access.write {
                self.pages.set_writable();
            }
        }
        Ok(())
    }
}

impl Payload for Pinned {
    fn split_off(&mut self, at: usize) -> Self {
        // A run has no more than `u32::MAX` pages.
        let (first, rest) = self.run.split(u32::try_from(at).unwrap_or(u32::MAX));
        self.run = first;
        let pages = self.pages.split_off(at);
        Self {
            charge: self.charge.split(pages.len()),
            pages,
            access: self.access,
            run: rest,
            origin: self.origin.clone(),
        }
    }

    fn can_join(&self, next: &Self) -> bool {
        self.access == next.access
            && self.run.can_join(next.run)
            && self.pages.can_join(&next.pages)
    }

    fn join(&mut self, next: Self) {
        self.run.count += next.run.count;
        self.pages.join(next.pages);
        self.charge.join(next.charge);
    }
}
