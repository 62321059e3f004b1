// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plain copies into the window: the bound of every ring.

use uldma::measure::Clock;
use uldma::{InboundSegment, OutboundSegment};

use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Bytes that are written to again and again, as many as those of a ring.
const SEGMENT: usize = 512 * 1024;

/// Copies from memory into the window.
pub(crate) struct Memcpy {
    segment: OutboundSegment,
    source: Vec<u8>,
}

impl Memcpy {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        Ok(Self {
            segment: setup.device.attach_segment(setup.name, setup.timeout)?,
            source: vec![0x5a; setup.size],
        })
    }
}

impl Near for Memcpy {
    fn round_trips(&mut self, _count: u32, _clock: &Clock) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        let mut offset = 0;
        for _ in 0..count {
            for part in self.source.chunks(SEGMENT) {
                if offset + part.len() > SEGMENT {
                    offset = 0;
                }
                self.segment.write(offset, part)?;
                offset += part.len();
            }
        }
        Ok(began)
    }
}

/// The window of the other process, which does not read it.
pub(crate) struct Window {
    _segment: InboundSegment,
}

impl Window {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let segment = setup.device.create_segment(setup.name, SEGMENT as u64)?;
        Ok(Self { _segment: segment })
    }
}

impl Far for Window {}
