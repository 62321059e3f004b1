// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine: schedules the contexts and moves chunks.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use crate::abi::Status;
use crate::atomic::Atomic;
use crate::check::AccessCheck;
use crate::layout::{PageEntry, PageRequest, MAX_NODES};
use crate::location::CheckedSide;
use crate::memory::{GuestMemory, Right};
use crate::page_request::{Lack, Lacks};
use crate::touch::Bracket;
use crate::tpt::{Tables, View};
use crate::transfer::{Outcome, Work};
use crate::walk::{self, Addresses, Memory, Missing, Noted, Owner, Part};

/// Timing parameters of the device.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Minimum time of each access to a BAR.
    pub access: Duration,
    /// Time for which an empty queue is polled continuously.
    pub poll: Duration,
    /// Time for which an empty queue is polled at all; the queue sleeps afterwards.
    pub doze: Duration,
    /// Longest interval between two polls of a queue that is no longer polled continuously.
    pub nap: Duration,
    /// Minimum interval of two interrupts of a node.
    pub interrupt: Duration,
    /// Interval of the doorbells of a storm.
    pub storm: Duration,
    /// Limit of how often per second each link comes up.
    pub link_ups: u32,
    /// Time from an initiation to its first byte.
    pub delay: Duration,
    /// Bytes per second of all transfers together; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// How late the host may run the device without making an engine with a bandwidth slower. What
    /// takes longer is a device that does not work, or a host that does not keep up.
    pub late: Duration,
}

impl Default for Speed {
    /// No delays and no limits.
    fn default() -> Self {
        Self {
            access: Duration::ZERO,
            poll: Duration::ZERO,
            doze: Duration::ZERO,
            nap: Self::NAP,
            interrupt: Duration::ZERO,
            storm: Self::STORM,
            link_ups: u32::MAX,
            delay: Duration::ZERO,
            bandwidth: None,
            late: Self::LATE,
        }
    }
}

impl Speed {
    /// Default of [`Speed::nap`]: about as long as a host takes to wake a thread.
    pub const NAP: Duration = Duration::from_micros(50);
    /// Default of [`Speed::storm`].
    pub const STORM: Duration = Duration::from_micros(100);
    /// Part of the time for which all queues have been empty that the device naps before it polls
    /// them again. A descriptor waits for so much of that time at most, however long it is.
    const NAP_PART: u32 = 8;

    /// Default of [`Speed::late`].
    pub const LATE: Duration = Duration::from_millis(20);
    /// Returns how long the device naps before it polls queues again that have been empty for
    /// `idle`; `None` if it polls them continuously.
    pub fn nap_after(&self, idle: Duration) -> Option<Duration> {
        (idle > self.poll).then(|| (idle / Self::NAP_PART).min(self.nap))
    }

    /// Returns the time for which a number of bytes keeps the link busy.
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

/// Work of a place of the schedule.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The earliest start.
    pub at: Instant,
    /// It moves bytes, so it waits until those before it have had their time.
    pub moves: bool,
}

/// Round-robin schedule of the contexts, paced by the bandwidth.
#[derive(Debug)]
pub struct Schedule {
    speed: Speed,
    /// The place that was served last.
    last: usize,
    /// Time until which the engine is busy.
    busy_until: Instant,
}

/// What the schedule picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The place.
    pub place: usize,
    /// When it began, by the time of the emulated engine. The host may run the device later than
    /// that; an engine of hardware has no such delay.
    pub began: Instant,
}

impl Schedule {
    /// Creates the schedule of an idle engine.
    pub fn new(speed: Speed) -> Self {
        Self {
            speed,
            last: 0,
            busy_until: Instant::now(),
        }
    }

    /// Returns the time for which an empty queue is polled.
    pub fn poll_timeout(&self) -> Duration {
        self.speed.poll.max(self.speed.doze)
    }

    /// Returns true if no delay and no bandwidth is configured.
    pub fn is_instant(&self) -> bool {
        self.speed.delay.is_zero() && self.speed.bandwidth.is_none()
    }

    /// Returns the earliest start of a transfer that is initiated now.
    pub fn ready(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.speed.delay).unwrap_or(now)
    }

    /// Picks the next of `places` in round-robin order. `ready` returns the work of a place. Returns
    /// the earliest start as the error if none is ready; `None` if no place has work.
    pub fn pick(
        &mut self,
        places: usize,
        now: Instant,
        ready: impl Fn(usize) -> Option<Ready>,
    ) -> Result<Turn, Option<Instant>> {
        let mut earliest: Option<Instant> = None;
        for step in 1..=places {
            let place = (self.last + step) % places;
            let at = match ready(place) {
                Some(Ready { at, moves: true }) => at.max(self.busy_until),
                Some(Ready { at, moves: false }) => at,
                None => continue,
            };
            if at <= now {
                self.last = place;
                let began = at.max(now.checked_sub(self.speed.late).unwrap_or(now));
                return Ok(Turn { place, began });
            }
            earliest = Some(earliest.map_or(at, |other| other.min(at)));
        }
        Err(earliest)
    }

    /// Accounts for the time that a number of bytes takes, the access to which began at a time.
    pub fn charge(&mut self, bytes: u64, began: Instant) {
        let from = self.busy_until.max(began);
        self.busy_until = from.checked_add(self.speed.time_of(bytes)).unwrap_or(from);
    }
}

/// The table registers that a node's engine uses: its own and those of its peers.
#[derive(Clone, Copy, Debug)]
pub struct TableView {
    /// The initiating node's tables.
    pub own: Tables,
    /// The tables of the other nodes and the generations of the links to them, by node number;
    /// `None` for nodes that cannot be reached.
    pub peers: [Option<(Tables, u32)>; MAX_NODES],
}

/// The part of a chunk's work to do in one step.
#[derive(Clone, Debug)]
pub enum Stage {
    /// The look-up and the access.
    Whole,
    /// Only the look-up of the bus addresses.
    LookUp,
    /// Only the access to bus addresses that were looked up before.
    Access(Scratch),
}

/// Result of a step.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The chunk was moved, or failed.
    Ended(Outcome),
    /// Its bus addresses are known, and no memory was accessed.
    LookedUp(Scratch),
}

/// One chunk of one transfer.
#[derive(Clone, Debug)]
pub struct Job {
    /// The initiating node.
    pub node: usize,
    /// The context.
    pub context: usize,
    /// Distinguishes tickets of this reset from those of an earlier one.
    pub epoch: u64,
    /// The transfer.
    pub ticket: u64,
    /// The operation.
    pub work: Work,
    /// Bytes moved before this chunk.
    pub done: u64,
    /// The tables of the node and its peers.
    pub table_view: TableView,
    /// The function may do DMA, and the bus works.
    pub dma_works: bool,
    /// Invert a bit of the data.
    pub corrupt: bool,
    /// Corrupt the source, which is only to be read (fault injection).
    pub trespass: bool,
    /// The part of the work to do now.
    pub stage: Stage,
    /// When it began, by the time of the engine.
    pub began: Instant,
    /// The time in which it may use what it looks up.
    pub bracket: Bracket,
    /// It has ended, and accesses once more (fault injection).
    pub late: bool,
}

/// Bus addresses of one side of a chunk.
#[derive(Clone, Debug, Default)]
struct Found {
    /// The node whose memory it is.
    node: usize,
    /// Which of its memories.
    memory: Memory,
    addresses: Addresses,
    /// The pages before which the segments end.
    missing: Option<Missing>,
}

impl Found {
    /// Returns the memory that the segments are of.
    fn memory<'a>(&self, memories: &[&'a GuestMemory]) -> Option<&'a GuestMemory> {
        let node = memories.get(self.node).copied()?;
        match self.memory {
            Memory::Bus => Some(node),
            Memory::Section => node.section(),
        }
    }

    /// Returns the pages before which the segments end, as what an access needs.
    fn lack(&self, need: u8) -> Option<Lack> {
        let pages = self.missing?;
        Some(Lack {
            owner: self.node,
            pages,
            need,
        })
    }

    /// Notes in the entries of optimistic pages that the first `bytes` bytes are accessed, before they
    /// are.
    fn note(&self, bytes: u64, right: Right, memories: &[&GuestMemory]) -> Result<(), Status> {
        const ACCESSED: u64 = offset_of!(PageEntry, accessed) as u64;
        const DIRTY: u64 = offset_of!(PageEntry, dirty) as u64;
        let Some(memory) = memories.get(self.node) else {
            return Ok(());
        };
        let noted = self.addresses.noted.iter();
        for Noted { place, entry, .. } in noted.take_while(|noted| noted.before < bytes) {
            let dirties = right == Right::Write && entry.dirty == 0;
            for (offset, changes) in [(ACCESSED, entry.accessed == 0), (DIRTY, dirties)] {
                if changes {
                    let stored = memory.store8(place + offset, 1);
                    stored.map_err(|_| Status::BusError)?;
                }
            }
        }
        Ok(())
    }
}

/// The bus addresses that a chunk touches; the allocations are reused for the next chunk.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    source: Found,
    destination: Found,
}

impl Scratch {
    /// Returns the nodes whose memory is touched.
    pub fn nodes(&self) -> [usize; 2] {
        [self.source.node, self.destination.node]
    }

    /// Forgets the page entries: the driver may have freed them.
    pub fn forget_entries(&mut self) {
        self.source.addresses.noted.clear();
        self.destination.addresses.noted.clear();
    }

    /// Accesses the looked-up bus addresses of an operation or of a chunk of it.
    fn access(&self, work: &Work, memories: &[&GuestMemory]) -> Result<Outcome, Status> {
        let memory = |found: &Found| found.memory(memories).ok_or(Status::BusError);
        match work {
            Work::Copy(_) => {
                let (from, to) = (&self.source, &self.destination);
                let bytes = from.addresses.bytes.min(to.addresses.bytes);
                from.note(bytes, Right::Read, memories)?;
                to.note(bytes, Right::Write, memories)?;
                let from = (memory(from)?, from.addresses.segments.as_slice());
                let copied = walk::copy(from, (memory(to)?, &to.addresses.segments));
                let (Ok(moved) | Err((moved, _))) = copied;
                let stopped = match copied {
                    Ok(_) => Outcome::lacking(self.lacks(bytes)),
                    Err(_) => Outcome::failed(Status::BusError),
                };
                Ok(Outcome {
                    moved,
                    from_window: self.source.memory == Memory::Section,
                    to_window: self.destination.memory == Memory::Section,
                    ..stopped
                })
            }
            Work::Atomic { operation, .. } => {
                let to = &self.destination;
                // The same page is on both sides.
                let lack = to.lack(PageRequest::READ | PageRequest::WRITE);
                if lack.is_some() {
                    return Ok(Outcome::lacking([lack, None]));
                }
                to.note(Atomic::BYTES, Right::Write, memories)?;
                let word = self.change_word(*operation, memory(to)?)?;
                Ok(Outcome {
                    word: Some(word),
                    ..Outcome::default()
                })
            }
            // The model does it.
            Work::Invalidate { .. } | Work::Paged | Work::Nothing => Ok(Outcome::default()),
        }
    }

    /// Returns the pages before which both sides of a copy end, after a number of bytes.
    fn lacks(&self, bytes: u64) -> Lacks {
        let needs = [
            (&self.source, PageRequest::READ),
            (&self.destination, PageRequest::WRITE),
        ];
        needs.map(|(found, need)| found.lack(need).filter(|_| found.addresses.bytes == bytes))
    }

    fn change_word(&self, operation: Atomic, memory: &GuestMemory) -> Result<u64, Status> {
        // A word that is aligned is in one page.
        let address = match self.destination.addresses.segments.as_slice() {
            [one] if one.address % Atomic::BYTES == 0 => one.address,
            _ => return Err(Status::NotAligned),
        };
        let old = operation.apply(memory, address);
        old.map_err(|_| Status::BusError)
    }

    /// Inverts a bit of one side of the last transfer, if its memory is writable for the device.
    fn spoil(found: &Found, work: &Work, memories: &[&GuestMemory]) {
        let first = found.addresses.segments.first();
        let memory = found.memory(memories);
        if let (Work::Copy(_), Some(first), Some(memory)) = (work, first, memory) {
            memory.invert_bit(first.address);
        }
    }
}

/// Resolves table entries to bus addresses on behalf of one node.
pub struct Resolver<'a> {
    node: usize,
    access_check: AccessCheck<'a, GuestMemory>,
    memories: &'a [&'a GuestMemory],
}

impl<'a> Resolver<'a> {
    /// Builds a resolver for `node`. Returns `None` if the node has no memory.
    pub fn new(
        table_view: &'a TableView,
        node: usize,
        memories: &'a [&'a GuestMemory],
    ) -> Option<Self> {
        let own = *memories.get(node)?;
        let peers = table_view.peers.iter().zip(memories);
        let peers = peers.map(|(peer, memory)| {
            let (tables, generation) = peer.as_ref()?;
            Some((View::new(tables, *memory), *generation))
        });
        let access_check = AccessCheck {
            own: View::new(&table_view.own, own),
            peers: peers.collect(),
        };
        Some(Self {
            node,
            access_check,
            memories,
        })
    }

    /// The tables.
    pub fn access_check(&self) -> &AccessCheck<'a, GuestMemory> {
        &self.access_check
    }

    /// Finds the bus addresses of a part of a side.
    fn find(
        &self,
        side: &CheckedSide,
        part: Part,
        right: Right,
        found: &mut Found,
    ) -> Result<(), Status> {
        let addresses = &mut found.addresses;
        let walked = walk::segments(&self.access_check, side, part, right, addresses)?;
        found.memory = walked.memory;
        found.missing = walked.missing;
        found.node = match walked.owner {
            Owner::Own => self.node,
            Owner::Peer(node) => node as usize,
        };
        Ok(())
    }

    /// Looks up and checks all bus addresses that an operation, or a chunk of it, touches.
    fn look_up(&self, work: &Work, done: u64, scratch: &mut Scratch) -> Result<(), Status> {
        let (source, destination) = (&mut scratch.source, &mut scratch.destination);
        match work {
            Work::Copy(checked) => {
                let left = checked.bytes.saturating_sub(done);
                let part = Part {
                    done,
                    bytes: left.min(walk::CHUNK),
                    left,
                };
                self.find(&checked.source, part, Right::Read, source)?;
                self.find(&checked.destination, part, Right::Write, destination)
            }
            Work::Atomic { at, .. } => {
                let word = Part {
                    done: 0,
                    bytes: Atomic::BYTES,
                    left: Atomic::BYTES,
                };
                self.find(at, word, Right::Read, source)?;
                self.find(at, word, Right::Write, destination)
            }
            Work::Invalidate { .. } | Work::Paged | Work::Nothing => Ok(()),
        }
    }

    /// Executes the rest of an operation, or a chunk of it. Checks everything before the first
    /// byte.
    pub fn perform(&self, work: &Work, done: u64, scratch: &mut Scratch) -> Outcome {
        let looked_up = self.look_up(work, done, scratch);
        let result = looked_up.and_then(|()| scratch.access(work, self.memories));
        result.unwrap_or_else(Outcome::failed)
    }
}

impl Job {
    /// Executes the chunk's current stage.
    pub fn run(&self, memories: &[&GuestMemory], scratch: &mut Scratch) -> Progress {
        match self.stage(memories, scratch) {
            Ok(progress) => progress,
            Err(status) => Progress::Ended(Outcome::failed(status)),
        }
    }

    fn stage(&self, memories: &[&GuestMemory], scratch: &mut Scratch) -> Result<Progress, Status> {
        if let Work::Invalidate { .. } | Work::Paged = self.work {
            return Ok(Progress::Ended(Outcome::default()));
        }
        if !self.dma_works {
            return Err(Status::BusError);
        }
        let found = match &self.stage {
            Stage::Access(found) => found,
            Stage::Whole | Stage::LookUp => {
                let resolver = Resolver::new(&self.table_view, self.node, memories);
                let resolver = resolver.ok_or(Status::BusError)?;
                resolver.look_up(&self.work, self.done, scratch)?;
                &*scratch
            }
        };
        if let Stage::LookUp = self.stage {
            return Ok(Progress::LookedUp(found.clone()));
        }
        let outcome = found.access(&self.work, memories)?;
        if self.corrupt && outcome.error.is_none() {
            Scratch::spoil(&found.destination, &self.work, memories);
        }
        if self.trespass && outcome.error.is_none() {
            Scratch::spoil(&found.source, &self.work, memories);
        }
        Ok(Progress::Ended(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn move_at(at: Instant) -> Option<Ready> {
        Some(Ready { at, moves: true })
    }

    /// An engine that moves a byte in a millisecond.
    fn paced() -> Schedule {
        Schedule::new(Speed {
            bandwidth: Some(1000),
            ..Speed::default()
        })
    }

    fn turn(place: usize, began: Instant) -> Result<Turn, Option<Instant>> {
        Ok(Turn { place, began })
    }

    #[test]
    fn turns_are_taken() {
        let mut schedule = Schedule::new(Speed::default());
        let now = Instant::now();
        for place in [1, 3, 0, 1, 3, 0] {
            let picked = schedule.pick(4, now, |it| move_at(now).filter(|_| it != 2));
            assert_eq!(picked, turn(place, now));
        }
        assert_eq!(schedule.pick(4, now, |_| None), Err(None));
    }

    #[test]
    fn a_nap_is_a_part_of_the_idle_time() {
        let micros = Duration::from_micros;
        let speed = Speed {
            poll: micros(50),
            ..Speed::default()
        };
        assert_eq!(speed.nap_after(micros(50)), None);
        assert_eq!(speed.nap_after(micros(80)), Some(micros(10)));
        assert_eq!(speed.nap_after(Duration::from_secs(1)), Some(Speed::NAP));
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
        assert_eq!(schedule.pick(1, now, |_| move_at(ready)), Err(Some(ready)));
        let later = ready + Duration::from_millis(1);
        assert_eq!(schedule.pick(1, later, |_| move_at(ready)), turn(0, ready));
        schedule.charge(500, ready);
        let busy_until = ready + Duration::from_millis(500);
        let picked = schedule.pick(1, later, |_| move_at(ready));
        assert_eq!(picked, Err(Some(busy_until)));
        // What is initiated when the engine is idle begins then.
        let ready = busy_until + Duration::from_millis(10);
        assert_eq!(schedule.pick(1, ready, |_| move_at(ready)), turn(0, ready));
    }

    #[test]
    fn what_moves_nothing_does_not_wait_for_the_bandwidth() {
        let mut schedule = paced();
        let now = Instant::now() + Duration::from_secs(1);
        schedule.charge(10, now);
        let ready = |place| {
            Some(Ready {
                at: now,
                moves: place == 1,
            })
        };
        assert_eq!(schedule.pick(2, now, ready), turn(0, now));
        schedule.charge(0, now);
        let only_one = |place| ready(place).filter(|it| it.moves);
        let busy_until = now + Duration::from_millis(10);
        assert_eq!(schedule.pick(2, now, only_one), Err(Some(busy_until)));
    }

    #[test]
    fn a_host_that_is_late_does_not_slow_the_engine() {
        let mut schedule = paced();
        let ready = Instant::now() + Duration::from_secs(1);
        let late = Duration::from_millis(3);
        let mut at = ready;
        for _ in 0..100 {
            let picked = schedule.pick(1, at, |_| move_at(ready)).unwrap();
            schedule.charge(10, picked.began);
            let Err(Some(next)) = schedule.pick(1, at, |_| move_at(ready)) else {
                panic!("the engine is not paced");
            };
            at = next + late;
        }
        assert_eq!(at, ready + Duration::from_millis(100 * 10) + late);
        // An engine that did not run does not make up for that.
        let at = at + Duration::from_secs(10);
        let picked = schedule.pick(1, at, |_| move_at(ready));
        assert_eq!(picked, turn(0, at - Speed::LATE));
    }
}
