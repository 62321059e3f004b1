// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages for the administrator that a guest or a client can cause: at a limited rate, so that
//! none of them fills a disk or hides what others cause.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many messages there can be in [`INTERVAL`].
const BURST: u32 = 10;
/// See [`BURST`].
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    /// When the interval began.
    since: Option<Instant>,
    said: u32,
    kept_back: u64,
}

/// What one node is complained of.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<State>);

impl Complaints {
    /// Whether something may be said now; if so, how much was kept back since the last time.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= INTERVAL;
        if state.since.is_none_or(is_over) {
            state.since = Some(now);
            state.said = 0;
        }
        if state.said >= BURST {
            state.kept_back = state.kept_back.saturating_add(1);
            return None;
        }
        state.said += 1;
        Some(std::mem::take(&mut state.kept_back))
    }

    /// Says something, unless too much was said already.
    pub fn say(&self, message: fmt::Arguments<'_>) {
        match self.admit(Instant::now()) {
            Some(0) => log::error!("{message}"),
            Some(kept_back) => log::error!("{message} ({kept_back} more were kept back)"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_cut() {
        let complaints = Complaints::default();
        let now = Instant::now();
        let admitted = (0..100).filter(|_| complaints.admit(now).is_some());
        assert_eq!(admitted.count(), BURST as usize);
        assert_eq!(complaints.admit(now + INTERVAL / 2), None);
        assert_eq!(complaints.admit(now + INTERVAL), Some(91));
        assert_eq!(complaints.admit(now + INTERVAL), Some(0));
    }
}
