// SPDX-License-Identifier: GPL-2.0

//! How long a queue without frames is polled before its peer has to ring.
//!
//! While a queue is polled, its peer rings no doorbell, and this node handles no interrupt. The rule is
//! that of all waiters of the driver ([`Polling`]): to poll for about as long as a doorbell costs, and
//! to sleep then, costs at most twice what the best choice would have cost. A processor that is idle
//! polls; where all are busy, a timer does, as late as a doorbell would.

use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::link::polling::Polling;

/// What a node has sent to the peer, which may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Nothing,
    Packets,
    /// Packets for which the doorbell of the peer rang.
    Rang,
}

/// What waiting costs.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// The time from a doorbell of the peer until the queue is polled.
    pub(super) doorbell: Delta,
    /// The time from the end of a timer until the queue is polled.
    pub(super) timer: Delta,
    /// Maximum time of polling.
    pub(super) most: Delta,
}

impl Costs {
    /// Returns the time until the timer of a queue that may be polled for `left`; none if a timer
    /// costs as much as that, or as a doorbell.
    fn pause(&self, left: Delta) -> Option<Delta> {
        let pause = left.min(self.doorbell);
        (self.timer < pause).then_some(pause)
    }
}

/// The polling of one queue.
pub(super) struct Moderation {
    polling: Polling,
    /// When the wait for the next frame began; none if the peer has to ring.
    since: Option<Instant<Monotonic>>,
    /// This node has sent nothing since it found frames.
    found: bool,
}

impl Moderation {
    /// Creates the state of a queue that was never polled.
    pub(super) fn new() -> Self {
        Self {
            polling: Polling::new(),
            since: None,
            found: false,
        }
    }

    /// Returns the time until the next poll by a timer; none if the peer has to ring.
    ///
    /// `found` is true if the last poll found frames; `sent` is what this node has sent since the poll
    /// before.
    pub(super) fn next_poll(&mut self, found: bool, sent: Sent, costs: Costs) -> Option<Delta> {
        if found {
            if let Some(since) = self.since {
                self.polling.note(costs.doorbell, since.elapsed(), true);
            }
        }
        let rang = sent == Sent::Rang;
        let answers = sent == Sent::Packets && self.found && self.since.is_some();
        if found || rang {
            self.polling.begin(rang);
        }
        if found || rang || answers {
            self.since = Some(Instant::now());
        }
        self.found = found || self.found && sent == Sent::Nothing;
        let polled = self.since?.elapsed();
        let limit = self.polling.limit(costs.doorbell, costs.most);
        let next = costs.pause(limit - polled);
        if next.is_none() {
            self.polling.note(costs.doorbell, polled, false);
            self.since = None;
        }
        next
    }
}

#[kunit_tests(uldma_net_moderation)]
mod tests {
    use super::*;

    /// So long that no test takes it.
    const DOORBELL: Delta = Delta::from_secs(1000);

    fn costs(timer: Delta) -> Costs {
        Costs {
            doorbell: DOORBELL,
            timer,
            most: DOORBELL * 100,
        }
    }

    #[test]
    fn a_queue_is_polled_after_frames_and_after_doorbells() {
        let cheap = costs(Delta::from_micros(1));
        let mut moderation = Moderation::new();
        assert_eq!(moderation.next_poll(false, Sent::Nothing, cheap), None);
        assert!(moderation.next_poll(true, Sent::Nothing, cheap).is_some());
        assert!(moderation.next_poll(false, Sent::Packets, cheap).is_some());
        // It polls longer for an answer, but no frame waits longer than a doorbell would take.
        let after_doorbell = moderation.next_poll(false, Sent::Rang, cheap);
        assert_eq!(after_doorbell, Some(DOORBELL));
    }

    #[test]
    fn a_timer_ends_the_rest_of_the_time() {
        const HALF: Delta = Delta::from_nanos(DOORBELL.as_nanos() / 2);
        let costs = costs(HALF);
        assert_eq!(costs.pause(DOORBELL * 3), Some(DOORBELL));
        assert_eq!(costs.pause(HALF + HALF), Some(DOORBELL));
        let longer = Delta::from_nanos(HALF.as_nanos() + 1);
        assert_eq!(costs.pause(longer), Some(longer));
        // It would expire after the time that the administrator allows.
        assert_eq!(costs.pause(HALF), None);
    }

    #[test]
    fn a_doorbell_as_cheap_as_a_timer_rings() {
        let mut moderation = Moderation::new();
        assert_eq!(
            moderation.next_poll(true, Sent::Nothing, costs(DOORBELL)),
            None
        );
        // The wait is over.
        assert!(moderation.since.is_none());
    }

    #[test]
    fn the_administrator_bounds_it() {
        let none = Costs {
            most: Delta::ZERO,
            ..costs(Delta::ZERO)
        };
        assert_eq!(Moderation::new().next_poll(true, Sent::Rang, none), None);
    }
}
