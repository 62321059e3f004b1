// SPDX-License-Identifier: MIT OR Apache-2.0

//! A load: the owner gives up pages and touches them again while this node reads.

use std::time::Instant;

use super::memory::{Way, PAGE};
use super::owner::{Order, Report, INTERVAL};
use super::session::{Direction, Session, LONGEST};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::throughput;

/// Pages of the region.
const PAGES: usize = 1024;
/// Intervals of the load.
const INTERVALS: u32 = 30;
/// Bytes of a read.
const BYTES: usize = 2 * PAGE;
/// A prime, as that of the owner.
const STRIDE: usize = 5309;

/// Adds for each way `opt.load.WAY.*`: what the reads met and what the owner's driver did, and
/// `opt.pins.WAY.MS` and `opt.pins.WAY.MS.machine`, the pages that were pinned before, in each interval, and
/// after.
pub(super) fn measure(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    for way in Way::ALL {
        let mut pins = vec![session.counts()?.pinned];
        let far = session.open(way, PAGES, true)?;
        for page in (0..PAGES).step_by(LONGEST) {
            let place = (page * PAGE, LONGEST * PAGE);
            session
                .mover
                .until_whole(far.import(), Direction::Read, place)?;
        }
        let before = session.counts()?;
        session.begin(&Order::Load {
            name: far.name,
            intervals: INTERVALS,
        })?;
        let begun = Instant::now();
        let (mut reads, mut missed, mut exceptions) = (0_usize, 0_usize, 0);
        while begun.elapsed() < INTERVAL * INTERVALS {
            let place = (reads * STRIDE % (PAGES - 1) * PAGE, BYTES);
            let tries = session
                .mover
                .until_whole(far.import(), Direction::Read, place)?;
            reads += 1;
            missed += usize::from(tries > 0);
            exceptions += tries;
        }
        let taken = begun.elapsed().as_nanos() as f64;
        let Report::Loaded { discards, pinned } = session.report()? else {
            return Err(Failure::Peer("had no load".into()));
        };
        let counts = session.counts()?.since(&before);
        pins.extend(pinned);
        session.close(far)?;
        pins.push(session.counts()?.pinned);

        let name = format!("opt.load.{}", way.name());
        let rate = throughput((reads * BYTES) as u64, taken);
        figures.add(format!("{name}.rate"), rate, "MB/s");
        for (what, count) in [
            ("reads", reads as f64),
            ("missed", missed as f64),
            ("exceptions", f64::from(exceptions)),
            ("discards", discards as f64),
            ("retractions", counts.fences),
            ("invalidations", counts.invalidations),
            ("requests", counts.requests),
            ("filled", counts.filled),
            ("faulted", counts.faulted),
            ("ended", counts.ended),
        ] {
            figures.add(format!("{name}.{what}"), count, "count");
        }
        if counts.fences > 0.0 {
            let k = counts.invalidations / counts.fences;
            figures.add(format!("{name}.k"), k, "count");
        }
        for (number, (own, machine)) in (0..).zip(pins) {
            let name = format!("opt.pins.{}.{}", way.name(), number * INTERVAL.as_millis());
            figures.add(name.clone(), own, "pages");
            figures.add(format!("{name}.machine"), machine, "pages");
        }
    }
    Ok(())
}
