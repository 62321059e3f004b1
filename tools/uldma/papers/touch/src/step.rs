// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps of participants, collected from a state.

use std::fmt;

use crate::memory::{Location, Order};
use crate::state::{Harm, State};

/// A participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A bracket of the device, by its place.
    Bracket(usize),
    /// The device as a whole.
    Device,
    /// An actor, by its place in the mix, and what it is.
    Actor(usize, &'static str),
}

/// A step: whose it is, what it does, and the value that it loads, if one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The participant.
    pub name: Name,
    /// What it does.
    pub text: &'static str,
    /// The loaded value.
    pub value: Option<u8>,
    /// The step may come never: it is a program's or an administrator's decision, a fault, or a load of
    /// a store that is not the latest.
    pub optional: bool,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Name::Bracket(number) => write!(f, "bracket {} {}", number + 1, self.text)?,
            Name::Device => write!(f, "device {}", self.text)?,
            Name::Actor(place, name) => write!(f, "{name} ({}) {}", place + 1, self.text)?,
        }
        self.value.map_or(Ok(()), |value| write!(f, ": {value}"))
    }
}

/// A step, the state after it, and the harm that it does.
#[derive(Clone, Debug)]
pub struct Next {
    /// The step.
    pub made: Move,
    /// The state.
    pub state: State,
    /// The harm.
    pub harm: Option<Harm>,
}

/// All steps of a participant from a state.
#[derive(Debug)]
pub struct Steps<'a> {
    from: &'a State,
    name: Name,
    thread: usize,
    next: &'a mut Vec<Next>,
}

impl<'a> Steps<'a> {
    /// Returns a collector of the steps of `name` from a state.
    pub fn new(from: &'a State, name: Name, thread: usize, next: &'a mut Vec<Next>) -> Self {
        Self {
            from,
            name,
            thread,
            next,
        }
    }

    /// Returns the state before the step.
    pub fn from(&self) -> &'a State {
        self.from
    }

    /// Calls `collect` with a collector of the steps from a state in which the thread has the lock.
    pub fn locked(&mut self, collect: impl FnOnce(&mut Steps<'_>)) {
        let mut locked = self.from.clone();
        locked.lock(self.thread);
        collect(&mut Steps::new(&locked, self.name, self.thread, self.next));
    }

    fn add(
        &mut self,
        text: &'static str,
        optional: bool,
        change: impl FnOnce(&mut State) -> Option<Harm>,
    ) {
        let mut state = self.from.clone();
        let harm = change(&mut state);
        let name = self.name;
        let made = Move {
            name,
            text,
            value: None,
            optional,
        };
        self.next.push(Next { made, state, harm });
    }

    /// Adds a step.
    pub fn make(&mut self, text: &'static str, change: impl FnOnce(&mut State) -> Option<Harm>) {
        self.add(text, false, change);
    }

    /// Adds a step that may never come.
    pub fn may(&mut self, text: &'static str, change: impl FnOnce(&mut State)) {
        self.add(text, true, |state| {
            change(state);
            None
        });
    }

    /// Adds a step for each value that a load can return.
    pub fn load(
        &mut self,
        text: &'static str,
        at: (Location, Order),
        change: impl Fn(&mut State, u8) -> Option<Harm>,
    ) {
        self.poll(text, at, |_| true, change);
    }

    /// Adds a step for each value that a load can return and that is `wanted`.
    ///
    /// A thread that polls makes no step with other values: they could only raise its view.
    pub fn poll(
        &mut self,
        text: &'static str,
        (location, order): (Location, Order),
        wanted: impl Fn(u8) -> bool,
        change: impl Fn(&mut State, u8) -> Option<Harm>,
    ) {
        let thread = self.thread;
        let choices = self.from.memory.choices(thread, location);
        for choice in choices.clone() {
            let mut state = self.from.clone();
            let value = state.memory.load(thread, location, choice, order);
            if !wanted(value) {
                continue;
            }
            let harm = change(&mut state, value);
            let made = Move {
                name: self.name,
                text,
                value: Some(value),
                optional: choice + 1 < choices.end,
            };
            self.next.push(Next { made, state, harm });
        }
    }
}
