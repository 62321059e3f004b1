// SPDX-License-Identifier: MIT OR Apache-2.0

//! What was given a ticket, from then until it has ended.

use std::time::Instant;

use crate::abi::Status;
use crate::atomic::Atomic;
use crate::check::{CheckedSide, CheckedTransfer};

/// What there is to do, after all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Move bytes.
    Copy(CheckedTransfer),
    /// Change a word.
    Atomic {
        /// Where.
        at: CheckedSide,
        /// How.
        operation: Atomic,
    },
    /// End what uses a region of this node.
    Invalidate {
        /// Its index.
        region: u32,
    },
    /// Nothing: how it ends is known from the start.
    Nothing,
}

impl Work {
    /// The memory that it touches.
    pub fn sides(&self) -> impl Iterator<Item = &CheckedSide> {
        let (one, other) = match self {
            Work::Copy(checked) => (Some(&checked.source), Some(&checked.destination)),
            Work::Atomic { at, .. } => (Some(at), None),
            Work::Invalidate { .. } | Work::Nothing => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        match self {
            Work::Copy(checked) => checked.bytes,
            Work::Atomic { .. } | Work::Invalidate { .. } | Work::Nothing => 0,
        }
    }
}

/// A transfer that was given a ticket.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its ticket in its context.
    pub ticket: u64,
    /// What it does.
    pub work: Work,
    /// Bytes moved so far.
    pub done: u64,
    /// What the word was, once an atomic operation is done.
    pub word: Option<u64>,
    /// The engine does not start before this.
    pub ready: Instant,
    /// How it ends, once that is known.
    pub ending: Option<Status>,
    /// If it ends badly, the next one ends as aborted.
    pub linked: bool,
}

impl Transfer {
    /// A transfer whose ticket is still to be given.
    pub fn new(work: Work, ready: Instant) -> Self {
        Self {
            ticket: 0,
            work,
            done: 0,
            word: None,
            ready,
            ending: None,
            linked: false,
        }
    }

    /// One that does nothing but end.
    pub fn ended(status: Status, now: Instant) -> Self {
        Self {
            ending: Some(status),
            ..Self::new(Work::Nothing, now)
        }
    }
}

/// What became of the work that was done at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes moved.
    pub moved: u64,
    /// What the word was that was changed.
    pub word: Option<u64>,
    /// Why it stopped before its end.
    pub error: Option<Status>,
}

impl Outcome {
    /// Nothing was done.
    pub fn failed(status: Status) -> Self {
        Self {
            error: Some(status),
            ..Self::default()
        }
    }
}
