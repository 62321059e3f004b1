// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers with a ticket, until they have ended.

use std::time::Instant;

use crate::abi::Status;
use crate::atomic::Atomic;
use crate::location::{CheckedSide, CheckedTransfer};
use crate::page_request::{Lacks, Ticket};

/// An operation that has passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Move bytes.
    Copy(CheckedTransfer),
    /// Change a word.
    Atomic {
        /// The word.
        at: CheckedSide,
        /// The change.
        operation: Atomic,
    },
    /// End all transfers that use a region of this node.
    Invalidate {
        /// Its index.
        region: u32,
    },
    /// Read the answers of this node to page requests.
    Paged,
    /// Nothing: the result is known from the start.
    Nothing,
}

impl Work {
    /// Returns the sides that it touches.
    pub fn sides(&self) -> impl Iterator<Item = &CheckedSide> {
        let (one, other) = match self {
            Work::Copy(checked) => (Some(&checked.source), Some(&checked.destination)),
            Work::Atomic { at, .. } => (Some(at), None),
            Work::Invalidate { .. } | Work::Paged | Work::Nothing => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// Returns the other nodes whose memory it touches.
    pub fn peers(&self) -> impl Iterator<Item = usize> + '_ {
        self.sides().filter_map(|side| Some(side.peer()? as usize))
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        match self {
            Work::Copy(checked) => checked.bytes,
            Work::Atomic { .. } | Work::Invalidate { .. } | Work::Paged | Work::Nothing => 0,
        }
    }

    /// Returns true if it accesses memory, so that delay and bandwidth of the engine apply.
    pub fn moves(&self) -> bool {
        matches!(self, Work::Copy(_) | Work::Atomic { .. })
    }
}

/// The reception of a message at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The receiver's node.
    pub node: usize,
    /// The receiver's endpoint.
    pub endpoint: u32,
    /// The entry's generation.
    pub generation: u64,
    /// The sender's endpoint.
    pub sender: u32,
    /// The number of the receive descriptor.
    pub ticket: u64,
    /// The next message continues this one.
    pub more: bool,
    /// It goes where the receiver has redirected it.
    pub redirected: bool,
    /// Reason for which the receive descriptor cannot be used.
    pub refusal: Option<Status>,
    /// The bytes of a stream that it delivers; none for a message.
    pub piece: Option<Piece>,
}

/// A part of a send, or all of it, that goes to one posted buffer of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes.
    pub bytes: u64,
    /// The buffer is full after it.
    pub fills: bool,
    /// More of the same send follows.
    pub continues: bool,
}

impl Piece {
    /// Stands for a buffer that cannot be used.
    pub const REFUSED: Self = Self {
        bytes: 0,
        fills: true,
        continues: false,
    };
}

impl Delivery {
    /// Returns true if the send goes on after this.
    pub fn continues(&self) -> bool {
        self.piece.is_some_and(|piece| piece.continues)
    }
}

/// A transfer with a ticket.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its ticket in its context.
    pub ticket: u64,
    /// The operation.
    pub work: Work,
    /// Bytes moved so far.
    pub done: u64,
    /// Bytes of the parts of the send before it.
    pub before: u64,
    /// The word's old value, after an atomic operation.
    pub word: Option<u64>,
    /// The engine does not start before this.
    pub ready: Instant,
    /// The result, once it is known.
    pub ending: Option<Status>,
    /// If it fails, the next one ends as aborted.
    pub linked: bool,
    /// The sender's endpoint, if it is a send.
    pub sends: Option<u32>,
    /// The reception that ends with it, if it is a message.
    pub delivery: Option<Delivery>,
    /// The page that it waits for.
    pub sleep: Option<Sleep>,
    /// The page that it waited for last, and how often.
    pub waited: Option<(PageName, u8)>,
}

/// A page of a node: number of the node and page entry.
pub type PageName = (usize, u32);

/// The wait of a transfer for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// The request, at the node that owns the page.
    pub request: Ticket,
    /// When it ends without an answer.
    pub until: Instant,
}

impl Transfer {
    /// Returns true if it is a part of a send that does not end with it.
    pub fn is_part(&self) -> bool {
        self.delivery.as_ref().is_some_and(Delivery::continues)
    }

    /// Builds a transfer whose ticket is not issued yet.
    pub fn new(work: Work, ready: Instant) -> Self {
        Self {
            ticket: 0,
            work,
            done: 0,
            before: 0,
            word: None,
            ready,
            ending: None,
            linked: false,
            sends: None,
            delivery: None,
            sleep: None,
            waited: None,
        }
    }

    /// Builds the transfer of an operation, or of its refusal.
    pub fn of(work: Result<Work, Status>, ready: Instant) -> Self {
        match work {
            Ok(Work::Nothing) => Self::ended(Status::Ok, ready),
            Ok(work) => Self::new(work, ready),
            Err(status) => Self::ended(status, ready),
        }
    }

    /// Builds a transfer that only ends with a status.
    pub fn ended(status: Status, now: Instant) -> Self {
        Self {
            ending: Some(status),
            ..Self::new(Work::Nothing, now)
        }
    }
}

/// Outcome of one step of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes moved.
    pub moved: u64,
    /// They were read from a section of the window.
    pub from_window: bool,
    /// They were written to a section of the window.
    pub to_window: bool,
    /// Old value of the word that was changed.
    pub word: Option<u64>,
    /// Reason for which the step stopped early.
    pub error: Option<Status>,
    /// The pages that it lacked, if that is the reason.
    pub lacks: Lacks,
}

impl Outcome {
    /// Nothing was done.
    pub fn failed(status: Status) -> Self {
        Self {
            error: Some(status),
            ..Self::default()
        }
    }

    /// Nothing was done, because of pages that are missing, if there are any.
    pub fn lacking(lacks: Lacks) -> Self {
        Self {
            error: lacks
                .iter()
                .any(Option::is_some)
                .then_some(Status::NotResident),
            lacks,
            ..Self::default()
        }
    }
}
