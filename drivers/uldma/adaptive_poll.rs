// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! How long to poll for an event before sleeping until it comes.
//!
//! This file is compiled into the kernel module and into the library (`tools/uldma/lib`), so it uses
//! nothing but `core`, and no floating point. All times are nanoseconds.
//!
//! A waiter that sleeps pays for the sleep and the wake-up, one *wake-up* for short. A waiter that
//! polls pays for the time. Polling for as long as a wake-up takes, and sleeping then, costs at most
//! twice what the best choice would have cost, whenever the event comes (competitive spinning). That
//! alone leaves two waiters that answer each other asleep for ever, once both sleep: each answer takes
//! one wake-up of the other side, which is just longer than the polling. So a waiter that polls in
//! vain polls for three quarters of a wake-up only, saves the last quarter, and spends its savings on
//! a *probe* that is longer than a wake-up. When a probe of one side sees the answer, its next message
//! arrives while the other side still polls, and from then on both find all messages by polling.
//!
//! | the last wait | polls for |
//! | --- | --- |
//! | saw the event while it polled | one wake-up |
//! | slept, savings for the next probe are incomplete | 3/4 of a wake-up |
//! | slept, savings suffice | the probe: 2 1/4 wake-ups, and about twice that after each in vain, up to 16 1/4 |
//!
//! Probes grow because the wake-up is measured in a simpler place than where the other side sleeps, and
//! may be underestimated. `tools/uldma/lib/src/spin/simulation.rs` simulates waiters on
//! machines of many kinds.

/// The longest probe, in wake-ups.
const LONGEST_PROBE: u64 = 16;
/// The first probe, in wake-ups.
const FIRST_PROBE: u64 = 2;

/// Decides how long one waiter polls, as earlier waits ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdaptivePoll {
    /// What sleeping and waking costs.
    wakeup: u64,
    /// By how much sleepers have polled less than they may.
    savings: u64,
    /// Length of the next probe, in wake-ups.
    probe: u64,
    /// The last wait ended while it polled.
    polling_pays: bool,
}

impl AdaptivePoll {
    /// A waiter that has not waited yet, where sleeping and waking takes `wakeup`.
    pub(crate) const fn new(wakeup: u64) -> Self {
        Self {
            wakeup,
            savings: 0,
            probe: FIRST_PROBE,
            polling_pays: true,
        }
    }

    /// How long the waiter polls before it sleeps.
    pub(crate) fn limit(&self) -> u64 {
        let quarter = self.wakeup / 4;
        let probe = self
            .probe
            .saturating_mul(self.wakeup)
            .saturating_add(quarter);
        if self.polling_pays {
            self.wakeup
        } else if self.savings >= probe.saturating_sub(self.wakeup) {
            probe
        } else {
            self.wakeup - quarter
        }
    }

    /// The event came after the waiter had polled for `polled`.
    pub(crate) fn found(&mut self, polled: u64) {
        let excess = polled.saturating_sub(self.wakeup);
        self.savings = self.savings.saturating_sub(excess);
        self.probe = FIRST_PROBE;
        self.polling_pays = true;
    }

    /// The waiter polled for `polled` in vain, and slept.
    pub(crate) fn slept(&mut self, polled: u64) {
        self.savings = self
            .savings
            .saturating_add(self.wakeup)
            .saturating_sub(polled);
        if polled > self.wakeup {
            self.probe = match self.probe {
                LONGEST_PROBE.. => FIRST_PROBE,
                probe => 2 * probe,
            };
        }
        self.polling_pays = false;
    }
}
