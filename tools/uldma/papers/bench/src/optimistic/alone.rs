// SPDX-License-Identifier: MIT OR Apache-2.0

//! What one node does alone: registers much memory, and has the kernel reclaim some.

use uldma::measure::Clock;
use uldma::region::Borrowed;
use uldma::Device;

use super::memory::{field, pinned, vmstat, Pages, Way, PAGE};
use super::session::{Direction, Mover, LONGEST};
use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::timing::times;

/// MiB that are registered, if the machine has a quarter more.
const SIZES: [usize; 4] = [1024, 512, 256, 128];
/// Registrations of each kind, the first of which does not count.
const REGISTRATIONS: usize = 4;
/// Pages that are reclaimed, and how often of each kind.
const RECLAIMED: usize = (8 << 20) / PAGE;
const RECLAIMS: usize = 32;

/// Adds `opt.register.KIND.WAY`, of pages that are there (`warm`) or not (`cold`), beside pinned memory, the same
/// with `deregister`, `.pins` of it, and `opt.register.mib`.
pub(super) fn registration(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = field(&info, "MemAvailable:").unwrap_or_default() / 1024.0;
    let fits = |mib: &&usize| **mib as f64 * 1.25 <= free;
    let mib = SIZES.iter().find(fits).unwrap_or(&SIZES[SIZES.len() - 1]);
    figures.add("opt.register.mib", *mib as f64, "MiB");
    let pages = Pages::new(mib * (1 << 20) / PAGE)?;
    let all = 0..pages.count();
    let clock = Clock::start();
    for (kind, is_warm) in [("cold", false), ("warm", true)] {
        let mut samples = Way::WITHOUT_MISSES.map(|way| (way, Vec::new(), Vec::new(), 0.0));
        for round in 0..REGISTRATIONS {
            for turn in 0..samples.len() {
                let number = (turn + round) % samples.len();
                let (way, registered, ended, pins) = &mut samples[number];
                pages.discard(all.clone())?;
                if is_warm {
                    pages.touch(all.clone())?;
                }
                let unpinned = pinned().0;
                let before = clock.ticks();
                let region = way.register(device, &pages)?;
                let between = clock.ticks();
                *pins = pinned().0 - unpinned;
                let end = clock.ticks();
                region.unregister()?;
                if round > 0 {
                    ended.push(clock.ticks() - end);
                    registered.push(between - before);
                }
            }
        }
        for (way, registered, ended, pins) in samples {
            for (what, ticks) in [("register", registered), ("deregister", ended)] {
                let name = format!("opt.{what}.{kind}");
                add(
                    figures,
                    &name,
                    way.name(),
                    times(&clock, &ticks, 1).median(),
                );
            }
            let name = format!("opt.register.{kind}.{}.pins", way.name());
            figures.add(name, pins, "pages");
        }
    }
    Ok(())
}

/// A state of an area whose memory is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none.
    Without,
    /// The device has accessed nothing.
    Idle,
    /// The device knows all pages.
    Valid,
}

impl State {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Without, "without"),
        (Self::Idle, "idle"),
        (Self::Valid, "valid"),
    ];

    /// Registers the pages, if at all, and has the device access them.
    fn enter(self, mover: &Mover, pages: &Pages) -> Result<Option<Borrowed>, Failure> {
        if self == Self::Without {
            return Ok(None);
        }
        let region = Way::AtOnce.register(&mover.device, pages)?;
        if self == Self::Valid {
            for page in (0..pages.count()).step_by(LONGEST) {
                let place = (page * PAGE, LONGEST * PAGE);
                mover.until_whole(&region, Direction::Read, place)?;
            }
        }
        Ok(Some(region))
    }
}

/// Adds `opt.reclaim.STATE`, the median time to have the kernel write memory to swap, and `opt.reclaim.min.STATE`,
/// the shortest, beside those without an area, and `.pages`, how many it has written.
pub(super) fn reclaim(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let mover = Mover::new(device)?;
    let mut samples = State::ALL.map(|state| (state, Vec::new(), 0.0));
    for round in 0..RECLAIMS {
        for turn in 0..samples.len() {
            let number = (turn + round) % samples.len();
            let ((state, _), ticks, written) = &mut samples[number];
            let pages = Pages::new(RECLAIMED)?;
            pages.touch(0..RECLAIMED)?;
            let region = state.enter(&mover, &pages)?;
            let counted = vmstat("pswpout");
            let before = mover.clock.ticks();
            pages.page_out()?;
            let taken = mover.clock.ticks() - before;
            if round > 0 {
                ticks.push(taken);
                *written += (vmstat("pswpout") - counted) / (RECLAIMS - 1) as f64;
            }
            region.map_or(Ok(()), Borrowed::unregister)?;
        }
    }
    for ((_, name), ticks, written) in samples {
        let times = times(&mover.clock, &ticks, 1);
        add(figures, "opt.reclaim", name, times.median());
        add(figures, "opt.reclaim.min", name, times.quantile(0.0));
        figures.add(format!("opt.reclaim.{name}.pages"), written, "pages");
    }
    Ok(())
}

/// Adds a time in nanoseconds beside the first of its kind.
fn add(figures: &mut Figures, kind: &str, name: &str, value: f64) {
    let first = [Way::ALL[0].name(), State::ALL[0].1]
        .into_iter()
        .filter(|first| *first != name)
        .find_map(|first| figures.get(&format!("{kind}.{first}")));
    let bases = Bases {
        floor: first,
        rival: None,
    };
    figures.add_beside(format!("{kind}.{name}"), value, "ns", bases);
}
