// SPDX-License-Identifier: GPL-2.0

//! Whether the device answers.
//!
//! A process can have thousands of objects whose end the device has to confirm, by registers or by
//! queues. So the first wait in vain makes the device *sick*, and all others, those under way and those
//! to come, end at once: all in all there is one wait. The device is well again when it has caught up
//! with all that it was asked, or was reset and enabled.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

use crate::kernel_ext::ratelimit::dev_err_ratelimited;

/// The state of one device.
pub(crate) struct Health {
    sick: Atomic<bool>,
    /// Waits that lasted until their time was over.
    timeouts: Atomic<u64>,
    recoveries: Atomic<u64>,
}

/// What is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) sick: bool,
    pub(crate) timeouts: u64,
    pub(crate) recoveries: u64,
}

impl Health {
    /// A device that was just reset.
    pub(super) const fn new() -> Self {
        Self {
            sick: Atomic::new(false),
            timeouts: Atomic::new(0),
            recoveries: Atomic::new(0),
        }
    }

    /// Whether the device did not answer in time, and still does not.
    pub(crate) fn is_sick(&self) -> bool {
        self.sick.load(Relaxed)
    }

    /// Whether there is a point in waiting.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` while the device is sick.
    pub(crate) fn check(&self) -> Result {
        match self.is_sick() {
            true => Err(ETIMEDOUT),
            false => Ok(()),
        }
    }

    /// Notes that the device did not answer in time; returns the error that says so.
    pub(crate) fn timed_out(&self, dev: &Device<Bound>) -> Error {
        if self.note_timeout() {
            dev_err_ratelimited!(
                Sick,
                dev,
                "adapter does not answer; it is not waited for until it does\n"
            );
        }
        ETIMEDOUT
    }

    /// Whether it was well before.
    fn note_timeout(&self) -> bool {
        self.timeouts.fetch_add(1, Relaxed);
        !self.sick.xchg(true, Full)
    }

    /// Notes that the device has caught up, or begun anew.
    pub(crate) fn recovered(&self) {
        if self.sick.xchg(false, Full) {
            self.recoveries.fetch_add(1, Relaxed);
        }
    }

    /// What there is to tell.
    pub(crate) fn report(&self) -> Report {
        Report {
            sick: self.is_sick(),
            timeouts: self.timeouts.load(Relaxed),
            recoveries: self.recoveries.load(Relaxed),
        }
    }
}

#[kunit_tests(uldma_health)]
mod tests {
    use super::*;

    #[test]
    fn one_wait_is_enough_until_the_device_is_well() {
        let health = Health::new();
        assert_eq!(health.check(), Ok(()));
        assert!(health.note_timeout());
        assert_eq!(health.check(), Err(ETIMEDOUT));
        assert!(!health.note_timeout());
        health.recovered();
        assert_eq!(health.check(), Ok(()));
        health.recovered();
        let report = Report {
            sick: false,
            timeouts: 2,
            recoveries: 1,
        };
        assert_eq!(health.report(), report);
    }
}
