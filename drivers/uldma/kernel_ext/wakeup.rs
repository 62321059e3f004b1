// SPDX-License-Identifier: GPL-2.0

//! The costs of a sleep and a wake-up on this machine, measured when the module is loaded.
//!
//! The measured sleeps end by a timer, and by another thread. How long that thread's wake-up takes
//! depends on what else the machine does, so calls that have slept report it, and it is followed.
//! An interrupt of a device takes a longer way, above all where the device or the processor is
//! emulated; the link measures its doorbells, and this module bounds what it finds.

use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Completion, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::workqueue;

/// The first length; it is doubled until a wake-up takes at most half of it. The time
/// of a shorter sleep is over before the processor sleeps, and nothing is measured.
const SHORTEST: Delta = Delta::from_micros(20);

/// Maximum cost, even if the machine was stopped during the measurement: callers sleep for so long
/// between two reads of a register.
const LONGEST: Delta = Delta::from_millis(20);

/// Minimum cost: a timer with a period of a few costs must leave time between its interrupts.
const LEAST: Delta = Delta::from_micros(1);

/// First rounds of a measurement, which do not count, since processors that were busy until then wake
/// up sooner.
const WARM_UP: usize = 4;
/// Rounds that count.
const COUNTED: usize = 16;

static NANOSECONDS: Atomic<i64> = Atomic::new(LEAST.as_nanos());
static OF_THREAD: Atomic<i64> = Atomic::new(LEAST.as_nanos());
/// The same, as the calls that have slept since show it.
static OF_THREAD_IN_USE: Atomic<i64> = Atomic::new(LEAST.as_nanos());

/// Share of a sample in the result, as in TCP's smoothed round-trip time (RFC 6298).
const WEIGHT: i64 = 8;

/// Sets the costs to `given`, or measures them.
///
/// Sleeps for the time of about a hundred wake-ups. The queue of the module has to exist.
///
/// # Errors
///
/// `ENOMEM`; `ENODEV` without the queue.
pub(crate) fn set(given: Option<Delta>) -> Result {
    let (by_timer, by_thread) = match given {
        Some(given) => (given.as_nanos(), 0),
        None => {
            let by_timer = measure();
            (by_timer, by_thread(Delta::from_nanos(2 * by_timer))?)
        }
    };
    NANOSECONDS.store(bounded(by_timer), Relaxed);
    OF_THREAD.store(bounded(by_thread), Relaxed);
    OF_THREAD_IN_USE.store(bounded(by_thread), Relaxed);
    Ok(())
}

/// Returns the cost that follows the `known` one after one more `sample`, which counts for at most
/// twice that: it may be a stop of the machine, or a lie.
pub(crate) fn followed(known: i64, sample: i64) -> i64 {
    let sample = sample.min(known.saturating_mul(2));
    bounded(known + (sample - known) / WEIGHT)
}

/// Follows [`cost_by_thread`] by a thread that ran so long after it was woken.
pub(crate) fn follow_thread(sample: Delta) {
    // Of two calls at the same time, one may be forgotten.
    let cost = followed(OF_THREAD_IN_USE.load(Relaxed), sample.as_nanos());
    OF_THREAD_IN_USE.store(cost, Relaxed);
}

/// Returns the nearest cost that a sleep can have, in nanoseconds.
pub(crate) fn bounded(nanoseconds: i64) -> i64 {
    nanoseconds.clamp(LEAST.as_nanos(), LONGEST.as_nanos())
}

/// Returns the time from the end of a sleep until the sleeper runs.
pub(crate) fn cost() -> Delta {
    Delta::from_nanos(NANOSECONDS.load(Relaxed))
}

/// Returns the time from the end of a timer until its interrupt is handled.
pub(crate) fn cost_by_timer() -> Delta {
    let by_timer = cost().as_nanos() - OF_THREAD.load(Relaxed);
    Delta::from_nanos(bounded(by_timer))
}

/// Returns the time from a thread's call that wakes a sleeper until the sleeper runs.
pub(crate) fn cost_by_thread() -> Delta {
    Delta::from_nanos(OF_THREAD_IN_USE.load(Relaxed))
}

/// The times of a sleeper that is woken again and again.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    taken: usize,
    costs: [i64; COUNTED],
}

impl Rounds {
    /// Adds a round of so many nanoseconds.
    pub(crate) fn add(&mut self, cost: i64) {
        let place = self.taken.checked_sub(WARM_UP);
        if let Some(place) = place.and_then(|place| self.costs.get_mut(place)) {
            *place = cost;
        }
        self.taken += 1;
    }

    /// Returns true if no more rounds are needed.
    pub(crate) fn is_complete(&self) -> bool {
        self.taken >= WARM_UP + COUNTED
    }

    /// Returns the mean of all rounds that count but the longest, in which another program may have
    /// had the processor.
    pub(crate) fn usual(&self) -> Option<i64> {
        let costs = self.counted()?;
        let count = costs.len();
        let longest = costs.iter().max()?;
        let sum: i64 = costs.iter().sum();
        let others = i64::try_from(count).ok()? - 1;
        (sum - longest).checked_div(others).or(Some(*longest))
    }

    /// Returns the median of the rounds that count; none without one.
    fn median(&self) -> Option<i64> {
        let costs = self.counted()?;
        let middle = costs.len() / 2;
        let is_median = |cost: &i64| {
            let shorter = costs.iter().filter(|other| *other < cost).count();
            let as_long = costs.iter().filter(|other| *other == cost).count();
            (shorter..shorter + as_long).contains(&middle)
        };
        costs.iter().copied().find(is_median)
    }

    /// Returns the cost of a sleep that an interrupt ends, where the same wait took `polled` with
    /// polling. Medians count, since other programs may have had the processor in several of the
    /// rounds; and a device's interrupt wakes no sooner than that of a timer.
    pub(crate) fn cost_beside(&self, polled: &Self) -> i64 {
        let longer = self.median().zip(polled.median());
        let longer = longer.map_or(0, |(slept, polled)| slept.saturating_sub(polled));
        bounded(longer).max(cost().as_nanos())
    }

    fn counted(&self) -> Option<&[i64]> {
        let count = self.taken.saturating_sub(WARM_UP).min(COUNTED);
        self.costs.get(..count)
    }
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
    let mut sleeps = [0; 3];
    for cost in &mut sleeps {
        let start: Instant<Monotonic> = Instant::now();
        sleep(length);
        *cost = start.elapsed().as_nanos() - length.as_nanos();
    }
    median(sleeps)
}

fn median([a, b, c]: [i64; 3]) -> i64 {
    a.max(b).min(c).max(a.min(b))
}

fn sleep(length: Delta) {
    let microseconds = c_ulong::try_from(length.as_micros_ceil()).unwrap_or(0);
    // SAFETY: Modules are loaded, and work items run, in process context, where sleeping is allowed.
    unsafe {
        bindings::usleep_range_state(microseconds, microseconds, bindings::TASK_UNINTERRUPTIBLE);
    }
}

/// A sleep that another thread ends.
#[pin_data]
struct Nap {
    #[pin]
    ended: Completion,
    since: Instant<Monotonic>,
    /// Nanoseconds from `since` until the thread ended the sleep.
    until: Atomic<i64>,
}

/// Returns the nanoseconds from the end of a sleep by another thread, after `length`, until the
/// sleeper runs. This is the median of the rounds that count: other threads may have the processor
/// in several of them.
fn by_thread(length: Delta) -> Result<i64> {
    let queue = workqueue::module().ok_or(ENODEV)?;
    let mut rounds = Rounds::default();
    while !rounds.is_complete() {
        let nap = Arc::pin_init(
            pin_init!(Nap {
                ended <- Completion::new(),
                since: Instant::now(),
                until: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        let waker = nap.clone();
        queue.try_spawn(GFP_KERNEL, move || {
            sleep(length);
            waker.until.store(waker.since.elapsed().as_nanos(), Relaxed);
            waker.ended.complete_all();
        })?;
        nap.ended.wait_for_completion();
        rounds.add(nap.since.elapsed().as_nanos() - nap.until.load(Relaxed));
    }
    Ok(rounds.median().unwrap_or_default())
}

#[kunit_tests(uldma_wakeup)]
mod tests {
    use super::*;

    #[test]
    fn neither_the_first_rounds_nor_a_long_one_decides() {
        let mut rounds = Rounds::default();
        for round in 0..WARM_UP + COUNTED {
            assert!(!rounds.is_complete());
            rounds.add(match round {
                ..WARM_UP => 10,
                WARM_UP => 1_000_000,
                // As many below 700 as above.
                _ => 700 + (round as i64 % 3 - 1),
            });
        }
        assert!(rounds.is_complete());
        assert_eq!(rounds.usual(), Some(700));
        // More rounds change nothing.
        rounds.add(1);
        assert_eq!(rounds.usual(), Some(700));
    }

    #[test]
    fn a_few_interrupted_rounds_do_not_hide_the_cost_of_a_sleep() {
        let rounds = |usual: i64, interrupted: usize| {
            let mut rounds = Rounds::default();
            for round in 0..WARM_UP + COUNTED {
                let counts = round.checked_sub(WARM_UP);
                let is_interrupted =
                    counts.is_some_and(|round| round % 2 == 0 && round / 2 < interrupted);
                rounds.add(if is_interrupted { 4_000_000 } else { usual });
            }
            rounds
        };
        let timer = cost().as_nanos();
        let slept = timer + 500_000;
        for interrupted in 0..COUNTED / 2 {
            let polled = rounds(1000, interrupted);
            assert_eq!(rounds(slept, 0).cost_beside(&polled), slept - 1000);
            let slept_for = rounds(slept, interrupted);
            assert_eq!(slept_for.cost_beside(&rounds(1000, 0)), slept - 1000);
        }
        // It is not less than that of a timer.
        assert_eq!(rounds(1000, 0).cost_beside(&rounds(4000, 0)), timer);
        assert_eq!(Rounds::default().cost_beside(&Rounds::default()), timer);
    }

    #[test]
    fn a_sample_counts_for_an_eighth_and_is_bounded() {
        assert_eq!(followed(8000, i64::MAX), 9000);
        assert_eq!(followed(8000, 8000), 8000);
        assert_eq!(followed(8000, 1), 7001);
        assert_eq!(followed(i64::MAX, i64::MAX), bounded(i64::MAX));
    }

    #[test]
    fn the_cost_follows_what_is_in_use() {
        let (mut known, mut samples) = (30_000, 0);
        while known < 900_000 {
            known = followed(known, 1_000_000);
            samples += 1;
        }
        assert!(samples < 50);
        // One stop of the machine hardly counts.
        assert!(followed(known, 10_000_000) < 1_100_000);
    }

    #[test]
    fn threads_that_slept_change_the_cost_of_a_thread_alone() {
        let (by_thread, by_timer) = (cost_by_thread(), cost_by_timer());
        for _ in 0..50 {
            follow_thread(LONGEST);
        }
        assert!(cost_by_thread() > by_thread);
        assert_eq!(cost_by_timer(), by_timer);
        OF_THREAD_IN_USE.store(by_thread.as_nanos(), Relaxed);
    }

    #[test]
    fn rounds_that_do_not_count_have_no_result() {
        let mut rounds = Rounds::default();
        for _ in 0..WARM_UP {
            rounds.add(7);
            assert_eq!(rounds.usual(), None);
        }
        rounds.add(9);
        assert_eq!(rounds.usual(), Some(9));
    }

    #[test]
    fn costs_are_bounded() {
        assert_eq!(bounded(i64::MAX), LONGEST.as_nanos());
        assert_eq!(bounded(-1), LEAST.as_nanos());
        assert_eq!(bounded(700_000), 700_000);
    }
}
