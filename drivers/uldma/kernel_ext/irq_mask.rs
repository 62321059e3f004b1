// SPDX-License-Identifier: GPL-2.0

//! Interrupts that are masked when they come, as those of NAPI are.
//!
//! The hard interrupt handler masks its vector before it schedules a consumer, and the consumer unmasks
//! it at the end of its pass, before it looks for work once more and sleeps. So one pass follows at most
//! one interrupt, however often the device interrupts. An interrupt that comes while the vector is masked
//! is recorded, and handled when it is unmasked.
//!
//! The order makes each interrupt be followed by a pass: a consumer that misses the mask, since the
//! handler is about to set it, is scheduled after that, and unmasks the vector in the pass that follows.

use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

#[cfg(CONFIG_KUNIT = "y")]
mod model;

/// The mask of one vector, which its handler sets. Without a handler it does nothing.
///
/// # Invariants
///
/// `irq` is 0, or an interrupt of this driver. While `is_masked`, it was disabled once more often than
/// enabled.
pub(crate) struct IrqMask {
    irq: Atomic<u32>,
    is_masked: Atomic<bool>,
}

impl IrqMask {
    /// Creates the mask of a vector that has no handler yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // INVARIANT: There is no interrupt.
        let mask = Self {
            irq: Atomic::new(0),
            is_masked: Atomic::new(false),
        };
        Ok(Arc::new(mask, GFP_KERNEL)?)
    }

    /// Masks the vector. Its handler calls this before anything else: it runs neither twice at once, nor
    /// while the vector is masked.
    pub(super) fn mask(&self) {
        let irq = self.irq.load(Relaxed);
        // SAFETY: By the type invariant the interrupt is this driver's; a handler has one.
        unsafe { bindings::disable_irq_nosync(irq) };
        // INVARIANT: It was disabled just now. A caller of `unmask` that finds the flag may enable it.
        self.is_masked.store(true, Release);
    }

    /// Unmasks the vector, if it is masked. What interrupted meanwhile interrupts now. Does not sleep.
    ///
    /// Called by handlers, and by callers that have returned before the handler ends.
    pub(crate) fn unmask(&self) {
        if self.is_masked.load(Relaxed) && self.is_masked.xchg(false, Full) {
            let irq = self.irq.load(Relaxed);
            // SAFETY: By the type invariant the interrupt is this driver's, and was disabled once more.
            unsafe { bindings::enable_irq(irq) };
        }
    }
}

/// The time in which a vector has a handler: the first field of its registration.
pub(super) struct Handled(Arc<IrqMask>);

impl Handled {
    /// Begins it, before interrupt `irq` is requested, which is freed after the result is dropped.
    pub(super) fn new(mask: Arc<IrqMask>, irq: u32) -> Self {
        // INVARIANT: The interrupt is about to be this driver's, and none that did not come is masked.
        mask.irq.store(irq, Relaxed);
        Self(mask)
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        let irq = self.0.irq.load(Relaxed);
        // SAFETY: By the type invariant the interrupt is this driver's. This waits for its handlers, and
        // none runs until it is freed, whether or not the last one unmasks it.
        unsafe { bindings::disable_irq(irq) };
        // INVARIANT: Nothing is masked any more, so nothing is enabled.
        self.0.is_masked.store(false, Relaxed);
    }
}
