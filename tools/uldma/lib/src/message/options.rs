// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of message connections.

use super::notice::Put;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::message::{ReceiveTechnique, SendTechnique};
use crate::region::entry::Access;
use crate::region::Region;
use crate::transfer::status::RECORDS;

/// Options of a message connection. The two sides choose independently of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageOptions {
    /// Technique of [`crate::MessageConnection::send`]; can be changed later.
    pub sending: SendTechnique,
    /// Technique of receiving.
    pub receiving: ReceiveTechnique,
    /// Bytes of a slot. A longer message takes several and arrives as one. Where the sender names
    /// the place (`DIRECT_DMA`), the memory has the bytes of all slots.
    pub slot: usize,
    /// Slots for sending, and for receiving, at most 64 each. Where the sender names the place, so
    /// many puts can arrive before the receiver asks for them.
    pub slots: u8,
    /// Send without credits: a message for which the peer has posted no buffer fails at once, with
    /// [`crate::method::Refusal::NotReady`] (the rule of VIA). Otherwise sending waits for a buffer (with its
    /// time-out the rendezvous of BIP).
    pub without_credits: bool,
    /// By `PEX_DMA`, shorter messages are copied, and shorter pieces of messages where they arrive:
    /// an exchange takes system calls and faults. By `REDIRECT`, shorter memory is not pinned.
    /// [`MessageOptions::with_measured_exchange`] measures it.
    pub exchange_from: usize,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self {
            sending: SendTechnique::CopyDma,
            receiving: ReceiveTechnique::CopyDma,
            slot: 64 << 10,
            slots: 8,
            without_credits: false,
            exchange_from: 16 << 10,
        }
    }
}

impl MessageOptions {
    /// Checks the sizes.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub(super) fn check(&self) -> Result<()> {
        let slots = u64::from(self.slots);
        if self.slot == 0 || slots == 0 || slots > RECORDS {
            return Err(Error::Range {
                offset: 0,
                length: slots,
                size: RECORDS,
            });
        }
        Ok(())
    }

    /// Checks that messages can go through the window.
    ///
    /// # Errors
    ///
    /// [`Error::Technique`].
    pub(super) fn check_window(&self) -> Result<()> {
        self.sending.check_window()?;
        self.receiving.check_window().map(drop)
    }

    /// Returns the bytes of the longest piece of a message that this side receives from a device,
    /// which moves at most `most`.
    pub(super) fn piece(&self, page_size: u64, most: u64) -> u64 {
        let slot = self.slot as u64;
        match self.receiving {
            ReceiveTechnique::V2pDma => most,
            // Only notices are messages.
            ReceiveTechnique::DirectDma => Put::NOTICE as u64,
            // Pages of a slot are exchanged.
            ReceiveTechnique::PexDma => slot.next_multiple_of(page_size.max(1)),
            _ => slot,
        }
    }

    /// Registers memory for all slots of one direction.
    pub(super) fn register(&self, device: &Device, access: Access) -> Result<Region> {
        let buffer = Buffer::new(self.slot.saturating_mul(self.slots.into()))?;
        device.register(buffer, access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_fit_no_ring_are_refused() {
        let with = |slot, slots| {
            let options = MessageOptions {
                slot,
                slots,
                ..Default::default()
            };
            options.check().is_ok()
        };
        assert!(with(1, 1) && with(4096, 64));
        assert!(!with(0, 1) && !with(1, 0) && !with(1, 65));
    }
}
