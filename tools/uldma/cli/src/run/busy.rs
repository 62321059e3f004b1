// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts the connections that have data to carry, for the end of the program.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The count.
#[derive(Debug, Default)]
pub(super) struct Busy {
    count: Mutex<usize>,
    is_idle: Condvar,
}

/// One of those that are counted, until it is dropped.
#[derive(Debug)]
pub(super) struct BusyMark(Arc<Busy>);

impl Busy {
    /// Counts one more.
    pub(super) fn mark(self: &Arc<Self>) -> BusyMark {
        self.change(|count| count.saturating_add(1));
        BusyMark(Arc::clone(self))
    }

    /// Sleeps until there are none, or the time is over. Returns true if there are none.
    pub(super) fn wait_idle(&self, timeout: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .is_idle
            .wait_timeout_while(count, timeout, |count| *count > 0);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count == 0
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = change(*count);
        if *count == 0 {
            self.is_idle.notify_all();
        }
    }
}

impl Drop for BusyMark {
    fn drop(&mut self) {
        self.0.change(|count| count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn the_end_of_the_last_one_ends_the_wait() {
        let busy = Arc::new(Busy::default());
        assert!(busy.wait_idle(Duration::ZERO));
        let marks = [busy.mark(), busy.mark()];
        assert!(!busy.wait_idle(Duration::ZERO));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| busy.wait_idle(LONG));
            for mark in marks {
                assert!(!waiter.is_finished());
                drop(mark);
            }
            assert!(waiter.join().unwrap());
        });
        assert!(busy.wait_idle(Duration::ZERO));
    }
}
