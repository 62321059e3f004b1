// SPDX-License-Identifier: GPL-2.0

//! The progress worker of the link and of connections.
//!
//! Interrupts only queue the work item. One thread makes progress at a time; a contender sets
//! `again` and returns. The worker polls for up to `link_busy_poll_us` after the last message, then
//! clears *awake* so that peers ring the doorbell again: this moderates interrupts. A blocked call
//! polls in place of the worker. When the call returns, peers still do not ring, so a timer queues
//! the worker.
//!
//! Ten times per second one work item writes the heartbeat, and has another one, the *tick*, do what waits
//! for locks. I/O may depend on the link, and the reclaim of memory on that I/O. So both, and the work item
//! that makes progress, are on queues with a thread of their own, allocations of these do no I/O, and the
//! heartbeat waits for nothing.
//!
//! Each run of the work item is [bounded](budget). The handler masks the doorbell when it rings, and the
//! worker unmasks it when it falls asleep. While peers ring without sending anything, the timer queues the
//! worker instead.

use kernel::{
    impl_has_delayed_work,
    impl_has_hr_timer,
    impl_has_work,
    new_mutex,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode, //
        },
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    hw::{
        Consumer,
        SegmentDoorbells, //
    },
    kernel_ext::{
        noio::without_io,
        wait::is_processor_wanted,
        workqueue::{
            self,
            flush,
            flush_delayed, //
        }, //
    },
    link::{
        polling::Polling,
        throttle::{
            period,
            Throttle, //
        },
        TICK_MS, //
    },
    params, //
};

mod budget;
mod doorbells;
mod pace;
mod run;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use pace::Pace;

/// Rounds that a caller does itself when it requests progress.
const CALLER_ROUNDS: u32 = 4;

const WORK: u64 = 1;
const TICK_WORK: u64 = 2;
const RELEASE: u64 = 3;
const SEGMENTS: u64 = 4;
const HEARTBEAT: u64 = 5;

/// The operations of the progress worker.
pub(crate) trait ProgressOps: Send + Sync {
    /// Does a bounded amount of pending work. With `ask_hw` it also reads the state of the links
    /// from the hardware. Returns true if there was any work.
    fn poll_once(&self, ask_hw: bool) -> bool;
    /// Returns true if there is pending work.
    fn has_work(&self) -> bool;
    /// Returns true if commands are in flight whose completions have to be reaped.
    fn is_busy(&self) -> bool;
    /// Tells peers whether to ring the doorbell. Returns true if work arrived before they could
    /// know.
    fn set_asleep(&self, asleep: bool) -> bool;
    /// Notes that a doorbell has rung, which wakes this node if it slept.
    fn rung(&self);
    /// Returns true if this node has rung a peer that has not sent anything since.
    fn has_rung(&self) -> bool;
    /// Returns the cost of sleeping until a peer rings.
    fn doorbell_cost(&self) -> Delta;
    /// Returns the cost of sleeping until a command completes.
    fn completion_cost(&self) -> Delta;
    /// Writes the heartbeat of this node for all peers. Allocates no memory, and takes no lock under
    /// which memory is allocated.
    fn heartbeat(&self);
    /// Does the periodic work.
    fn tick(&self);
    /// Unpins memory of ended connections, which may wait for processes.
    fn release(&self);
    /// Wakes the programs of the segments that these doorbells may be for.
    fn ring_segments(&self, rung: SegmentDoorbells);
    /// Has the doorbells of a consumer interrupt again, at the end of its pass.
    fn unmask(&self, consumer: Consumer);
}

/// Counters of the progress worker.
#[derive(Clone, Copy)]
pub(crate) struct PollStats {
    /// Interrupts of the doorbell.
    pub(crate) doorbells: u64,
    /// Number of times that the doorbell was unmasked.
    pub(crate) unmasked: u64,
    /// Rounds that found work.
    pub(crate) found: u64,
    /// Number of times that the timer replaced doorbells.
    pub(crate) moderated: u64,
    /// Number of times that doorbells of segments were forwarded.
    pub(crate) passes: u64,
}

/// The progress worker of one device.
#[pin_data]
pub(crate) struct ProgressWorker {
    /// None before and after the device is bound.
    #[pin]
    ops: Mutex<Option<Arc<dyn ProgressOps>>>,
    /// Held by the thread that makes progress. Decides how long the work item polls.
    #[pin]
    running: Mutex<Polling>,
    /// A caller requests another round of the running thread.
    again: Atomic<bool>,
    /// The doorbell rang since the last round.
    rung: Atomic<bool>,
    /// The doorbell rang, which masks it, and was not unmasked since.
    is_masked: Atomic<bool>,
    /// Peers rang too often without sending anything: doorbells are ignored, and the timer queues the
    /// worker.
    moderated: Atomic<bool>,
    /// Runs after such doorbells; used by the thread that has `running`.
    throttle: Throttle,
    /// The device is being unbound: all loops here end.
    stopping: Atomic<bool>,
    /// [`SegmentDoorbells`] that rang and were not forwarded.
    segment_bits: Atomic<u32>,
    #[pin]
    pace: Mutex<Pace>,
    born: Instant<Monotonic>,
    /// The next round has to read the state of the links.
    ask_hw: Atomic<bool>,
    doorbells: Atomic<u64>,
    unmasked: Atomic<u64>,
    found: Atomic<u64>,
    moderations: Atomic<u64>,
    passes: Atomic<u64>,
    /// Peers do not ring: a thread polls, or the timer or the work item is pending.
    awake: Atomic<bool>,
    /// Calls that poll while they wait.
    pollers: Atomic<u32>,
    /// Since the timer expired last, a call returned while peers do not ring or commands are in
    /// flight.
    left_awake: Atomic<bool>,
    /// The timer is armed.
    timer_armed: Atomic<bool>,
    /// Since this node fell asleep last, the timer was started: peers do not ring, or commands in
    /// flight do not interrupt, so the work item has to run when it expires.
    must_run: Atomic<bool>,
    #[pin]
    timer: HrTimer<ProgressWorker>,
    /// Stops the timer when dropped.
    #[pin]
    timer_handle: Mutex<Option<ArcHrTimerHandle<ProgressWorker>>>,
    #[pin]
    work: Work<ProgressWorker, WORK>,
    #[pin]
    heartbeat: DelayedWork<ProgressWorker, HEARTBEAT>,
    #[pin]
    tick: Work<ProgressWorker, TICK_WORK>,
    #[pin]
    release: Work<ProgressWorker, RELEASE>,
    #[pin]
    ring_segments: Work<ProgressWorker, SEGMENTS>,
}

impl_has_work! {
    impl HasWork<Self, 1> for ProgressWorker { self.work }
    impl HasWork<Self, 2> for ProgressWorker { self.tick }
    impl HasWork<Self, 3> for ProgressWorker { self.release }
    impl HasWork<Self, 4> for ProgressWorker { self.ring_segments }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 5> for ProgressWorker { self.heartbeat }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for ProgressWorker {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for ProgressWorker {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        if this.pollers.load(Relaxed) > 0 || this.left_awake.xchg(false, Full) {
            context.forward_now(period());
            return HrTimerRestart::Restart;
        }
        // A call that finds the timer armed after this has set `must_run` before.
        this.timer_armed.xchg(false, Full);
        if this.must_run.load(Relaxed) {
            Arc::from(this).schedule();
        }
        HrTimerRestart::NoRestart
    }
}

impl WorkItem<WORK> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_until_idle();
    }
}

impl WorkItem<HEARTBEAT> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(ops) = this.ops() {
            ops.heartbeat();
            if let Some(queue) = workqueue::progress() {
                // If it is queued already, the last one has not begun yet.
                let _ = queue.enqueue::<_, TICK_WORK>(this.clone());
            }
            this.schedule_heartbeat();
        }
    }
}

impl WorkItem<TICK_WORK> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(ops) = this.ops() {
            without_io(|| ops.tick());
            this.ask_hw.store(true, Relaxed);
            this.kick();
        }
    }
}

impl WorkItem<RELEASE> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(ops) = this.ops() {
            ops.release();
        }
    }
}

impl ProgressWorker {
    /// Creates a worker that does nothing until [`ProgressWorker::start`].
    pub(crate) fn new() -> Result<Arc<Self>> {
        let worker = pin_init!(Self {
            ops <- new_mutex!(None, "uldma::ProgressWorker::ops"),
            running <- new_mutex!(Polling::new(), "uldma::ProgressWorker::running"),
            again: Atomic::new(false),
            rung: Atomic::new(false),
            is_masked: Atomic::new(false),
            moderated: Atomic::new(false),
            throttle: Throttle::new(),
            stopping: Atomic::new(false),
            segment_bits: Atomic::new(0),
            pace <- new_mutex!(Pace::default(), "uldma::ProgressWorker::pace"),
            born: Instant::now(),
            ask_hw: Atomic::new(false),
            doorbells: Atomic::new(0),
            unmasked: Atomic::new(0),
            found: Atomic::new(0),
            moderations: Atomic::new(0),
            passes: Atomic::new(0),
            awake: Atomic::new(false),
            pollers: Atomic::new(0),
            left_awake: Atomic::new(false),
            timer_armed: Atomic::new(false),
            must_run: Atomic::new(false),
            timer <- HrTimer::new(),
            timer_handle <- new_mutex!(None, "uldma::ProgressWorker::timer_handle"),
            work <- new_work!("uldma::ProgressWorker::work"),
            heartbeat <- new_delayed_work!("uldma::ProgressWorker::heartbeat"),
            tick <- new_work!("uldma::ProgressWorker::tick"),
            release <- new_work!("uldma::ProgressWorker::release"),
            ring_segments <- new_work!("uldma::ProgressWorker::ring_segments"),
        });
        Arc::pin_init(worker, GFP_KERNEL)
    }

    fn ops(&self) -> Option<Arc<dyn ProgressOps>> {
        self.ops.lock().clone()
    }

    /// Starts the worker with `ops`.
    pub(crate) fn start(self: &Arc<Self>, ops: Arc<dyn ProgressOps>) {
        *self.ops.lock() = Some(ops);
        self.ask_hw.store(true, Relaxed);
        self.schedule();
        // Peers may have rung before: none of their doorbells was forwarded.
        self.schedule_segments();
        self.schedule_heartbeat();
    }

    /// Ends all loops soon, whatever peers do. Memory is still unpinned.
    pub(crate) fn wind_down(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Stops the worker and waits until no work is running. The caller has to remove the interrupt
    /// handlers before.
    pub(crate) fn stop(&self) {
        self.wind_down();
        let ops = self.ops.lock().take();
        let timer = self.timer_handle.lock().take();
        drop(timer);
        // The heartbeat is scheduled only by itself, and only while there are operations; it queues the
        // tick, which queues the others.
        flush_delayed(&self.heartbeat);
        flush(&self.tick);
        flush(&self.work);
        flush(&self.release);
        flush(&self.ring_segments);
        drop(ops);
    }

    fn schedule(self: &Arc<Self>) {
        if let Some(queue) = workqueue::progress() {
            // If it is queued already, it has not begun yet.
            let _ = queue.enqueue::<_, WORK>(self.clone());
        }
    }

    fn schedule_heartbeat(self: &Arc<Self>) {
        if let (Some(queue), true) = (workqueue::heartbeat(), self.ops.lock().is_some()) {
            let _ = queue.enqueue_delayed::<_, HEARTBEAT>(self.clone(), msecs_to_jiffies(TICK_MS));
        }
    }

    /// Handles a doorbell. Does not sleep, and only counts while doorbells are ignored.
    pub(crate) fn rung(self: &Arc<Self>) {
        self.doorbells.fetch_add(1, Relaxed);
        self.is_masked.store(true, Relaxed);
        self.rung.xchg(true, Full);
        // The thread that ends the moderation checks `rung` afterwards.
        if !self.moderated.load(Relaxed) {
            self.schedule();
        }
    }

    /// Handles an interrupt after which the state of a link may have changed.
    pub(crate) fn link_changed(self: &Arc<Self>) {
        self.ask_hw.store(true, Relaxed);
        self.interrupt();
    }

    /// Handles an interrupt that requests progress.
    pub(crate) fn interrupt(self: &Arc<Self>) {
        self.again.store(true, Relaxed);
        self.schedule();
    }

    /// Queues the work item that unpins memory.
    pub(crate) fn release(self: &Arc<Self>) {
        if let Some(queue) = workqueue::module() {
            let _ = queue.enqueue::<_, RELEASE>(self.clone());
        }
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> PollStats {
        PollStats {
            doorbells: self.doorbells.load(Relaxed),
            unmasked: self.unmasked.load(Relaxed),
            found: self.found.load(Relaxed),
            moderated: self.moderations.load(Relaxed),
            passes: self.passes.load(Relaxed),
        }
    }

    /// Makes progress now, or requests a round of the thread that is running.
    pub(crate) fn kick(self: &Arc<Self>) {
        let Some(ops) = self.ops() else {
            return;
        };
        self.again.xchg(true, Full);
        for _ in 0..CALLER_ROUNDS {
            let left = {
                let Some(_running) = self.running.try_lock() else {
                    return;
                };
                let left = self.caller_rounds(&*ops);
                // The work item has left a doorbell that rang meanwhile to this call.
                let was_masked = !self.awake.load(Relaxed) && self.unmask(&*ops);
                let left = left || was_masked && ops.has_work();
                if left {
                    self.schedule_if_started();
                } else if self.awake.load(Relaxed) || ops.is_busy() {
                    self.poll_soon();
                }
                left
            };
            // A contender may have set `again` just before the lock was released.
            if left || !self.again.load(Relaxed) {
                return;
            }
        }
        self.schedule_if_started();
    }

    /// Polls until `done` returns true, for at most `limit`, or until another thread wants the
    /// processor. Returns true if it did.
    ///
    /// Peers do not ring meanwhile, and the work item leaves the work to this call.
    pub(crate) fn poll_until(
        self: &Arc<Self>,
        limit: Delta,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        let Some(ops) = self.ops() else {
            return done();
        };
        self.pollers.fetch_add(1, Full);
        let task = kernel::current!();
        let since: Instant<Monotonic> = Instant::now();
        let mut is_awake = false;
        let is_done = loop {
            if done() {
                break true;
            }
            if since.elapsed() >= limit || task.signal_pending() || self.is_stopping() {
                break false;
            }
            if is_processor_wanted() {
                // The other thread may be the one that this call waits for.
                break false;
            }
            if let Some(_running) = self.running.try_lock() {
                if !core::mem::replace(&mut is_awake, true) {
                    self.set_asleep(&*ops, false);
                }
                if self.is_requested() || ops.has_work() {
                    self.caller_rounds(&*ops);
                    continue;
                }
            }
            cpu_relax();
        };
        let last = self.pollers.fetch_sub(1, Full) == 1;
        if is_done || !last {
            self.poll_soon();
        } else {
            self.fall_asleep(&*ops);
        }
        if self.is_requested() {
            self.schedule_if_started();
        }
        is_done
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Returns true if a caller or a doorbell requests another round.
    fn is_requested(&self) -> bool {
        self.again.load(Relaxed) || self.rung.load(Relaxed)
    }

    /// Has the doorbell interrupt again, if it is masked. The caller looks for work once more. Returns
    /// true if it was.
    fn unmask(&self, ops: &dyn ProgressOps) -> bool {
        let was_masked = self.is_masked.load(Relaxed) && self.is_masked.xchg(false, Full);
        if was_masked {
            self.unmasked.fetch_add(1, Relaxed);
            ops.unmask(Consumer::Link);
        }
        was_masked
    }

    /// As [`ProgressOps::set_asleep`].
    fn set_asleep(&self, ops: &dyn ProgressOps, asleep: bool) -> bool {
        self.awake.store(!asleep, Relaxed);
        if asleep {
            self.unmask(ops);
        }
        let found = ops.set_asleep(asleep);
        if asleep && !found {
            self.must_run.store(false, Relaxed);
        }
        found
    }

    /// Has peers ring again, unless another thread is running, which will do so.
    fn fall_asleep(self: &Arc<Self>, ops: &dyn ProgressOps) {
        let slept = params::link_poll().is_none() && {
            // The worker decides while it holds the lock.
            let running = self.running.try_lock();
            running.is_some() && !self.moderated.load(Relaxed) && !self.set_asleep(ops, true)
        };
        if !slept {
            self.schedule_if_started();
        }
    }

    /// Queues the work item, unless the device is being unbound.
    fn schedule_if_started(self: &Arc<Self>) {
        // [`ProgressWorker::stop`] takes the lock before it waits for the work item.
        let ops = self.ops.lock();
        if ops.is_some() {
            self.schedule();
        }
    }

    /// Arms the timer, which queues the work item if no call polls any more.
    fn poll_soon(self: &Arc<Self>) {
        self.left_awake.store(true, Relaxed);
        self.must_run.store(true, Relaxed);
        if self.timer_armed.xchg(true, Full) {
            return;
        }
        let mut handle = self.timer_handle.lock();
        // The timer is not running, so this waits for nothing.
        drop(handle.take());
        if self.ops.lock().is_some() {
            *handle = Some(HrTimerPointer::start(self.clone(), period()));
        }
    }

    /// Queues the work item at once instead of by the timer, since a program is about to sleep. If
    /// its own call has polled and this node has fallen asleep, there is nothing to do.
    pub(crate) fn poll_now(self: &Arc<Self>) {
        let waits = self.timer_armed.load(Relaxed) && self.must_run.load(Relaxed);
        if waits && self.pollers.load(Relaxed) == 0 {
            self.schedule_if_started();
        }
    }
}
