// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiving half of a message connection: posted slots and buffers.

use std::collections::VecDeque;

use crate::region::Registered;
use crate::{Access, Buffer, Context, Device, Endpoint, Error, Reception, Region, Result};

/// The memory that messages arrive in.
#[derive(Debug)]
enum Posted {
    /// Slots of so many bytes, all posted.
    Slots { region: Region, bytes: u64 },
    /// Buffers of the program, oldest first.
    Buffers(VecDeque<Region>),
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    posted: Posted,
    /// Messages of the device that were taken.
    taken: u64,
    /// Buffers that the peer knows of.
    pub(super) told: u64,
    /// The rest of a message is to be discarded, since a call failed in the middle of it.
    pub(super) discards: bool,
}

impl Receiver {
    /// Creates the half for slots of `bytes` bytes in `region`.
    pub(super) fn with_slots(region: Region, bytes: u64) -> Self {
        Self::new(Posted::Slots { region, bytes })
    }

    /// Creates the half for buffers that the program posts.
    pub(super) fn with_buffers() -> Self {
        Self::new(Posted::Buffers(VecDeque::new()))
    }

    fn new(posted: Posted) -> Self {
        Self {
            posted,
            taken: 0,
            told: 0,
            discards: false,
        }
    }

    /// Returns true if messages arrive in slots.
    pub(super) fn has_slots(&self) -> bool {
        matches!(self.posted, Posted::Slots { .. })
    }

    /// Number of the buffer that the next message arrives in.
    pub(super) fn next(&self) -> u64 {
        self.taken + 1
    }

    /// Posts all slots that are free, in turns.
    pub(super) fn post_slots(&self, endpoint: &Endpoint, context: &Context) -> Result<()> {
        let Posted::Slots { region, bytes } = &self.posted else {
            return Ok(());
        };
        let count = (region.length() / (*bytes).max(1)).max(1);
        let mut posted = false;
        while endpoint.posted() < self.taken + count {
            let slot = endpoint.posted() % count;
            endpoint.post(region, slot * bytes, *bytes)?;
            posted = true;
        }
        if posted {
            endpoint.submit(context);
        }
        Ok(())
    }

    /// Registers and posts a buffer of the program.
    pub(super) fn post(
        &mut self,
        device: &Device,
        endpoint: &Endpoint,
        context: &Context,
        buffer: Buffer,
    ) -> Result<()> {
        let Posted::Buffers(buffers) = &mut self.posted else {
            return Ok(());
        };
        if endpoint.room() == 0 {
            return Err(crate::Refusal::QueueFull.into());
        }
        let region = device.register(buffer, Access::Write)?;
        endpoint.post(&region, 0, region.length())?;
        buffers.push_back(region);
        endpoint.submit(context);
        Ok(())
    }

    /// Takes a message out of its slot, as far as there is room in `target`.
    pub(super) fn take_copy(&mut self, reception: &Reception, target: &mut [u8]) -> Result<()> {
        self.taken = reception.number;
        let Posted::Slots { region, bytes } = &self.posted else {
            return Ok(());
        };
        let count = (region.length() / (*bytes).max(1)).max(1);
        let slot = (reception.number - 1) % count;
        let length = usize::try_from(reception.bytes.min(*bytes)).unwrap_or(usize::MAX);
        let length = length.min(target.len());
        let target = target.get_mut(..length).unwrap_or_default();
        region.read(slot * bytes, target)
    }

    /// Takes the buffer that a message arrived in.
    pub(super) fn take_buffer(&mut self, reception: &Reception) -> Result<Buffer> {
        self.taken = reception.number;
        let Posted::Buffers(buffers) = &mut self.posted else {
            return Err(Error::RecordLost(reception.number));
        };
        let region = buffers.pop_front();
        region
            .ok_or(Error::RecordLost(reception.number))?
            .unregister()
    }
}
