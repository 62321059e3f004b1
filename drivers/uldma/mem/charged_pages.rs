// SPDX-License-Identifier: GPL-2.0

//! Pinned pages and their charge, which begin and end together.

use kernel::prelude::*;

use crate::kernel_ext::gup::PinnedPages;

use super::charge::Charge;

/// Pages that are pinned and charged; dropping it ends both.
pub(crate) struct ChargedPages {
    /// Dropped first, since only unpinned pages are uncharged.
    pages: PinnedPages,
    charge: Charge,
}

impl ChargedPages {
    /// Takes the charge for `pages` from `charge`, or what is lacking from the limits.
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it, `EDQUOT` beyond the limits of the
    /// user. The pages are unpinned then.
    pub(crate) fn new(pages: PinnedPages, charge: &mut Charge) -> Result<Self> {
        let count = pages.len();
        charge.grow_to(count)?;
        let charge = charge.split(count);
        Ok(Self { pages, charge })
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &PinnedPages {
        &self.pages
    }

    /// Notes that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.pages.set_writable();
    }

    /// Splits off what begins with page number `at`.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let pages = self.pages.split_off(at);
        let charge = self.charge.split(pages.len());
        Self { pages, charge }
    }

    /// Returns true if `next` was split off from this, and follows.
    pub(crate) fn can_join(&self, next: &Self) -> bool {
        self.pages.can_join(&next.pages)
    }

    /// Joins `next`, which [can be joined](Self::can_join).
    pub(crate) fn join(&mut self, mut next: Self) {
        let pages = next.pages.split_off(0);
        self.charge.join(next.charge.split(pages.len()));
        self.pages.join(pages);
    }
}
