// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time by which a call has to end, and how the kernel is told it.

use std::time::{Duration, Instant};

use nix::poll::PollTimeout;

use crate::error::Error;

/// The end of a time-out that began with a call. There is none if the time-out is longer than the clock can
/// count: [`Duration::MAX`] is without limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// Begins a time-out.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self {
            at: Instant::now().checked_add(timeout),
            timeout,
        }
    }

    /// Returns the time that is left: [`Duration::MAX`] without limit.
    pub(crate) fn left(self) -> Duration {
        self.at.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }

    /// Returns true if no time is left.
    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Returns the end of `slice`, or the deadline if it is earlier.
    pub(crate) fn within(self, slice: Duration) -> Instant {
        let end = Instant::now() + slice;
        self.at.map_or(end, |at| at.min(end))
    }

    /// Builds the error of a wait for `what` that took too long.
    pub(crate) fn missed(self, what: impl Into<String>) -> Error {
        Error::Timeout {
            what: what.into(),
            after: self.timeout,
        }
    }
}

impl From<Instant> for Deadline {
    fn from(at: Instant) -> Self {
        Self {
            at: Some(at),
            timeout: at.saturating_duration_since(Instant::now()),
        }
    }
}

/// Returns a time-out for an ioctl. The longest one is without limit.
pub(crate) fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a time-out for poll(), which may end earlier if that is long. It is rounded up: to wake early
/// would mean to spin.
pub(crate) fn poll_timeout(timeout: Duration) -> PollTimeout {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timeout_is_too_long() {
        let deadline = Deadline::after(Duration::MAX);
        assert!(!deadline.is_over());
        assert_eq!(deadline.left(), Duration::MAX);
        assert!(deadline.within(Duration::ZERO) <= Instant::now());
        assert_eq!(nanoseconds(deadline.left()), u64::MAX);
        assert_eq!(poll_timeout(deadline.left()), PollTimeout::MAX);
    }

    #[test]
    fn a_deadline_ends_a_slice() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.is_over());
        assert!(deadline.within(Duration::from_secs(100)) <= Instant::now());
        assert_eq!(
            poll_timeout(Duration::from_nanos(1)),
            PollTimeout::from(1_u8)
        );
        let Error::Timeout { what, after } = Deadline::after(Duration::from_nanos(7)).missed("end")
        else {
            panic!("another error");
        };
        assert_eq!((&*what, after), ("end", Duration::from_nanos(7)));
    }
}
