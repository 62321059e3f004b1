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
    Pump,
    Pumped,
    OWN_ROUNDS,
    TICK_MS, //
};
use crate::{
    hw::LINK_DOORBELL,
    kernel_ext::wakeup,
    link::polling::Polling,
    params, //
};

/// A node that looks instead of being rung sleeps no longer.
const LONGEST_SLEEP: Delta = Delta::from_millis(TICK_MS as i64);

/// What a run of the work item leaves to be done.
enum Next {
    /// Nothing until something comes.
    Nothing,
    /// The same again.
    Run,
    /// The timer has it look, not the peers' rings.
    Timer,
    /// A look after this time.
    After(Delta),
}

impl Pump {
    /// Turns, until there is nothing new or the budget is used up.
    fn rounds(&self, pumped: &dyn Pumped, budget: &mut Budget) -> Left {
        loop {
            self.again.xchg(false, Full);
            let rung = self.rung.xchg(false, Full);
            let ask_hw = self.ask_hw.xchg(false, Relaxed);
            let round = match (pumped.turn(ask_hw), rung) {
                (true, _) => Round::Found,
                (false, true) => Round::Vain,
                (false, false) => Round::Empty,
            };
            if round == Round::Found {
                self.found.fetch_add(1, Relaxed);
            }
            let left = budget.pay(round);
            let done = round != Round::Found && !self.is_called();
            if done || left != Left::Rounds || self.is_stopping() {
                return left;
            }
        }
    }

    /// The rounds of a caller that asks for something; whether there may be more to do.
    pub(super) fn own_rounds(&self, pumped: &dyn Pumped) -> bool {
        let mut budget = Budget::of_caller(OWN_ROUNDS);
        self.rounds(pumped, &mut budget) != Left::Rounds
    }

    /// Works until nothing has come for a while, or others are to get the CPU.
    pub(super) fn run_until_quiet(self: &Arc<Self>) {
        let Some(pumped) = self.pumped() else {
            return;
        };
        self.again.xchg(true, Full);
        if self.waiting.load(Relaxed) > 0 {
            // The caller that waits does the work, and schedules it when it leaves.
            return;
        }
        let next = match self.running.try_lock() {
            Some(mut polling) => self.run(&*pumped, &mut polling),
            None => return,
        };
        match next {
            Next::Nothing => (),
            Next::Run => self.hand_over(),
            Next::Timer => self.look_soon(),
            Next::After(delay) => {
                fsleep(delay);
                self.hand_over();
            }
        }
    }

    /// One run of the work item, which is bounded; peers do not ring meanwhile.
    fn run(&self, pumped: &dyn Pumped, polling: &mut Polling) -> Next {
        let mut budget = Budget::of_run(self.moderated.load(Relaxed));
        self.set_asleep(pumped, false);
        loop {
            match self.rounds(pumped, &mut budget) {
                _ if self.is_stopping() => return Next::Nothing,
                Left::Rounds => (),
                Left::Nothing => return Next::Run,
                Left::NothingButRings => {
                    if !self.moderated.xchg(true, Full) {
                        self.moderations.fetch_add(1, Relaxed);
                        pumped.mask(LINK_DOORBELL, true);
                    }
                    return Next::Timer;
                }
            }
            if self.wait_for_news(pumped, polling) {
                continue;
            }
            if self.waiting.load(Relaxed) > 0 {
                return Next::Nothing;
            }
            if self.moderated.xchg(false, Full) {
                pumped.mask(LINK_DOORBELL, false);
            }
            if let Some(delay) = params::link_poll() {
                return Next::After(delay.min(LONGEST_SLEEP));
            }
            if !self.set_asleep(pumped, true) {
                break;
            }
            self.set_asleep(pumped, false);
        }
        match self.is_called() {
            true => Next::Run,
            false => Next::Nothing,
        }
    }

    /// Polls for something new, for as long as that is cheaper than to be woken by an interrupt.
    fn wait_for_news(&self, pumped: &dyn Pumped, polling: &mut Polling) -> bool {
        let since: Instant<Monotonic> = Instant::now();
        let most = params::link_busy_poll();
        let limit = if pumped.is_busy() {
            // The end of a command most often is near.
            wakeup::cost().max(polling.limit(most))
        } else {
            polling.limit(most)
        };
        let found = loop {
            if self.is_called() || pumped.has_news() {
                break true;
            }
            if since.elapsed() >= limit {
                break false;
            }
            if self.waiting.load(Relaxed) > 0 || self.is_stopping() {
                // A caller polls instead: that says nothing about the event.
                return false;
            }
            cpu_relax();
        };
        polling.note(since.elapsed(), found);
        found
    }
}
