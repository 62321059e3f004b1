// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ring channels, and bare words in the same segments.

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Channel, Spin};

use super::meeting::Meeting;
use super::order::Kind;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Bytes of each ring.
const CAPACITY: u64 = 512 * 1024;
/// Longer messages are sent in parts of this size.
const PART: usize = 64 * 1024;

/// Either end.
pub(crate) struct Ring {
    meeting: Meeting,
    /// Not messages.
    bare: bool,
    /// How long it polls for messages before it sleeps.
    spin: Spin,
    message: Vec<u8>,
    target: Vec<u8>,
}

impl Ring {
    /// The end that measures.
    pub(crate) fn near(setup: Setup<'_>) -> Self {
        Self::new(setup, Meeting::near(setup, CAPACITY))
    }

    /// The end that answers.
    pub(crate) fn far(setup: Setup<'_>) -> Result<Self, Failure> {
        Ok(Self::new(setup, Meeting::far(setup, CAPACITY)?))
    }

    fn new(setup: Setup<'_>, meeting: Meeting) -> Self {
        Self {
            meeting,
            bare: setup.kind == Kind::Raw,
            spin: match setup.kind {
                Kind::Polling => Spin::MEASURE,
                _ => Spin::default(),
            },
            message: vec![0x5a; setup.size],
            target: vec![0; setup.size],
        }
    }

    fn meet(&mut self) -> Result<(), Failure> {
        self.meeting.meet()?.set_spin(self.spin);
        Ok(())
    }
}

/// Sends a message, in parts if need be.
#[inline]
pub(crate) fn send(
    channel: &mut Channel,
    message: &[u8],
    timeout: Duration,
) -> Result<(), uldma::Error> {
    message
        .chunks(PART)
        .try_for_each(|part| channel.send(part, timeout))
}

/// Receives a message as long as `target`.
#[inline]
pub(crate) fn receive(
    channel: &mut Channel,
    target: &mut [u8],
    timeout: Duration,
) -> Result<(), uldma::Error> {
    target
        .chunks_mut(PART)
        .try_for_each(|part| channel.receive(part, timeout).map(drop))
}

impl Near for Ring {
    fn begin(&mut self) -> Result<(), Failure> {
        self.meet()
    }

    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let (channel, timeout) = self.meeting.channel()?;
        if self.bare {
            return Ok(channel.raw_ping(count, clock, timeout)?);
        }
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            send(channel, &self.message, timeout)?;
            receive(channel, &mut self.target, timeout)?;
            samples.push(clock.ticks() - before);
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let (channel, timeout) = self.meeting.channel()?;
        let began = clock.ticks();
        for _ in 0..count {
            send(channel, &self.message, timeout)?;
        }
        Ok(began)
    }
}

impl Far for Ring {
    fn begin(&mut self) -> Result<(), Failure> {
        self.meet()
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        let (channel, timeout) = self.meeting.channel()?;
        if self.bare {
            return Ok(channel.raw_pong(count, timeout)?);
        }
        for _ in 0..count {
            receive(channel, &mut self.target, timeout)?;
            send(channel, &self.target, timeout)?;
        }
        Ok(())
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        let (channel, timeout) = self.meeting.channel()?;
        for _ in 0..count {
            receive(channel, &mut self.target, timeout)?;
        }
        Ok(())
    }
}
