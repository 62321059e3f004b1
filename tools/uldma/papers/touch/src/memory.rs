// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weakly ordered memory: each location has a short history of stores, each thread a view.
//!
//! A *view* is, for each location, the oldest store that a load may still return. A load returns any
//! store that is not older than the thread's view of the location, and raises the view to it. So a
//! thread that has not synchronised with another one may miss its latest stores, and may see
//! two of them in the wrong order. What synchronises:
//!
//! * a load with [`Order::Acquire`] takes over the view of a store with [`Order::Release`];
//! * a lock takes over the view of its last holder;
//! * a full fence exchanges views with all other full fences, in both directions.
//!
//! That is the memory of C11 without stores that are promised ahead of time: no load is later than
//! a store that follows it, and stores to one location have the order in which they are made. It is
//! weaker than x86 and than posted writes of PCI Express, which other devices see in order, and it
//! has the reordering of a store and a later load (store buffering) that the protocol depends on.

use std::hash::{Hash, Hasher};
use std::ops::Range;

/// Threads: two brackets of the device, and three actors.
pub const THREADS: usize = 5;

const LOCATIONS: usize = 8;

/// Stores of one location that some thread may still load.
const DEPTH: usize = 6;

/// A word or byte that several threads use without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// First word of the page entry: VALID, rights and frame.
    Word,
    /// Owner of the page entry, in its second word; 0 in a block that was not initialised.
    Space,
    /// Dirty byte of the page entry.
    Dirty,
    /// What the device has written to the frame.
    Data,
    /// Number of the last bracket that was begun.
    Begun,
    /// Lowest number of a bracket that has not ended.
    Oldest,
    /// 1 if the device can access no memory any more.
    Off,
    /// Sequence of the area's interval.
    Sequence,
}

/// Order of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// With respect to the same location only.
    Relaxed,
    /// A load: what the releasing thread did before is visible.
    Acquire,
    /// A store: what the thread did before is visible to what acquires it.
    Release,
}

/// For each location, the oldest store that may still be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct View([u8; LOCATIONS]);

impl View {
    /// Raises the view to another one.
    pub fn join(&mut self, other: View) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = (*own).max(other);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Message {
    value: u8,
    /// The storing thread's view, if the store releases.
    view: View,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct History {
    messages: [Message; DEPTH],
    length: u8,
}

impl Hash for History {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.messages[..usize::from(self.length)].hash(state);
    }
}

/// All locations, and the view of each thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    histories: [History; LOCATIONS],
    views: [View; THREADS],
    /// The view that full fences exchange.
    fences: View,
}

impl Memory {
    /// Returns memory with the given values, which all threads see; all other locations are 0.
    pub fn new(values: &[(Location, u8)]) -> Self {
        let mut memory = Self {
            histories: [History::default(); LOCATIONS],
            views: [View::default(); THREADS],
            fences: View::default(),
        };
        for history in &mut memory.histories {
            history.length = 1;
        }
        for (location, value) in values {
            memory.histories[*location as usize].messages[0].value = *value;
        }
        memory
    }

    /// Returns the stores that a load of `location` by `thread` can return.
    pub fn choices(&self, thread: usize, location: Location) -> Range<u8> {
        let at = location as usize;
        self.views[thread].0[at]..self.histories[at].length
    }

    /// Loads one of the stores that [`choices`](Self::choices) has.
    pub fn load(&mut self, thread: usize, location: Location, choice: u8, order: Order) -> u8 {
        let at = location as usize;
        let message = self.histories[at].messages[usize::from(choice)];
        self.views[thread].0[at] = choice;
        if order == Order::Acquire {
            self.views[thread].join(message.view);
        }
        message.value
    }

    /// Stores a value.
    pub fn store(&mut self, thread: usize, location: Location, value: u8, order: Order) {
        let at = location as usize;
        let history = &mut self.histories[at];
        let next = history.length;
        assert!(
            usize::from(next) < DEPTH,
            "{location:?} has a longer history"
        );
        self.views[thread].0[at] = next;
        let view = match order {
            Order::Release => self.views[thread],
            _ => View::default(),
        };
        history.messages[usize::from(next)] = Message { value, view };
        history.length += 1;
    }

    /// Makes a full fence, which no load or store of the thread passes.
    pub fn fence(&mut self, thread: usize) {
        self.fences.join(self.views[thread]);
        self.views[thread] = self.fences;
    }

    /// Returns the view of a thread, for a lock that it releases.
    pub fn view(&self, thread: usize) -> View {
        self.views[thread]
    }

    /// Takes over a view, of a lock that the thread takes.
    pub fn join(&mut self, thread: usize, view: View) {
        self.views[thread].join(view);
    }

    /// Returns the latest value of a location.
    pub fn latest(&self, location: Location) -> u8 {
        let history = &self.histories[location as usize];
        history.messages[usize::from(history.length - 1)].value
    }

    /// Returns true if the thread can load nothing but the latest store.
    pub fn sees_latest(&self, thread: usize, location: Location) -> bool {
        self.choices(thread, location).len() == 1
    }

    /// Forgets differences that no thread of `live` can see any more, so that states are equal which
    /// behave equally. `locks` are the views of locks.
    pub fn forget(&mut self, live: [bool; THREADS], locks: &mut [&mut View]) {
        for (view, live) in self.views.iter_mut().zip(live) {
            if !live {
                *view = View::default();
            }
        }
        for at in 0..LOCATIONS {
            let length = self.histories[at].length;
            let views = self.views.iter().zip(live).filter(|(_, live)| *live);
            let oldest = views.map(|(view, _)| view.0[at]).min();
            for _ in 0..oldest.unwrap_or(length - 1) {
                self.remove(at, 0, locks);
            }
            if at == Location::Data as usize {
                // It is never loaded. What counts is if a thread has seen the latest store.
                while self.histories[at].length > 2 {
                    self.remove(at, 0, locks);
                }
                continue;
            }
            // A load cannot tell which of two equal stores it returns.
            let mut first = 0;
            while first + 1 < usize::from(self.histories[at].length) {
                let [one, other] =
                    [first, first + 1].map(|store| self.histories[at].messages[store]);
                if one == other {
                    self.remove(at, first, locks);
                } else {
                    first += 1;
                }
            }
        }
    }

    /// Removes a store. A view of it becomes one of the store that follows.
    fn remove(&mut self, at: usize, store: usize, locks: &mut [&mut View]) {
        let history = &mut self.histories[at];
        let length = usize::from(history.length);
        history.messages.copy_within(store + 1..length, store);
        history.messages[length - 1] = Message::default();
        history.length -= 1;
        let messages = self.histories.iter_mut().flat_map(|history| {
            let length = usize::from(history.length);
            history.messages[..length].iter_mut()
        });
        let stored = messages.map(|message| &mut message.view);
        let all = stored
            .chain(self.views.iter_mut())
            .chain([&mut self.fences]);
        for view in all.chain(locks.iter_mut().map(|view| &mut **view)) {
            view.0[at] -= u8::from(usize::from(view.0[at]) > store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All results of two threads that each store to a location and then load the other one.
    fn store_buffering(fences: [bool; 2]) -> Vec<(u8, u8)> {
        let locations = [Location::Begun, Location::Word];
        let mut results = Vec::new();
        for first in [0, 1] {
            let mut memory = Memory::new(&[]);
            for thread in [first, 1 - first] {
                memory.store(thread, locations[thread], 1, Order::Relaxed);
            }
            for thread in [first, 1 - first] {
                if fences[thread] {
                    memory.fence(thread);
                }
            }
            for one in memory.choices(0, locations[1]) {
                for other in memory.choices(1, locations[0]) {
                    let mut memory = memory.clone();
                    let one = memory.load(0, locations[1], one, Order::Relaxed);
                    let other = memory.load(1, locations[0], other, Order::Relaxed);
                    results.push((one, other));
                }
            }
        }
        results
    }

    #[test]
    fn two_full_fences_forbid_that_both_loads_miss_the_stores() {
        assert!(!store_buffering([true, true]).contains(&(0, 0)));
        assert!(store_buffering([true, false]).contains(&(0, 0)));
        assert!(store_buffering([false, true]).contains(&(0, 0)));
    }

    #[test]
    fn only_release_and_acquire_pass_a_message() {
        for (store, load, stale) in [
            (Order::Release, Order::Acquire, false),
            (Order::Release, Order::Relaxed, true),
            (Order::Relaxed, Order::Acquire, true),
        ] {
            let mut memory = Memory::new(&[]);
            memory.store(0, Location::Dirty, 1, Order::Relaxed);
            memory.store(0, Location::Oldest, 1, store);
            memory.load(1, Location::Oldest, 1, load);
            assert_eq!(
                !memory.sees_latest(1, Location::Dirty),
                stale,
                "{store:?} {load:?}"
            );
        }
    }

    #[test]
    fn forgetting_keeps_what_a_thread_can_load() {
        let mut memory = Memory::new(&[]);
        for value in 1..4 {
            memory.store(0, Location::Word, value, Order::Release);
        }
        memory.load(1, Location::Word, 2, Order::Relaxed);
        memory.forget([true, true, false, false, false], &mut []);
        assert_eq!(memory.choices(1, Location::Word), 0..2);
        assert_eq!(memory.load(1, Location::Word, 0, Order::Acquire), 2);
        assert_eq!(memory.latest(Location::Word), 3);
        assert!(memory.sees_latest(0, Location::Word));
    }
}
