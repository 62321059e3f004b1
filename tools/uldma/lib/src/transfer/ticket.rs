// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tickets: the numbers of started transfers.

/// Number of a transfer that a context started; later ones are greater.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Context, Shadow, Spin, Ticket};
///
/// /// Copies a page, and waits for it and for all before it.
/// fn copy(context: &Context, from: &Shadow, to: &Shadow) -> uldma::Result<Ticket> {
///     let ticket = context.initiate(from.at(0)?, to.at(0)?, 4096)?;
///     context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;
///     Ok(ticket)
/// }
/// # Ok(())
/// # }
/// ```
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
