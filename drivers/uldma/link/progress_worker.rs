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
const OWN_ROUNDS: u32 = 4;
/// Milliseconds between two looks that nobody asks for.
const TICK_MS: u32 = 100;

const WORK: u64 = 1;
const TICK: u64 = 2;
const RELEASE: u64 = 3;
const BELLS: u64 = 4;

/// Time between two interrupts of the timer, while calls that poll come and go. An interrupt costs a wake-up
/// at most, so that the timer takes no more than this part of the processor's time.
fn timer_period() -> Delta {
    const PART: i64 = 8;
    Delta::from_nanos(wakeup::cost().as_nanos().saturating_mul(PART))
}

/// What there is to be done.
pub(crate) trait Pumped: Send + Sync {
    /// Does what there is to do, but not for long; whether there was anything. With `ask_hw` the
    /// hardware is asked for the state of the links.
    fn turn(&self, ask_hw: bool) -> bool;
    /// Whether there is something new to do.
    fn has_news(&self) -> bool;
    /// Whether something is under way whose end has to be noticed.
    fn is_busy(&self) -> bool;
    /// Peers are to ring from now on, or not; whether there was something new before they knew.
    fn set_asleep(&self, asleep: bool) -> bool;
    /// Tells the peers that this node is alive.
    fn beat(&self);
    /// Unlocks memory, which may wait for processes.
    fn release(&self);
    /// Wakes the programs of the segments that doorbell `bits` may be for.
    fn ring_segments(&self, bits: u32);
    /// Doorbell `bits` are to interrupt or not, where the hardware can be told so.
    fn mask(&self, bits: u32, masked: bool);
}

/// How often somebody looked.
#[derive(Clone, Copy)]
pub(crate) struct Looks {
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
pub(crate) struct Pump {
    /// None before and after the device is bound.
    #[pin]
    pumped: Mutex<Option<Arc<dyn Pumped>>>,
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
    bells: Atomic<u32>,
    /// The hardware was told not to interrupt for these.
    bells_masked: Atomic<bool>,
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
    waiting: Atomic<u32>,
    /// Somebody left with peers that do not ring, or commands under way, since the timer looked.
    left_awake: Atomic<bool>,
    /// The timer will look.
    timed: Atomic<bool>,
    #[pin]
    timer: HrTimer<Pump>,
    /// Whoever drops it stops the timer.
    #[pin]
    timer_handle: Mutex<Option<ArcHrTimerHandle<Pump>>>,
    #[pin]
    work: Work<Pump, WORK>,
    #[pin]
    tick: DelayedWork<Pump, TICK>,
    #[pin]
    release: Work<Pump, RELEASE>,
    #[pin]
    ring_segments: Work<Pump, BELLS>,
}

impl_has_work! {
    impl HasWork<Self, 1> for Pump { self.work }
    impl HasWork<Self, 3> for Pump { self.release }
    impl HasWork<Self, 4> for Pump { self.ring_segments }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Pump { self.tick }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Pump {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Pump {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        if this.waiting.load(Relaxed) > 0 || this.left_awake.xchg(false, Full) {
            context.forward_now(timer_period());
            return HrTimerRestart::Restart;
        }
        this.timed.store(false, Relaxed);
        Arc::from(this).schedule();
        HrTimerRestart::NoRestart
    }
}

impl WorkItem<WORK> for Pump {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_until_quiet();
    }
}

impl WorkItem<TICK> for Pump {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(pumped) = this.pumped() {
            pumped.beat();
            this.ask_hw.store(true, Relaxed);
            this.now();
            this.schedule_tick();
        }
    }
}

impl WorkItem<RELEASE> for Pump {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(pumped) = this.pumped() {
            pumped.release();
        }
    }
}

impl Pump {
    /// Creates a pump that does nothing until [`Pump::start`].
    pub(crate) fn new() -> Result<Arc<Self>> {
        let pump = pin_init!(Self {
            pumped <- new_mutex!(None, "uldma::Pump::pumped"),
            running <- new_mutex!(Polling::new(), "uldma::Pump::running"),
            again: Atomic::new(false),
            rung: Atomic::new(false),
            moderated: Atomic::new(false),
            stopping: Atomic::new(false),
            bells: Atomic::new(0),
            bells_masked: Atomic::new(false),
            pace <- new_mutex!(Pace::default(), "uldma::Pump::pace"),
            born: Instant::now(),
            ask_hw: Atomic::new(false),
            doorbells: Atomic::new(0),
            found: Atomic::new(0),
            moderations: Atomic::new(0),
            passes: Atomic::new(0),
            awake: Atomic::new(false),
            waiting: Atomic::new(0),
            left_awake: Atomic::new(false),
            timed: Atomic::new(false),
            timer <- HrTimer::new(),
            timer_handle <- new_mutex!(None, "uldma::Pump::timer_handle"),
            work <- new_work!("uldma::Pump::work"),
            tick <- new_delayed_work!("uldma::Pump::tick"),
            release <- new_work!("uldma::Pump::release"),
            ring_segments <- new_work!("uldma::Pump::ring_segments"),
        });
        Arc::pin_init(pump, GFP_KERNEL)
    }

    fn pumped(&self) -> Option<Arc<dyn Pumped>> {
        self.pumped.lock().clone()
    }

    /// Begins to work for `pumped`.
    pub(crate) fn start(self: &Arc<Self>, pumped: Arc<dyn Pumped>) {
        *self.pumped.lock() = Some(pumped);
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
        let pumped = self.pumped.lock().take();
        let timer = self.timer_handle.lock().take();
        drop(timer);
        // The tick is scheduled only by itself, and only while there is something to pump.
        flush_delayed(&self.tick);
        flush(&self.work);
        flush_delayed(&self.tick);
        flush(&self.work);
        flush(&self.release);
        flush(&self.ring_segments);
        drop(pumped);
    }

    fn schedule(self: &Arc<Self>) {
        if let Some(queue) = module() {
            // If it is queued already, it has not looked yet.
            let _ = queue.enqueue::<_, WORK>(self.clone());
        }
    }

    fn schedule_tick(self: &Arc<Self>) {
        if let (Some(queue), true) = (module(), self.pumped.lock().is_some()) {
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
    pub(crate) fn looks(&self) -> Looks {
        Looks {
            doorbells: self.doorbells.load(Relaxed),
            found: self.found.load(Relaxed),
            moderated: self.moderations.load(Relaxed),
            passes: self.passes.load(Relaxed),
        }
    }

    /// Does what there is to do now, or has it done by who runs.
    pub(crate) fn now(self: &Arc<Self>) {
        let Some(pumped) = self.pumped() else {
            return;
        };
        self.again.xchg(true, Full);
        for _ in 0..OWN_ROUNDS {
            let left = {
                let Some(_running) = self.running.try_lock() else {
                    return;
                };
                let left = self.own_rounds(&*pumped);
                if left {
                    self.hand_over();
                } else if self.awake.load(Relaxed) || pumped.is_busy() {
                    self.look_soon();
                }
                left
            };
            // Somebody may have left work here just before the lock was free.
            if left || !self.again.load(Relaxed) {
                return;
            }
        }
        self.hand_over();
    }

    /// Works until `done`, unless nothing comes for `patience`; whether it is done.
    ///
    /// Peers do not ring meanwhile, and the work item has nothing to do.
    pub(crate) fn work_until(
        self: &Arc<Self>,
        patience: Delta,
        mut done: impl FnMut() -> bool,
    ) -> bool {
        let Some(pumped) = self.pumped() else {
            return done();
        };
        self.waiting.fetch_add(1, Full);
        let task = kernel::current!();
        let since: Instant<Monotonic> = Instant::now();
        let mut told = false;
        let is_done = loop {
            if done() {
                break true;
            }
            if since.elapsed() >= patience || task.signal_pending() || self.is_stopping() {
                break false;
            }
            if let Some(_running) = self.running.try_lock() {
                if !core::mem::replace(&mut told, true) {
                    self.set_asleep(&*pumped, false);
                }
                if self.is_called() || pumped.has_news() {
                    self.own_rounds(&*pumped);
                    continue;
                }
            }
            cpu_relax();
        };
        let last = self.waiting.fetch_sub(1, Full) == 1;
        if is_done || !last {
            self.look_soon();
        } else {
            self.fall_asleep(&*pumped);
        }
        if self.is_called() {
            self.hand_over();
        }
        is_done
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Whether a caller or a ring asks for another round.
    fn is_called(&self) -> bool {
        self.again.load(Relaxed) || self.rung.load(Relaxed)
    }

    /// As [`Pumped::set_asleep`].
    fn set_asleep(&self, pumped: &dyn Pumped, asleep: bool) -> bool {
        self.awake.store(!asleep, Relaxed);
        pumped.set_asleep(asleep)
    }

    /// Peers are to ring from now on, unless somebody else runs, who sees to that.
    fn fall_asleep(self: &Arc<Self>, pumped: &dyn Pumped) {
        let looks = params::link_poll().is_some() || self.moderated.load(Relaxed);
        let slept = !looks && {
            let running = self.running.try_lock();
            running.is_some() && !self.set_asleep(pumped, true)
        };
        if !slept {
            self.hand_over();
        }
    }

    /// Has the work item look, unless the device is going.
    fn hand_over(self: &Arc<Self>) {
        // [`Pump::stop`] takes the lock before it waits for the work item.
        let pumped = self.pumped.lock();
        if pumped.is_some() {
            self.schedule();
        }
    }

    /// Has the work item look if nobody else does so for a while.
    fn look_soon(self: &Arc<Self>) {
        self.left_awake.store(true, Relaxed);
        if self.timed.xchg(true, Full) {
            return;
        }
        let mut handle = self.timer_handle.lock();
        // The timer is not running, so this waits for nothing.
        drop(handle.take());
        if self.pumped.lock().is_some() {
            *handle = Some(HrTimerPointer::start(self.clone(), timer_period()));
        }
    }

    /// Has the work item look at once and not when the timer says so: a program is about to sleep.
    pub(crate) fn look_now(self: &Arc<Self>) {
        if self.timed.load(Relaxed) && self.waiting.load(Relaxed) == 0 {
            self.hand_over();
        }
    }
}
