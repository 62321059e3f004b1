// SPDX-License-Identifier: GPL-2.0

//! What it costs to sleep and be woken on this machine, as measured when the module is loaded.
//!
//! The measured sleep ends by a timer. An interrupt of a device takes a longer way, above all where the
//! device or the processor is emulated.

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// The first length; it is doubled until a wake-up takes at most half of it. The time
/// of a shorter sleep is over before the processor sleeps, and nothing is measured.
const SHORTEST: Delta = Delta::from_micros(20);

/// What the cost is at most, also where the machine stood still while it was measured: callers sleep for so
/// long between two readings of a register.
const LONGEST: Delta = Delta::from_millis(20);

/// What the cost is at least: a timer with a period of some costs must leave time between its interrupts.
const LEAST: Delta = Delta::from_micros(1);

static NANOSECONDS: Atomic<i64> = Atomic::new(LEAST.as_nanos());

/// Measures unless the administrator knows better and gives the cost.
///
/// Sleeps for as long as some wake-ups take.
pub(crate) fn set(given: Option<Delta>) {
    let nanoseconds = given.map_or_else(measure, Delta::as_nanos);
    let bounded = nanoseconds.clamp(LEAST.as_nanos(), LONGEST.as_nanos());
    NANOSECONDS.store(bounded, Relaxed);
}

/// The time from the end of a sleep until the sleeper runs.
pub(crate) fn cost() -> Delta {
    Delta::from_nanos(NANOSECONDS.load(Relaxed))
}

fn measure() -> i64 {
    let mut length = SHORTEST;
    loop {
        let cost = after_sleeping(length);
        if 2 * cost <= length.as_nanos() || length >= LONGEST {
            return cost;
        }
        length = length + length;
    }
}

/// Nanoseconds that sleeps of this length last longer. The middle one of three counts: a single one may be
/// preempted.
fn after_sleeping(length: Delta) -> i64 {
    let microseconds = c_ulong::try_from(length.as_micros_ceil()).unwrap_or(0);
    let mut sleeps = [0; 3];
    for sleep in &mut sleeps {
        let start: Instant<Monotonic> = Instant::now();
        // SAFETY: Modules are loaded in process context, where sleeping is allowed.
        unsafe {
            bindings::usleep_range_state(
                microseconds,
                microseconds,
                bindings::TASK_UNINTERRUPTIBLE,
            );
        }
        *sleep = start.elapsed().as_nanos() - length.as_nanos();
    }
    let [a, b, c] = sleeps;
    a.max(b).min(c).max(a.min(b))
}
