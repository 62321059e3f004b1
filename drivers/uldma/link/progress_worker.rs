// SPDX-License-Identifier: GPL-2.0

//! Who does the work of the link and of connections: a work item, and whoever asks for something.
//!
//! Interrupts only schedule. One runs at a time; who finds somebody running leaves the work to him.
//! The work item goes on until nothing has come for a while, and only then tells the peers to ring
//! the doorbell: this is what moderates interrupts. Who waits for something does the work himself
//! for a while, and leaves the peers in the belief that somebody looks; a timer makes that true.
//!
//! Each run of the work item is [bounded](budget). While peers ring for nothing, rings are not listened
//! to, and the timer has the work item look instead.

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
    kernel_ext::{
        wakeup,
        workqueue::{
            flush,
            flush_delayed,
            module, //
        }, //
    },
    link::polling::Polling,
    params, //
};

mod budget;
mod doorbells;
mod pace;
mod run;

use pace::Pace;

/// Rounds that whoever asks for something does himself.
const CALLER_ROUNDS: u32 = 4;
/// Milliseconds between two looks that nobody asks for.
const TICK_MS: u32 = 100;

const WORK: u64 = 1;
const TICK: u64 = 2;
const RELEASE: u64 = 3;
const SEGMENTS: u64 = 4;

/// Time between two interrupts of the timer, while calls that poll come and go. An interrupt costs a wake-up
/// at most, so that the timer takes no more than this part of the processor's time.
fn timer_period() -> Delta {
    const PART: i64 = 8;
    Delta::from_nanos(wakeup::cost().as_nanos().saturating_mul(PART))
}

/// What there is to be done.
pub(crate) trait ProgressOps: Send + Sync {
    /// Does what there is to do, but not for long; whether there was anything. With `ask_hw` the
    /// hardware is asked for the state of the links.
    fn poll_once(&self, ask_hw: bool) -> bool;
    /// Whether there is something new to do.
    fn has_work(&self) -> bool;
    /// Whether something is under way whose end has to be noticed.
    fn is_busy(&self) -> bool;
    /// Peers are to ring from now on, or not; whether there was something new before they knew.
    fn set_asleep(&self, asleep: bool) -> bool;
    /// Tells the peers that this node is alive.
    fn heartbeat(&self);
    /// Unlocks memory, which may wait for processes.
    fn release(&self);
    /// Wakes the programs of the segments that doorbell `bits` may be for.
    fn ring_segments(&self, bits: u32);
    /// Doorbell `bits` are to interrupt or not, where the hardware can be told so.
    fn mask(&self, bits: u32, masked: bool);
}

/// How often somebody looked.
#[derive(Clone, Copy)]
pub(crate) struct PollStats {
    /// Since the doorbell rang.
    pub(crate) doorbells: u64,
    /// Looks without an interrupt that found something.
    pub(crate) found: u64,
    /// How often the timer took the place of rings.
    pub(crate) moderated: u64,
    /// How often rings of segments were passed on.
    pub(crate) passes: u64,
}

/// Does the work of one device.
#[pin_data]
pub(crate) struct ProgressWorker {
    /// None before and after the device is bound.
    #[pin]
    ops: Mutex<Option<Arc<dyn ProgressOps>>>,
    /// Held by the thread that does the work; how long the work item polls for more.
    #[pin]
    running: Mutex<Polling>,
    /// There may be something that who runs has not seen.
    again: Atomic<bool>,
    /// The doorbell rang since who runs looked.
    rung: Atomic<bool>,
    /// Peers rang for nothing: rings are not listened to, but the timer has the work item look.
    moderated: Atomic<bool>,
    /// The device goes: whatever loops here ends.
    stopping: Atomic<bool>,
    /// Doorbell bits of segments that have rung.
    segment_bits: Atomic<u32>,
    /// The hardware was told not to interrupt for these.
    segment_bits_masked: Atomic<bool>,
    #[pin]
    pace: Mutex<Pace>,
    born: Instant<Monotonic>,
    /// The hardware has to be asked.
    ask_hw: Atomic<bool>,
    doorbells: Atomic<u64>,
    found: Atomic<u64>,
    moderations: Atomic<u64>,
    passes: Atomic<u64>,
    /// Peers do not ring: somebody runs, or waits, or the timer or the work item will look.
    awake: Atomic<bool>,
    /// Those who do the work themselves while they wait.
    pollers: Atomic<u32>,
    /// Somebody left with peers that do not ring, or commands under way, since the timer looked.
    left_awake: Atomic<bool>,
    /// The timer will look.
    timer_armed: Atomic<bool>,
    #[pin]
    timer: HrTimer<ProgressWorker>,
    /// Whoever drops it stops the timer.
    #[pin]
    timer_handle: Mutex<Option<ArcHrTimerHandle<ProgressWorker>>>,
    #[pin]
    work: Work<ProgressWorker, WORK>,
    #[pin]
    tick: DelayedWork<ProgressWorker, TICK>,
    #[pin]
    release: Work<ProgressWorker, RELEASE>,
    #[pin]
    ring_segments: Work<ProgressWorker, SEGMENTS>,
}

impl_has_work! {
    impl HasWork<Self, 1> for ProgressWorker { self.work }
    impl HasWork<Self, 3> for ProgressWorker { self.release }
    impl HasWork<Self, 4> for ProgressWorker { self.ring_segments }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for ProgressWorker { self.tick }
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
            context.forward_now(timer_period());
            return HrTimerRestart::Restart;
        }
        this.timer_armed.store(false, Relaxed);
        Arc::from(this).schedule();
        HrTimerRestart::NoRestart
    }
}

impl WorkItem<WORK> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_until_idle();
    }
}

impl WorkItem<TICK> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(ops) = this.ops() {
            ops.heartbeat();
            this.ask_hw.store(true, Relaxed);
            this.kick();
            this.schedule_tick();
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
    /// Creates a pump that does nothing until [`ProgressWorker::start`].
    pub(crate) fn new() -> Result<Arc<Self>> {
        let worker = pin_init!(Self {
            ops <- new_mutex!(None, "uldma::ProgressWorker::ops"),
            running <- new_mutex!(Polling::new(), "uldma::ProgressWorker::running"),
            again: Atomic::new(false),
            rung: Atomic::new(false),
            moderated: Atomic::new(false),
            stopping: Atomic::new(false),
            segment_bits: Atomic::new(0),
            segment_bits_masked: Atomic::new(false),
            pace <- new_mutex!(Pace::default(), "uldma::ProgressWorker::pace"),
            born: Instant::now(),
            ask_hw: Atomic::new(false),
            doorbells: Atomic::new(0),
            found: Atomic::new(0),
            moderations: Atomic::new(0),
            passes: Atomic::new(0),
            awake: Atomic::new(false),
            pollers: Atomic::new(0),
            left_awake: Atomic::new(false),
            timer_armed: Atomic::new(false),
            timer <- HrTimer::new(),
            timer_handle <- new_mutex!(None, "uldma::ProgressWorker::timer_handle"),
            work <- new_work!("uldma::ProgressWorker::work"),
            tick <- new_delayed_work!("uldma::ProgressWorker::tick"),
            release <- new_work!("uldma::ProgressWorker::release"),
            ring_segments <- new_work!("uldma::ProgressWorker::ring_segments"),
        });
        Arc::pin_init(worker, GFP_KERNEL)
    }

    fn ops(&self) -> Option<Arc<dyn ProgressOps>> {
        self.ops.lock().clone()
    }

    /// Begins to work for `ops`.
    pub(crate) fn start(self: &Arc<Self>, ops: Arc<dyn ProgressOps>) {
        *self.ops.lock() = Some(ops);
        self.ask_hw.store(true, Relaxed);
        self.schedule();
        self.schedule_tick();
    }

    /// Ends all loops soon, whatever peers do; what has to be unlocked still is.
    pub(crate) fn wind_down(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Ends all work; returns when none is under way. No interrupt handler may be there any more that
    /// queues some.
    pub(crate) fn stop(&self) {
        self.wind_down();
        let ops = self.ops.lock().take();
        let timer = self.timer_handle.lock().take();
        drop(timer);
        // The tick is scheduled only by itself, and only while there is something to pump.
        flush_delayed(&self.tick);
        flush(&self.work);
        flush_delayed(&self.tick);
        flush(&self.work);
        flush(&self.release);
        flush(&self.ring_segments);
        drop(ops);
    }

    fn schedule(self: &Arc<Self>) {
        if let Some(queue) = module() {
            // If it is queued already, it has not looked yet.
            let _ = queue.enqueue::<_, WORK>(self.clone());
        }
    }

    fn schedule_tick(self: &Arc<Self>) {
        if let (Some(queue), true) = (module(), self.ops.lock().is_some()) {
            let _ = queue.enqueue_delayed::<_, TICK>(self.clone(), msecs_to_jiffies(TICK_MS));
        }
    }

    /// The doorbell rang. Does not sleep, and does next to nothing while rings say nothing.
    pub(crate) fn rung(self: &Arc<Self>) {
        self.doorbells.fetch_add(1, Relaxed);
        self.rung.xchg(true, Full);
        // Whoever ends the moderation looks for rings afterwards.
        if !self.moderated.load(Relaxed) {
            self.schedule();
        }
    }

    /// The doorbell was found to have rung while its interrupt was masked.
    pub(crate) fn rung_silently(&self) {
        if self.moderated.load(Relaxed) {
            self.rung.store(true, Relaxed);
        }
    }

    /// The state of a link may have changed.
    pub(crate) fn link_changed(self: &Arc<Self>) {
        self.ask_hw.store(true, Relaxed);
        self.interrupt();
    }

    /// An interrupt came.
    pub(crate) fn interrupt(self: &Arc<Self>) {
        self.again.store(true, Relaxed);
        self.schedule();
    }

    /// Has memory unlocked.
    pub(crate) fn release(self: &Arc<Self>) {
        if let Some(queue) = module() {
            let _ = queue.enqueue::<_, RELEASE>(self.clone());
        }
    }

    /// How often somebody looked.
    pub(crate) fn stats(&self) -> PollStats {
        PollStats {
            doorbells: self.doorbells.load(Relaxed),
            found: self.found.load(Relaxed),
            moderated: self.moderations.load(Relaxed),
            passes: self.passes.load(Relaxed),
        }
    }

    /// Does what there is to do now, or has it done by who runs.
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
                if left {
                    self.schedule_if_started();
                } else if self.awake.load(Relaxed) || ops.is_busy() {
                    self.poll_soon();
                }
                left
            };
            // Somebody may have left work here just before the lock was free.
            if left || !self.again.load(Relaxed) {
                return;
            }
        }
        self.schedule_if_started();
    }

    /// Works until `done`, unless nothing comes for `limit`; whether it is done.
    ///
    /// Peers do not ring meanwhile, and the work item has nothing to do.
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
        let mut told = false;
        let is_done = loop {
            if done() {
                break true;
            }
            if since.elapsed() >= limit || task.signal_pending() || self.is_stopping() {
                break false;
            }
            if let Some(_running) = self.running.try_lock() {
                if !core::mem::replace(&mut told, true) {
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

    /// Whether a caller or a ring asks for another round.
    fn is_requested(&self) -> bool {
        self.again.load(Relaxed) || self.rung.load(Relaxed)
    }

    /// As [`ProgressOps::set_asleep`].
    fn set_asleep(&self, ops: &dyn ProgressOps, asleep: bool) -> bool {
        self.awake.store(!asleep, Relaxed);
        ops.set_asleep(asleep)
    }

    /// Peers are to ring from now on, unless somebody else runs, who sees to that.
    fn fall_asleep(self: &Arc<Self>, ops: &dyn ProgressOps) {
        let polls = params::link_poll().is_some() || self.moderated.load(Relaxed);
        let slept = !polls && {
            let running = self.running.try_lock();
            running.is_some() && !self.set_asleep(ops, true)
        };
        if !slept {
            self.schedule_if_started();
        }
    }

    /// Has the work item look, unless the device is going.
    fn schedule_if_started(self: &Arc<Self>) {
        // [`ProgressWorker::stop`] takes the lock before it waits for the work item.
        let ops = self.ops.lock();
        if ops.is_some() {
            self.schedule();
        }
    }

    /// Has the work item look if nobody else does so for a while.
    fn poll_soon(self: &Arc<Self>) {
        self.left_awake.store(true, Relaxed);
        if self.timer_armed.xchg(true, Full) {
            return;
        }
        let mut handle = self.timer_handle.lock();
        // The timer is not running, so this waits for nothing.
        drop(handle.take());
        if self.ops.lock().is_some() {
            *handle = Some(HrTimerPointer::start(self.clone(), timer_period()));
        }
    }

    /// Has the work item look at once and not when the timer says so: a program is about to sleep.
    pub(crate) fn poll_now(self: &Arc<Self>) {
        if self.timer_armed.load(Relaxed) && self.pollers.load(Relaxed) == 0 {
            self.schedule_if_started();
        }
    }
}
