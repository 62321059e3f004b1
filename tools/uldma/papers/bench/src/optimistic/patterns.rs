// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads of pages by patterns: what is missed where the device knows few pages, and what is pinned if each page that was
//! missed is pinned.

use super::memory::{Way, PAGE};
use super::owner::Order;
use super::places::{Pattern, Places};
use super::session::{Direction, Session, LONGEST};
use crate::failure::Failure;
use crate::figure::Figures;

/// Pages of the region.
const PAGES: usize = 4096;
/// Reads that do not count, and then those that do. Before, each page is read once.
const READS: usize = 4096;
/// Pages of the region whose pages are pinned one by one, and between two readings of what is pinned.
const PINNED_PAGES: usize = 512;
const PINNED_READS: usize = 256;

/// Adds `opt.entries.PATTERN`, the part of the reads of one page that missed it, in which a page that was missed comes by
/// its hint, and `.exceptions`, `.requests`, `.filled` and `.evicted`, by read.
pub(super) fn entries(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    for pattern in Pattern::ALL {
        let far = session.open(Way::AtOnce, PAGES, true)?;
        for page in (0..PAGES).step_by(LONGEST) {
            let (far, place) = (far.import(), (page * PAGE, LONGEST * PAGE));
            session.mover.until_whole(far, Direction::Read, place)?;
        }
        let mut places = Places::new(pattern, PAGES);
        let (mut missed, mut exceptions) = (0, 0);
        let mut before = session.counts()?;
        for number in 0..2 * READS {
            if number == READS {
                (missed, exceptions) = (0, 0);
                before = session.counts()?;
            }
            let Some(page) = places.next() else { break };
            let (far, place) = (far.import(), (page * PAGE, PAGE));
            let tries = session.mover.until_whole(far, Direction::Read, place)?;
            missed += u32::from(tries > 0);
            exceptions += tries;
        }
        let counts = session.counts()?.since(&before);
        session.close(far)?;
        let name = format!("opt.entries.{}", pattern.name());
        let reads = READS as f64;
        figures.add(name.clone(), f64::from(missed) / reads, "part");
        for (what, count) in [
            ("exceptions", f64::from(exceptions)),
            ("requests", counts.requests),
            ("filled", counts.filled),
            ("evicted", counts.evicted),
        ] {
            figures.add(format!("{name}.{what}"), count / reads, "count");
        }
    }
    Ok(())
}

/// Reads each page of a pinned region once, and then `reads` of them by a pattern. The device counts.
pub(super) fn translations(
    session: &mut Session<'_>,
    pattern: Pattern,
    reads: usize,
) -> Result<(), Failure> {
    let far = session.open(Way::Pinned, PAGES, true)?;
    for page in (0..PAGES).chain(Places::new(pattern, PAGES).take(reads)) {
        let place = (page * PAGE, PAGE);
        session.mover.once(far.import(), Direction::Read, place)?;
    }
    session.close(far)
}

/// Adds `opt.u-net.PATTERN.READS`, the pages that are pinned after so many reads if the owner pins each page at its first
/// miss, more than before, and `opt.u-net.PATTERN.exceptions`.
pub(super) fn pinned_at_miss(
    session: &mut Session<'_>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    for pattern in Pattern::ALL {
        let unpinned = session.counts()?.pinned.0;
        let far = session.open(Way::AtOnce, PINNED_PAGES, true)?;
        let mut places = Places::new(pattern, PINNED_PAGES);
        let name = format!("opt.u-net.{}", pattern.name());
        let mut exceptions = 0;
        for reads in (0..=4 * PINNED_READS).step_by(PINNED_READS) {
            let pins = session.counts()?.pinned.0 - unpinned;
            figures.add(format!("{name}.{reads}"), pins, "pages");
            if reads == 4 * PINNED_READS {
                break;
            }
            for page in places.by_ref().take(PINNED_READS) {
                let (far, place) = (&far, (page * PAGE, PAGE));
                let (_, whole) = session.mover.once(far.import(), Direction::Read, place)?;
                if whole {
                    continue;
                }
                exceptions += 1;
                let name = far.name;
                session.order(&Order::Pin { name, page })?;
                session
                    .mover
                    .until_whole(far.import(), Direction::Read, place)?;
            }
        }
        figures.add(format!("{name}.exceptions"), f64::from(exceptions), "count");
        session.close(far)?;
    }
    Ok(())
}
