// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ring channels, and bare words in the same segments.

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Channel, Device, Name, Spin};

use super::order::Kind;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Bytes of each ring.
const CAPACITY: u64 = 512 * 1024;
/// Longer messages are sent in parts of this size.
const PART: usize = 64 * 1024;

/// Either end.
pub(crate) struct Ring {
    device: Device,
    name: Name,
    timeout: Duration,
    /// Not messages.
    bare: bool,
    /// How long it polls for messages before it sleeps.
    spin: Spin,
    /// Both ends meet when they are both ready for the first round.
    channel: Option<Channel>,
    message: Vec<u8>,
    target: Vec<u8>,
}

impl Ring {
    /// An end that has not met the other one.
    pub(crate) fn new(setup: Setup<'_>) -> Self {
        Self {
            device: setup.device.clone(),
            name: setup.name,
            timeout: setup.timeout,
            bare: setup.kind == Kind::Raw,
            spin: match setup.kind {
                Kind::Polling => Spin::MEASURE,
                _ => Spin::default(),
            },
            channel: None,
            message: vec![0x5a; setup.size],
            target: vec![0; setup.size],
        }
    }

    fn meet(&mut self) -> Result<(), Failure> {
        if self.channel.is_none() {
            let mut channel = self.device.channel(self.name, CAPACITY, self.timeout)?;
            channel.set_spin(self.spin);
            self.channel = Some(channel);
        }
        Ok(())
    }
}

fn none() -> Failure {
    Failure::Peer("was not met".into())
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
        let channel = self.channel.as_mut().ok_or_else(none)?;
        if self.bare {
            return Ok(channel.raw_ping(count, clock, self.timeout)?);
        }
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            send(channel, &self.message, self.timeout)?;
            receive(channel, &mut self.target, self.timeout)?;
            samples.push(clock.ticks() - before);
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let channel = self.channel.as_mut().ok_or_else(none)?;
        let began = clock.ticks();
        for _ in 0..count {
            send(channel, &self.message, self.timeout)?;
        }
        Ok(began)
    }
}

impl Far for Ring {
    fn begin(&mut self) -> Result<(), Failure> {
        self.meet()
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        let channel = self.channel.as_mut().ok_or_else(none)?;
        if self.bare {
            return Ok(channel.raw_pong(count, self.timeout)?);
        }
        for _ in 0..count {
            receive(channel, &mut self.target, self.timeout)?;
            send(channel, &self.target, self.timeout)?;
        }
        Ok(())
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        let channel = self.channel.as_mut().ok_or_else(none)?;
        for _ in 0..count {
            receive(channel, &mut self.target, self.timeout)?;
        }
        Ok(())
    }
}
