// SPDX-License-Identifier: MIT OR Apache-2.0

//! Single transfers: hits, and exceptions.

use super::memory::{Way, PAGE};
use super::session::{Direction, Far, Session, LONGEST};
use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::timing::times;

/// Sizes of hits, and their names.
const SIZES: [(&str, usize); 4] = [
    ("64", 64),
    ("4k", 4 << 10),
    ("8k", 8 << 10),
    ("256k", LONGEST * PAGE),
];
const DIRECTIONS: [(&str, Direction); 2] = [("read", Direction::Read), ("write", Direction::Write)];
/// Rounds in which the ways take turns, the first of which does not count.
const ROUNDS: usize = 21;
/// Transfers of each way in a turn.
const EACH: usize = 30;
/// Bursts of exceptions, and requests for pages that a context can have at a time.
const BURSTS: usize = 50;
const REQUESTS: usize = 4;

/// Times of one kind of transfer, way by way.
struct Series {
    way: Way,
    far: Far,
    ticks: Vec<u64>,
    /// Transfers that found a page missing.
    missed: u32,
}

/// Adds `opt.hit.DIRECTION.SIZE.WAY`, beside that of pinned memory, and `opt.hit.exceptions.WAY`, the transfers
/// between them that found a page missing.
pub(super) fn hits(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    let mut all = Vec::new();
    for way in Way::WITHOUT_MISSES {
        all.push(Series {
            way,
            far: session.open(way, LONGEST, true)?,
            ticks: Vec::new(),
            missed: 0,
        });
    }
    for (size, bytes) in SIZES {
        for (what, direction) in DIRECTIONS {
            turns(session, &mut all, (direction, bytes))?;
            for series in &all {
                let name = format!("opt.hit.{what}.{size}");
                add(session, figures, &name, series, Way::ALL[0].name());
            }
        }
    }
    for series in all {
        let name = format!("opt.hit.exceptions.{}", series.way.name());
        figures.add(name, f64::from(series.missed), "count");
        session.close(series.far)?;
    }
    Ok(())
}

/// Adds `opt.exception.at-once`, of memory that was never touched, beside `.hit`, in turn with it, and `.bursts`, those
/// that count. The first exceptions of a burst take all requests for pages that a context can have. A burst counts
/// if the device has made no more requests, so that the others made none.
pub(super) fn exceptions(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    let way = Way::AtOnce;
    let far = session.open(way, LONGEST, false)?;
    let there = session.open(way, 1, true)?;
    let hit = (0, 64);
    session
        .mover
        .until_whole(there.import(), Direction::Read, hit)?;
    let (mut ticks, mut hits, mut bursts) = (Vec::new(), Vec::new(), 0);
    for _ in 0..BURSTS {
        let before = session.counts()?;
        let (mut burst, mut beside) = (Vec::new(), Vec::new());
        for number in 0..REQUESTS + EACH {
            let place = (number.min(REQUESTS) * PAGE, 64);
            let (taken, whole) = session.mover.once(far.import(), Direction::Read, place)?;
            if whole {
                return Err(Failure::Refused("a page that was never touched is there"));
            }
            burst.push(taken);
            let (taken, _) = session.mover.once(there.import(), Direction::Read, hit)?;
            beside.push(taken);
        }
        if session.counts()?.since(&before).requests <= REQUESTS as f64 {
            ticks.extend_from_slice(&burst[REQUESTS..]);
            hits.extend_from_slice(&beside[REQUESTS..]);
            bursts += 1;
        }
    }
    session.close(far)?;
    session.close(there)?;
    let name = format!("opt.exception.{}", way.name());
    figures.add(format!("{name}.bursts"), f64::from(bursts), "count");
    if bursts > 0 {
        let hit = times(&session.mover.clock, &hits, 1).median();
        figures.add(format!("{name}.hit"), hit, "ns");
        let bases = Bases {
            floor: Some(hit),
            rival: None,
        };
        let times = times(&session.mover.clock, &ticks, 1);
        figures.add_beside(name.clone(), times.median(), "ns", bases);
        figures.add(format!("{name}.p99"), times.quantile(0.99), "ns");
    }
    Ok(())
}

/// Lets all series take turns in transfers of this kind.
fn turns(
    session: &Session<'_>,
    all: &mut [Series],
    (direction, bytes): (Direction, usize),
) -> Result<(), Failure> {
    let mover = &session.mover;
    for series in all.iter_mut() {
        series.ticks.clear();
        mover.until_whole(series.far.import(), direction, (0, bytes))?;
    }
    for round in 0..ROUNDS {
        for turn in 0..all.len() {
            let number = (turn + round) % all.len();
            let series = &mut all[number];
            for _ in 0..EACH {
                let (ticks, whole) = mover.once(series.far.import(), direction, (0, bytes))?;
                match whole {
                    true if round > 0 => series.ticks.push(ticks),
                    true => {}
                    false => series.missed += 1,
                }
            }
        }
    }
    Ok(())
}

fn add(session: &Session<'_>, figures: &mut Figures, name: &str, series: &Series, base: &str) {
    let times = times(&session.mover.clock, &series.ticks, 1);
    let way = series.way.name();
    for (end, quantile) in [("", 0.5), (".p99", 0.99)] {
        let floor = match way == base {
            true => None,
            false => figures.get(&format!("{name}.{base}{end}")),
        };
        let bases = Bases { floor, rival: None };
        let name = format!("{name}.{way}{end}");
        figures.add_beside(name, times.quantile(quantile), "ns", bases);
    }
}
