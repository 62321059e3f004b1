// SPDX-License-Identifier: GPL-2.0

//! The kernel's queues of descriptors: one for copies, and one for invalidations that must not wait
//! for copies.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
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

    fn cost(&self) -> Delta {
        self.completion_cost()
    }

    fn read_answers(&self, hw: Hw<'_>, may_wait: bool) -> Result {
        let post = || self.invalidations.post(hw, &Command::ReadAnswers);
        match post() {
            Err(EBUSY) if may_wait => {
                self.invalidations.wait_until_ended(hw)?;
                post()
            }
            result => result,
        }
    }
}

/// The tickets up to which a sick device has to read copies and to end invalidations before it is
/// well: this is what callers wait for. Later commands do not count, so load keeps no device sick.
struct Marks(Option<(u64, u64)>);

impl Marks {
    /// Compares with the last tickets of both queues that are submitted, and of which the device has
    /// `done` what callers wait for. What is submitted the first time has to be done. Returns true
    /// once it is, and begins anew.
    fn are_reached(&mut self, submitted: (u64, u64), done: (u64, u64)) -> bool {
        let (copies, invalidations) = *self.0.get_or_insert(submitted);
        let reached = done.0 >= copies && done.1 >= invalidations;
        if reached {
            self.0 = None;
        }
        reached
    }
}

/// The two queues of a device.
#[pin_data]
pub(crate) struct Queues {
    #[pin]
    copies: Queue<Waiter>,
    #[pin]
    invalidations: Queue<Waiter>,
    #[pin]
    marks: Mutex<Marks>,
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
            marks <- new_mutex!(Marks(None), "uldma::Queues::marks"),
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
        let command = invalidation.command();
        self.invalidations
            .submit(hw, &command, Waiter::Invalidation(invalidation))
    }

    /// Invalidates `region`, which was retracted, and waits for that, but not for copies; bounded.
    ///
    /// Descriptors name regions of this node by number, and the device may read a copy after the
    /// invalidation. So this waits first until it has read all copies that were submitted: the
    /// invalidation ends those that passed the check, and no later one names the region. An
    /// invalidation that was submitted before names it, too, and has ended then.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EIO` if it was reset and has lost its queues.
    pub(super) fn invalidate(&self, hw: Hw<'_>, region: u32) -> Result {
        self.copies.wait_until_read(hw)?;
        self.invalidations.wait_until_ended(hw)?;
        self.invalidate_region(hw, region)
    }

    /// Returns true if a sick device is well again as far as the queues show it.
    pub(crate) fn is_well(&self, hw: Hw<'_>) -> Result<bool> {
        let submitted = (self.copies.submitted(), self.invalidations.submitted());
        let done = (self.copies.last_read(hw)?, self.invalidations.completed());
        Ok(self.marks.lock().are_reached(submitted, done))
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

#[kunit_tests(uldma_connection_queues)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_well_under_load() {
        let mut marks = Marks(None);
        assert!(!marks.are_reached((90, 40), (50, 30)));
        // More is submitted than done, and the queues are never empty.
        assert!(!marks.are_reached((120, 60), (89, 45)));
        assert!(marks.are_reached((150, 80), (110, 50)));
        // The next time, all that is submitted until then counts.
        assert!(!marks.are_reached((200, 90), (190, 80)));
    }

    #[test]
    fn a_device_that_does_other_work_stays_sick() {
        let mut marks = Marks(None);
        for work in 0..100 {
            assert!(!marks.are_reached((90 + work, 40), (90 + work, 39)));
            assert!(!marks.are_reached((90 + work, 40), (89, 40 + work)));
        }
        assert!(marks.are_reached((200, 60), (90, 40)));
    }
}
