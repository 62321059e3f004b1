// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of sleeping and being woken on this machine, measured once for each process.
//!
//! The measured sleep ends by a timer. A peer's doorbell takes a longer way than a timer's interrupt: ten
//! times as long between emulated machines. See [`Link::wakeup`](crate::connection::Link::wakeup).

use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::prctl;

use crate::sys;
use crate::wait::ticks;

/// Sleeps of one length. The middle one counts: a single one may be preempted.
const SLEEPS: usize = 3;
/// The first length; it is doubled until a wake-up takes at most half of it. The time of a shorter sleep
/// is over before the processor sleeps, and nothing is measured.
const SHORTEST: Duration = Duration::from_micros(20);
/// Limit of the cost, for a machine that stood still while it was measured.
const LONGEST: Duration = Duration::from_millis(20);

/// Longest sleep between two polls.
///
/// Before it sleeps, each side publishes that and polls once more; on a coherent window one of the
/// two sides always notices the other. Where stores of both directions can pass each other (a real
/// non-coherent link), neither may notice, and this constant bounds the delay.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Ticks that a wake-up takes at most.
pub(crate) fn most() -> u64 {
    ticks::of(LONGEST)
}

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
    let mut length = SHORTEST;
    let cost = loop {
        let cost = after_sleeping(length);
        if 2 * cost <= ticks::of(length) || length >= LONGEST {
            break cost.min(ticks::of(LONGEST));
        }
        length *= 2;
    };
    if let (Some(slack), true) = (slack, exact) {
        // The value is the original one.
        let _ = prctl::set_timerslack(u64::try_from(slack).unwrap_or(0));
    }
    cost
}

/// Ticks that sleeps of this length last longer.
fn after_sleeping(length: Duration) -> u64 {
    let mut sleeps = [0; SLEEPS];
    for sleep in &mut sleeps {
        let start = ticks::now();
        sys::count_call();
        std::thread::sleep(length);
        *sleep = ticks::since(start).saturating_sub(ticks::of(length));
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
