// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers of pages that the owner has and the device does not know, until they have found them.

use super::memory::{Loss, Origin, Way, PAGE};
use super::owner::Order;
use super::session::{Direction, Far, Session};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Rounds in which the ways take turns, the first of which does not count.
const ROUNDS: usize = 21;

/// A kind of miss.
struct Kind {
    name: &'static str,
    bytes: usize,
    origin: Origin,
    loss: Loss,
    /// Pages of the region, and from one that is missed to the next.
    pages: (usize, usize),
    /// Those that find the pages.
    ways: &'static [Way],
}

impl Kind {
    /// Pages that are mapped, of which the device has lost what it knew.
    const fn mapped(name: &'static str, bytes: usize) -> Self {
        Self {
            name,
            bytes,
            origin: Origin::Private,
            loss: Loss::Protected,
            pages: (64, bytes.div_ceil(PAGE)),
            ways: &[Way::AtOnce, Way::LookUp, Way::PageIn],
        }
    }

    /// Pages that need a fault of the owner, which maps those around it, too.
    const fn unmapped(
        name: &'static str,
        origin: Origin,
        loss: Loss,
        ways: &'static [Way],
    ) -> Self {
        Self {
            name,
            bytes: 64,
            origin,
            loss,
            pages: (512, 16),
            ways,
        }
    }
}

/// One page, and as many as the device requests at a time; then those that are not mapped.
const KINDS: [Kind; 4] = [
    Kind::mapped("opt.miss.64", 64),
    Kind::mapped("opt.miss.64k", 64 << 10),
    Kind::unmapped(
        "opt.fault.cached",
        Origin::Cached,
        Loss::Unmapped,
        &[Way::LookUp, Way::PageIn],
    ),
    Kind::unmapped(
        "opt.fault.swapped",
        Origin::Private,
        Loss::Swapped,
        &[Way::PageIn],
    ),
];

/// What was measured of one way.
struct Series {
    way: Way,
    far: Far,
    ticks: Vec<u64>,
    /// Ticks of exceptions.
    first: Vec<u64>,
    /// Transfers after exceptions.
    tries: u32,
    /// What the owner's driver counted.
    requests: f64,
    filled: f64,
    faulted: f64,
}

/// Adds `opt.miss.SIZE.WAY` of pages that are mapped, and `opt.fault.STATE.WAY` of others, and `.p99`: the time of a
/// transfer that waits, or from the exception until a transfer has found all pages. Then there are `.exception`, the
/// time of the exception, and `.tries`, the transfers since then. `.requests`, `.filled` and `.faulted` are the
/// requests of the device, the pages entered, and the faults taken, by miss, and `.misses` how many there were.
pub(super) fn measure(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    for kind in &KINDS {
        let mut all = Vec::new();
        for &way in kind.ways {
            all.push(Series {
                way,
                far: session.open_of(kind.origin, way, kind.pages.0, true)?,
                ticks: Vec::new(),
                first: Vec::new(),
                tries: 0,
                requests: 0.0,
                filled: 0.0,
                faulted: 0.0,
            });
        }
        for round in 0..ROUNDS {
            for turn in 0..all.len() {
                let number = (turn + round) % all.len();
                miss_all(session, kind, &mut all[number], round > 0)?;
            }
        }
        for series in all {
            add(session, figures, kind, &series);
            session.close(series.far)?;
        }
    }
    Ok(())
}

/// Takes the pages away, and transfers all of them.
fn miss_all(
    session: &mut Session<'_>,
    kind: &Kind,
    series: &mut Series,
    counts: bool,
) -> Result<(), Failure> {
    let (name, how) = (series.far.name, kind.loss);
    session.order(&Order::Lose { name, how })?;
    let before = session.counts()?;
    let (mover, far) = (&session.mover, series.far.import());
    for page in (0..kind.pages.0).step_by(kind.pages.1) {
        let place = (page * PAGE, kind.bytes);
        let (taken, whole) = mover.once(far, Direction::Read, place)?;
        let (ticks, tries) = match (whole, series.way.waits()) {
            (true, true) => (taken, 0),
            // It was not missing.
            (true, false) => continue,
            (false, true) => {
                let reason = "a page that the owner has did not come while its transfer waited";
                return Err(Failure::Refused(reason));
            }
            (false, false) => {
                let begun = mover.clock.ticks();
                let missed = mover.until_whole(far, Direction::Read, place)?;
                (mover.clock.ticks() - begun, missed + 1)
            }
        };
        if counts {
            series.ticks.push(ticks);
            series.tries += tries;
            if tries > 0 {
                series.first.push(taken);
            }
        }
    }
    let seen = session.counts()?.since(&before);
    if counts {
        series.requests += seen.requests;
        series.filled += seen.filled;
        series.faulted += seen.faulted;
    }
    Ok(())
}

fn add(session: &Session<'_>, figures: &mut Figures, kind: &Kind, series: &Series) {
    let name = format!("{}.{}", kind.name, series.way.name());
    let clock = &session.mover.clock;
    let misses = series.ticks.len() as f64;
    figures.add(format!("{name}.misses"), misses, "count");
    if series.ticks.is_empty() {
        return;
    }
    let times_of_all = times(clock, &series.ticks, 1);
    figures.add(name.clone(), times_of_all.median(), "ns");
    figures.add(format!("{name}.p99"), times_of_all.quantile(0.99), "ns");
    if !series.first.is_empty() {
        let first = times(clock, &series.first, 1).median();
        figures.add(format!("{name}.exception"), first, "ns");
        let tries = f64::from(series.tries) / misses;
        figures.add(format!("{name}.tries"), tries, "count");
    }
    for (what, count) in [
        ("requests", series.requests),
        ("filled", series.filled),
        ("faulted", series.faulted),
    ] {
        figures.add(format!("{name}.{what}"), count / misses, "count");
    }
}
