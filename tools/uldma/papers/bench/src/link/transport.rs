// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transports, as rounds use them: one end here, the other at the peer.

use std::net::IpAddr;
use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Device, Name};

use super::counters::Counted;
use super::order::Kind;
use crate::failure::Failure;

/// Parameters that both ends know from the start.
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
    /// Prepares for a round, while the other end does the same.
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Sends so many messages, each after the answer to the previous one; returns the ticks of each.
    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure>;

    /// Sends so many messages, as fast as possible; returns the time at which the first one began.
    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure>;

    /// Returns its counts so far.
    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted::default())
    }
}

/// The end that answers.
pub(crate) trait Far {
    /// Prepares for a round, while the other end does the same.
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

    /// Returns its counts so far.
    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted::default())
    }
}

/// An end that answers, and the addresses for TCP.
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
