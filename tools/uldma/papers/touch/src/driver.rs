// SPDX-License-Identifier: MIT OR Apache-2.0

//! Actors beside the device: those of the driver, and the mm with its notifiers.
//!
//! A step is what other threads can see of an actor: taking the lock and the loads and stores of what
//! the lock protects belong to the shared load or store that follows, and releasing it to the one
//! before, as no other thread can be between them.

use crate::bracket::Program;
use crate::mm::Event;
use crate::mutation::Mutation;
use crate::state::{State, ACTORS, BRACKETS};
use crate::step::{Name, Next, Steps};
use crate::{evict, fill, notifier, unbind};

/// What an actor does, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing: the mix has fewer actors.
    Idle,
    /// The mm changes the mapping; its notifier may block.
    Notify(Event),
    /// The OOM reaper unmaps; its notifier may not block. When the reaper tries again, that is another
    /// actor.
    Reap,
    /// Looks up what the address maps, and publishes it; faults the page in if there is none, or if it
    /// may not be written and has to be.
    Fill {
        /// It has to be.
        write: bool,
    },
    /// Makes room by the entry, whatever its accessed byte.
    Evict,
    /// Quiesces the device, and tears the area down.
    Unbind,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Notify(_) => "notifier",
            Self::Reap => "reaper",
            Self::Fill { .. } => "fill",
            Self::Evict => "eviction",
            Self::Unbind => "unbind",
        }
    }
}

/// What a search is about.
#[derive(Clone, Debug)]
pub struct Run {
    /// The actors.
    pub roles: [Role; ACTORS],
    /// The steps of brackets.
    pub program: Program,
    /// The device may stop, and go on.
    pub sick: bool,
    /// The device may be reset.
    pub reset: bool,
    /// What is wrong.
    pub mutation: Option<Mutation>,
}

impl Run {
    /// Returns the thread of an actor.
    pub fn thread(actor: usize) -> usize {
        BRACKETS + actor
    }

    /// Returns true if this is what is wrong.
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Adds the steps of an actor.
    pub fn steps(&self, state: &State, actor: usize, next: &mut Vec<Next>) {
        let role = self.roles[actor];
        let name = Name::Actor(actor, role.name());
        let mut steps = Steps::new(state, name, Self::thread(actor), next);
        match role {
            Role::Idle => {}
            Role::Notify(event) => notifier::steps(&mut steps, (self, actor), event, true),
            Role::Reap => notifier::steps(&mut steps, (self, actor), Event::Unmap, false),
            Role::Fill { write } => fill::steps(&mut steps, (self, actor), write),
            Role::Evict => evict::steps(&mut steps, (self, actor)),
            Role::Unbind => unbind::steps(&mut steps, (self, actor)),
        }
    }
}
