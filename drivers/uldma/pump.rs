// SPDX-License-Identifier: GPL-2.0

//! Who does the work of the link and of connections: a work item, and whoever asks for something.
//!
//! Interrupts only schedule. One runs at a time; who finds somebody running leaves the work to him.
//! The work item goes on until nothing has come for a while, and only then tells the peers to ring
//! the doorbell: this is what moderates interrupts.

use kernel::{
    impl_has_delayed_work,
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
        Mutex, //
    },
    time::{
        delay::fsleep,
        msecs_to_jiffies,
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
    kernel_ext::workqueue::{
        flush,
        flush_delayed,
        system_default, //
    },
    options, //
};

/// Rounds before others get the CPU.
const ROUNDS: usize = 64;
/// Rounds that whoever asks for something does himself.
const OWN_ROUNDS: usize = 4;
/// Milliseconds between two looks that nobody asks for.
const TICK_MS: u32 = 100;

const WORK: u64 = 1;
const TICK: u64 = 2;
const RELEASE: u64 = 3;

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
}

/// How often somebody looked.
#[derive(Clone, Copy)]
pub(crate) struct Looks {
    /// Since the doorbell rang.
    pub(crate) doorbells: u64,
    /// Looks without an interrupt that found something.
    pub(crate) found: u64,
}

/// Does the work of one device.
#[pin_data]
pub(crate) struct Pump {
    /// None before and after the device is bound.
    #[pin]
    pumped: Mutex<Option<Arc<dyn Pumped>>>,
    /// Held by who runs.
    #[pin]
    running: Mutex<()>,
    /// There may be something that who runs has not seen.
    again: Atomic<bool>,
    /// The hardware has to be asked.
    ask_hw: Atomic<bool>,
    doorbells: Atomic<u64>,
    found: Atomic<u64>,
    #[pin]
    work: Work<Pump, WORK>,
    #[pin]
    tick: DelayedWork<Pump, TICK>,
    #[pin]
    release: Work<Pump, RELEASE>,
}

impl_has_work! {
    impl HasWork<Self, 1> for Pump { self.work }
    impl HasWork<Self, 3> for Pump { self.release }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Pump { self.tick }
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
            running <- new_mutex!((), "uldma::Pump::running"),
            again: Atomic::new(false),
            ask_hw: Atomic::new(false),
            doorbells: Atomic::new(0),
            found: Atomic::new(0),
            work <- new_work!("uldma::Pump::work"),
            tick <- new_delayed_work!("uldma::Pump::tick"),
            release <- new_work!("uldma::Pump::release"),
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

    /// Ends all work; returns when none is under way.
    pub(crate) fn stop(&self) {
        let pumped = self.pumped.lock().take();
        // The tick is scheduled only by itself, and only while there is something to pump.
        flush_delayed(&self.tick);
        flush(&self.work);
        flush_delayed(&self.tick);
        flush(&self.work);
        flush(&self.release);
        drop(pumped);
    }

    fn schedule(self: &Arc<Self>) {
        // If it is queued already, it has not looked yet.
        let _ = system_default().enqueue::<_, WORK>(self.clone());
    }

    fn schedule_tick(self: &Arc<Self>) {
        if self.pumped.lock().is_some() {
            let _ = system_default()
                .enqueue_delayed::<_, TICK>(self.clone(), msecs_to_jiffies(TICK_MS));
        }
    }

    /// The doorbell rang.
    pub(crate) fn rung(self: &Arc<Self>) {
        self.doorbells.fetch_add(1, Relaxed);
        self.interrupt();
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
        let _ = system_default().enqueue::<_, RELEASE>(self.clone());
    }

    /// How often somebody looked.
    pub(crate) fn looks(&self) -> Looks {
        Looks {
            doorbells: self.doorbells.load(Relaxed),
            found: self.found.load(Relaxed),
        }
    }

    /// Does what there is to do now, or has it done by who runs.
    pub(crate) fn now(self: &Arc<Self>) {
        let Some(pumped) = self.pumped() else {
            return;
        };
        self.again.xchg(true, Full);
        loop {
            let left = {
                let Some(_running) = self.running.try_lock() else {
                    return;
                };
                let left = self.rounds(&*pumped, OWN_ROUNDS);
                if left || pumped.is_busy() {
                    self.schedule();
                }
                left
            };
            // Somebody may have left work here just before the lock was free.
            if left || !self.again.load(Relaxed) {
                return;
            }
        }
    }

    /// Turns, until there is nothing new; whether that was not reached.
    fn rounds(&self, pumped: &dyn Pumped, limit: usize) -> bool {
        for _ in 0..limit {
            self.again.xchg(false, Full);
            let ask_hw = self.ask_hw.xchg(false, Relaxed);
            let progress = pumped.turn(ask_hw);
            if progress {
                self.found.fetch_add(1, Relaxed);
            } else if !self.again.load(Relaxed) {
                return false;
            }
        }
        true
    }

    /// Works until nothing has come for a while.
    fn run_until_quiet(self: &Arc<Self>) {
        let Some(pumped) = self.pumped() else {
            return;
        };
        let poll = options::link_poll();
        let _running = self.running.lock();
        pumped.set_asleep(false);
        loop {
            if self.rounds(&*pumped, ROUNDS) {
                self.schedule();
                return;
            }
            if self.wait_for_news(&*pumped) {
                continue;
            }
            match poll {
                Some(delay) => {
                    fsleep(delay);
                    if self.pumped.lock().is_some() {
                        self.schedule();
                    }
                    return;
                }
                None if pumped.set_asleep(true) => {
                    pumped.set_asleep(false);
                }
                None => break,
            }
        }
        if self.again.load(Relaxed) {
            self.schedule();
        }
    }

    /// Looks for something new for a while.
    fn wait_for_news(&self, pumped: &dyn Pumped) -> bool {
        let since: Instant<Monotonic> = Instant::now();
        let linger = options::link_linger();
        loop {
            if self.again.load(Relaxed) || pumped.has_news() {
                return true;
            }
            if since.elapsed() >= linger {
                return false;
            }
            cpu_relax();
        }
    }
}
