// SPDX-License-Identifier: GPL-2.0

//! What peers hold of this node: ranges of the own section that they may still write, and connections,
//! of which the use here has ended.
//!
//! A driver that keeps to the protocol gives back what it holds without waiting for a program, so each
//! hold has the same [deadline](deadline()). It is counted in ticks of the progress worker: a node that
//! stands still blames no peer for that, and a peer that stands still loses its session for want of a
//! heartbeat first, which is not held against it. What a peer without a session holds has no deadline:
//! its next session gives all of it back.

use kernel::prelude::*;

use crate::{
    hw::layout::MAX_NODES,
    kernel_ext::nospec,
    link::TICK,
    params, //
};

/// Time-outs of the link that a peer has to give something back. More than one, so that a peer that
/// stands still has no session then.
const TIMEOUTS: i64 = 2;

/// Returns the ticks that a peer has to give something back.
pub(crate) fn deadline() -> u32 {
    let ticks = TIMEOUTS * params::link_timeout().as_nanos() / TICK.as_nanos();
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

/// How long a peer has held something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    ticks: u32,
    is_told: bool,
}

impl Age {
    /// Of what a peer begins to hold now.
    pub(crate) const NEW: Self = Self {
        ticks: 0,
        is_told: true,
    };
    /// Of what a peer cannot know that it has to give back, which has no deadline.
    pub(crate) const UNTOLD: Self = Self {
        ticks: 0,
        is_told: false,
    };

    /// Counts a tick.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.saturating_add(u32::from(self.is_told));
    }
}

/// The holds of one range, all by the peer in whose lane it lies.
pub(crate) struct Hold {
    peer: u32,
    count: u32,
    age: Age,
}

impl Hold {
    /// Creates `count` holds of `peer`.
    pub(crate) fn new(peer: u32, count: u32, age: Age) -> Self {
        Self { peer, count, age }
    }

    /// Gives `count` holds of `peer` back.
    pub(crate) fn give_back(&mut self, peer: u32, count: u32) {
        if peer == self.peer {
            self.count = self.count.saturating_sub(count);
        }
    }

    /// Returns true if the peer does not hold the range any more.
    pub(crate) fn is_over(&self) -> bool {
        self.count == 0
    }

    /// Counts a tick.
    pub(crate) fn tick(&mut self) {
        self.age.tick();
    }

    /// Adds a range of `bytes` bytes to what its holder has.
    pub(crate) fn add_to(&self, held: &mut Quarantine, bytes: usize) {
        if self.count > 0 {
            held.add(self.peer, bytes, self.age);
        }
    }
}

/// What one peer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Ranges and connections.
    pub(crate) count: usize,
    /// Bytes of the own section.
    pub(crate) bytes: usize,
    /// Ticks since the peer began to hold the oldest of them.
    pub(crate) ticks: u32,
}

/// What each peer holds, at one moment.
#[derive(Default)]
pub(crate) struct Quarantine([Held; MAX_NODES]);

impl Quarantine {
    /// Adds something with `bytes` bytes of the own section, which `peer` has held for `age`.
    pub(crate) fn add(&mut self, peer: u32, bytes: usize, age: Age) {
        let place = usize::try_from(peer).ok();
        if let Some(held) = place.and_then(|place| nospec::get_mut(&mut self.0, place)) {
            held.count += 1;
            held.bytes += bytes;
            held.ticks = held.ticks.max(age.ticks);
        }
    }

    /// Returns what `peer` holds.
    pub(crate) fn of(&self, peer: u32) -> Held {
        let place = usize::try_from(peer).ok();
        let held = place.and_then(|place| nospec::get(&self.0, place));
        held.copied().unwrap_or_default()
    }
}

#[kunit_tests(uldma_quarantine)]
mod tests {
    use super::*;

    fn held(hold: &Hold, bytes: usize) -> Quarantine {
        let mut held = Quarantine::default();
        hold.add_to(&mut held, bytes);
        held
    }

    #[test]
    fn it_is_over_when_its_peer_has_given_back_all() {
        let mut hold = Hold::new(1, 2, Age::NEW);
        hold.give_back(1, 1);
        // It is not theirs.
        for peer in [0, 2, 8, u32::MAX] {
            hold.give_back(peer, u32::MAX);
        }
        assert!(!hold.is_over());
        hold.give_back(1, 5);
        assert!(hold.is_over());
        assert_eq!(held(&hold, 4096).of(1), Held::default());
    }

    #[test]
    fn what_a_peer_holds_is_added_up() {
        let mut hold = Hold::new(1, 9, Age::NEW);
        hold.tick();
        let mut held = held(&hold, 4096);
        hold.tick();
        Hold::new(1, 1, Age::NEW).add_to(&mut held, 8192);
        Hold::new(7, 1, Age::NEW).add_to(&mut held, 4096);
        held.add(1, 0, Age::NEW);
        let [one, other] = [held.of(1), held.of(7)];
        assert_eq!((one.count, one.bytes, one.ticks), (3, 12288, 1));
        assert_eq!((other.count, other.bytes, other.ticks), (1, 4096, 0));
        assert_eq!(held.of(2), Held::default());
        assert_eq!(held.of(u32::MAX), Held::default());
    }

    #[test]
    fn a_peer_that_was_not_told_has_time() {
        let mut hold = Hold::new(2, 1, Age::UNTOLD);
        for _ in 0..1000 {
            hold.tick();
        }
        let held = held(&hold, 4096).of(2);
        assert_eq!((held.count, held.ticks), (1, 0));
    }
}
