// SPDX-License-Identifier: GPL-2.0

//! The kernel's queues of descriptors: one for copies, and one for invalidations that must not wait
//! for copies.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::Delta, //
};

use super::{
    invalidation::Invalidation,
    progress::Job,
    ConnCtx, //
};
use crate::{
    dma::queue::Queue,
    hw::{
        Command,
        Hw,
        KernelQueues, //
    },
    kernel_ext::{
        changes::Changes,
        wakeup, //
    },
    mem::tpt::Invalidator,
    params,
    user_abi::status_page::Outcome, //
};

/// The waiter of a command.
enum Waiter {
    Job(Job),
    Invalidation(Invalidation),
}

impl Waiter {
    fn ended(self, ctx: &ConnCtx<'_>, outcome: Outcome) {
        match self {
            Self::Job(job) => job.ended(ctx, outcome),
            Self::Invalidation(invalidation) => invalidation.ended(outcome),
        }
    }

    fn lost(self) {
        match self {
            Self::Job(job) => job.lost(),
            Self::Invalidation(_) => (),
        }
    }
}

impl Invalidator for Queues {
    fn invalidate_region(&self, hw: Hw<'_>, region: u32) -> Result {
        // A device that was reset has lost its queues.
        if hw.health().is_reset() {
            return hw.invalidate_region(region);
        }
        match self.invalidations.invalidate(hw, region) {
            // The queue may be full of waiters that have not run since their commands completed.
            Err(err) if err != ETIMEDOUT => hw.invalidate_region(region),
            result => result,
        }
    }
}

/// The two queues of a device.
#[pin_data]
pub(crate) struct Queues {
    #[pin]
    copies: Queue<Waiter>,
    #[pin]
    invalidations: Queue<Waiter>,
    /// Changes with each interrupt of the device for a completion.
    #[pin]
    interrupts: Changes,
    /// Nanoseconds that sleeping until a command completes costs; 0 if it is not known.
    completion_cost: Atomic<i64>,
}

impl Queues {
    /// Creates the queues of `contexts`, which work after [`Queues::enable`].
    pub(crate) fn new(contexts: KernelQueues) -> Result<impl PinInit<Self>> {
        let copies = Queue::new(contexts.copies)?;
        let invalidations = Queue::new(contexts.invalidations)?;
        Ok(pin_init!(Self {
            copies <- copies,
            invalidations <- invalidations,
            interrupts <- Changes::new(),
            completion_cost: Atomic::new(0),
        }))
    }

    /// Enables the contexts of the queues.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        self.copies.enable(hw)?;
        self.invalidations.enable(hw)
    }

    /// Measures the cost of sleeping until a command completes, with the interrupts of the device.
    pub(crate) fn measure_completion(&self, hw: Hw<'_>) {
        if params::wakeup().is_some() {
            return;
        }
        // Without a result, a device that answers late costs the time of a timer's wake-up.
        if let Ok(cost) = self.invalidations.measure_wakeup(hw, &self.interrupts) {
            self.completion_cost.store(cost, Relaxed);
        }
    }

    /// Notes an interrupt for a completion.
    pub(crate) fn interrupted(&self) {
        self.interrupts.notify();
    }

    /// Returns the cost of sleeping until a command completes.
    pub(crate) fn completion_cost(&self) -> Delta {
        match self.completion_cost.load(Relaxed) {
            0 => wakeup::cost(),
            nanoseconds => Delta::from_nanos(nanoseconds),
        }
    }

    /// Ends both queues, which the device does not access any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        self.copies.tear_down(dev, Waiter::lost);
        self.invalidations.tear_down(dev, Waiter::lost);
    }

    /// Submits a copy.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, `ENODEV` if the device is unbound.
    pub(super) fn copy(&self, hw: Hw<'_>, command: &Command, job: Job) -> Result {
        self.copies.submit(hw, command, Waiter::Job(job))
    }

    /// Submits an invalidation, and does not wait for it.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`].
    pub(super) fn invalidate_async(&self, hw: Hw<'_>, invalidation: Invalidation) -> Result {
        // The device may still poll a queue in which a command has just completed.
        let queue = if self.copies.is_busy() {
            &self.invalidations
        } else {
            &self.copies
        };
        let command = invalidation.command();
        queue.submit(hw, &command, Waiter::Invalidation(invalidation))
    }

    /// Invalidates `region`, which was retracted, and waits for that; bounded. If an invalidation was
    /// `requested` before, it has completed then, too.
    ///
    /// Descriptors name regions of this node by number, and the device may read a copy after the
    /// invalidation. So this waits first until it has read all copies that were submitted: the
    /// invalidation ends those that passed the check, and no later one names the region.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EBUSY` if the queue of copies is full, `ENODEV`
    /// if the device is unbound.
    pub(super) fn invalidate(&self, hw: Hw<'_>, region: u32, asked: bool) -> Result {
        if asked {
            self.copies.invalidate(hw, region)?;
        } else {
            self.copies.wait_until_read(hw)?;
        }
        self.invalidate_region(hw, region)
    }

    /// Returns true if completions have not been reaped.
    pub(crate) fn has_ended(&self) -> bool {
        self.copies.has_ended() || self.invalidations.has_ended()
    }

    /// Returns true if commands are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.copies.is_busy() || self.invalidations.is_busy()
    }

    /// Requests interrupts for completions.
    pub(crate) fn arm(&self, hw: Hw<'_>) -> Result {
        if self.copies.is_busy() {
            self.copies.arm(hw)?;
        }
        if self.invalidations.is_busy() {
            self.invalidations.arm(hw)?;
        }
        Ok(())
    }

    /// Reaps completions. Returns true if there were any.
    pub(crate) fn reap(&self, ctx: &ConnCtx<'_>) -> bool {
        let mut any = false;
        for queue in [&self.copies, &self.invalidations] {
            any |= queue.reap(|waiter, outcome| waiter.ended(ctx, outcome));
        }
        any
    }
}
