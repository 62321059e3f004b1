// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine's work: which chunk comes next, and moving it.

use std::time::{Duration, Instant};

use crate::abi::Status;
use crate::check::{Checked, Scene, Side};
use crate::link::peer_of;
use crate::memory::{GuestMemory, Right};
use crate::tpt::{Tables, View};
use crate::walk::{self, Owner, Segment};

/// How fast the engine is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Time from an initiation to its first byte.
    pub delay: Duration,
    /// Bytes per second of all transfers together; `None` for as fast as the host copies.
    pub bandwidth: Option<u64>,
}

impl Speed {
    /// How long the link is busy with a number of bytes.
    fn time_of(&self, bytes: u64) -> Duration {
        match self.bandwidth {
            Some(bandwidth) => {
                let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth.max(1));
                Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
            }
            None => Duration::ZERO,
        }
    }
}

/// Whose turn it is, and when.
#[derive(Debug)]
pub struct Schedule {
    speed: Speed,
    /// The place that was served last.
    last: usize,
    /// The engine is busy until then.
    busy_until: Instant,
}

impl Schedule {
    /// A schedule of an engine that is idle.
    pub fn new(speed: Speed) -> Self {
        Self {
            speed,
            last: 0,
            busy_until: Instant::now(),
        }
    }

    /// When a transfer that is initiated now may start.
    pub fn ready(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.speed.delay).unwrap_or(now)
    }

    /// Picks the next of `places` by turns, given when each of them has something to do. Says else
    /// when to ask again, if ever.
    pub fn pick(
        &mut self,
        places: usize,
        now: Instant,
        ready: impl Fn(usize) -> Option<Instant>,
    ) -> Result<usize, Option<Instant>> {
        let mut earliest: Option<Instant> = None;
        for step in 1..=places {
            let place = (self.last + step) % places;
            let Some(at) = ready(place).map(|at| at.max(self.busy_until)) else {
                continue;
            };
            if at <= now {
                self.last = place;
                return Ok(place);
            }
            earliest = Some(earliest.map_or(at, |other| other.min(at)));
        }
        Err(earliest)
    }

    /// Accounts for the time that a number of bytes takes.
    pub fn charge(&mut self, bytes: u64, now: Instant) {
        let from = self.busy_until.max(now);
        self.busy_until = from.checked_add(self.speed.time_of(bytes)).unwrap_or(from);
    }
}

/// What a node's engine needs to know of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Vantage {
    /// The initiating node's tables.
    pub own: Tables,
    /// The peer's tables and the link's generation, while the link is up.
    pub peer: Option<(Tables, u32)>,
}

/// One chunk of one transfer.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The initiating node.
    pub node: usize,
    /// The context.
    pub context: usize,
    /// Tells this reset's tickets from an earlier one's.
    pub epoch: u64,
    /// The transfer.
    pub ticket: u64,
    /// What it moves.
    pub checked: Checked,
    /// Bytes moved before this chunk.
    pub done: u64,
    /// Where the tables are.
    pub vantage: Vantage,
    /// The function may do DMA, and the bus works.
    pub bus_works: bool,
    /// Invert a bit of the data.
    pub corrupt: bool,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes moved.
    pub moved: u64,
    /// Why it stopped before its end.
    pub error: Option<Status>,
}

/// Room for the segments of a chunk, kept from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    source: Vec<Segment>,
    destination: Vec<Segment>,
}

/// The view from a node.
pub fn scene<'a>(
    vantage: &'a Vantage,
    node: usize,
    memories: &[&'a GuestMemory],
) -> Option<Scene<'a, GuestMemory>> {
    let own = memories.get(node)?;
    let peer = memories.get(peer_of(node));
    Some(Scene {
        own: View::new(&vantage.own, own),
        peer: match (&vantage.peer, peer) {
            (Some((tables, generation)), Some(memory)) => {
                Some((View::new(tables, *memory), *generation))
            }
            _ => None,
        },
    })
}

impl Job {
    /// Moves the chunk. Checks everything before the first byte.
    pub fn run(&self, memories: &[&GuestMemory], scratch: &mut Scratch) -> Outcome {
        match self.try_run(memories, scratch) {
            Ok(outcome) => outcome,
            Err(status) => Outcome {
                moved: 0,
                error: Some(status),
            },
        }
    }

    fn try_run(&self, memories: &[&GuestMemory], scratch: &mut Scratch) -> Result<Outcome, Status> {
        if !self.bus_works {
            return Err(Status::BusError);
        }
        let scene = scene(&self.vantage, self.node, memories).ok_or(Status::BusError)?;
        let left = self.checked.bytes.saturating_sub(self.done);
        let length = left.min(walk::CHUNK);
        let find = |side: &Side, right, segments| {
            let owner = walk::segments(&scene, side, self.done, length, right, segments)?;
            let node = match owner {
                Owner::Own => self.node,
                Owner::Peer => peer_of(self.node),
            };
            memories.get(node).copied().ok_or(Status::BusError)
        };
        let from = find(&self.checked.source, Right::Read, &mut scratch.source)?;
        let to = find(
            &self.checked.destination,
            Right::Write,
            &mut scratch.destination,
        )?;
        let outcome = match walk::copy((from, &scratch.source), (to, &scratch.destination)) {
            Ok(moved) => Outcome { moved, error: None },
            Err((moved, _)) => Outcome {
                moved,
                error: Some(Status::BusError),
            },
        };
        if self.corrupt {
            if let Some(first) = scratch.destination.first() {
                to.invert_bit(first.address);
            }
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken() {
        let mut schedule = Schedule::new(Speed::default());
        let now = Instant::now();
        let picks: Vec<_> = (0..6)
            .map(|_| schedule.pick(4, now, |place| (place != 2).then_some(now)))
            .collect();
        assert_eq!(picks, [Ok(1), Ok(3), Ok(0), Ok(1), Ok(3), Ok(0)]);
        assert_eq!(schedule.pick(4, now, |_| None), Err(None));
    }

    #[test]
    fn delay_and_bandwidth() {
        let mut schedule = Schedule::new(Speed {
            delay: Duration::from_millis(5),
            bandwidth: Some(1000),
        });
        let now = Instant::now();
        let ready = now + Duration::from_secs(1);
        assert!(schedule.ready() >= now + Duration::from_millis(5));
        assert_eq!(schedule.pick(1, now, |_| Some(ready)), Err(Some(ready)));
        let later = ready + Duration::from_millis(1);
        assert_eq!(schedule.pick(1, later, |_| Some(ready)), Ok(0));
        schedule.charge(500, later);
        assert_eq!(
            schedule.pick(1, later, |_| Some(ready)),
            Err(Some(later + Duration::from_millis(500)))
        );
    }
}
