// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who moves data, as rounds see it: one end here, the other at the peer.

use std::net::IpAddr;
use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Device, Name};

use super::conn::{Connected, Listening};
use super::conventional::{Reader, Writer};
use super::engine::{Engine, Target};
use super::memcpy::{Memcpy, Window};
use super::order::Kind;
use super::ring::Ring;
use super::tcp::{Client, Server};
use crate::failure::Failure;

/// What both ends know before they meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) device: &'a Device,
    pub(crate) kind: Kind,
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) name: Name,
    pub(crate) port: u32,
    pub(crate) timeout: Duration,
}

/// Copies that a program or its connection made: bytes, and how often memory was pinned for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) copied: u64,
    pub(crate) locks: u64,
}

/// The end that measures.
pub(crate) trait Near {
    /// Gets ready for a round, while the other end does the same.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Sends so many messages, each after the answer to the one before; the ticks of each.
    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure>;

    /// Sends so many messages, as fast as they go; when the first one began.
    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure>;

    /// What it copied so far.
    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted::default())
    }
}

/// The end that answers.
pub(crate) trait Far {
    /// Gets ready for a round, while the other end does the same.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Answers so many messages.
    fn round_trips(&mut self, _count: u32) -> Result<(), Failure> {
        Ok(())
    }

    /// Receives so many messages.
    fn stream(&mut self, _count: u32) -> Result<(), Failure> {
        Ok(())
    }

    /// What it copied so far.
    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted::default())
    }
}

/// Opens the end that measures; the other one is open.
pub(crate) fn near(
    setup: Setup<'_>,
    addresses: &[IpAddr],
    port: u16,
) -> Result<Box<dyn Near>, Failure> {
    Ok(match setup.kind {
        Kind::Raw | Kind::Ring | Kind::Sleepy => Box::new(Ring::new(setup)),
        Kind::Memcpy => Box::new(Memcpy::new(setup)?),
        Kind::Engine => Box::new(Engine::new(setup)?),
        Kind::Push | Kind::Pull | Kind::Unpinned => Box::new(Connected::new(setup)?),
        Kind::Tcp => Box::new(Client::new(setup, addresses, port)?),
        Kind::Conventional => Box::new(Writer::new(setup)?),
    })
}

/// An end that answers, and where TCP is to connect to.
pub(crate) struct Opened {
    pub(crate) end: Box<dyn Far>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
}

impl From<Box<dyn Far>> for Opened {
    fn from(end: Box<dyn Far>) -> Self {
        Self {
            end,
            addresses: Vec::new(),
            port: 0,
        }
    }
}

/// Opens the end that answers. Nothing here waits for the other one.
pub(crate) fn far(setup: Setup<'_>) -> Result<Opened, Failure> {
    let end: Box<dyn Far> = match setup.kind {
        Kind::Raw | Kind::Ring | Kind::Sleepy => Box::new(Ring::new(setup)),
        Kind::Memcpy => Box::new(Window::new(setup)?),
        Kind::Engine => Box::new(Target::new(setup)?),
        Kind::Push | Kind::Pull | Kind::Unpinned => Box::new(Listening::new(setup)?),
        Kind::Tcp => return Server::open(setup),
        Kind::Conventional => Box::new(Reader::new(setup)?),
    };
    Ok(end.into())
}
