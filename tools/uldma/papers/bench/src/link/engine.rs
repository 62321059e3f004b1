// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine alone: descriptors of a user-level queue, several at a time, into an import.

use std::collections::VecDeque;
use std::mem::forget;
use std::time::Duration;

use uldma::measure::Clock;
use uldma::transfer::Order;
use uldma::{Access, Buffer, Context, ContextOptions, Device, Import, Method, Region, Spin};

use super::sizes::depth;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Memory on both nodes, as much as a connection has in flight.
pub(crate) struct Engine {
    context: Context,
    source: Region,
    target: Import,
    size: usize,
    timeout: Duration,
}

impl Engine {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        // One open file has one context.
        let device = setup.device.reopen()?;
        let mut buffer = Buffer::new(depth(setup.size) * setup.size)?;
        buffer.fill(0xa5);
        Ok(Self {
            context: device.context_with(Method::Queue, ContextOptions::default())?,
            source: device.register(buffer, Access::Read)?,
            target: device.import(setup.name, Access::Write, setup.timeout)?,
            size: setup.size,
            timeout: setup.timeout,
        })
    }
}

impl Near for Engine {
    fn round_trips(&mut self, _count: u32, _clock: &Clock) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let queue = self
            .context
            .queue()
            .ok_or_else(|| Failure::Peer("has a context without a queue".into()))?;
        let (from, to) = (
            self.context.shadow(&self.source)?,
            self.context.shadow(&self.target)?,
        );
        let (depth, size) = (depth(self.size), self.size as u64);
        let mut under_way = VecDeque::with_capacity(depth);
        let began = clock.ticks();
        for number in 0..u64::from(count) {
            if under_way.len() == depth {
                if let Some(oldest) = under_way.pop_front() {
                    self.context.wait(oldest, Spin::Adaptive, self.timeout)?;
                }
            }
            let offset = number % depth as u64 * size;
            let (source, target) = (from.at(offset)?, to.at(offset)?);
            let ticket = queue
                .copy(source, target, size, Order::NONE)
                .map_err(|refusal| Failure::Peer(format!("was not reached: {refusal}")))?;
            queue.submit();
            under_way.push_back(ticket);
        }
        for ticket in under_way {
            self.context.wait(ticket, Spin::Adaptive, self.timeout)?;
        }
        Ok(began)
    }
}

/// Memory that is written to.
pub(crate) struct Target {
    _region: Region,
}

impl Target {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let bytes = depth(setup.size) * setup.size;
        Ok(Self {
            _region: exported(setup.device, setup.name, bytes)?,
        })
    }
}

impl Far for Target {}

/// Registers a region and exports it for writing under a name, until it is dropped.
pub(crate) fn exported(
    device: &Device,
    name: uldma::Name,
    bytes: usize,
) -> Result<Region, Failure> {
    let region = device.register(Buffer::new(bytes)?, Access::ReadWrite)?;
    // An export ends with its region.
    forget(region.export(name, Access::Write)?);
    Ok(region)
}
