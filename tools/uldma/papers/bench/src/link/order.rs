// SPDX-License-Identifier: MIT OR Apache-2.0

//! Orders of the process that measures, transport by transport and round by round.

use std::net::IpAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::way::Way;

/// The transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Bare words in the window.
    Raw,
    /// A copy into the window that no process reads.
    Memcpy,
    /// A user-level ring channel with default settings.
    Ring,
    /// A ring channel whose ends poll for longer than any message takes.
    Polling,
    /// Copies of the engine into an import, started at user level.
    Engine,
    /// A connection.
    Push,
    /// A connection whose receivers move the data.
    Pull,
    /// A connection with memory that was not registered before.
    Unpinned,
    /// A connection as a stream whose bytes both programs copy through rings.
    Carried,
    /// TCP.
    Tcp,
    /// A write through bounce memory and a read out of it.
    Conventional,
    /// A character device of the kernel, with read() and write().
    Character,
    /// Messages that the device matches.
    #[value(skip)]
    Messages(Way),
}

impl Kind {
    /// Returns its part of the names of figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Memcpy => "memcpy",
            Self::Ring | Self::Polling => "ring",
            Self::Engine => "engine",
            Self::Push | Self::Pull | Self::Unpinned | Self::Carried => "conn",
            Self::Tcp => "tcp",
            Self::Conventional => "conventional",
            Self::Character => "character",
            Self::Messages(_) => "messages",
        }
    }

    /// Returns the mode in the names of figures.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Polling => ".busy",
            Self::Pull => ".pull",
            Self::Unpinned => ".unpinned",
            Self::Carried => ".rings",
            _ => "",
        }
    }

    /// Returns its description.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Raw => "bare words",
            Self::Memcpy => "memcpy into the window",
            Self::Ring => "ring channels",
            Self::Polling => "ring channels that only poll",
            Self::Engine => "the engine alone",
            Self::Push => "connections",
            Self::Pull => "connections that pull",
            Self::Unpinned => "connections with memory that is not registered",
            Self::Carried => "streams through rings",
            Self::Tcp => "TCP",
            Self::Conventional => "a conventional read and write",
            Self::Character => "a character device",
            Self::Messages(_) => "messages that the device matches",
        }
    }
}

/// A kind of round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    RoundTrips,
    Stream,
}

/// An order to the process that answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Get ready for messages of this size; both sides know the name and the port.
    Open {
        kind: Kind,
        size: usize,
        name: u64,
        port: u32,
    },
    /// Take part in one round of so many messages.
    Round { kind: Kind, what: What, count: u32 },
    /// Close an open transport.
    Close { kind: Kind },
    /// End.
    End,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Report {
    /// The transport is open; TCP is to connect to these.
    Open { addresses: Vec<IpAddr>, port: u16 },
    /// The round can begin.
    Ready,
    /// The round is over.
    Finished,
    /// Counts of this node during the round.
    Done { counters: Counters },
    /// The transport is closed.
    Closed,
    /// The transport cannot be opened.
    Failed { message: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let order = Order::Round {
            kind: Kind::Push,
            what: What::RoundTrips,
            count: 7,
        };
        let text = serde_json::to_string(&order).unwrap();
        let Ok(Order::Round { kind, what, count }) = serde_json::from_str(&text) else {
            panic!("{text}");
        };
        assert_eq!((kind, what, count), (Kind::Push, What::RoundTrips, 7));
    }
}
