// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rate-limited error messages: a guest or a client that causes errors cannot fill a disk or hide
//! the errors of others.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit of messages per [`INTERVAL`].
const BURST: u32 = 10;
/// Interval of the limit.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Interval {
    /// When the interval began.
    since: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

/// Rate-limited error log of one node.
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<Interval>);

impl RateLimitedLog {
    /// Counts a message. Returns the number of messages suppressed since the last one, or `None` if
    /// the limit is reached.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= INTERVAL;
        if state.since.is_none_or(is_over) {
            state.since = Some(now);
            state.logged = 0;
        }
        if state.logged >= BURST {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Logs an error, unless the limit is reached.
    pub fn error(&self, message: fmt::Arguments<'_>) {
        match self.admit(Instant::now()) {
            Some(0) => log::error!("{message}"),
            Some(suppressed) => log::error!("{message} ({suppressed} more suppressed)"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_cut() {
        let log = RateLimitedLog::default();
        let now = Instant::now();
        let admitted = (0..100).filter(|_| log.admit(now).is_some());
        assert_eq!(admitted.count(), BURST as usize);
        assert_eq!(log.admit(now + INTERVAL / 2), None);
        assert_eq!(log.admit(now + INTERVAL), Some(91));
        assert_eq!(log.admit(now + INTERVAL), Some(0));
    }
}
