// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending through slots of the driver.

use super::Engine;
use crate::message::deadline::Deadline;
use crate::message::driver_slots::DriverSlots;
use crate::message::sending::{part, Piece, Target};
use crate::{Refusal, Result, SendTechnique};

impl Engine {
    /// Sends a message that the driver copies to its slots, which are made for the first one.
    pub(super) fn send_by_driver(
        &mut self,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
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
}
