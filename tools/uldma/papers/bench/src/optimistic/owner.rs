// SPDX-License-Identifier: MIT OR Apache-2.0

//! The owner of the memory: the process that answers.

use std::collections::BTreeMap;
use std::mem::forget;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uldma::region::Borrowed;
use uldma::{Access, Channel, Device, Name};

use super::memory::{field, pinned, Loss, Origin, Pages, Way};
use crate::failure::Failure;
use crate::peer::{receive, send, Answer};

/// Pages that the load gives up and touches again at a time, and the time between two of these: readers must be
/// able to follow.
const AT_A_TIME: usize = 4;
const PAUSE: Duration = Duration::from_millis(2);
/// A prime, so that the load goes through all pages without a pattern that matters.
const STRIDE: usize = 7919;
/// Time between two readings of what is pinned.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// A message to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Order {
    /// Register pages, which were touched or not, and export them.
    Open {
        way: Way,
        name: u64,
        origin: Origin,
        pages: usize,
        touched: bool,
    },
    /// Take all pages away.
    Lose { name: u64, how: Loss },
    /// Read some pages.
    Touch {
        name: u64,
        page: usize,
        pages: usize,
    },
    /// Pin a page until the region ends.
    Pin { name: u64, page: usize },
    /// Have no more memory than that, or as much as there is.
    Confine { bytes: Option<u64> },
    /// Give up pages and touch them again, for so many intervals.
    Load { name: u64, intervals: u32 },
    /// Tell the counters.
    Count,
    /// End the region.
    Close { name: u64 },
    /// End.
    End,
}

/// The owner's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Report {
    Done,
    Loaded {
        discards: u64,
        /// What was pinned at the end of each interval, by the process and on the machine.
        pinned: Vec<(f64, f64)>,
    },
    Touched {
        /// Pages that were not in memory before.
        absent: u64,
    },
    Counts(Counts),
    /// The last one, of a process that ends.
    Failed {
        message: String,
    },
}

/// Counters of the owner's driver, and what is pinned there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Requests of the device for pages.
    pub(super) requests: f64,
    /// Pages that were entered.
    pub(super) filled: f64,
    /// Faults that were taken for that.
    pub(super) faulted: f64,
    /// Pages that were taken out, and those to make room for others.
    pub(super) ended: f64,
    pub(super) evicted: f64,
    /// Waits for transfers that may use pages which are taken out.
    pub(super) fences: f64,
    /// Those that needed an invalidation.
    pub(super) invalidations: f64,
    pub(super) pinned: (f64, f64),
}

impl Counts {
    fn read(number: u32) -> Result<Self, Failure> {
        let file = |name| {
            std::fs::read_to_string(format!("/sys/kernel/debug/uldma{number}/{name}"))
                .map_err(|error| Failure::Io("counters of the driver", error))
        };
        let (optimistic, fences) = (file("optimistic")?, file("fences")?);
        let of = |text, name| field(text, name).unwrap_or_default();
        Ok(Self {
            requests: of(&optimistic, "requests"),
            filled: of(&optimistic, "filled"),
            faulted: of(&optimistic, "faulted"),
            ended: of(&optimistic, "ended"),
            evicted: of(&optimistic, "evicted"),
            fences: of(&fences, "all"),
            invalidations: of(&fences, "by_invalidation"),
            pinned: pinned(),
        })
    }

    /// Returns what was counted since then.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            filled: self.filled - before.filled,
            faulted: self.faulted - before.faulted,
            ended: self.ended - before.ended,
            evicted: self.evicted - before.evicted,
            fences: self.fences - before.fences,
            invalidations: self.invalidations - before.invalidations,
            pinned: self.pinned,
        }
    }
}

/// Memory of the other node's imports.
struct Exported {
    // End before their memory.
    _region: Borrowed,
    pinned: Vec<Borrowed>,
    pages: Pages,
}

/// Serves to the end of the measurement.
pub(crate) fn serve(
    number: u32,
    device: &Device,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut all: BTreeMap<u64, Exported> = BTreeMap::new();
    send(channel, &Answer::Ready, timeout)?;
    loop {
        let order = receive(channel, timeout)?;
        let of = |name: u64| {
            let found = all.get(&name).map(|exported| &exported.pages);
            found.ok_or_else(|| Failure::Peer(format!("did not open {name:#x}")))
        };
        let report = match order {
            Order::Open {
                way,
                name,
                origin,
                pages,
                touched,
            } => {
                let exported = open(device, way, name, (origin, pages, touched))?;
                all.insert(name, exported);
                Report::Done
            }
            Order::Lose { name, how } => {
                of(name)?.lose(how)?;
                Report::Done
            }
            Order::Touch { name, page, pages } => Report::Touched {
                absent: of(name)?.read(page..page + pages)?,
            },
            Order::Pin { name, page } => {
                let pin = of(name)?.pin(device, page)?;
                if let Some(exported) = all.get_mut(&name) {
                    exported.pinned.push(pin);
                }
                Report::Done
            }
            Order::Confine { bytes } => {
                confine(bytes)?;
                Report::Done
            }
            Order::Load { name, intervals } => load(of(name)?, intervals)?,
            Order::Count => Report::Counts(Counts::read(number)?),
            Order::Close { name } => {
                drop(all.remove(&name));
                Report::Done
            }
            Order::End => return send(channel, &Report::Done, timeout),
        };
        send(channel, &report, timeout)?;
    }
}

fn open(
    device: &Device,
    way: Way,
    name: u64,
    (origin, count, touched): (Origin, usize, bool),
) -> Result<Exported, Failure> {
    let name = Name::new(name).ok_or_else(|| Failure::Peer("gave the name zero".into()))?;
    let pages = Pages::of(origin, count)?;
    if touched {
        pages.touch(0..count)?;
    }
    let region = way.register(device, &pages)?;
    // An export ends with its region.
    forget(region.export(name, Access::ReadWrite)?);
    Ok(Exported {
        _region: region,
        pinned: Vec::new(),
        pages,
    })
}

/// Puts this process into a control group with so much memory, or into that of all.
fn confine(bytes: Option<u64>) -> Result<(), Failure> {
    const ALL: &str = "/sys/fs/cgroup";
    const GROUP: &str = "/sys/fs/cgroup/uldma-bench";
    let put = |file: String, text: &str| {
        let written = std::fs::write(file, text);
        written.map_err(|error| Failure::Io("control groups", error))
    };
    let Some(bytes) = bytes else {
        return put(format!("{ALL}/cgroup.procs"), "0");
    };
    if !Path::new(GROUP).exists() {
        std::fs::create_dir(GROUP).map_err(|error| Failure::Io("control groups", error))?;
    }
    put(format!("{GROUP}/memory.max"), &bytes.to_string())?;
    put(format!("{GROUP}/cgroup.procs"), "0")
}

fn load(pages: &Pages, intervals: u32) -> Result<Report, Failure> {
    let begun = Instant::now();
    let (mut discards, mut found) = (0, Vec::new());
    for interval in 1..=intervals {
        while begun.elapsed() < INTERVAL * interval {
            let starts = pages.count() - AT_A_TIME + 1;
            let start = discards as usize * STRIDE % starts;
            let range = start..start + AT_A_TIME;
            pages.discard(range.clone())?;
            pages.touch(range)?;
            discards += 1;
            std::thread::sleep(PAUSE);
        }
        found.push(pinned());
    }
    Ok(Report::Loaded {
        discards,
        pinned: found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_discards_in_all_intervals() {
        let pages = Pages::new(AT_A_TIME).unwrap();
        let Report::Loaded { discards, pinned } = load(&pages, 2).unwrap() else {
            panic!("no load");
        };
        assert!(discards > 0);
        assert_eq!(pinned.len(), 2);
    }

    #[test]
    fn counts_are_of_a_time() {
        let before = Counts {
            requests: 5.0,
            pinned: (1.0, 1.0),
            ..Counts::default()
        };
        let after = Counts {
            requests: 7.0,
            pinned: (0.0, 3.0),
            ..Counts::default()
        };
        let counts = after.since(&before);
        assert_eq!((counts.requests, counts.pinned), (2.0, (0.0, 3.0)));
    }
}
