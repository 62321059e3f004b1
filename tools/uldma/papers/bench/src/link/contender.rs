// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who moves data, as rounds see it: one end here, the other at the peer.

use std::net::IpAddr;
use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Device, Name};

use super::counters::Counted;
use super::order::Kind;
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
