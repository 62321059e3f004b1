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
    budget::{
        Budget,
        Left,
        Round, //
    },
    ProgressOps,
    ProgressWorker,
    CALLER_ROUNDS,
    TICK, //
};
use crate::{
    hw::KernelDoorbell,
    kernel_ext::wait::is_processor_wanted,
    link::polling::Polling,
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
    /// Does rounds until there is no more work or the budget is used up.
    fn rounds(&self, ops: &dyn ProgressOps, budget: &mut Budget) -> Left {
        loop {
            self.again.xchg(false, Full);
            let rung = self.rung.xchg(false, Full);
            let ask_hw = self.ask_hw.xchg(false, Relaxed);
            let round = match (ops.poll_once(ask_hw), rung) {
                (true, _) => Round::Found,
                (false, true) => Round::Vain,
                (false, false) => Round::Empty,
            };
            if round == Round::Found {
                self.found.fetch_add(1, Relaxed);
            }
            let left = budget.pay(round);
            let done = round != Round::Found && !self.is_requested();
            if done || left != Left::Rounds || self.is_stopping() {
                return left;
            }
        }
    }

    /// Does the rounds of a caller that requests progress. Returns true if there may be more work.
    pub(super) fn caller_rounds(&self, ops: &dyn ProgressOps) -> bool {
        let mut budget = Budget::of_caller(CALLER_ROUNDS);
        self.rounds(ops, &mut budget) != Left::Rounds
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
        let mut budget = Budget::of_run(self.moderated.load(Relaxed));
        if self.rung.load(Relaxed) {
            ops.rung();
        }
        self.set_asleep(ops, false);
        loop {
            match self.rounds(ops, &mut budget) {
                _ if self.is_stopping() => return Next::Nothing,
                Left::Rounds => (),
                Left::Nothing => return Next::Run,
                Left::NothingButRings => {
                    if !self.moderated.xchg(true, Full) {
                        self.moderations.fetch_add(1, Relaxed);
                        ops.mask(KernelDoorbell::Link.into(), true);
                    }
                    return Next::Timer;
                }
            }
            if self.poll_for_work(ops, polling) {
                continue;
            }
            if self.pollers.load(Relaxed) > 0 {
                return Next::Nothing;
            }
            if self.moderated.xchg(false, Full) {
                ops.mask(KernelDoorbell::Link.into(), false);
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
