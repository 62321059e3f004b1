// SPDX-License-Identifier: GPL-2.0

//! How long it pays to look for something before sleeping.
//!
//! Who has waited long is not helped by looking; who has not is spared a sleep and an interrupt. The
//! halt polling of KVM learns in the same way.

use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::options;

/// Least nanoseconds, so that there is something to double.
const LEAST: i64 = 5_000;

/// How long who waits for one kind of thing looks for it.
pub(crate) struct Patience {
    nanoseconds: i64,
    /// When somebody began to wait who has not got it yet.
    since: Option<Instant<Monotonic>>,
}

/// What is right after a wait of `waited` where it was `before`.
fn next(before: i64, waited: i64, most: i64) -> i64 {
    let doubled = before.saturating_mul(2);
    let next = if waited <= most { doubled } else { before / 2 };
    next.max(LEAST).min(most)
}

impl Patience {
    /// As much as there can be.
    pub(crate) fn new() -> Self {
        Self {
            nanoseconds: options::link_spin().as_nanos(),
            since: None,
        }
    }

    /// Somebody begins to wait, or goes on: how long to look.
    pub(crate) fn begin(&mut self) -> Delta {
        self.since.get_or_insert_with(Instant::now);
        Delta::from_nanos(self.nanoseconds)
    }

    /// There is what was waited for, if anybody had to wait.
    pub(crate) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            let most = options::link_spin().as_nanos();
            self.nanoseconds = next(self.nanoseconds, since.elapsed().as_nanos(), most);
        }
    }
}

#[kunit_tests(uldma_patience)]
mod tests {
    use super::*;

    const MOST: i64 = 200_000;

    #[test]
    fn long_waits_are_not_looked_for() {
        let mut patience = MOST;
        for _ in 0..10 {
            patience = next(patience, MOST + 1, MOST);
        }
        assert_eq!(patience, LEAST);
    }

    #[test]
    fn short_waits_bring_it_back() {
        let mut patience = LEAST;
        for _ in 0..10 {
            patience = next(patience, MOST, MOST);
        }
        assert_eq!(patience, MOST);
    }

    #[test]
    fn none_stays_none() {
        assert_eq!(next(0, 0, 0), 0);
        assert_eq!(next(0, 1, 0), 0);
    }
}
