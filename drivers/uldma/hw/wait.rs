// SPDX-License-Identifier: GPL-2.0

//! Waits for the device. What the device does decides how long they last, not how much it has to do.
//!
//! A wait fails when the device
//!
//! * has made no progress for [`SILENCE`]: none of the numbers changed by which it reports bytes that
//!   it has moved, descriptors that it has read and commands that it has completed; or
//! * has not ended what is waited for in [`LIMIT`], whatever it reports: a broken device can count for
//!   any time. A device that works never takes so long. What is waited for needs one turn of the
//!   engine, a chunk of 256 KiB, and at worst each of the 256 contexts of eight nodes has its turn
//!   before. So it takes an engine of 32 MB/s, which is slower than any adapter, to come near that.
//!
//! Progress proves that the device is alive and nothing else. A wait that fails keeps what it was for,
//! even if the device ends that later.

use kernel::{
    prelude::*,
    processor::cpu_relax,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::Hw;
use crate::kernel_ext::wakeup;

/// Time without progress after which the device does not answer.
pub(super) const SILENCE: Delta = Delta::from_secs(2);

/// Maximum time of a wait: eight times the silence.
const LIMIT: Delta = Delta::from_secs(16);

/// Time between two samples of the progress, which cost some register accesses.
const PERIOD: Delta = Delta::from_millis(100);

/// Maximum time that counts between two samples. If the caller does not run for longer, neither may the
/// device have run: the machine was stopped, or has too much to do.
const LONGEST: Delta = Delta::from_millis(400);

/// The reason why a wait has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device makes no progress.
    Silent,
    /// The device makes progress and does not end what is waited for.
    Overdue,
}

/// The judgement of one wait, by samples of the time and of the device's progress.
struct Patience {
    /// Time of the last sample, from the beginning of the wait.
    sampled: Delta,
    /// The progress then.
    progress: Option<u64>,
    /// Time for which it has not changed.
    silent: Delta,
    /// Time of the wait.
    waited: Delta,
}

impl Patience {
    const NEW: Self = Self {
        sampled: Delta::ZERO,
        progress: None,
        silent: Delta::ZERO,
        waited: Delta::ZERO,
    };

    /// Returns true if it is time for the next sample, `now` after the beginning.
    fn is_due(&self, now: Delta) -> bool {
        now - self.sampled >= PERIOD
    }

    /// Takes a sample: `progress` is a number that changes with each step of the device.
    ///
    /// # Errors
    ///
    /// The reason why the wait has failed.
    fn sample(&mut self, now: Delta, progress: u64) -> Result<(), Failure> {
        let passed = (now - self.sampled).min(LONGEST);
        self.sampled = now;
        self.waited += passed;
        match self.progress.replace(progress) {
            Some(last) if last == progress => self.silent += passed,
            _ => self.silent = Delta::ZERO,
        }
        if self.silent >= SILENCE {
            Err(Failure::Silent)
        } else if self.waited >= LIMIT {
            Err(Failure::Overdue)
        } else {
            Ok(())
        }
    }
}

/// Waits until `ready` returns something. `progress` is a number that changes with the device's work
/// for the caller; its other work is known.
///
/// # Errors
///
/// `ETIMEDOUT` if the device does not answer, or did not when another caller waited; `EIO` if it was
/// reset without the driver; the errors of `ready`.
pub(crate) fn until<T>(
    hw: Hw<'_>,
    progress: impl Fn() -> u64,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    // Most requests are complete already, and reading the time is not free.
    if let Some(found) = ready()? {
        return Ok(found);
    }
    let since: Instant<Monotonic> = Instant::now();
    let mut patience = Patience::NEW;
    loop {
        hw.health().check()?;
        if hw.health().is_reset() {
            return Err(EIO);
        }
        let elapsed = since.elapsed();
        if patience.is_due(elapsed) {
            // A device that has left the bus makes no progress.
            let all = hw.progress().unwrap_or(0).wrapping_add(progress());
            let sampled = patience.sample(elapsed, all);
            sampled.map_err(|failure| not_ended(hw, failure))?;
        }
        if elapsed > wakeup::cost() {
            fsleep(wakeup::cost());
        } else {
            cpu_relax();
        }
        if let Some(found) = ready()? {
            return Ok(found);
        }
    }
}

/// Returns the error of a device that did not do what was waited for.
fn not_ended(hw: Hw<'_>, failure: Failure) -> Error {
    if hw.is_enabled().unwrap_or(true) {
        hw.health().timed_out(hw.dev(), failure)
    } else {
        hw.health().was_reset(hw.dev());
        EIO
    }
}

#[kunit_tests(uldma_wait)]
mod tests {
    use super::*;

    /// Takes a sample each `period` until the wait fails. Returns the reason and the time.
    fn fails(period: Delta, progress: impl Fn(Delta) -> u64) -> (Failure, Delta) {
        let mut patience = Patience::NEW;
        let mut now = Delta::ZERO;
        loop {
            now += period;
            assert!(now <= LIMIT * 100);
            if let Err(failure) = patience.sample(now, progress(now)) {
                return (failure, now);
            }
        }
    }

    #[test]
    fn a_device_that_stands_still_does_not_answer() {
        assert_eq!(fails(PERIOD, |_| 7), (Failure::Silent, SILENCE + PERIOD));
        // However much it has done before.
        let stop = Delta::from_secs(5);
        let stops = |now: Delta| now.min(stop).as_nanos().unsigned_abs();
        assert_eq!(fails(PERIOD, stops), (Failure::Silent, stop + SILENCE));
    }

    #[test]
    fn a_device_with_much_to_do_answers() {
        // A step in almost the time in which there has to be one.
        let step = (SILENCE - PERIOD).as_nanos();
        let slow = |now: Delta| (now.as_nanos() / step).unsigned_abs();
        assert_eq!(fails(PERIOD, slow), (Failure::Overdue, LIMIT));
        let mut patience = Patience::NEW;
        let mut now = Delta::ZERO;
        while now + PERIOD < LIMIT {
            now += PERIOD;
            assert_eq!(patience.sample(now, slow(now)), Ok(()));
        }
    }

    #[test]
    fn a_device_cannot_count_for_ever() {
        let counts = |now: Delta| now.as_nanos().unsigned_abs();
        assert_eq!(fails(PERIOD, counts), (Failure::Overdue, LIMIT));
        // Backwards, too.
        let back = |now: Delta| u64::MAX - now.as_nanos().unsigned_abs();
        assert_eq!(fails(PERIOD, back), (Failure::Overdue, LIMIT));
    }

    #[test]
    fn a_machine_that_was_stopped_is_no_silence() {
        let mut patience = Patience::NEW;
        assert_eq!(patience.sample(PERIOD, 7), Ok(()));
        let stopped = PERIOD + LIMIT * 10;
        assert_eq!(patience.sample(stopped, 7), Ok(()));
        assert_eq!(patience.sample(stopped + PERIOD, 7), Ok(()));
        // It ends nevertheless, if the caller runs that seldom.
        let (failure, now) = fails(SILENCE, |_| 7);
        assert_eq!(failure, Failure::Silent);
        assert!(now <= SILENCE * 6);
    }

    #[test]
    fn samples_are_no_more_frequent_than_needed() {
        let mut patience = Patience::NEW;
        assert!(!patience.is_due(PERIOD - Delta::from_millis(1)));
        assert!(patience.is_due(PERIOD));
        assert_eq!(patience.sample(PERIOD, 7), Ok(()));
        assert!(!patience.is_due(PERIOD));
        assert!(patience.is_due(PERIOD * 2));
    }
}
