// SPDX-License-Identifier: GPL-2.0

//! The charge for pinned pages: `RLIMIT_MEMLOCK` of the address space, and page entries of its
//! user.

use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::Arc, //
};

use crate::{
    kernel_ext::accounting,
    user_abi::ledger::{
        Payer,
        Resource,
        Share, //
    }, //
};

/// Pages that are charged to an address space and its user; dropping it uncharges them.
pub(crate) struct Charge {
    memlock: accounting::Charge,
    entries: Share,
}

impl Charge {
    /// Charges `pages` to `mm`, for which `payer` pays. `RLIMIT_MEMLOCK` is charged without the
    /// `shared` pages that other devices have pinned.
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it, `EDQUOT` beyond the limits of the
    /// user.
    pub(crate) fn new(
        mm: &MmWithUser,
        payer: &Arc<Payer>,
        pages: usize,
        shared: usize,
    ) -> Result<Self> {
        Ok(Self {
            memlock: accounting::Charge::new(mm, pages.saturating_sub(shared))?,
            entries: Share::new(payer, Resource::Pages, pages)?,
        })
    }

    /// Returns true if it is the charge for exactly `pages` pages, to both.
    pub(crate) fn is_of(&self, pages: usize) -> bool {
        self.memlock.pages() == pages && self.entries.amount() == pages
    }

    /// Charges as much as `pages` pages lack, with the errors of [`Charge::new`].
    pub(crate) fn grow_to(&mut self, pages: usize) -> Result {
        let lacking = pages.saturating_sub(self.memlock.pages());
        self.memlock.grow(lacking)?;
        self.grow_entries_to(pages)
            .inspect_err(|_| drop(self.memlock.split(lacking)))
    }

    /// Charges the page entries that `pages` pages lack, to the user only.
    ///
    /// # Errors
    ///
    /// `EDQUOT` beyond the limits of the user.
    pub(crate) fn grow_entries_to(&mut self, pages: usize) -> Result {
        self.entries
            .grow(pages.saturating_sub(self.entries.amount()))
    }

    /// Splits off the charge for `pages` page entries, without `RLIMIT_MEMLOCK`.
    pub(crate) fn split_entries(&mut self, pages: usize) -> Self {
        Self {
            memlock: self.memlock.split(0),
            entries: self.entries.split(pages),
        }
    }

    /// Takes the charge for one page to `RLIMIT_MEMLOCK` from `other`, which charges it if it has
    /// none left.
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it.
    pub(crate) fn take_page(&mut self, other: &mut Self) -> Result {
        if other.memlock.pages() == 0 {
            other.memlock.grow(1)?;
        }
        other.memlock.leave(1);
        self.memlock.partake(1);
        Ok(())
    }

    /// Takes part in the charge that another device has made for one page.
    pub(crate) fn partake(&mut self) {
        self.memlock.partake(1);
    }

    /// Leaves the charge for `pages` pages to other devices that have them.
    pub(crate) fn leave(&mut self, pages: usize) {
        self.memlock.leave(pages);
    }

    /// Takes over the charge `other` of the same address space.
    pub(crate) fn join(&mut self, other: Self) {
        self.memlock.join(other.memlock);
        self.entries.join(other.entries);
    }

    /// Splits off the charge for `pages` pages, or for all if there are fewer.
    pub(crate) fn split(&mut self, pages: usize) -> Self {
        Self {
            memlock: self.memlock.split(pages),
            entries: self.entries.split(pages),
        }
    }
}
