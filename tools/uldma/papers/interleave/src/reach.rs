// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests if the device can write to a page after the driver has unpinned it, in any order of the
//! steps of device, programs and driver.
//!
//! The device looks a page entry up, and writes later to the frame that it found; the driver may do
//! anything in between. So the driver's work at the end of locks is a list of steps here, and the
//! search tries every order of the steps of all workers that end or begin locks, of initiations,
//! and of the device's chunks. The lists are those of `drivers/uldma/lmm` ([`Driver::Proven`]), and
//! those from before an invalidation had to follow every retraction ([`Driver::Unproven`]).
//!
//! The world: the area A, of one page, has page entry 0. The region R and the buffer B of a
//! connection are two locks of it, so both use that entry. The page S is mapped out to it. A third
//! lock takes the first free entry, which is entry 0 again once it is free.

use std::collections::HashSet;
use std::fmt;

/// Page entries; with one more than locks need at a time, an entry is free for the third lock at any time.
const ENTRIES: usize = 2;
/// Frames: of A, and of the third lock.
const FRAMES: usize = 2;
/// Chunks of each transfer.
const CHUNKS: u8 = 2;
/// Transfers that are started.
const TRANSFERS: usize = 2;

/// A region of the region table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// A program's registration of A.
    R,
    /// A buffer of a connection, in A.
    B,
    /// A registration of other memory.
    N,
}

/// A worker that ends or begins locks, at its own pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    /// Unregisters R.
    Unregister,
    /// Closes the connection that has B.
    Disconnect,
    /// Registers N, and unregisters it.
    Register,
    /// Pins and enters the page of N, fails, and undoes it.
    Fail,
}

/// Order of the driver's steps when pages have no lock any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// An invalidation follows every retraction of pages.
    Proven,
    /// The same with commands of a queue in place of registers: the device takes a command when no
    /// chunk is in flight, and completes it at once.
    Queued,
    /// [`Driver::Queued`] with the retraction of pages after the command has completed.
    QueuedLate,
    /// None follows where the region was invalidated before, and where a lock failed.
    Unproven,
    /// [`Driver::Proven`] without waiting for the end of the invalidation.
    Hasty,
    /// [`Driver::Proven`] with the retraction of pages after the end of the invalidation.
    Late,
}

/// The next step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Takes the lock of the space.
    Lock,
    /// Releases it.
    Unlock,
    /// Pins the frame of N, and shows the device an entry with it.
    Enter,
    /// Makes a region valid over the entry.
    Publish(Region),
    /// Clears `VALID` of a region.
    RetractRegion(Region),
    /// Stores the region to `INVALIDATE`, or, for none, an index that names nothing.
    Invalidate(Option<Region>),
    /// Waits for `INVALIDATE_PENDING` to be 0.
    Wait,
    /// Drops one lock. If no lock is left, steps with pages follow; otherwise they are skipped.
    Release,
    /// Clears `VALID` of the page entry.
    RetractPages,
    /// Starts an invalidation of no region, for pages.
    Notify,
    /// Waits for the end of that invalidation.
    WaitNotified,
    /// Waits until the device has completed the command that invalidates the region, or no region.
    Complete(Option<Region>),
    /// The same, for pages.
    CompleteForPages,
    /// Ends the DMA mapping, frees the entry and unpins the page.
    Unpin,
}

impl Driver {
    /// From the last lock of pages on.
    fn end(self) -> &'static [Step] {
        use Step::{CompleteForPages, Notify, RetractPages, Unpin, WaitNotified};
        match self {
            Self::Queued => &[RetractPages, CompleteForPages, Unpin],
            Self::QueuedLate => &[CompleteForPages, RetractPages, Unpin],
            Self::Proven => &[RetractPages, Notify, WaitNotified, Unpin],
            Self::Unproven => &[RetractPages, Unpin],
            Self::Hasty => &[RetractPages, Notify, Unpin],
            Self::Late => &[Notify, WaitNotified, RetractPages, Unpin],
        }
    }

    /// Returns the steps of `worker`, in order.
    fn steps(self, worker: Worker) -> Vec<Step> {
        use Step::{Enter, Invalidate, Lock, Publish, Release, RetractRegion, Unlock, Wait};
        // Pages and the region share one invalidation.
        let unregister = |region| {
            let tell = Some(region);
            let both = match self {
                Self::Late => vec![Invalidate(tell), Wait, Step::RetractPages],
                Self::Hasty => vec![Step::RetractPages, Invalidate(tell)],
                Self::Queued => vec![Step::RetractPages, Step::Complete(tell)],
                Self::QueuedLate => vec![Step::Complete(tell), Step::RetractPages],
                _ => vec![Step::RetractPages, Invalidate(tell), Wait],
            };
            let begin = [RetractRegion(region), Lock, Release];
            [&begin[..], &both, &[Step::Unpin, Unlock]].concat()
        };
        match worker {
            Worker::Unregister => unregister(Region::R),
            Worker::Disconnect => {
                let tell = Some(Region::B);
                let told = match self {
                    Self::Queued | Self::QueuedLate => vec![Step::Complete(tell)],
                    _ => vec![Invalidate(tell), Wait],
                };
                let begin = [RetractRegion(Region::B)];
                [&begin[..], &told, &[Lock, Release], self.end(), &[Unlock]].concat()
            }
            Worker::Register => {
                let begin = vec![Lock, Enter, Unlock, Publish(Region::N)];
                [begin, unregister(Region::N)].concat()
            }
            Worker::Fail => [&[Lock, Enter, Release][..], self.end(), &[Unlock]].concat(),
        }
    }
}

/// The memory that a transfer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// A page entry, by a shadow page of a region that is registered.
    Page(usize),
    /// A page entry, as S is mapped out to it.
    MappedOut,
    /// A region, by its run.
    Run(Region),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Transfer {
    name: Name,
    left: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    /// The frame that the device sees, if the entry is valid.
    frame: Option<usize>,
    /// Locks that use it.
    users: u8,
    taken: bool,
}

/// Progress of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Progress {
    made: usize,
    /// The entry of its lock, and the frame.
    entry: usize,
    frame: usize,
    /// Its lock was the last of the entry.
    ended: bool,
    /// The chunk that was in flight at the start of the invalidation still is.
    pending: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ReachState {
    entries: [Entry; ENTRIES],
    pinned: [bool; FRAMES],
    /// The entries of the regions that are valid.
    regions: [Option<usize>; 3],
    transfers: [Option<Transfer>; TRANSFERS],
    started: usize,
    /// The transfer of which a chunk is in flight, and the frame that was found for it.
    chunk: Option<(usize, usize)>,
    workers: Vec<Progress>,
    lock: Option<usize>,
}

/// The next step of any participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A program initiates a transfer.
    Start(Name),
    /// The device finds the frame for a chunk of this transfer.
    Find(usize),
    /// The device writes to the frame that it has found.
    Write,
    /// A worker makes its next step.
    Step(Worker, &'static str),
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(name) => write!(f, "start {name:?}"),
            Self::Find(transfer) => write!(f, "find {transfer}"),
            Self::Write => write!(f, "write"),
            Self::Step(worker, step) => write!(f, "{worker:?} {step}"),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The shortest way to a write to a page that is not pinned.
    pub write_after_unpin: Option<Vec<Move>>,
    /// Number of states in which no step is left.
    pub ends: usize,
    /// True if a worker did not finish in one of the orders.
    pub stuck: bool,
    /// Different states.
    pub states: usize,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "locks",
            Self::Unlock => "unlocks",
            Self::Enter => "enters pages",
            Self::Publish(_) => "publishes",
            Self::RetractRegion(_) => "retracts the region",
            Self::Invalidate(_) | Self::Notify => "invalidates",
            Self::Wait | Self::WaitNotified => "waited",
            Self::Complete(_) | Self::CompleteForPages => "invalidated",
            Self::Release => "releases",
            Self::RetractPages => "retracts pages",
            Self::Unpin => "unpins",
        }
    }

    /// Returns true if the step is left out where the pages have another lock.
    fn is_for_pages(self) -> bool {
        matches!(
            self,
            Self::RetractPages
                | Self::Notify
                | Self::WaitNotified
                | Self::CompleteForPages
                | Self::Unpin
        )
    }
}

impl ReachState {
    fn new(workers: usize) -> Self {
        let mut entries = [Entry::default(); ENTRIES];
        entries[0] = Entry {
            frame: Some(0),
            users: 2,
            taken: true,
        };
        Self {
            entries,
            pinned: [true, false],
            regions: [Some(0), Some(0), None],
            transfers: [None; TRANSFERS],
            started: 0,
            chunk: None,
            workers: vec![Progress::default(); workers],
            lock: None,
        }
    }

    /// Returns the possible steps of programs and the device.
    fn others(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.started < TRANSFERS {
            let named = [Region::R, Region::N].map(|region| self.regions[region as usize]);
            let pages = named.into_iter().flatten().map(Name::Page);
            let all = [Region::R, Region::B, Region::N].into_iter();
            let runs = all.filter(|region| self.regions[*region as usize].is_some());
            let names = pages.chain([Name::MappedOut]).chain(runs.map(Name::Run));
            moves.extend(names.map(Move::Start));
        }
        match self.chunk {
            Some(_) => moves.push(Move::Write),
            None => {
                let transfers = self.transfers.iter().enumerate();
                let there = transfers.filter(|(_, transfer)| transfer.is_some());
                moves.extend(there.map(|(number, _)| Move::Find(number)));
            }
        }
        moves
    }

    /// The frame that the device finds for a transfer.
    fn find(&self, name: Name) -> Option<usize> {
        let entry = match name {
            Name::Page(entry) => entry,
            Name::MappedOut => 0,
            Name::Run(region) => self.regions[region as usize]?,
        };
        self.entries[entry].frame
    }

    /// Makes a step of programs or the device. Returns false if it writes to a page that is not
    /// pinned.
    fn make(&mut self, made: Move) -> bool {
        match made {
            Move::Start(name) => {
                self.started += 1;
                let room = self.transfers.iter_mut().find(|place| place.is_none());
                if let Some(place) = room {
                    *place = Some(Transfer { name, left: CHUNKS });
                }
                true
            }
            Move::Find(number) => {
                let name = self.transfers[number].map(|transfer| transfer.name);
                match name.and_then(|name| self.find(name)) {
                    Some(frame) => self.chunk = Some((number, frame)),
                    // It ends as refused.
                    None => self.transfers[number] = None,
                }
                true
            }
            Move::Write => {
                let Some((number, frame)) = self.chunk.take() else {
                    return true;
                };
                for worker in &mut self.workers {
                    worker.pending = false;
                }
                let transfer = self.transfers[number].as_mut();
                let left = transfer.map_or(0, |transfer| {
                    transfer.left -= 1;
                    transfer.left
                });
                if left == 0 {
                    self.transfers[number] = None;
                }
                self.pinned[frame]
            }
            Move::Step(..) => true,
        }
    }

    /// Returns true if worker `number` can make `step` now.
    fn can(&self, number: usize, step: Step) -> bool {
        let worker = self.workers[number];
        match step {
            Step::Lock => self.lock.is_none(),
            Step::Wait => !worker.pending,
            Step::WaitNotified => !worker.ended || !worker.pending,
            Step::Complete(_) => self.chunk.is_none(),
            Step::CompleteForPages => !worker.ended || self.chunk.is_none(),
            _ => true,
        }
    }

    fn step(&mut self, number: usize, step: Step) {
        let worker = &mut self.workers[number];
        worker.made += 1;
        if step.is_for_pages() && !worker.ended {
            return;
        }
        let at = worker.entry;
        match step {
            Step::Lock => self.lock = Some(number),
            Step::Unlock => self.lock = None,
            Step::Enter => {
                let free = self.entries.iter().position(|entry| !entry.taken);
                let at = free.unwrap_or_default();
                (worker.entry, worker.frame) = (at, 1);
                self.pinned[1] = true;
                self.entries[at] = Entry {
                    frame: Some(1),
                    users: 1,
                    taken: true,
                };
            }
            Step::Publish(region) => self.regions[region as usize] = Some(at),
            Step::RetractRegion(region) => self.regions[region as usize] = None,
            Step::Invalidate(_) | Step::Notify | Step::Complete(_) => {
                worker.pending = self.chunk.is_some();
                let (Step::Invalidate(Some(region)) | Step::Complete(Some(region))) = step else {
                    return;
                };
                let busy = self.chunk.map(|(busy, _)| busy);
                for (number, place) in self.transfers.iter_mut().enumerate() {
                    let Some(transfer) = place else { continue };
                    match transfer.name == Name::Run(region) {
                        // Its chunk ends first.
                        true if busy == Some(number) => transfer.left = 1,
                        true => *place = None,
                        false => {}
                    }
                }
            }
            Step::Wait | Step::WaitNotified | Step::CompleteForPages => {}
            Step::Release => {
                self.entries[at].users -= 1;
                worker.ended = self.entries[at].users == 0;
            }
            Step::RetractPages => self.entries[at].frame = None,
            Step::Unpin => {
                self.pinned[worker.frame] = false;
                self.entries[at] = Entry::default();
            }
        }
    }
}

/// Tries every order of unregistering R and closing the connection of B by `driver`, and of the
/// work of `third`, with every order of initiations and chunks.
pub fn search(driver: Driver, third: Worker) -> Findings {
    let workers = [Worker::Unregister, Worker::Disconnect, third];
    let steps = workers.map(|worker| driver.steps(worker));
    let first = ReachState::new(workers.len());
    let mut seen = HashSet::from([first.clone()]);
    let mut nodes = vec![(first, None)];
    let mut findings = Findings::default();
    let mut next = 0;
    while let Some((state, _)) = nodes.get(next) {
        let state = state.clone();
        let mut made = Vec::new();
        for other in state.others() {
            let mut after = state.clone();
            let fine = after.make(other);
            made.push((other, after, fine));
        }
        for (number, steps) in steps.iter().enumerate() {
            let step = steps.get(state.workers[number].made).copied();
            if let Some(step) = step.filter(|step| state.can(number, *step)) {
                let mut after = state.clone();
                after.step(number, step);
                made.push((Move::Step(workers[number], step.name()), after, true));
            }
        }
        if made.is_empty() {
            let mut pairs = state.workers.iter().zip(&steps);
            findings.ends += 1;
            findings.stuck |= pairs.any(|(worker, steps)| worker.made < steps.len());
        }
        for (made, after, fine) in made {
            if !fine && findings.write_after_unpin.is_none() {
                findings.write_after_unpin = Some(way(&nodes, next, made));
            }
            if seen.insert(after.clone()) {
                nodes.push((after, Some((next, made))));
            }
        }
        next += 1;
    }
    findings.states = nodes.len();
    findings
}

/// Returns the steps that lead to `last` from node `at`.
fn way(nodes: &[(ReachState, Option<(usize, Move)>)], mut at: usize, last: Move) -> Vec<Move> {
    let mut way = vec![last];
    while let Some((_, Some((before, made)))) = nodes.get(at) {
        way.push(*made);
        at = *before;
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: [Worker; 2] = [Worker::Register, Worker::Fail];

    #[test]
    fn pages_are_written_after_they_were_unpinned_without_a_proof() {
        let wrong = [
            Driver::Unproven,
            Driver::Hasty,
            Driver::Late,
            Driver::QueuedLate,
        ];
        for driver in wrong {
            for third in THIRD {
                let found = search(driver, third);
                assert!(found.write_after_unpin.is_some(), "{driver:?} {third:?}");
            }
        }
    }

    #[test]
    fn no_order_writes_to_them_with_one() {
        for driver in [Driver::Proven, Driver::Queued] {
            for third in THIRD {
                let found = search(driver, third);
                let way = found.write_after_unpin.iter().flatten();
                let way: Vec<String> = way.map(Move::to_string).collect();
                assert!(way.is_empty(), "{driver:?} {third:?}: {way:?}");
                assert!(found.ends > 0 && !found.stuck, "{driver:?} {third:?}");
                println!("{driver:?} {third:?}: {} states", found.states);
            }
        }
    }

    /// The region was invalidated before its pages were retracted, and that did not end what names only
    /// a page.
    #[test]
    fn the_hole_is_between_finding_a_page_and_writing() {
        let found = search(Driver::Unproven, Worker::Register);
        let way = found.write_after_unpin.unwrap_or_default();
        way.iter().for_each(|made| println!("{made}"));
        let place = |wanted: &str| way.iter().position(|made| made.to_string() == wanted);
        let found = way.iter().rposition(|made| matches!(made, Move::Find(_)));
        assert!(place("Disconnect invalidates") < found);
        assert!(found < place("Disconnect retracts pages"));
        assert_eq!(way.last(), Some(&Move::Write));
    }
}
