// SPDX-License-Identifier: GPL-2.0

//! The cost of waking a call that sleeps until memory can be reaped.
//!
//! The worker wakes the thread, which runs when a processor is free for it. That takes the longer the
//! more the machine has to do, so what was measured when the module was loaded holds for an idle
//! machine. This module follows the cost by each call that has slept: by `poll()`, or in the call
//! itself. A program that comes back later than it was woken, because it did something else, is not
//! counted: it has to say that it is about to sleep.

use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    kernel_ext::wakeup,
    params, //
};

/// Share of a sample in the result, as in TCP's smoothed round-trip time (RFC 6298).
const WEIGHT: i64 = 8;

/// What the calls that wait for one direction do.
#[derive(Clone, Copy)]
enum Phase {
    /// None is about to sleep.
    Running,
    /// A call has polled in vain: it sleeps if its next `poll()` finds nothing.
    Willing,
    Asleep,
    /// It was woken then, and has not run since.
    Woken(Instant<Monotonic>),
}

/// The calls that wait for one direction of a connection.
pub(super) struct Sleeper {
    phase: Phase,
    /// Nanoseconds from the call that wakes a sleeper until it runs; none before there is a sample.
    cost: Option<i64>,
}

impl Sleeper {
    /// Creates the state of a direction for which no call has waited.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Running,
            cost: None,
        }
    }

    /// Notes that a call looks for memory, so the program runs.
    pub(super) fn runs(&mut self) {
        self.phase = Phase::Running;
    }

    /// Notes that a call has polled in vain and returns: the program calls `poll()` next.
    pub(super) fn polled_in_vain(&mut self) {
        self.phase = Phase::Willing;
    }

    /// Notes that a call is about to sleep.
    pub(super) fn sleeps(&mut self) {
        self.phase = Phase::Asleep;
    }

    /// Notes that sleepers are woken.
    pub(super) fn wake(&mut self) {
        if let Phase::Asleep = self.phase {
            self.phase = Phase::Woken(Instant::now());
        }
    }

    /// Notes that a woken thread runs. It sleeps again unless it finds what it waits for.
    pub(super) fn awoke(&mut self) {
        match self.phase {
            Phase::Running => return,
            Phase::Woken(since) => self.add(since.elapsed()),
            Phase::Willing | Phase::Asleep => (),
        }
        self.phase = Phase::Asleep;
    }

    fn add(&mut self, sample: Delta) {
        if params::wakeup().is_some() {
            return;
        }
        let known = self.cost().as_nanos();
        let sample = wakeup::bounded(sample.as_nanos());
        self.cost = Some(known + (sample - known) / WEIGHT);
    }

    /// Returns the time from the call that wakes a sleeper until it runs.
    pub(super) fn cost(&self) -> Delta {
        self.cost
            .map_or_else(wakeup::cost_by_thread, Delta::from_nanos)
    }
}

#[kunit_tests(uldma_connection_sleeper)]
mod tests {
    use super::*;

    /// A direction with a call that was woken.
    fn woken() -> Sleeper {
        let mut sleeper = Sleeper::new();
        sleeper.polled_in_vain();
        // The first poll() finds nothing.
        sleeper.awoke();
        sleeper.wake();
        sleeper
    }

    #[test]
    fn a_thread_that_slept_is_measured_once() {
        let mut sleeper = woken();
        sleeper.awoke();
        assert!(sleeper.cost.is_some());
        sleeper.cost = None;
        // Something else woke it.
        sleeper.awoke();
        assert!(sleeper.cost.is_none());
        sleeper.wake();
        sleeper.awoke();
        assert!(sleeper.cost.is_some());
    }

    #[test]
    fn a_call_that_waits_by_itself_is_measured() {
        let mut sleeper = Sleeper::new();
        sleeper.runs();
        sleeper.sleeps();
        sleeper.wake();
        sleeper.awoke();
        assert!(sleeper.cost.is_some());
    }

    #[test]
    fn a_program_that_does_something_else_is_not_measured() {
        // It called again before poll() could tell it anything.
        let mut sleeper = woken();
        sleeper.runs();
        sleeper.awoke();
        assert!(sleeper.cost.is_none());
        // Memory was ready when it called poll().
        let mut sleeper = Sleeper::new();
        sleeper.polled_in_vain();
        sleeper.wake();
        sleeper.awoke();
        assert!(sleeper.cost.is_none());
        // It waits for several files, and no call of it has polled.
        let mut sleeper = Sleeper::new();
        sleeper.runs();
        sleeper.awoke();
        sleeper.wake();
        sleeper.awoke();
        assert!(sleeper.cost.is_none());
    }

    #[test]
    fn the_cost_follows_what_is_measured() {
        const MEASURED: Delta = Delta::from_millis(3);
        let mut sleeper = Sleeper::new();
        let first = sleeper.cost();
        assert_eq!(first, wakeup::cost_by_thread());
        for _ in 0..200 {
            sleeper.add(MEASURED);
        }
        let off = (sleeper.cost() - MEASURED).as_nanos();
        assert!(off.abs() < WEIGHT);
        // One stop of the machine does not decide.
        sleeper.add(Delta::from_secs(3600));
        assert!(sleeper.cost() < MEASURED * 2);
    }
}
