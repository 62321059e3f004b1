// SPDX-License-Identifier: GPL-2.0

//! Pinned pages and their charge, which begin and end together.
//!
//! Pages that several devices have are pinned and charged once. Each device has its own
//! [`ChargedPages`], and the last one unpins and uncharges them.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::kernel_ext::{
    gup::PinnedPages,
    shared_pins::SharedPins, //
};

use super::charge::Charge;

/// Pages that are pinned and charged; dropping it ends both.
pub(crate) struct ChargedPages {
    /// Dropped first.
    pages: PinnedPages,
    charge: Charge,
}

impl ChargedPages {
    /// Takes the charge for `pages` from `charge`, or what is lacking from the limits. With
    /// `shared`, pages that other devices have pinned already are pinned and charged by them.
    ///
    /// # Errors
    ///
    /// `EPERM` if `RLIMIT_MEMLOCK` is 0, `ENOMEM` beyond it or without memory, `EDQUOT` beyond the
    /// limits of the user. The pages are unpinned then.
    pub(crate) fn new(
        pages: PinnedPages,
        charge: &mut Charge,
        shared: Option<&Arc<SharedPins>>,
    ) -> Result<Self> {
        let count = pages.len();
        let Some(shared) = shared else {
            charge.grow_to(count)?;
            let charge = charge.split(count);
            return Ok(Self { pages, charge });
        };
        charge.grow_entries_to(count)?;
        let mut this = Self {
            pages,
            charge: charge.split_entries(count),
        };
        let Self { pages, charge: own } = &mut this;
        // Each page is charged before others find it, as they rely on its charge.
        pages.share(shared, |new| {
            if new {
                own.take_page(charge)
            } else {
                own.partake();
                Ok(())
            }
        })?;
        Ok(this)
    }

    /// Creates the object of `pages`, for which `charge` was made, and of nothing else; otherwise
    /// as [`ChargedPages::new`].
    ///
    /// # Errors
    ///
    /// Those of [`ChargedPages::new`].
    pub(crate) fn all_of(
        pages: PinnedPages,
        mut charge: Charge,
        shared: Option<&Arc<SharedPins>>,
    ) -> Result<Self> {
        if shared.is_none() && charge.is_of(pages.len()) {
            return Ok(Self { pages, charge });
        }
        Self::new(pages, &mut charge, shared)
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &PinnedPages {
        &self.pages
    }

    /// Notes that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.pages.set_writable();
    }

    /// Notes that the pages are marked as dirty, and are so until they are unpinned.
    pub(crate) fn set_clean(&mut self) {
        self.pages.set_clean();
    }

    /// Shares the pins with other devices from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing has changed then.
    pub(crate) fn share(&mut self, shared: &Arc<SharedPins>) -> Result {
        self.pages.share_with_pins(shared)
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

impl Drop for ChargedPages {
    fn drop(&mut self) {
        let count = self.pages.len();
        let ended = self.pages.unpin();
        // The rest is still pinned for other devices.
        self.charge.leave(count - ended);
    }
}
