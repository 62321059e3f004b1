// SPDX-License-Identifier: GPL-2.0

//! One run of the work item: rounds within a [budget](super::budget), and polling for more.

use kernel::{
    processor::cpu_relax,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    budget::Budget,
    ProgressOps,
    ProgressWorker,
    CALLER_ROUNDS, //
};
use crate::{
    kernel_ext::{
        noio::without_io,
        wait::is_processor_wanted, //
    },
    link::{
        polling::Polling,
        TICK, //
    },
    params, //
};

/// Maximum sleep of a node that polls in place of doorbells.
const LONGEST_SLEEP: Delta = TICK;

/// The next step after a run of the work item.
enum Next {
    /// Nothing until a doorbell or a caller requests progress.
    Nothing,
    /// The work item runs again.
    Run,
    /// The timer queues the work item; doorbells are ignored.
    Timer,
    /// The work item runs again after this time.
    After(Delta),
}

impl ProgressWorker {
    /// Does rounds until there is no more work. Returns false if the budget is used up first.
    fn rounds(&self, ops: &dyn ProgressOps, budget: &mut Budget) -> bool {
        loop {
            self.again.xchg(false, Full);
            self.rung.xchg(false, Full);
            let ask_hw = self.ask_hw.xchg(false, Relaxed);
            let found = without_io(|| ops.poll_once(ask_hw));
            if found {
                self.found.fetch_add(1, Relaxed);
            }
            let left = budget.pay(found);
            let done = !found && !self.is_requested();
            if done || !left || self.is_stopping() {
                return left;
            }
        }
    }

    /// Does the rounds of a caller that requests progress. Returns true if there may be more work.
    pub(super) fn caller_rounds(&self, ops: &dyn ProgressOps) -> bool {
        let mut budget = Budget::of_caller(CALLER_ROUNDS);
        !self.rounds(ops, &mut budget)
    }

    /// Runs until there was no work for a while, or other work is to get the CPU.
    pub(super) fn run_until_idle(self: &Arc<Self>) {
        let Some(ops) = self.ops() else {
            return;
        };
        self.again.xchg(true, Full);
        if self.pollers.load(Relaxed) > 0 {
            // A polling call makes progress, and queues this item when it returns.
            return;
        }
        let next = match self.running.try_lock() {
            Some(mut polling) => self.run(&*ops, &mut polling),
            None => return,
        };
        match next {
            // A caller that was not given the lock just before it was released.
            Next::Nothing if self.is_requested() => self.schedule_if_started(),
            Next::Nothing => (),
            Next::Run => self.schedule_if_started(),
            Next::Timer => self.poll_soon(),
            Next::After(delay) => {
                fsleep(delay);
                self.schedule_if_started();
            }
        }
    }

    /// Does one bounded run of the work item; peers do not ring meanwhile.
    fn run(&self, ops: &dyn ProgressOps, polling: &mut Polling) -> Next {
        let mut budget = Budget::of_run();
        let rang = self.rung.load(Relaxed);
        if rang {
            ops.rung();
        }
        self.moderated.xchg(false, Full);
        self.set_asleep(ops, false);
        loop {
            let left = self.rounds(ops, &mut budget);
            if self.is_stopping() {
                return Next::Nothing;
            }
            if !left {
                return Next::Run;
            }
            if self.poll_for_work(ops, polling) {
                continue;
            }
            if self.pollers.load(Relaxed) > 0 {
                return Next::Nothing;
            }
            if rang && !budget.has_found() && self.is_too_often() {
                self.moderated.xchg(true, Full);
                self.moderations.fetch_add(1, Relaxed);
                return Next::Timer;
            }
            if let Some(delay) = params::link_poll() {
                return Next::After(delay.min(LONGEST_SLEEP));
            }
            if !self.set_asleep(ops, true) {
                break;
            }
            self.set_asleep(ops, false);
        }
        if self.is_requested() {
            Next::Run
        } else {
            Next::Nothing
        }
    }

    /// Notes a doorbell with nothing behind it. Returns true if these are too many.
    fn is_too_often(&self) -> bool {
        self.throttle.charge();
        self.throttle.left().is_some()
    }

    /// Polls for work, for as long as that is cheaper than an interrupt and a wake-up. Returns true
    /// if there is work.
    fn poll_for_work(&self, ops: &dyn ProgressOps, polling: &mut Polling) -> bool {
        let since: Instant<Monotonic> = Instant::now();
        let cost = ops.doorbell_cost();
        polling.begin(ops.has_rung());
        let limit = polling.limit(cost, params::link_busy_poll());
        let limit = if ops.is_busy() {
            // Most commands complete soon.
            ops.completion_cost().max(limit)
        } else {
            limit
        };
        let found = loop {
            if self.is_requested() || ops.has_work() {
                break true;
            }
            if since.elapsed() >= limit || is_processor_wanted() {
                break false;
            }
            if self.pollers.load(Relaxed) > 0 || self.is_stopping() {
                // A call polls instead, so the event says nothing about polling here.
                return false;
            }
            cpu_relax();
        };
        polling.note(cost, since.elapsed(), found);
        found
    }
}
