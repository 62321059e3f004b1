// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state that device, driver and mm are in together, and what must never be true of it.
//!
//! There is one page entry, of one page of an address space. Nothing pins the page: the mm maps a
//! frame there, another one, or none. What is shared without a lock is in [`Memory`]; all else is
//! below the lock of the area, the model's lock, or a lock of the mm, and so is always up to date.

use crate::actor::Actor;
use crate::device::Device;
use crate::memory::{Location, Memory, Order, View, THREADS};
use crate::mm::{Mm, Page};

/// Actors beside the device.
pub const ACTORS: usize = 3;

/// Brackets of the device, which are the first threads.
pub const BRACKETS: usize = THREADS - ACTORS;

/// Something that must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The device accesses a frame after a notifier has returned, which the address does not map.
    Stray,
    /// The device uses a DMA mapping that has ended.
    Unmapped,
    /// The device uses the word of an entry with the rest of another one.
    Torn,
    /// The device has written to a frame, and the mm is told that the frame is clean.
    Lost,
    /// The driver goes on while a write of the device is not in memory yet.
    Unordered,
    /// A DMA mapping has no entry that could end it.
    Leaked,
    /// After a reset, the touch words tell that a bracket is open.
    Numbers,
    /// An actor waits for what does not come.
    Stuck,
}

/// The driver's own state of the page entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// The device cannot use it, and no DMA mapping is kept.
    #[default]
    Empty,
    /// The device can use it.
    Valid,
    /// The word is not VALID any more; the device may use what it has found before.
    Retracted,
}

/// The driver's own copy of the page entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    /// What it is.
    pub state: EntryState,
    /// The page, unless it is empty.
    pub page: Option<Page>,
    /// It is in the retraction that eviction has made, which a driver would tell by a number.
    pub evicted: bool,
    /// For each frame: it has a DMA mapping.
    mapped: [bool; 2],
    /// The device has written by this mapping.
    written: bool,
}

/// A lock that the driver takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The thread that has it.
    holder: Option<u8>,
    view: View,
}

/// What is true at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What is shared without a lock.
    pub memory: Memory,
    /// The device.
    pub device: Device,
    /// The lock of the area.
    pub pages: Lock,
    /// The driver's copy of the page entry, below that lock.
    pub entry: Entry,
    /// The address space.
    pub mm: Mm,
    /// Progress of the actors.
    pub actors: [Actor; ACTORS],
}

impl State {
    /// Returns the state in which nothing is under way. The page is mapped; its entry is valid if
    /// `filled`, and else in a block that was not initialised.
    pub fn new(filled: bool, device: Device, actors: [Actor; ACTORS]) -> Self {
        let page = Page {
            frame: 0,
            write: true,
        };
        let mut values = vec![(Location::Oldest, 1)];
        let mut entry = Entry::default();
        if filled {
            values.extend([(Location::Word, page.word()), (Location::Space, 1)]);
            entry.state = EntryState::Valid;
            entry.page = Some(page);
            entry.mapped[0] = true;
        }
        Self {
            memory: Memory::new(&values),
            device,
            pages: Lock::default(),
            entry,
            mm: Mm::new(page),
            actors,
        }
    }

    /// Stores a value.
    pub fn store(&mut self, thread: usize, location: Location, value: u8, order: Order) {
        self.memory.store(thread, location, value, order);
    }

    /// Returns true if an actor can take the lock of the area.
    pub fn is_free(&self) -> bool {
        self.pages.holder.is_none()
    }

    /// Takes the lock of the area.
    pub fn lock(&mut self, thread: usize) {
        self.pages.holder = u8::try_from(thread).ok();
        self.memory.join(thread, self.pages.view);
    }

    /// Releases it. Returns what is wrong with the entry, which other threads can see now.
    pub fn unlock(&mut self, thread: usize) -> Option<Harm> {
        self.pages.holder = None;
        self.pages.view.join(self.memory.view(thread));
        let kept = self
            .entry
            .page
            .filter(|_| self.entry.state != EntryState::Empty);
        let mut frames = 0..2u8;
        let leaked = frames.any(|frame| {
            let kept = kept.is_some_and(|page| page.frame == frame);
            self.entry.mapped[usize::from(frame)] && !kept
        });
        leaked.then_some(Harm::Leaked)
    }

    /// Maps a page for DMA, and keeps it in the entry. Returns what is wrong with that.
    pub fn keep(&mut self, page: Page) -> Option<Harm> {
        let mapped = &mut self.entry.mapped[usize::from(page.frame)];
        let leaked = std::mem::replace(mapped, true);
        self.entry.state = EntryState::Valid;
        self.entry.page = Some(page);
        self.entry.evicted = false;
        leaked.then_some(Harm::Leaked)
    }

    /// Stores that the entry is not VALID, if it is.
    pub fn retract(&mut self, thread: usize) {
        if self.entry.state == EntryState::Valid {
            self.store(thread, Location::Word, 0, Order::Relaxed);
            self.entry.state = EntryState::Retracted;
        }
    }

    /// Ends the DMA mapping of the entry.
    pub fn unmap(&mut self) {
        self.entry.mapped = [false; 2];
    }

    /// Ends the mapping, hands on if the page is `dirty`, and empties the entry. Returns what is
    /// wrong with that.
    pub fn empty(&mut self, thread: usize, dirty: bool) -> Option<Harm> {
        let lost = self.entry.written && !dirty;
        self.entry = Entry::default();
        if lost {
            Some(Harm::Lost)
        } else if !self.memory.sees_latest(thread, Location::Data) {
            Some(Harm::Unordered)
        } else {
            None
        }
    }

    /// Lets an access of the device arrive. Returns what is wrong with it. If DMA mappings need no
    /// end (no `iommu`), frames are reachable without.
    pub fn access(&mut self, thread: usize, page: Page, iommu: bool) -> Option<Harm> {
        if page.write {
            self.store(thread, Location::Data, 1, Order::Relaxed);
            self.entry.written = true;
        }
        if iommu && !self.entry.mapped[usize::from(page.frame)] {
            Some(Harm::Unmapped)
        } else if !self.mm.permits(page) {
            Some(Harm::Stray)
        } else {
            None
        }
    }

    /// Forgets what cannot be seen any more.
    pub fn forget(&mut self) {
        let mut live = [false; THREADS];
        let (brackets, actors) = live.split_at_mut(BRACKETS);
        for (number, live) in brackets.iter_mut().enumerate() {
            *live = !self.device.has_ended(number);
        }
        for (actor, live) in self.actors.iter().zip(actors) {
            *live = !actor.has_ended();
        }
        let locks = &mut [&mut self.pages.view, &mut self.device.lock];
        self.memory.forget(live, locks);
    }
}
