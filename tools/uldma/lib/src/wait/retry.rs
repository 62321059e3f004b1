// SPDX-License-Identifier: MIT OR Apache-2.0

//! Retries of operations that may succeed at any time without a notification.

use std::time::{Duration, Instant};

use crate::wait::deadline::Deadline;

/// Retries of one operation, with growing pauses, until it succeeds or the time is up.
///
/// Each pause is a fixed fraction of the time that has passed. So success is noticed at most that
/// fraction later than possible, for any machine and peer, and the number of attempts is
/// logarithmic in the time.
#[derive(Debug)]
pub(crate) struct Backoff {
    began: Instant,
    deadline: Deadline,
}

impl Backoff {
    /// The pause is one of so many parts: an attempt may be late by 6 %.
    const PART: u32 = 16;

    /// The first attempt begins now.
    pub(crate) fn within(timeout: Duration) -> Self {
        Self {
            began: Instant::now(),
            deadline: Deadline::after(timeout),
        }
    }

    /// Returns the remaining time.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.left()
    }

    /// Waits until the next attempt is due; false if the time is up instead.
    pub(crate) fn pause(&self) -> bool {
        let next = self.next_pause();
        std::thread::sleep(next.unwrap_or_else(|| self.left()));
        next.is_some()
    }

    /// None if the peer would have too little time to answer: the caller would then see that the
    /// peer is late, and not what is missing.
    fn next_pause(&self) -> Option<Duration> {
        let (went, left) = (self.began.elapsed(), self.left());
        let pause = went / Self::PART;
        (left > pause / Self::PART).then(|| pause.min(left / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_part_of_what_went_by() {
        let began = Instant::now() - Duration::from_secs(160);
        let attempts = Backoff {
            began,
            deadline: Deadline::after(Duration::MAX),
        };
        assert!(attempts.next_pause() >= Some(Duration::from_secs(10)));
        assert_eq!(attempts.left(), Duration::MAX);
        assert!(Backoff::within(Duration::MAX).pause());
    }

    #[test]
    fn no_pause_goes_beyond_the_end() {
        let began = Instant::now() - Duration::from_secs(3600);
        let attempts = Backoff {
            began,
            deadline: Deadline::after(Duration::from_millis(1)),
        };
        // It would be minutes.
        assert!(!attempts.pause());
        assert!(attempts.left().is_zero());
        // Half of what is left, as long as that is more than a moment of what went by.
        let deadline = Deadline::after(Duration::from_secs(100));
        let next = Backoff { began, deadline }.next_pause();
        assert!(next > Some(Duration::from_secs(40)) && next <= Some(Duration::from_secs(50)));
        assert!(!Backoff::within(Duration::ZERO).pause());
    }
}
