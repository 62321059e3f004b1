// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device: what its brackets share, and what becomes of it.

use crate::memory::{Location, Order, View};
use crate::mm::Page;
use crate::state::{State, BRACKETS};

/// Progress of a bracket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bracket {
    /// Steps that were made.
    pub made: u8,
    /// It makes no step any more.
    pub ended: bool,
    /// Its number, while it is open.
    pub number: Option<u8>,
    /// The page that it has found.
    pub found: Option<Page>,
    /// The oldest number, which was found and not stored yet.
    pub oldest: Option<u8>,
    /// An access is under way.
    pub under_way: bool,
}

/// If the device makes steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Health {
    /// It does.
    #[default]
    Well,
    /// It does not.
    Stopped,
    /// It has stopped once.
    Resumed,
}

/// The parts of a reset that were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reset {
    /// There is none.
    #[default]
    None,
    /// All brackets are ended.
    Ended,
    /// The first of the two steps that follow was made.
    Half,
    /// All of it.
    Done,
}

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its brackets.
    pub brackets: [Bracket; BRACKETS],
    /// The last number.
    pub begun: u8,
    /// Bus mastering is off.
    pub silent: bool,
    /// If it makes steps.
    pub health: Health,
    /// The progress of a reset.
    pub reset: Reset,
    /// The address of the touch page was forgotten.
    pub forgotten: bool,
    /// View of the model's lock.
    pub lock: View,
}

impl Device {
    /// Returns true if the bracket makes no step any more.
    pub fn has_ended(&self, number: usize) -> bool {
        self.brackets[number].ended
    }

    /// Returns true if the device makes no steps, so that the driver may lose its patience.
    pub fn is_stopped(&self) -> bool {
        self.health == Health::Stopped
    }

    /// Returns true if an access is under way.
    pub fn is_busy(&self) -> bool {
        self.brackets.iter().any(|bracket| bracket.under_way)
    }
}

impl State {
    /// Clears bus mastering: what is under way arrives, and nothing else leaves the device.
    pub fn silence(&mut self) {
        self.device.silent = true;
        self.end_all();
    }

    /// Lets a thread see all that the device has stored: it has read a register, and no access is
    /// under way ([`Device::is_busy`]).
    pub fn drain(&mut self, thread: usize) {
        self.memory.join(thread, self.device.lock);
    }

    /// Ends the brackets that have no access under way, as nothing that they still do is seen.
    pub fn end_all(&mut self) {
        for thread in 0..BRACKETS {
            if !self.device.brackets[thread].under_way {
                self.close(thread);
            }
        }
    }

    /// Ends a bracket. What its thread has stored stays known to the model.
    pub fn close(&mut self, thread: usize) {
        self.device.lock.join(self.memory.view(thread));
        self.device.brackets[thread] = Bracket {
            ended: true,
            ..Bracket::default()
        };
    }

    /// Takes the model's lock and releases it.
    pub fn section(&mut self, thread: usize) {
        self.memory.join(thread, self.device.lock);
        self.device.lock = self.memory.view(thread);
    }

    /// Stores a touch word, if the device knows where, and can.
    pub fn touch(&mut self, thread: usize, location: Location, value: u8, order: Order) {
        if !self.device.forgotten && !self.device.silent {
            self.store(thread, location, value, order);
        }
    }
}
