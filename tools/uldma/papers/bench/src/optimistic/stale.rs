// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads of a file that is about as large as the memory that its owner may have, by the peer alone.

use super::memory::{Origin, Way, PAGE};
use super::owner::{Order, Report};
use super::places::{Pattern, Places};
use super::session::{Direction, Far, Mover, Session, LONGEST};
use crate::failure::Failure;
use crate::figure::Figures;

/// Bytes of memory that the owner may have.
const MEMORY: usize = 32 << 20;
/// Sizes of the file, in hundredths of that.
const SIZES: [usize; 6] = [50, 75, 90, 100, 105, 115];
const PATTERNS: [Pattern; 2] = [Pattern::Uniform, Pattern::Zipf];
/// Pages of a read.
const PAGES: usize = 2;
/// Reads that count. Before, all places of the file are read, and then as many as it has by the pattern.
const READS: usize = 4096;
/// How often a read is tried again at most, and one of pages of which some may be on the disk.
const RETRIES: usize = 10_000;
const FEW_RETRIES: usize = 500;

/// Adds `opt.stale.PATTERN.SIZE`, the part of the reads that were exceptions, the size of the file in hundredths of the
/// owner's memory; `.absent`, that of the pages that had left the memory, too; `.reads`. The owner reads such a page when a
/// message asks it to.
pub(super) fn measure(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    for pattern in PATTERNS {
        for size in SIZES {
            let pages = MEMORY / 100 * size / (PAGE * PAGES) * PAGES;
            let far = session.open_of(Origin::FastDisk, Way::AtOnce, pages, false)?;
            session.order(&Order::Confine {
                bytes: Some(MEMORY as u64),
            })?;
            let name = far.name;
            session.order(&Order::Touch {
                name,
                page: 0,
                pages,
            })?;
            let (mut exceptions, mut absent) = (0_u32, 0_u32);
            let count = pages / PAGES;
            // The device gets to know all pages first, and then those that stay.
            for page in (0..pages - LONGEST).step_by(LONGEST) {
                let place = (page * PAGE, LONGEST * PAGE);
                try_again(&session.mover, &far, place, FEW_RETRIES)?;
            }
            let all = Places::new(pattern, count).take(count + READS);
            for (number, place) in all.enumerate() {
                if number == count {
                    (exceptions, absent) = (0, 0);
                }
                let page = place * PAGES;
                let place = (page * PAGE, PAGES * PAGE);
                let mover = &session.mover;
                if mover.once(far.import(), Direction::Read, place)?.1 {
                    continue;
                }
                exceptions += 1;
                let (name, pages) = (far.name, PAGES);
                let Report::Touched { absent: pages } =
                    session.order(&Order::Touch { name, page, pages })?
                else {
                    return Err(Failure::Peer("touched no pages".into()));
                };
                absent += u32::from(pages > 0);
                try_again(&session.mover, &far, place, RETRIES)?;
            }
            session.close(far)?;
            session.order(&Order::Confine { bytes: None })?;
            let name = format!("opt.stale.{}.{size}", pattern.name());
            let reads = READS as f64;
            figures.add(name.clone(), f64::from(exceptions) / reads, "part");
            figures.add(format!("{name}.absent"), f64::from(absent) / reads, "part");
            figures.add(format!("{name}.reads"), reads, "count");
        }
    }
    Ok(())
}

/// Reads pages that come by a hint, if the owner does not lose them before.
fn try_again(mover: &Mover, far: &Far, place: (usize, usize), tries: usize) -> Result<(), Failure> {
    for _ in 0..tries {
        if mover.once(far.import(), Direction::Read, place)?.1 {
            break;
        }
    }
    Ok(())
}
