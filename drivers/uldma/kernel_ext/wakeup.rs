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

/// Sleeps that are measured. The middle one counts: a single one may be preempted.
const SLEEPS: usize = 5;

/// So short that what is measured is the wake-up.
const MICROSECONDS: c_ulong = 1;

static NANOSECONDS: Atomic<i64> = Atomic::new(1);

/// Measures unless the administrator knows better and gives the cost.
///
/// Sleeps for as long as some wake-ups take.
pub(crate) fn set(given: Option<Delta>) {
    let nanoseconds = given.map_or_else(measure, Delta::as_nanos);
    NANOSECONDS.store(nanoseconds.max(1), Relaxed);
}

/// The time from the end of a sleep until the sleeper runs.
pub(crate) fn cost() -> Delta {
    Delta::from_nanos(NANOSECONDS.load(Relaxed))
}

fn measure() -> i64 {
    let mut sleeps = [0; SLEEPS];
    for sleep in &mut sleeps {
        let start: Instant<Monotonic> = Instant::now();
        // SAFETY: Modules are loaded in process context, where sleeping is allowed.
        unsafe {
            bindings::usleep_range_state(
                MICROSECONDS,
                MICROSECONDS,
                bindings::TASK_UNINTERRUPTIBLE,
            );
        }
        *sleep = start.elapsed().as_nanos();
    }
    sleeps.sort_unstable();
    sleeps[SLEEPS / 2]
}
