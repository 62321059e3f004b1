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
    /// Charges `pages` to `mm`, for which `payer` pays.
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it, `EDQUOT` beyond the limits of the
    /// user.
    pub(crate) fn new(mm: &MmWithUser, payer: &Arc<Payer>, pages: usize) -> Result<Self> {
        Ok(Self {
            memlock: accounting::Charge::new(mm, pages)?,
            entries: Share::new(payer, Resource::Pages, pages)?,
        })
    }

    /// Charges as much as `pages` pages lack, with the errors of [`Charge::new`].
    pub(crate) fn grow_to(&mut self, pages: usize) -> Result {
        let lacking = pages.saturating_sub(self.memlock.pages());
        self.memlock.grow(lacking)?;
        self.entries
            .grow(lacking)
            .inspect_err(|_| drop(self.memlock.split(lacking)))
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
