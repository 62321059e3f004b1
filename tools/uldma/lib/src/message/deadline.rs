// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time by which a call has to end.

use std::time::{Duration, Instant};

use crate::Error;

/// The end of a time-out that began with a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Longer time-outs are this one.
    const LONGEST: Duration = Duration::from_secs(365 * 86_400);

    /// Begins a time-out.
    pub(super) fn after(timeout: Duration) -> Self {
        Self {
            at: Instant::now() + timeout.min(Self::LONGEST),
            timeout,
        }
    }

    /// Returns the time that is left.
    pub(super) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Returns true if no time is left.
    pub(super) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Returns the end of the time-out.
    pub(super) fn end(self) -> Instant {
        self.at
    }

    /// Returns the earlier one of the deadline and the end of `slice`.
    pub(super) fn or_after(self, slice: Duration) -> Instant {
        self.at.min(Instant::now() + slice)
    }

    /// Builds the error of a wait for `what` that took too long.
    pub(super) fn missed(self, what: &str) -> Error {
        Error::Timeout {
            what: what.into(),
            after: self.timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timeout_is_too_long() {
        let deadline = Deadline::after(Duration::MAX);
        assert!(!deadline.is_over());
        assert!(deadline.or_after(Duration::ZERO) <= Instant::now());
        assert!(Deadline::after(Duration::ZERO).is_over());
    }
}
