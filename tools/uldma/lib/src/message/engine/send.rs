// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending through the engine: one call for all techniques, and the pieces of a message that each of
//! them gives to the device.

use std::ops::Range;
use std::time::Duration;

use super::{destination, Engine};
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::message::driver_slots::DriverSlots;
use crate::message::sending::{length_of, part, Kept, Piece, Sent, SentBuffer, Target, Via};
use crate::message::SendTechnique;
use crate::method::refusal::Refusal;
use crate::region::entry::Access;
use crate::region::{Borrowed, Registered};
use crate::wait::deadline::Deadline;

impl Engine {
    /// Sends a message, whose bytes may be changed when this returns. By `PIO` and `COPY_DMA` this
    /// returns when they are copied, by `PEX_DMA` when they are protected, and a later call reports an error
    /// of the transfer; by `V2P_DMA` when the device has read them.
    pub(crate) fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        self.check_takes_messages()?;
        self.begin_message()?;
        self.send_to(message, Target::Posted, Deadline::after(timeout))
    }

    pub(super) fn send_to(
        &mut self,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        match self.options.sending {
            // Memory that is not registered goes through a buffer that is.
            SendTechnique::CopyDma | SendTechnique::DirectDma => {
                self.send_copy(message, target, deadline)
            }
            SendTechnique::Pio => self.send_via(Via::Window, message, target, deadline),
            SendTechnique::CopyDmaKernel => self.send_by_driver(message, target, deadline),
            // There is nothing to be pinned.
            SendTechnique::V2pDma if message.is_empty() => {
                self.send_copy(message, target, deadline)
            }
            SendTechnique::V2pDma => self.send_pinned(message, target, deadline),
            SendTechnique::PexDma => self.send_exchanged(message, target, deadline),
        }
    }

    pub(super) fn send_copy(
        &mut self,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        self.send_via(Via::Memory, message, target, deadline)
    }

    fn send_via(
        &mut self,
        via: Via,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        let length = message.len() as u64;
        for piece in self.sender.copied_pieces(length)? {
            let pushed = self.push_copy(via, message, target, piece, deadline);
            pushed.inspect_err(|_| self.sender.tear(piece))?;
        }
        self.end_put(target, length, None, deadline).map(drop)
    }

    fn push_copy(
        &mut self,
        via: Via,
        message: &[u8],
        target: Target,
        piece: Piece,
        deadline: Deadline,
    ) -> Result<()> {
        if let Some(ticket) = self.sender.blocked_by(via) {
            self.wait_half(ticket, deadline)?;
        }
        self.wait_for(target, deadline)?;
        let bytes = part(message, piece).ok_or(Refusal::Bounds)?;
        let to = destination(&self.endpoint, target);
        self.sender
            .push_copy(&self.context, to, (bytes, via), piece)
    }

    /// Sends a message that the driver copies to its slots, which are made for the first one.
    fn send_by_driver(&mut self, message: &[u8], target: Target, deadline: Deadline) -> Result<()> {
        if target != Target::Posted {
            return Err(SendTechnique::CopyDmaKernel
                .refused("the driver sends messages, and puts nothing: use copy-dma"));
        }
        if !self.sender.has_driver_slots() {
            let slots = DriverSlots::sending(&self.device, &self.endpoint, &self.options)?;
            self.sender.set_driver_slots(slots);
        }
        for piece in self.sender.copied_pieces(message.len() as u64)? {
            let pushed = self.push_by_driver(message, piece, deadline);
            pushed.inspect_err(|_| self.sender.tear(piece))?;
        }
        Ok(())
    }

    fn push_by_driver(&mut self, message: &[u8], piece: Piece, deadline: Deadline) -> Result<()> {
        if let Some(ticket) = self.sender.blocked_by_driver_slot() {
            self.wait_half(ticket, deadline)?;
        }
        self.wait_room(deadline)?;
        let bytes = part(message, piece).ok_or(Refusal::Bounds)?;
        self.sender.push_by_driver(&self.context, bytes, piece)
    }

    fn send_pinned(&mut self, message: &[u8], target: Target, deadline: Deadline) -> Result<()> {
        let region = self.device.register_readable(message)?;
        self.send_registered(region, message.len() as u64, target, deadline)
    }

    /// Sends a message that was registered for it. If time is over, the registration ends when the
    /// device has read what it was given.
    pub(super) fn send_registered(
        &mut self,
        region: Borrowed,
        length: u64,
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        let before = self.sender.newest();
        let started = self.start_from(&region, 0, length, target, deadline);
        let sent = started.and_then(|sent| self.finish(&sent, deadline));
        if sent.is_err() {
            self.sender
                .keep_since(before, Kept::Borrowed { _region: region });
        }
        sent
    }

    /// Sends a part of registered memory by `DIRECT_DMA`, and returns before the device has read it:
    /// what is written there before [`Engine::wait_sent`] may be sent instead.
    pub(crate) fn start(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        timeout: Duration,
    ) -> Result<Sent> {
        let length = length_of(region, &part)?;
        self.check_takes_messages()?;
        self.begin_message()?;
        let deadline = Deadline::after(timeout);
        self.start_from(region, part.start, length, Target::Posted, deadline)
    }

    pub(super) fn start_from(
        &mut self,
        region: &impl Registered,
        start: u64,
        length: u64,
        target: Target,
        deadline: Deadline,
    ) -> Result<Sent> {
        let mut sent = None;
        for piece in self.sender.pieces(length)? {
            let pushed = self.wait_for(target, deadline).and_then(|()| {
                let place = (region, start);
                let to = destination(&self.endpoint, target);
                self.sender
                    .push_from(&self.context, to, place, piece, sent.take())
            });
            sent = Some(pushed.inspect_err(|_| self.sender.tear(piece))?);
        }
        let sent = self.end_put(target, length, sent, deadline)?;
        sent.ok_or(Refusal::BadSize.into())
    }

    /// Returns true if the device has read a message, so that its memory may be changed.
    pub(crate) fn is_sent(&mut self, sent: &Sent) -> Result<bool> {
        self.harvest()?;
        let pending = self.sender.oldest();
        if pending.is_some_and(|oldest| oldest <= sent.last) {
            return Ok(false);
        }
        sent.check().map(|()| true)
    }

    /// Waits until the device has read a message.
    pub(crate) fn wait_sent(&mut self, sent: &Sent, timeout: Duration) -> Result<()> {
        self.finish(sent, Deadline::after(timeout))
    }

    fn finish(&mut self, sent: &Sent, deadline: Deadline) -> Result<()> {
        self.wait_ended(sent.last, deadline)?;
        sent.check().map_err(|error| self.reason_of(error))
    }

    /// Sends a buffer by `V2P_DMA`: pins it, or finds it pinned in the pin cache, and returns before
    /// the device has read it.
    pub(crate) fn send_buffer(&mut self, buffer: Buffer, timeout: Duration) -> Result<SentBuffer> {
        self.check_takes_messages()?;
        self.begin_message()?;
        let region = self.device.register(buffer, Access::Read)?;
        let deadline = Deadline::after(timeout);
        let before = self.sender.newest();
        match self.start_from(&region, 0, region.length(), Target::Posted, deadline) {
            Ok(sent) => Ok(SentBuffer { sent, region }),
            Err(error) => {
                self.sender
                    .keep_since(before, Kept::Owned { _region: region });
                Err(error)
            }
        }
    }

    /// Waits until the device has read a buffer, and returns it.
    pub(crate) fn reclaim(&mut self, message: SentBuffer, timeout: Duration) -> Result<Buffer> {
        match self.wait_sent(&message.sent, timeout) {
            Ok(()) => message.into_buffer(),
            Err(error) => {
                let SentBuffer { sent, region } = message;
                self.sender
                    .keep_until(sent.last, Kept::Owned { _region: region });
                Err(error)
            }
        }
    }

    /// Waits until all messages are in the peer's memory.
    pub(crate) fn flush(&mut self, timeout: Duration) -> Result<()> {
        if let Some(last) = self.sender.newest() {
            self.wait_ended(last, Deadline::after(timeout))?;
        }
        self.begin_message()
    }
}
