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
    dma::wmb,
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

/// The requests of a device, each in a slot until it was taken.
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

    /// Passes each new request to `handle`. The device can use its slot for another one then.
    pub(crate) fn take_new(&mut self, mut handle: impl FnMut(&PageRequest)) {
        for place in 0..PAGE_REQUEST_SLOTS {
            // The slot is in the page.
            if let Ok(Some(request)) = self.take(place) {
                handle(&request);
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
            ..PageRequest::default()
        };
        *taken = number;
        // It was copied.
        wmb();
        dma_write!(self.slots, [try: place].answered, number);
        Ok(Some(request))
    }
}
