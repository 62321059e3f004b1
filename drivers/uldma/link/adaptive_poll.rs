// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Adaptive polling: the time to poll for an event before sleeping until it comes.
//!
//! This file is compiled into the kernel module and into the library (`tools/uldma/lib`), so it uses
//! nothing but `core`, and no floating point. The caller chooses the unit of time, and says with each
//! call what a wake-up takes, so that it can measure that better and better.
//!
//! A waiter that sleeps pays for the sleep and the wake-up, one *wake-up* for short. A waiter that
//! polls pays for the time. Polling for as long as a wake-up takes, and sleeping then, costs at most
//! twice what the best choice would have cost, whenever the event comes (competitive spinning). That
//! alone leaves two waiters that answer each other asleep for ever, once both sleep: each answer takes
//! one wake-up of the other side, which is just longer than the polling. So a waiter that polls in
//! vain polls for three quarters of a wake-up only, saves the last quarter, and spends its savings on
//! *probes* that are longer than a wake-up. When a probe of one side sees the answer, its next message
//! arrives while the other side still polls, and from then on both find all messages by polling.
//!
//! | the last wait | polls for |
//! | --- | --- |
//! | saw the event while it polled | one wake-up |
//! | slept, savings for a probe are incomplete | 3/4 of a wake-up |
//! | slept, savings suffice | a short probe: 2 1/4 wake-ups; a long one: 4 1/4, and about twice that after each in vain, up to 16 1/4 |
//!
//! Long probes are there because the wake-up may be underestimated. They have savings of their own, so that
//! short ones do not wait for them.
//!
//! A waiter that has just rung the other side's doorbell gets no answer before that side is awake.
//! So it polls either longer than a wake-up, or not at all: for two wake-ups, and if that fails it
//! sleeps at once the next four times, then polls for four wake-ups, and so on up to sixteen. So a
//! pair of waiters that are both asleep polls again from the second message on; such waits take
//! less than twice the time of the best choice; and where the other side cannot run while this one
//! polls, it polls rarely.
//!
//! `tools/uldma/lib/src/wait/spin/simulation.rs` simulates waiters on machines of many kinds.

/// Lengths of probes, in wake-ups.
const SHORT: u64 = 2;
const LONG: u64 = 4;
const LONGEST: u64 = 16;

/// First and largest polling time after a ring, in wake-ups.
const SHORTEST_AFTER_RING: u64 = 2;
const LONGEST_AFTER_RING: u64 = 16;

/// Savings are counted in such parts of a wake-up.
const PARTS: u64 = 1024;

/// Decides how long one waiter polls, as earlier waits ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdaptivePoll {
    /// Half of what sleepers have polled less than they may, for short probes; and half for long ones.
    for_short: u64,
    for_long: u64,
    /// Length of the next long probe, in wake-ups.
    long: u64,
    /// The last wait ended while it polled.
    polling_pays: bool,
    /// The awaited message is the answer to a doorbell.
    rang: bool,
    /// Polling time after a ring, in wake-ups.
    attempt: u64,
    /// Waits after a ring until it polls in one again.
    skip: u64,
}

/// Parts of a wake-up that a probe of so many wake-ups takes, a little more so that jitter does not hide an
/// answer.
const fn probe(wakeups: u64) -> u64 {
    wakeups * PARTS + PARTS / 4
}

/// Returns how many parts of a `wakeup` that was.
fn parts(polled: u64, wakeup: u64) -> u64 {
    polled.saturating_mul(PARTS) / wakeup.max(1)
}

impl AdaptivePoll {
    /// A waiter that has not waited yet.
    pub(crate) const fn new() -> Self {
        Self {
            for_short: 0,
            for_long: 0,
            long: LONG,
            polling_pays: true,
            rang: false,
            attempt: SHORTEST_AFTER_RING,
            skip: 0,
        }
    }

    /// Begins a wait. `rang` is true if it is for an answer of a side whose doorbell was just rung.
    pub(crate) fn begin(&mut self, rang: bool) {
        self.rang = rang;
    }

    /// Returns the time for which the waiter polls before it sleeps; `wakeup` is the cost of a
    /// sleep and a wake-up.
    pub(crate) fn limit(&self, wakeup: u64) -> u64 {
        match (self.rang, self.skip) {
            (false, _) => self.unknown_limit(wakeup),
            (true, 0) => wakeup.saturating_mul(self.attempt),
            (true, _) => 0,
        }
    }

    /// Returns the same where it is not known that the other side sleeps.
    fn unknown_limit(&self, wakeup: u64) -> u64 {
        let (long, short) = (probe(self.long), probe(SHORT));
        let limit = if self.polling_pays {
            return wakeup;
        } else if self.for_long >= long - PARTS {
            long
        } else if self.for_short >= short - PARTS {
            short
        } else {
            PARTS - PARTS / 4
        };
        wakeup
            .checked_mul(limit)
            .map_or(u64::MAX, |product| product / PARTS)
    }

    /// Pays for polling longer than a wake-up, so many parts of one. Returns true if a long probe
    /// did.
    fn pay(&mut self, polled: u64) -> bool {
        let excess = polled.saturating_sub(PARTS);
        let is_long = polled > probe(SHORT);
        let savings = if is_long {
            &mut self.for_long
        } else {
            &mut self.for_short
        };
        *savings = savings.saturating_sub(excess);
        is_long
    }

    /// The event came after the waiter had polled for `polled`.
    pub(crate) fn found(&mut self, polled: u64, wakeup: u64) {
        if self.rang {
            self.attempt = SHORTEST_AFTER_RING;
        } else {
            self.pay(parts(polled, wakeup));
        }
        self.found_at_once();
    }

    /// The event came at once, or nearly so.
    pub(crate) fn found_at_once(&mut self) {
        self.long = LONG;
        self.polling_pays = true;
    }

    /// The waiter polled for `polled` in vain, and slept.
    pub(crate) fn slept(&mut self, polled: u64, wakeup: u64) {
        match (self.rang, self.skip) {
            (false, _) => self.slept_for_unknown(polled, wakeup),
            (true, 0) => {
                self.skip = 2 * self.attempt;
                self.attempt = match 2 * self.attempt {
                    longer if longer <= LONGEST_AFTER_RING => longer,
                    _ => SHORTEST_AFTER_RING,
                };
            }
            (true, _) => self.skip -= 1,
        }
    }

    /// The same where it is not known that the other side slept.
    fn slept_for_unknown(&mut self, polled: u64, wakeup: u64) {
        let polled = parts(polled, wakeup);
        let half = PARTS.saturating_sub(polled) / 2;
        self.for_short = self.for_short.saturating_add(half);
        self.for_long = self.for_long.saturating_add(half);
        if self.pay(polled) {
            self.long = if self.long < LONGEST {
                2 * self.long
            } else {
                LONG
            };
        }
        self.polling_pays = false;
    }
}
