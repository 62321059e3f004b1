// SPDX-License-Identifier: GPL-2.0

//! Whether the device answers.
//!
//! A process can have thousands of objects whose end the device has to confirm, by registers or by
//! queues. So the first wait in vain makes the device *sick*, and all others, those under way and those
//! to come, end at once: all in all there is one wait. The device is well again when it has caught up
//! with all that it was asked, or was reset and enabled.
//!
//! The log has one line when the device becomes sick and one when it is well again, not one for each
//! object that stays with it: these are counted.
//!
//! An administrator can reset the device without the driver. Such a device answers, so it is not sick;
//! but it has lost all that it was told, and works again when the driver is bound anew.

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

use crate::kernel_ext::ratelimit::{
    dev_err_ratelimited,
    dev_info_ratelimited, //
};

/// The state of one device.
pub(crate) struct Health {
    sick: Atomic<bool>,
    /// Waits that lasted until their time was over.
    timeouts: Atomic<u64>,
    recoveries: Atomic<u64>,
    /// Pages that the device did not let go of.
    kept_pages: Atomic<usize>,
    /// Contexts that it did not stop.
    exclusive_contexts: Atomic<usize>,
    /// Whether others have reset the device.
    reset: Atomic<bool>,
}

/// What is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) sick: bool,
    pub(crate) timeouts: u64,
    pub(crate) recoveries: u64,
    pub(crate) kept_pages: usize,
    pub(crate) exclusive_contexts: usize,
    pub(crate) reset: bool,
}

impl Health {
    /// A device that was just reset.
    pub(super) const fn new() -> Self {
        Self {
            sick: Atomic::new(false),
            timeouts: Atomic::new(0),
            recoveries: Atomic::new(0),
            kept_pages: Atomic::new(0),
            exclusive_contexts: Atomic::new(0),
            reset: Atomic::new(false),
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
                "adapter does not answer; it is not waited for until it does, and keeps what it may use\n"
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
    pub(crate) fn recovered(&self, dev: &Device<Bound>) {
        if self.note_recovery() {
            dev_info_ratelimited!(Well, dev, "adapter answers again\n");
        }
    }

    /// Whether it was sick before.
    fn note_recovery(&self) -> bool {
        let was_sick = self.sick.xchg(false, Full);
        if was_sick {
            self.recoveries.fetch_add(1, Relaxed);
        }
        was_sick
    }

    /// Counts pages that stay pinned, since the device did not let go of them.
    pub(crate) fn keeps_pages(&self, pages: usize) {
        self.kept_pages.fetch_add(pages, Relaxed);
    }

    /// Counts a context that stays taken, since the device did not stop it.
    pub(crate) fn keeps_context(&self) {
        self.exclusive_contexts.fetch_add(1, Relaxed);
    }

    /// Notes that the device has lost what it was told.
    pub(crate) fn was_reset(&self, dev: &Device<Bound>) {
        if !self.reset.xchg(true, Full) {
            dev_err!(
                dev,
                "adapter was reset and has lost what it was told; unbind the driver and bind it anew\n"
            );
        }
    }

    /// What there is to tell.
    pub(crate) fn report(&self) -> Report {
        Report {
            sick: self.is_sick(),
            timeouts: self.timeouts.load(Relaxed),
            recoveries: self.recoveries.load(Relaxed),
            kept_pages: self.kept_pages.load(Relaxed),
            exclusive_contexts: self.exclusive_contexts.load(Relaxed),
            reset: self.reset.load(Relaxed),
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
        health.keeps_pages(3);
        health.keeps_pages(4);
        assert!(health.note_recovery());
        assert_eq!(health.check(), Ok(()));
        assert!(!health.note_recovery());
        let report = Report {
            sick: false,
            timeouts: 2,
            recoveries: 1,
            kept_pages: 7,
            exclusive_contexts: 0,
            reset: false,
        };
        assert_eq!(health.report(), report);
    }
}
