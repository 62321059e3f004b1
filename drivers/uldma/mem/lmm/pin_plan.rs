// SPDX-License-Identifier: GPL-2.0

//! Pinning of missing pages, without the lock of the space: faulting memory in may block for as
//! long as the provider of the memory (userfaultfd, FUSE) likes.
//!
//! The range is reserved meanwhile. A pin that needs the same pages waits for them, so that they
//! are not pinned and charged twice; everything else goes on.

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
    space::{
        Space,
        SpaceState, //
    },
    subscription::Subscription, //
};

/// The request of a pin.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The address space of the current process.
    pub(super) mm: &'a MmWithUser,
    pub(super) range: PageRange,
    pub(super) access: Access,
}

/// New pins of a range that no valid area covers.
pub(super) struct Fresh {
    pub(super) range: PageRange,
    pub(super) subscription: Subscription,
    pub(super) pages: PinnedPages,
}

/// An invalidated area, and the number of changes of its subscription before the range was pinned
/// again.
struct InvalidatedRange {
    subscription: Subscription,
    range: PageRange,
    changes: u64,
}

/// The pages that have to be pinned.
pub(super) struct Plan {
    invalidated: List<InvalidatedRange>,
    /// Ranges that no valid area covers.
    to_pin: List<PageRange>,
    /// Number of pages that no area covers.
    missing: usize,
    /// Number of those that other devices have pinned.
    shared: usize,
}

/// New pins, and the charge for pages that no area had covered.
pub(super) struct Pins {
    pub(super) fresh: List<Fresh>,
    /// None once it was taken.
    pub(super) charge: Option<Charge>,
}

impl Plan {
    pub(super) fn new(space: &Space, state: &SpaceState, wanted: &Wanted<'_>) -> Result<Self> {
        let range = wanted.range;
        // The most frequent case needs no more.
        if state.map.is_vacant(range) {
            return Ok(Self {
                invalidated: List::Empty,
                to_pin: List::One(range),
                missing: range.len(),
                shared: space.pinned_by_others(range),
            });
        }
        let live = || state.map.live(range).map(|(_, area)| area);
        let valid = live().filter(|area| is_valid(area, wanted));
        let mut to_pin = List::Empty;
        for gap in gaps(range, valid.map(|area| area.range)) {
            to_pin.push(gap)?;
        }
        let missing = || gaps(range, live().map(|area| area.range));
        Ok(Self {
            invalidated: state.invalidated(wanted)?,
            to_pin,
            missing: missing().map(|gap| gap.len()).sum(),
            shared: missing().map(|gap| space.pinned_by_others(gap)).sum(),
        })
    }

    /// Returns the smallest range with all pages to pin, if there are any.
    pub(super) fn range(&self) -> Option<PageRange> {
        let (first, last) = (self.to_pin.first()?, self.to_pin.last()?);
        Some(first.hull(Some(*last)))
    }

    /// Pins the pages, after `watch` has subscribed to the changes of their addresses.
    ///
    /// # Errors
    ///
    /// Those of [`Space::pin`](super::space::Space::pin): `EFAULT`, `EOPNOTSUPP`, `EPERM`,
    /// `ENOMEM`, `EDQUOT` and `EINTR`.
    pub(super) fn pin(
        &self,
        wanted: &Wanted<'_>,
        payer: &Arc<Payer>,
        watch: impl Fn(PageRange) -> Result<Subscription>,
    ) -> Result<Pins> {
        let charge = Charge::new(wanted.mm, payer, self.missing, self.shared)?;
        let mut fresh = List::Empty;
        for range in self.to_pin.iter().copied() {
            let subscription = watch(range)?;
            let (start, write) = (range.address(), wanted.access.write);
            let pages = PinnedPages::pin(wanted.mm, start, range.len(), write)?;
            fresh.push(Fresh {
                range,
                subscription,
                pages,
            })?;
        }
        Ok(Pins {
            fresh,
            charge: Some(charge),
        })
    }

    /// Notes that areas were compared with the new pins: those that are left are valid.
    pub(super) fn validate(&self) {
        for invalidated in self.invalidated.iter() {
            invalidated
                .subscription
                .validate(invalidated.range, invalidated.changes);
        }
    }
}

impl Pins {
    /// Returns no pins.
    pub(super) fn none(wanted: &Wanted<'_>, payer: &Arc<Payer>) -> Result<Self> {
        Ok(Self {
            fresh: List::Empty,
            charge: Some(Charge::new(wanted.mm, payer, 0, 0)?),
        })
    }

    /// Takes the pins out, if they were made at once, with the charge for them.
    pub(super) fn take_all(&mut self) -> Option<(Fresh, Charge)> {
        match core::mem::replace(&mut self.fresh, List::Empty) {
            List::One(fresh) => Some((fresh, self.charge.take()?)),
            _ => None,
        }
    }

    /// Returns the number of pages.
    pub(super) fn pages(&self) -> usize {
        self.fresh.iter().map(|fresh| fresh.pages.len()).sum()
    }

    /// Returns true if these are all pages of the request, pinned at once.
    pub(super) fn are_all_of(&self, wanted: &Wanted<'_>) -> bool {
        matches!(&self.fresh, List::One(fresh) if fresh.range == wanted.range)
    }

    /// Returns true if addresses were invalidated and not revalidated.
    pub(super) fn needs_revalidation(&self) -> bool {
        self.fresh
            .iter()
            .any(|fresh| fresh.subscription.needs_revalidation())
    }
}

impl Fresh {
    /// Takes the pins of `gap` out. Pins before it, which areas have already, are dropped.
    pub(super) fn take(&mut self, gap: PageRange) -> Result<(Subscription, PinnedPages)> {
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

/// Returns true if an area gives the requested rights and was not invalidated.
fn is_valid(area: &Area<PinnedArea>, wanted: &Wanted<'_>) -> bool {
    let common = area.range.intersection(&wanted.range);
    let common = common.unwrap_or(area.range);
    area.payload.access.covers(wanted.access) && !area.payload.subscription.is_invalidated(common)
}

impl SpaceState {
    /// Returns the live areas in the range that were invalidated or lack rights.
    fn invalidated(&self, wanted: &Wanted<'_>) -> Result<List<InvalidatedRange>> {
        let mut invalidated = List::Empty;
        for (_, area) in self.map.live(wanted.range) {
            // A pin for reading does not validate a right to write.
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

    /// Returns true if areas and new pins still cover the request. While it was pinned, areas may
    /// have been unpinned or gone stale.
    pub(super) fn is_covered(&self, wanted: &Wanted<'_>, fresh: &[Fresh]) -> bool {
        let pinned = fresh.iter().map(|fresh| fresh.range);
        gaps(wanted.range, pinned).all(|gap| {
            let live = self.map.live(gap).map(|(_, area)| area);
            let usable = live.filter(|area| area.payload.access.covers(wanted.access));
            gaps(gap, usable.map(|area| area.range)).next().is_none()
        })
    }

    /// Returns true if another caller pins some of `range` now.
    pub(super) fn is_reserved(&self, range: &PageRange) -> bool {
        let mut reserved = self.reserved.iter();
        reserved.any(|other| other.intersection(range).is_some())
    }
}
