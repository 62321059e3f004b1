// SPDX-License-Identifier: GPL-2.0

//! Pinning what a lock needs, without the space's lock: it faults memory in, which takes as long as
//! whoever provides the memory likes.
//!
//! The range is reserved meanwhile, so that a lock that needs the same pages waits for them rather
//! than pin and charge them twice; everything else goes on.

use kernel::{
    mm::MmWithUser,
    prelude::*,
    sync::Arc, //
};

use crate::{
    kernel_ext::{
        gup::PinnedPages,
        list::List, //
    },
    mem::charge::Charge,
    user_abi::{
        access::Access,
        ledger::Payer, //
    }, //
};

use super::{
    area::PinnedArea,
    map::Area,
    range::{
        gaps,
        PageRange, //
    },
    space::State,
    subscription::{
        Revalidator, //
        Subscription,
    }, //
};

/// What is to be locked.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The current process's.
    pub(super) mm: &'a MmWithUser,
    pub(super) range: PageRange,
    pub(super) access: Access,
}

/// Pins of a range that no area covers for sure.
pub(super) struct Fresh {
    pub(super) range: PageRange,
    subscription: Arc<Subscription>,
    pub(super) pages: PinnedPages,
}

/// An area that may be stale, and its origin's changes before the range was pinned anew.
struct InvalidatedRange {
    subscription: Arc<Subscription>,
    range: PageRange,
    changes: u64,
}

/// What has to be pinned for a lock.
pub(super) struct Plan {
    invalidated: List<InvalidatedRange>,
    /// What no area covers for sure.
    to_pin: List<PageRange>,
    /// Pages that no area covers.
    missing: usize,
}

/// What was pinned, and the charge for what no area had covered.
pub(super) struct Pins {
    pub(super) fresh: List<Fresh>,
    pub(super) charge: Charge,
}

impl Plan {
    pub(super) fn new(state: &State, wanted: &Wanted<'_>) -> Result<Self> {
        let range = wanted.range;
        let live = || state.map.live(range).map(|(_, area)| area);
        let valid = live().filter(|area| is_valid(area, wanted));
        let mut to_pin = List::Empty;
        for gap in gaps(range, valid.map(|area| area.range)) {
            to_pin.push(gap)?;
        }
        let covered = live().map(|area| area.range);
        Ok(Self {
            invalidated: state.invalidated(wanted)?,
            to_pin,
            missing: gaps(range, covered).map(|gap| gap.len()).sum(),
        })
    }

    /// The least range with all that has to be pinned; none if nothing has to.
    pub(super) fn range(&self) -> Option<PageRange> {
        let (first, last) = (self.to_pin.first()?, self.to_pin.last()?);
        Some(first.hull(Some(*last)))
    }

    /// Pins it; `wake` is for who is to look at its addresses once they change.
    ///
    /// # Errors
    ///
    /// Those of [`PinnedPages::pin`] and [`Charge::new`].
    pub(super) fn pin(
        &self,
        wanted: &Wanted<'_>,
        payer: &Arc<Payer>,
        revalidator: &Arc<dyn Revalidator>,
    ) -> Result<Pins> {
        let charge = Charge::new(wanted.mm, payer, self.missing)?;
        let mut fresh = List::Empty;
        for range in self.to_pin.iter().copied() {
            let subscription = Subscription::watch(wanted.mm, range, revalidator)?;
            let (start, write) = (range.address(), wanted.access.write);
            let pages = PinnedPages::pin(wanted.mm, start, range.len(), write)?;
            fresh.push(Fresh {
                range,
                subscription,
                pages,
            })?;
        }
        Ok(Pins { fresh, charge })
    }

    /// The lock was made: what was pinned anew is what areas have.
    pub(super) fn validate(&self) {
        for invalidated in self.invalidated.iter() {
            invalidated
                .subscription
                .validate(invalidated.range, invalidated.changes);
        }
    }
}

impl Pins {
    /// Nothing has to be pinned.
    pub(super) fn none(wanted: &Wanted<'_>, payer: &Arc<Payer>) -> Result<Self> {
        Ok(Self {
            fresh: List::Empty,
            charge: Charge::new(wanted.mm, payer, 0)?,
        })
    }

    /// Number of pages.
    pub(super) fn pages(&self) -> usize {
        self.fresh.iter().map(|fresh| fresh.pages.len()).sum()
    }

    /// Whether addresses may have changed that nobody has looked at.
    pub(super) fn needs_revalidation(&self) -> bool {
        self.fresh
            .iter()
            .any(|fresh| fresh.subscription.needs_revalidation())
    }
}

impl Fresh {
    /// Takes out the pins of `gap`; those before it, which areas have already, end.
    pub(super) fn take(&mut self, gap: PageRange) -> Result<(Arc<Subscription>, PinnedPages)> {
        let head = gap.start.checked_sub(self.range.start).ok_or(EINVAL)?;
        let mut pages = self.pages.split_off(head);
        let rest = pages.split_off(gap.len());
        if pages.len() != gap.len() {
            return Err(EINVAL);
        }
        self.pages = rest;
        self.range.start = gap.end;
        Ok((self.subscription.clone(), pages))
    }
}

/// Whether an area gives the rights that are wanted, and is for sure what is mapped there.
fn is_valid(area: &Area<PinnedArea>, wanted: &Wanted<'_>) -> bool {
    let common = area.range.intersection(&wanted.range);
    let common = common.unwrap_or(area.range);
    area.payload.access.covers(wanted.access) && !area.payload.subscription.is_invalidated(common)
}

impl State {
    /// The live areas in the range that may be stale, or lack rights.
    fn invalidated(&self, wanted: &Wanted<'_>) -> Result<List<InvalidatedRange>> {
        let mut invalidated = List::Empty;
        for (_, area) in self.map.live(wanted.range) {
            // What is pinned for reading says nothing of the right to write.
            let Some(range) = area
                .range
                .intersection(&wanted.range)
                .filter(|_| !is_valid(area, wanted))
                .filter(|_| wanted.access.write || !area.payload.access.write)
            else {
                continue;
            };
            let subscription = area.payload.subscription.clone();
            let changes = subscription.changes();
            invalidated.push(InvalidatedRange {
                subscription,
                range,
                changes,
            })?;
        }
        Ok(invalidated)
    }

    /// Whether areas, or what was pinned, still cover all that is wanted: others may have ended
    /// their locks while it was pinned, and addresses may have been found to mean other memory.
    pub(super) fn is_covered(&self, wanted: &Wanted<'_>, fresh: &[Fresh]) -> bool {
        let pinned = fresh.iter().map(|fresh| fresh.range);
        gaps(wanted.range, pinned).all(|gap| {
            let live = self.map.live(gap).map(|(_, area)| area);
            let usable = live.filter(|area| area.payload.access.covers(wanted.access));
            gaps(gap, usable.map(|area| area.range)).next().is_none()
        })
    }

    /// Whether others pin some of `range` now.
    pub(super) fn is_reserved(&self, range: &PageRange) -> bool {
        let mut reserved = self.reserved.iter();
        reserved.any(|other| other.intersection(range).is_some())
    }
}
