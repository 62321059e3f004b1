// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pages that are on a disk: a transfer waits for them, or ends, and the owner reads them when it gets a message.

use super::memory::{Loss, Origin, Way, PAGE};
use super::owner::Order;
use super::places::{Pattern, Places};
use super::session::{Direction, Session};
use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::timing::times;

/// Pages of the region on the disk.
const PAGES: usize = 1024;
/// Bytes of a read.
const BYTES: usize = 64;
/// Pages that are missed, each in each way, the first of which do not count.
const ROUNDS: usize = 110;
const NOT_COUNTED: usize = 10;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The page is there.
    Hit,
    /// The transfer waits until the page was read.
    PageIn,
    /// The transfer ends, a message asks for the page, and then it is read.
    Message,
    /// The same until the first transfer has ended.
    Exception,
    /// A transfer of what is there, behind one that waits.
    BehindPageIn,
    /// A transfer of what is there, behind one that ends.
    BehindException,
}

impl Course {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Hit, "hit"),
        (Self::PageIn, "page-in"),
        (Self::Message, "message"),
        (Self::Exception, "exception"),
        (Self::BehindPageIn, "behind.page-in"),
        (Self::BehindException, "behind.exception"),
    ];
}

/// Adds `opt.disk.COURSE` and `.p99`, times of reads of a page that is on a disk: `page-in`, of a transfer that waits;
/// `exception`, of one that does not; `message`, of this, a message to the owner, which reads the page, its answer, and
/// the transfers until one has the page. `behind.page-in` and `behind.exception` are those of a transfer of what is
/// there, which was initiated after such a one, and `hit` alone is their floor. All take turns.
pub(super) fn measure(session: &mut Session<'_>, figures: &mut Figures) -> Result<(), Failure> {
    let there = session.open(Way::Pinned, 1, true)?;
    let waits = session.open_of(Origin::Disk, Way::PageIn, PAGES, false)?;
    let ends = session.open_of(Origin::Disk, Way::AtOnce, PAGES, false)?;
    let mut places = Places::new(Pattern::Uniform, PAGES);
    let mut samples = Course::ALL.map(|(course, name)| (course, name, Vec::new()));
    let how = Loss::Dropped;
    for round in 0..ROUNDS {
        for turn in 0..samples.len() {
            let number = (turn + round) % samples.len();
            let (course, _, ticks) = &mut samples[number];
            // What one maps stays in memory for the other.
            for name in [waits.name, ends.name, waits.name] {
                session.order(&Order::Lose { name, how })?;
            }
            let page = places.next().unwrap_or_default();
            let place = (page * PAGE, BYTES);
            let hit = (0, BYTES);
            let mover = &session.mover;
            let begun = mover.clock.ticks();
            let end = match course {
                Course::Hit => {
                    expect(mover.once(there.import(), Direction::Read, hit)?.1, true)?;
                    mover.clock.ticks()
                }
                Course::PageIn => {
                    expect(mover.once(waits.import(), Direction::Read, place)?.1, true)?;
                    mover.clock.ticks()
                }
                Course::Exception => {
                    expect(mover.once(ends.import(), Direction::Read, place)?.1, false)?;
                    mover.clock.ticks()
                }
                Course::Message => {
                    expect(mover.once(ends.import(), Direction::Read, place)?.1, false)?;
                    let (name, pages) = (ends.name, 1);
                    session.order(&Order::Touch { name, page, pages })?;
                    let mover = &session.mover;
                    mover.until_whole(ends.import(), Direction::Read, place)?;
                    mover.clock.ticks()
                }
                Course::BehindPageIn | Course::BehindException => {
                    let waits_for_it = *course == Course::BehindPageIn;
                    let far = if waits_for_it { &waits } else { &ends };
                    let (first, _) = mover.start(far.import(), Direction::Read, place)?;
                    let (behind, _) = mover.start(there.import(), Direction::Read, hit)?;
                    expect(mover.end(behind)?, true)?;
                    let end = mover.clock.ticks();
                    expect(mover.end(first)?, waits_for_it)?;
                    end
                }
            };
            if round >= NOT_COUNTED {
                ticks.push(end - begun);
            }
        }
    }
    let mut floors = [None; 2];
    for (_, name, ticks) in samples {
        let times = times(&session.mover.clock, &ticks, 1);
        let name = format!("opt.disk.{name}");
        let quantiles = [("", 0.5), (".p99", 0.99)];
        for (floor, (end, quantile)) in floors.iter_mut().zip(quantiles) {
            let value = times.quantile(quantile);
            let bases = Bases {
                floor: *floor,
                rival: None,
            };
            figures.add_beside(format!("{name}{end}"), value, "ns", bases);
            floor.get_or_insert(value);
        }
    }
    let counted = ROUNDS - NOT_COUNTED;
    figures.add("opt.disk.reads", counted as f64, "count");
    for far in [there, waits, ends] {
        session.close(far)?;
    }
    Ok(())
}

fn expect(whole: bool, expected: bool) -> Result<(), Failure> {
    let reason = match expected {
        true => "a page that the owner has did not come",
        false => "a page that was dropped is there",
    };
    (whole == expected)
        .then_some(())
        .ok_or(Failure::Refused(reason))
}
