// SPDX-License-Identifier: GPL-2.0

//! The page where the device requests pages that it has missed.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

use crate::kernel_ext::{
    compat::{
        dma_address,
        dma_read,
        dma_write, //
    },
    window::full_fence, //
};

use super::layout::{
    PageRequest,
    PAGE_REQUEST_SLOTS, //
};

// SAFETY: Integers without padding, as the size assertions in `layout` and the field sizes show.
unsafe impl AsBytes for PageRequest {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for PageRequest {}

/// A request that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    number: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageAnswer {
    /// Number of pages that were entered.
    pub(crate) filled: u16,
    /// 0, or the `enum uldma_dma_status` that says why the first page was not.
    pub(crate) status: u16,
}

impl PageAnswer {
    /// The device can use the slot again.
    pub(crate) const FREE: Self = Self {
        filled: 0,
        status: 0,
    };
}

/// The requests of a device, each in a slot of a page.
pub(crate) struct PageRequests {
    slots: Coherent<[PageRequest]>,
    /// The number of the last request that was taken from each slot.
    taken: [u64; PAGE_REQUEST_SLOTS],
}

impl PageRequests {
    /// Creates a page without requests.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>) -> Result<Self> {
        Ok(Self {
            slots: Coherent::zeroed_slice(dev, PAGE_REQUEST_SLOTS, GFP_KERNEL)?,
            taken: [0; PAGE_REQUEST_SLOTS],
        })
    }

    /// Bus address of the page.
    pub(crate) fn address(&self) -> DmaAddress {
        dma_address(&self.slots)
    }

    /// Passes each new request to `handle`, with its ticket. What that returns is the answer; without one,
    /// the device keeps the slot until there [is](Self::answer) one, or nothing waits for it any more.
    pub(crate) fn take_new(
        &mut self,
        mut handle: impl FnMut(&PageRequest, Ticket) -> Option<PageAnswer>,
    ) {
        for place in 0..PAGE_REQUEST_SLOTS {
            // The slot is in the page.
            let Ok(Some(request)) = self.take(place) else {
                continue;
            };
            let ticket = Ticket {
                place,
                number: request.number,
            };
            if let Some(answer) = handle(&request, ticket) {
                self.answer(ticket, answer);
            }
        }
    }

    fn take(&mut self, place: usize) -> Result<Option<PageRequest>> {
        let taken = self.taken.get_mut(place).ok_or(EINVAL)?;
        let number = dma_read!(self.slots, [try: place].number);
        if number == *taken {
            return Ok(None);
        }
        // The device has written the number last.
        full_fence();
        let request = PageRequest {
            number,
            index: dma_read!(self.slots, [try: place].index),
            count: dma_read!(self.slots, [try: place].count),
            need: dma_read!(self.slots, [try: place].need),
            kind: dma_read!(self.slots, [try: place].kind),
            node: dma_read!(self.slots, [try: place].node),
            ..PageRequest::default()
        };
        // A transfer that waits no longer makes room for another request, which has an event of its own.
        full_fence();
        if dma_read!(self.slots, [try: place].number) != number {
            return Ok(None);
        }
        *taken = number;
        Ok(Some(request))
    }

    /// Stores the answer to a request that was taken. The device reads it when it is told to.
    pub(crate) fn answer(&self, ticket: Ticket, answer: PageAnswer) {
        let Ticket { place, number } = ticket;
        if self.taken.get(place) != Some(&number) {
            // The transfer has not waited so long.
            return;
        }
        // The slot is in the page.
        let _ = self.store(place, number, answer);
    }

    fn store(&self, place: usize, number: u64, answer: PageAnswer) -> Result {
        dma_write!(self.slots, [try: place].filled, answer.filled);
        dma_write!(self.slots, [try: place].status, answer.status);
        // What was copied was so before this.
        full_fence();
        dma_write!(self.slots, [try: place].answered, number);
        Ok(())
    }
}
