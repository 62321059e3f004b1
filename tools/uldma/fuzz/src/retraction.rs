// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of an entry of the page table: calls that retract it, a call that changes another field,
//! and the device, in every order of their steps.
//!
//! Whether the device sees the entry is decided by the driver's own code. Each way in which that
//! could be decided more simply lets the device access a page that was freed.

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/hw/table/publication.rs"]
mod publication;

use publication::Publication;

/// The page that the entry names first, and that is freed.
const OLD: u64 = 1;
/// The page that takes its place.
const NEW: u64 = 2;
/// Chunks that the device moves.
const CHUNKS: usize = 2;

/// What publishes an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The end of the last retraction.
    LastRestores,
    /// The end of any retraction.
    EachRestores,
    /// Any change of the entry, too.
    ChangesPublish,
}

/// What takes steps.
#[derive(Clone, Copy)]
enum Actor {
    /// A call that lets the entry name another page, and frees the former one.
    Replaces,
    /// A call that ends the transfers of the page, which stays.
    EndsTransfers,
    /// A call that changes another field of the entry.
    Changes,
    /// The device.
    Device,
}

const ACTORS: [Actor; 4] = [
    Actor::Replaces,
    Actor::EndsTransfers,
    Actor::Changes,
    Actor::Device,
];

/// The step after which nothing is left to do.
const ENDED: usize = usize::MAX;

#[derive(Clone)]
struct World {
    rule: Rule,
    /// The page that the driver's copy of the entry names.
    own: u64,
    state: Publication,
    /// The page that the device reads.
    seen: Option<u64>,
    /// The page that the device has read and not accessed yet.
    in_flight: Option<u64>,
    chunks_begun: usize,
    chunks_ended: usize,
    is_freed: bool,
    /// Next step of each actor.
    steps: [usize; ACTORS.len()],
    /// Chunks that the invalidation of each call waits for.
    awaited: [usize; ACTORS.len()],
}

impl World {
    fn new(rule: Rule) -> Self {
        let mut state = Publication::default();
        assert_eq!(state.enter(), Ok(()));
        Self {
            rule,
            own: OLD,
            state,
            seen: Some(OLD),
            in_flight: None,
            chunks_begun: 0,
            chunks_ended: 0,
            is_freed: false,
            steps: [0; ACTORS.len()],
            awaited: [0; ACTORS.len()],
        }
    }

    fn retract(&mut self) {
        self.state.retract();
        self.seen = None;
    }

    fn restore(&mut self) {
        if self.state.restore() || self.rule != Rule::LastRestores {
            self.seen = Some(self.own);
        }
    }

    /// Takes the steps of a call that retracts the entry, up to the end of its invalidation.
    fn invalidate(&mut self, actor: usize) -> bool {
        match self.steps[actor] {
            0 => self.retract(),
            1 => self.awaited[actor] = self.chunks_begun,
            _ => return false,
        }
        self.steps[actor] += 1;
        true
    }

    /// Returns true if the chunks have ended that were in flight when the invalidation began.
    fn is_invalidated(&self, actor: usize) -> bool {
        self.chunks_ended >= self.awaited[actor]
    }

    fn step_device(&mut self) {
        if self.in_flight.take().is_some() {
            self.chunks_ended += 1;
        } else {
            self.chunks_begun += 1;
            self.in_flight = self.seen;
            if self.in_flight.is_none() {
                // The transfer fails.
                self.chunks_ended += 1;
            }
        }
    }

    /// Returns true if the device's next step accesses a page that is freed.
    fn is_harmful(&self) -> bool {
        self.is_freed && self.in_flight == Some(OLD)
    }

    /// Takes the next step of an actor; false if it has none, or has to wait.
    fn step(&mut self, number: usize) -> bool {
        if self.steps[number] == ENDED {
            return false;
        }
        match ACTORS[number] {
            Actor::Device => {
                if self.chunks_begun == CHUNKS && self.in_flight.is_none() {
                    return false;
                }
                self.step_device();
            }
            Actor::Changes => {
                if self.state == Publication::Valid || self.rule == Rule::ChangesPublish {
                    self.seen = Some(self.own);
                }
                self.steps[number] = ENDED;
            }
            Actor::Replaces | Actor::EndsTransfers => {
                if self.invalidate(number) {
                    return true;
                }
                if !self.is_invalidated(number) {
                    return false;
                }
                if matches!(ACTORS[number], Actor::Replaces) {
                    self.own = NEW;
                    self.is_freed = true;
                }
                self.restore();
                self.steps[number] = ENDED;
            }
        }
        true
    }

    /// Whether some order of the remaining steps does harm.
    fn can_do_harm(&self) -> bool {
        self.is_harmful()
            || (0..ACTORS.len()).any(|number| {
                let mut next = self.clone();
                next.step(number) && next.can_do_harm()
            })
    }
}

#[test]
fn no_order_lets_the_device_access_a_freed_page() {
    assert!(!World::new(Rule::LastRestores).can_do_harm());
}

#[test]
fn a_restored_entry_is_seen_again() {
    let mut world = World::new(Rule::LastRestores);
    while (0..ACTORS.len()).any(|number| world.step(number)) {}
    assert_eq!((world.seen, world.is_freed), (Some(NEW), true));
}

#[test]
fn each_simpler_rule_does_harm() {
    assert!(World::new(Rule::EachRestores).can_do_harm());
    assert!(World::new(Rule::ChangesPublish).can_do_harm());
}
