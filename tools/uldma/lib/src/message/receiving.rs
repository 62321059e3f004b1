// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiving half of a message connection: posted slots and buffers.

use std::collections::VecDeque;

use super::begun::Begun;
use super::copied::Copied;
use super::driver_slots::DriverSlots;
use super::exchange::Exchanges;
use super::window_slots::WindowSlots;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::region::entry::Access;
use crate::region::exchange::ExchangeSlots;
use crate::region::{Region, Registered};
use crate::sys::uapi;
use crate::transfer::context::Context;
use crate::transfer::endpoint::{Endpoint, Reception};
use crate::transfer::status::RECORDS;

/// Pieces of messages that a connection has received by `REDIRECT`. Each slot has one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redirections {
    /// Pieces that arrived where they were received into.
    pub redirected: u64,
    /// Pieces that were copied from their slots.
    pub from_slots: u64,
}

/// The memory that messages arrive in.
#[derive(Debug)]
enum Posted {
    /// Slots of so many bytes, all posted.
    Slots { memory: SlotMemory, bytes: u64 },
    /// Buffers of the program, oldest first.
    Buffers(VecDeque<Region>),
}

/// The memory of slots.
#[derive(Debug)]
pub(super) enum SlotMemory {
    /// Messages are copied from it.
    Pinned(Region),
    /// Its pages are exchanged with the program's.
    Exchangeable(ExchangeSlots),
    /// The driver copies messages from it, and posts it.
    OfDriver(DriverSlots),
    /// The processor reads messages from the window.
    Window(WindowSlots),
}

impl SlotMemory {
    /// Returns the index of its region in the device's table; none where the driver posts.
    fn index(&self) -> Option<u32> {
        match self {
            Self::Pinned(region) => Some(region.index()),
            Self::Exchangeable(slots) => Some(slots.area().index()),
            Self::OfDriver(_) => None,
            Self::Window(slots) => Some(slots.index()),
        }
    }

    /// Returns the number of slots of `bytes` bytes.
    fn count(&self, bytes: u64) -> u64 {
        let count = match self {
            Self::Pinned(region) => region.length() / bytes.max(1),
            Self::Exchangeable(slots) => slots.length() / bytes.max(1),
            Self::OfDriver(slots) => slots.count(),
            Self::Window(slots) => slots.count(),
        };
        count.max(1)
    }
}

impl From<Region> for SlotMemory {
    fn from(region: Region) -> Self {
        Self::Pinned(region)
    }
}

impl From<ExchangeSlots> for SlotMemory {
    fn from(slots: ExchangeSlots) -> Self {
        Self::Exchangeable(slots)
    }
}

impl From<DriverSlots> for SlotMemory {
    fn from(slots: DriverSlots) -> Self {
        Self::OfDriver(slots)
    }
}

impl From<WindowSlots> for SlotMemory {
    fn from(slots: WindowSlots) -> Self {
        Self::Window(slots)
    }
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    posted: Posted,
    /// Flags of the descriptors of slots.
    flags: u32,
    /// Messages of the device that were taken.
    taken: u64,
    /// Of the messages.
    pub(super) copied: Copied,
    /// The beginning of a message that a call has left.
    pub(super) begun: Begun,
    /// The first failure of a piece of the message.
    failed: Option<Error>,
}

impl Receiver {
    /// Creates the half for slots of `bytes` bytes in `memory`.
    pub(super) fn with_slots(memory: SlotMemory, bytes: u64) -> Self {
        Self::new(Posted::Slots { memory, bytes })
    }

    /// Lets messages be redirected from their slots.
    pub(super) fn with_redirection(mut self) -> Self {
        self.flags = uapi::ULDMA_DESC_REDIRECT;
        self
    }

    /// Redirects the next message to a region. Returns false if the device has taken its slot.
    pub(super) fn redirect(&self, endpoint: &Endpoint, region: &impl Registered) -> bool {
        match &self.posted {
            Posted::Slots { memory, .. } => memory
                .index()
                .is_some_and(|index| endpoint.redirect(self.next(), index, region)),
            Posted::Buffers(_) => false,
        }
    }

    /// Creates the half for buffers that the program posts.
    pub(super) fn with_buffers() -> Self {
        Self::new(Posted::Buffers(VecDeque::new()))
    }

    fn new(posted: Posted) -> Self {
        Self {
            posted,
            flags: 0,
            taken: 0,
            copied: Copied::default(),
            begun: Begun::default(),
            failed: None,
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
        let Posted::Slots { memory, bytes } = &self.posted else {
            return Ok(());
        };
        let count = memory.count(*bytes);
        let Some(index) = memory.index() else {
            // Each call that takes a message posts its slot.
            endpoint.set_posted(self.taken + count);
            return Ok(());
        };
        let mut posted = false;
        while endpoint.posted() < self.taken + count {
            let slot = endpoint.posted() % count;
            endpoint.post_at(index, slot * bytes, *bytes, self.flags)?;
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
        // Those that have arrived count, too: their records must not be overwritten.
        if buffers.len() as u64 >= RECORDS || endpoint.room() == 0 {
            return Err(crate::method::refusal::Refusal::QueueFull.into());
        }
        let region = device.register(buffer, Access::Write)?;
        endpoint.post(&region, 0, region.length())?;
        buffers.push_back(region);
        endpoint.submit(context);
        Ok(())
    }

    /// Joins pieces of the message that have arrived behind `first`: as many as one exchange of pages
    /// takes out of their slots, and as fit into `room` bytes. The peer keeps half of the slots.
    pub(super) fn join(&self, first: Reception, room: usize, endpoint: &Endpoint) -> Reception {
        let Posted::Slots { memory, bytes } = &self.posted else {
            return first;
        };
        if !matches!(memory, SlotMemory::Exchangeable(_)) {
            return first;
        }
        let count = memory.count(*bytes);
        let mut joined = first;
        while joined.is_whole_slot(bytes * (joined.number - self.taken))
            && joined.number % count != 0
            && joined.number - self.taken < count / 2
        {
            let Ok(Some(next)) = endpoint.ended(joined.number + 1) else {
                break;
            };
            let sum = joined.bytes.saturating_add(next.bytes);
            if next.failure.is_some() || next.redirected || sum > room as u64 {
                break;
            }
            joined = Reception { bytes: sum, ..next };
        }
        joined
    }

    /// Takes a piece of a message, or [joined](Self::join) pieces, out of its slot, as far as there is
    /// room in `target`. Returns how much of it was copied.
    pub(super) fn take_piece(
        &mut self,
        reception: &Reception,
        target: &mut [u8],
        exchanges: &mut Exchanges,
    ) -> Result<Copied> {
        let before = std::mem::replace(&mut self.taken, reception.number);
        let pieces = reception.number - before;
        let mut copied = Copied::default();
        if reception.redirected {
            return Ok(copied);
        }
        let Posted::Slots { memory, bytes } = &self.posted else {
            return Ok(copied);
        };
        let slot = before % memory.count(*bytes);
        let length = usize::try_from(reception.bytes.min(bytes * pieces)).unwrap_or(usize::MAX);
        let length = length.min(target.len());
        let target = target.get_mut(..length).unwrap_or_default();
        let all = target.len() as u64;
        match memory {
            SlotMemory::Pinned(region) => {
                region.read(slot * bytes, target)?;
                copied.by_library = all;
            }
            SlotMemory::Exchangeable(slots) => {
                copied.by_library = exchanges.take(slots, slot * bytes, target, pieces)?;
            }
            SlotMemory::OfDriver(slots) => {
                slots.receive(target)?;
                copied.by_driver = all;
            }
            SlotMemory::Window(slots) => {
                slots.read(slot * bytes, target)?;
                copied.by_library = all;
            }
        }
        Ok(copied)
    }

    /// Notes how a piece of the message arrived.
    pub(super) fn note(&mut self, reception: &Reception, taken: Result<Copied>) {
        match check(reception).and(taken) {
            Ok(copied) => self.copied = self.copied.with(copied),
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// Reports the failure of the message, once.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`]; [`Error::System`] if pages could not be exchanged.
    pub(super) fn take_failure(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
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

impl Reception {
    /// Returns true if it fills slots of `bytes` bytes with the beginning of a message.
    fn is_whole_slot(&self, bytes: u64) -> bool {
        self.more && self.bytes == bytes && !self.redirected && self.failure.is_none()
    }
}

/// Turns a failed reception into an error.
pub(super) fn check(reception: &Reception) -> Result<()> {
    reception.failure.map_or(Ok(()), |status| {
        Err(Error::Transfer {
            ticket: reception.number,
            bytes: reception.bytes,
            status,
        })
    })
}
