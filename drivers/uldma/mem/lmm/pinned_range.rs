// SPDX-License-Identifier: GPL-2.0

//! Pinned ranges: what each has, and the report when it goes stale.

use kernel::prelude::*;

use crate::{
    hw::layout::Run,
    kernel_ext::list::List,
    mem::tpt::MAX_RUNS,
    user_abi::events::StaleTicket, //
};

use super::{
    area::PinnedArea,
    map::{
        Area,
        AreaMap, //
    },
    range::{
        pages_to_bytes,
        PageRange, //
    }, //
};

/// A part of a pinned range: pages with one pin id, and the first of their page entries.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) pin_id: u64,
    pub(super) range: PageRange,
    pub(super) first: u32,
}

impl Part {
    /// Returns the part that is a whole area.
    pub(super) fn of((pin_id, area): (u64, &Area<PinnedArea>)) -> Self {
        Self {
            pin_id,
            range: area.range,
            first: area.payload.memory.run().first,
        }
    }
}

/// Returns the parts of `range` that live areas cover, in order, without areas for which `skip`
/// returns true.
///
/// Adjacent areas with one pin id are one part.
pub(super) fn live_parts(
    map: &AreaMap<PinnedArea>,
    range: PageRange,
    skip: impl Fn(PageRange) -> bool,
) -> Result<List<Part>> {
    let mut parts: List<Part> = List::Empty;
    for (pin_id, area) in map.live(range) {
        if skip(area.range) {
            continue;
        }
        let full = parts.len() >= MAX_RUNS;
        match parts.last_mut() {
            Some(last) if last.pin_id == pin_id && last.range.end == area.range.start => {
                last.range.end = area.range.end;
            }
            _ if full => return Err(ENOSPC),
            _ => parts.push(Part::of((pin_id, area)))?,
        }
    }
    Ok(parts)
}

/// A pinned range, made by [`Space::pin`](super::space::Space::pin), and to be ended by
/// [`Space::unpin`](super::space::Space::unpin).
pub(crate) struct PinnedRange {
    /// The number of its record in the space.
    pub(super) number: u64,
    range: PageRange,
    runs: List<Run>,
    /// True if pages had to be pinned for it.
    pub(super) has_new_pins: bool,
}

impl PinnedRange {
    /// Returns true if pages had to be pinned for it.
    pub(crate) fn was_pinned(&self) -> bool {
        self.has_new_pins
    }

    /// Returns the pages.
    pub(super) fn range(&self) -> PageRange {
        self.range
    }

    /// The number under which the space knows it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the page entries of the range, in order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// The record that a space has of a pinned range.
pub(super) struct PinRecord {
    pub(super) parts: List<Part>,
    pub(super) stale: usize,
    /// Reports to the owner that the range went stale; none in the cache.
    pub(super) ticket: Option<StaleTicket>,
}

impl PinRecord {
    /// Returns the parts with pages in `range`, in order.
    pub(super) fn parts_in<'a>(&'a self, range: &'a PageRange) -> impl Iterator<Item = &'a Part> {
        let before = |part: &Part| part.range.end <= range.start;
        let parts = self.parts.iter().skip(self.parts.partition_point(before));
        parts.take_while(move |part| part.range.start < range.end)
    }

    /// Counts `pages` more stale pages and reports them, if there are any.
    pub(super) fn went_stale(&mut self, pages: usize) {
        if pages > 0 {
            self.stale += pages;
            if let Some(ticket) = &self.ticket {
                ticket.report(pages_to_bytes(self.stale));
            }
        }
    }
}

/// Creates pinned range `number` of `range` from `parts`, which are in order and cover it.
pub(super) fn make(
    number: u64,
    range: PageRange,
    parts: impl Iterator<Item = Part>,
) -> Result<(PinnedRange, PinRecord)> {
    let mut list = List::Empty;
    let mut runs = List::Empty;
    for part in parts {
        if list.len() >= MAX_RUNS {
            return Err(ENOSPC);
        }
        let run = Run {
            page: u32::try_from(part.range.start - range.start)?,
            first: part.first,
            count: u32::try_from(part.range.len())?,
            reserved: 0,
        };
        runs.push(run)?;
        list.push(part)?;
    }
    let pinned = PinnedRange {
        number,
        range,
        runs,
        has_new_pins: false,
    };
    let record = PinRecord {
        parts: list,
        stale: 0,
        ticket: None,
    };
    Ok((pinned, record))
}

/// Creates pinned range `number` of one `part`, which has `count` page entries, one for each page.
pub(super) fn of_one(number: u64, part: Part, count: u32) -> (PinnedRange, PinRecord) {
    let run = Run {
        page: 0,
        first: part.first,
        count,
        reserved: 0,
    };
    let pinned = PinnedRange {
        number,
        range: part.range,
        runs: List::One(run),
        has_new_pins: false,
    };
    let record = PinRecord {
        parts: List::One(part),
        stale: 0,
        ticket: None,
    };
    (pinned, record)
}

/// Merges two sorted lists of parts that have nothing in common.
pub(super) fn in_order(
    some: impl Iterator<Item = Part>,
    others: impl Iterator<Item = Part>,
) -> impl Iterator<Item = Part> {
    let (mut some, mut others) = (some.peekable(), others.peekable());
    core::iter::from_fn(move || match (some.peek(), others.peek()) {
        (Some(a), Some(b)) if a.range.start > b.range.start => others.next(),
        (Some(_), _) => some.next(),
        (None, _) => others.next(),
    })
}
