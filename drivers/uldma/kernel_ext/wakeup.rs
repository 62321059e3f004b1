// SPDX-License-Identifier: GPL-2.0

//! The cost of a sleep and a wake-up on this machine, measured when the module is loaded.
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

/// Maximum cost, even if the machine was stopped during the measurement: callers sleep for so long
/// between two reads of a register.
const LONGEST: Delta = Delta::from_millis(20);

/// Minimum cost: a timer with a period of a few costs must leave time between its interrupts.
const LEAST: Delta = Delta::from_micros(1);

static NANOSECONDS: Atomic<i64> = Atomic::new(LEAST.as_nanos());

/// Sets the cost to `given`, or measures it.
///
/// Sleeps for the time of a few wake-ups.
pub(crate) fn set(given: Option<Delta>) {
    let nanoseconds = given.map_or_else(measure, Delta::as_nanos);
    let bounded = nanoseconds.clamp(LEAST.as_nanos(), LONGEST.as_nanos());
    NANOSECONDS.store(bounded, Relaxed);
}

/// Returns the time from the end of a sleep until the sleeper runs.
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

/// Returns the nanoseconds by which a sleep of this length lasts longer. This is the median of
/// three, since one may be preempted.
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
