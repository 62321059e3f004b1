// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine's work: which chunk comes next, and moving it.

use std::time::{Duration, Instant};

use crate::abi::Status;
use crate::atomic::Atomic;
use crate::check::{Checked, Scene, Side};
use crate::layout::MAX_NODES;
use crate::memory::{GuestMemory, Right};
use crate::tpt::{Tables, View};
use crate::transfer::{Outcome, Work};
use crate::walk::{self, Owner, Segment};

/// How fast the device is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Time that each access to a BAR takes at least.
    pub access: Duration,
    /// Time for which a queue is looked at in vain before it is looked at only now and then.
    pub poll: Duration,
    /// Time for which a queue is looked at in vain before that stops.
    pub doze: Duration,
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

    /// Time for which a queue is looked at in vain.
    pub fn patience(&self) -> Duration {
        self.speed.poll.max(self.speed.doze)
    }

    /// Whether a transfer takes no longer than the host needs for it.
    pub fn is_instant(&self) -> bool {
        self.speed.delay.is_zero() && self.speed.bandwidth.is_none()
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
    /// By the numbers of the nodes that can be reached, their tables and the generations of the
    /// links to them.
    pub peers: [Option<(Tables, u32)>; MAX_NODES],
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
    /// What it does.
    pub work: Work,
    /// Bytes moved before this chunk.
    pub done: u64,
    /// Where the tables are.
    pub vantage: Vantage,
    /// The function may do DMA, and the bus works.
    pub bus_works: bool,
    /// Invert a bit of the data.
    pub corrupt: bool,
}

/// Room for the segments of a chunk, kept from one to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    source: Vec<Segment>,
    destination: Vec<Segment>,
}

/// All that the engine reaches when it works for a node.
pub struct Reach<'a> {
    node: usize,
    scene: Scene<'a, GuestMemory>,
    memories: &'a [&'a GuestMemory],
}

impl<'a> Reach<'a> {
    /// What is in reach from a vantage point.
    pub fn new(vantage: &'a Vantage, node: usize, memories: &'a [&'a GuestMemory]) -> Option<Self> {
        let own = *memories.get(node)?;
        let peers = vantage.peers.iter().zip(memories);
        let peers = peers.map(|(peer, memory)| {
            let (tables, generation) = peer.as_ref()?;
            Some((View::new(tables, *memory), *generation))
        });
        let scene = Scene {
            own: View::new(&vantage.own, own),
            peers: peers.collect(),
        };
        Some(Self {
            node,
            scene,
            memories,
        })
    }

    /// The tables.
    pub fn scene(&self) -> &Scene<'a, GuestMemory> {
        &self.scene
    }

    /// Finds the segments of a side, and whose memory they are in.
    fn find(
        &self,
        side: &Side,
        (done, length): (u64, u64),
        right: Right,
        segments: &mut Vec<Segment>,
    ) -> Result<&'a GuestMemory, Status> {
        let owner = walk::segments(&self.scene, side, done, length, right, segments)?;
        let node = match owner {
            Owner::Own => self.node,
            Owner::Peer(node) => node as usize,
        };
        self.memories.get(node).copied().ok_or(Status::BusError)
    }

    /// Changes the word at a side that was checked; says what it was.
    pub fn change_word(
        &self,
        at: &Side,
        operation: Atomic,
        scratch: &mut Scratch,
    ) -> Result<u64, Status> {
        let segments = &mut scratch.destination;
        self.find(at, (0, Atomic::BYTES), Right::Read, segments)?;
        let memory = self.find(at, (0, Atomic::BYTES), Right::Write, segments)?;
        // A word that is aligned is in one page.
        let address = match segments.as_slice() {
            [one] if one.address % Atomic::BYTES == 0 => one.address,
            _ => return Err(Status::NotAligned),
        };
        let old = operation.apply(memory, address);
        old.map_err(|_| Status::BusError)
    }

    /// Does what is left of some work, or a chunk of it. Checks everything before the first byte.
    pub fn perform(&self, work: &Work, done: u64, scratch: &mut Scratch) -> Outcome {
        let result = match work {
            Work::Copy(checked) => self.copy(checked, done, scratch),
            Work::Atomic { at, operation } => {
                let old = self.change_word(at, *operation, scratch);
                old.map(|word| Outcome {
                    word: Some(word),
                    ..Outcome::default()
                })
            }
            // The model does it.
            Work::Invalidate { .. } | Work::Nothing => Ok(Outcome::default()),
        };
        result.unwrap_or_else(Outcome::failed)
    }

    fn copy(&self, checked: &Checked, done: u64, scratch: &mut Scratch) -> Result<Outcome, Status> {
        let left = checked.bytes.saturating_sub(done);
        let range = (done, left.min(walk::CHUNK));
        let (sources, destinations) = (&mut scratch.source, &mut scratch.destination);
        let from = self.find(&checked.source, range, Right::Read, sources)?;
        let to = self.find(&checked.destination, range, Right::Write, destinations)?;
        let copied = walk::copy((from, sources), (to, destinations));
        let (Ok(moved) | Err((moved, _))) = copied;
        Ok(Outcome {
            moved,
            error: copied.err().map(|_| Status::BusError),
            word: None,
        })
    }

    /// Spoils what was moved last.
    fn corrupt(&self, work: &Work, scratch: &Scratch) {
        let (Work::Copy(checked), Some(first)) = (work, scratch.destination.first()) else {
            return;
        };
        let node = checked
            .destination
            .far()
            .map_or(self.node, |far| far.node as usize);
        if let Some(memory) = self.memories.get(node) {
            memory.invert_bit(first.address);
        }
    }
}

impl Job {
    /// Does the work, or a chunk of it.
    pub fn run(&self, memories: &[&GuestMemory], scratch: &mut Scratch) -> Outcome {
        if let Work::Invalidate { .. } = self.work {
            return Outcome::default();
        }
        let reach = Reach::new(&self.vantage, self.node, memories);
        let Some(reach) = reach.filter(|_| self.bus_works) else {
            return Outcome::failed(Status::BusError);
        };
        let outcome = reach.perform(&self.work, self.done, scratch);
        if self.corrupt && outcome.error.is_none() {
            reach.corrupt(&self.work, scratch);
        }
        outcome
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
            ..Speed::default()
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
