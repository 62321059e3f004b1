// SPDX-License-Identifier: GPL-2.0

//! What waking a call costs that sleeps until memory can be reaped.
//!
//! The worker wakes the thread, which runs when a processor is free for it. That takes the longer the
//! more the machine has to do, so what was measured when the module was loaded holds for an idle
//! machine. Each call that has slept shows the cost: by `poll()`, or in the call itself. A program
//! that comes back later than it was woken, because it did something else, shows nothing: it has to
//! say that it is about to sleep.

use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// The calls that wait for one direction of a connection.
#[derive(Clone, Copy, Default)]
pub(super) enum Sleeper {
    /// None is about to sleep.
    #[default]
    Running,
    /// A call has polled in vain: it sleeps if its next `poll()` finds nothing.
    Willing,
    Asleep,
    /// It was woken then, and has not run since.
    Woken(Instant<Monotonic>),
}

impl Sleeper {
    /// Notes that a call looks for memory, so the program runs.
    pub(super) fn runs(&mut self) {
        *self = Self::Running;
    }

    /// Notes that a call has polled in vain and returns: the program calls `poll()` next.
    pub(super) fn polled_in_vain(&mut self) {
        *self = Self::Willing;
    }

    /// Notes that a call is about to sleep.
    pub(super) fn sleeps(&mut self) {
        *self = Self::Asleep;
    }

    /// Notes that sleepers are woken.
    pub(super) fn wake(&mut self) {
        if let Self::Asleep = self {
            *self = Self::Woken(Instant::now());
        }
    }

    /// Notes that a thread runs that may have been woken. If it `may_sleep`, it sleeps again unless
    /// it finds what it waits for. Returns how long after the wake-up it runs, if it was woken.
    pub(super) fn awoke(&mut self, may_sleep: bool) -> Option<Delta> {
        let woken = match *self {
            Self::Running => return None,
            Self::Woken(since) => Some(since.elapsed()),
            Self::Willing | Self::Asleep => None,
        };
        *self = if may_sleep {
            Self::Asleep
        } else {
            Self::Running
        };
        woken
    }
}

#[kunit_tests(uldma_connection_sleeper)]
mod tests {
    use super::*;

    /// A direction with a call that was woken.
    fn woken() -> Sleeper {
        let mut sleeper = Sleeper::default();
        sleeper.polled_in_vain();
        // The first poll() finds nothing.
        assert!(sleeper.awoke(true).is_none());
        sleeper.wake();
        sleeper
    }

    #[test]
    fn a_thread_that_slept_is_measured_once() {
        let mut sleeper = woken();
        assert!(sleeper.awoke(true).is_some());
        // Something else woke it.
        assert!(sleeper.awoke(true).is_none());
        sleeper.wake();
        assert!(sleeper.awoke(true).is_some());
    }

    #[test]
    fn a_call_that_waits_by_itself_is_measured() {
        let mut sleeper = Sleeper::default();
        sleeper.runs();
        sleeper.sleeps();
        sleeper.wake();
        assert!(sleeper.awoke(true).is_some());
    }

    #[test]
    fn a_poll_without_a_timeout_does_not_sleep() {
        let mut sleeper = Sleeper::default();
        sleeper.polled_in_vain();
        assert!(sleeper.awoke(false).is_none());
        sleeper.wake();
        // The program comes back when it wants to.
        assert!(sleeper.awoke(true).is_none());
        // The kernel asks once more for a thread that was woken.
        assert!(woken().awoke(false).is_some());
    }

    #[test]
    fn a_program_that_does_something_else_is_not_measured() {
        // It called again before poll() could tell it anything.
        let mut sleeper = woken();
        sleeper.runs();
        assert!(sleeper.awoke(true).is_none());
        // Memory was ready when it called poll().
        let mut sleeper = Sleeper::default();
        sleeper.polled_in_vain();
        sleeper.wake();
        assert!(sleeper.awoke(true).is_none());
        // It waits for several files, and no call of it has polled.
        let mut sleeper = Sleeper::default();
        sleeper.runs();
        assert!(sleeper.awoke(true).is_none());
        sleeper.wake();
        assert!(sleeper.awoke(true).is_none());
    }
}
