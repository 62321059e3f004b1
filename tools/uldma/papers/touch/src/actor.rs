// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far an actor of the driver is.

use crate::mm::Page;

/// The next step of a retraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// N2: the word becomes absent, the entry Retracted.
    #[default]
    Retract,
    /// N3: a full fence.
    Barrier,
    /// N4: loads `begun`.
    Begun,
    /// N5: polls `oldest`, and `off`.
    Wait,
    /// Quiescing: clears bus mastering.
    Clear,
    /// Quiescing: waits for what is under way.
    Drain,
    /// Stores `off`.
    Off,
    /// N6: ends the DMA mapping, hands on the dirty byte, empties the entry.
    Finish,
    /// Nothing is left.
    Fenced,
}

/// The progress of one retraction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Retraction {
    /// The next step of a retraction.
    pub stage: Stage,
    /// What was loaded from `begun`.
    pub begun: u8,
    /// The dirty byte, if it was loaded too early.
    pub dirty: Option<u8>,
}

/// The next thing that an actor does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// Its first step.
    #[default]
    Start,
    /// Stores the sequence.
    Sequence,
    /// Polls the sequence, as an invalidation is under way.
    Invalidating,
    /// Looks up what the address maps.
    Snapshot,
    /// Takes the lock of the area.
    Lock,
    /// Takes the entry from the device.
    Retract,
    /// Stores all of the entry but the word.
    Rest,
    /// Stores the word.
    Word,
    /// Changes the mapping.
    Change,
    /// Ends an invalidation whose notifier returned false.
    Refused,
    /// Nothing is left.
    Done,
}

/// Progress of an actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Actor {
    /// What comes next.
    pub at: At,
    /// The sequence that it got, or has loaded.
    pub sequence: u8,
    /// What it has found.
    pub found: Option<Page>,
    /// The entry that it takes from the device.
    pub retraction: Retraction,
}

impl Actor {
    /// Returns true if nothing is left to do.
    pub fn has_ended(&self) -> bool {
        self.at == At::Done
    }

    /// Forgets all but that it has ended.
    pub fn end(&mut self) {
        *self = Self {
            at: At::Done,
            ..Self::default()
        };
    }
}
