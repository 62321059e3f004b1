// SPDX-License-Identifier: MIT OR Apache-2.0

//! What it costs to sleep and be woken on this machine, as measured once for each process.
//!
//! The measured sleep ends by a timer. A peer's doorbell takes a longer way than a timer's interrupt;
//! [`AdaptivePoll`](crate::adaptive_poll::AdaptivePoll) allows for that.

use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::prctl;

use crate::sys;
use crate::ticks;

/// Sleeps that are measured. The middle one counts: a single one may be preempted, or find the
/// processor awake by chance.
const SLEEPS: usize = 5;
/// So short that what is measured is the wake-up.
const SHORT: Duration = Duration::from_nanos(1);

/// Ticks from the end of a sleep's time until the sleeper runs, with the system call that it is.
pub(crate) fn cost() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(measure)
}

fn measure() -> u64 {
    // The kernel puts off the wake-ups of ordinary threads by their timer slack, to have several at
    // a time.
    let slack = prctl::get_timerslack().ok();
    let exact = prctl::set_timerslack(1).is_ok();
    let mut sleeps = [0; SLEEPS];
    for sleep in &mut sleeps {
        let start = ticks::now();
        sys::count_call();
        std::thread::sleep(SHORT);
        *sleep = ticks::since(start);
    }
    if let (Some(slack), true) = (slack, exact) {
        // The value is the one that it had.
        let _ = prctl::set_timerslack(u64::try_from(slack).unwrap_or(0));
    }
    sleeps.sort_unstable();
    sleeps[SLEEPS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wakeup_takes_a_plausible_time_and_leaves_the_slack() {
        let before = prctl::get_timerslack().unwrap();
        let measured = measure();
        assert_eq!(prctl::get_timerslack().unwrap(), before);
        assert!(measured > 0);
        assert!(measured < ticks::of(Duration::from_secs(5)), "{measured}");
        assert_eq!(cost(), cost());
    }
}
