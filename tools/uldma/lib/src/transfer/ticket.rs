// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tickets: the numbers of started transfers.

/// Number of a transfer that a context started; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Returns the number that the device issued.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Number of a transfer that the kernel started, see [`crate::Device::dma`].
///
/// Its numbers are not those of a context's tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelTicket(pub(crate) u64);
