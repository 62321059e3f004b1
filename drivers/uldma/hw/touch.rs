// SPDX-License-Identifier: GPL-2.0

//! The page to which the device writes which of its look-ups may still be used.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::kernel_ext::{
    compat::{
        dma_address,
        dma_read, //
    },
    window::full_fence, //
};

use super::layout::{
    TOUCH_BEGUN,
    TOUCH_OLDEST, //
};

const WORD: usize = size_of::<u64>();
/// Places of the words.
const BEGUN: usize = TOUCH_BEGUN as usize / WORD;
const OLDEST: usize = TOUCH_OLDEST as usize / WORD;

/// Proof that the device does not use entries any more that were retracted before.
pub(crate) trait Fenced {}

/// The touch page of a device.
pub(crate) struct TouchPage(Coherent<[u64]>);

impl TouchPage {
    /// Creates a page that says that a look-up is in use, until the device has written to it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>) -> Result<Self> {
        Ok(Self(Coherent::zeroed_slice(
            dev,
            PAGE_SIZE / WORD,
            GFP_KERNEL,
        )?))
    }

    /// Returns the bus address.
    pub(crate) fn address(&self) -> DmaAddress {
        dma_address(&self.0)
    }

    /// Returns the number of the last bracket that began: later ones find what the caller has written to the
    /// tables before.
    pub(crate) fn begun(&self) -> Result<u64> {
        // Either the device finds what was written, or this finds its bracket.
        full_fence();
        Ok(dma_read!(self.0, [try: BEGUN]))
    }

    /// Returns true if no look-up of a bracket up to `begun` may still be used.
    pub(crate) fn has_passed(&self, begun: u64) -> Result<bool> {
        // Read later than `begun`: brackets that have ended in between count.
        full_fence();
        let oldest = dma_read!(self.0, [try: OLDEST]);
        // Accesses of the device come before this, and what the caller does after it.
        full_fence();
        Ok(oldest > begun)
    }
}
