// SPDX-License-Identifier: GPL-2.0

//! The health of a device: whether it answers, and what it still holds if it does not.
//!
//! The device has to confirm the end of an object, by registers or by queues, and a process can
//! have thousands of objects. So the first timeout makes the device *sick*, and all other waits
//! fail at once, those under way and those to come. How much a device has to do is no reason for a
//! timeout, see [`wait`](super::wait). The device is well again when it has ended what the driver
//! waits for of what was requested until then, or was reset and enabled; other work may go on.
//!
//! The log has one line when the device becomes sick and one when it is well again. Objects that
//! the device still holds are counted, not logged.
//!
//! An administrator can disable the device's memory space, and it does not answer at all then. It is
//! sick meanwhile: what it holds it holds further on, and it has not lost its configuration.
//!
//! An administrator can reset the device without the driver. Such a device answers, so it is not
//! sick, but it has lost its configuration. It works again after the driver was unbound and bound.

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

use super::wait::Failure;
use crate::kernel_ext::ratelimit::{
    dev_err_ratelimited,
    dev_info_ratelimited, //
};

/// The state of one device.
pub(crate) struct Health {
    sick: Atomic<bool>,
    /// Waits that timed out.
    timeouts: Atomic<u64>,
    recoveries: Atomic<u64>,
    /// Pages that stay pinned because the device did not confirm an invalidation.
    kept_pages: Atomic<usize>,
    /// Contexts that stay taken because the device did not stop them.
    kept_contexts: Atomic<usize>,
    /// Endpoints that stay taken because the device did not invalidate them.
    kept_endpoints: Atomic<usize>,
    /// True if the device was reset without the driver.
    reset: Atomic<bool>,
}

/// A snapshot of the state, for debugfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) sick: bool,
    pub(crate) timeouts: u64,
    pub(crate) recoveries: u64,
    pub(crate) kept_pages: usize,
    pub(crate) kept_contexts: usize,
    pub(crate) kept_endpoints: usize,
    pub(crate) reset: bool,
}

impl Health {
    /// Creates the state of a device that was just reset.
    pub(super) const fn new() -> Self {
        Self {
            sick: Atomic::new(false),
            timeouts: Atomic::new(0),
            recoveries: Atomic::new(0),
            kept_pages: Atomic::new(0),
            kept_contexts: Atomic::new(0),
            kept_endpoints: Atomic::new(0),
            reset: Atomic::new(false),
        }
    }

    /// Returns true if the device timed out and has not recovered.
    pub(crate) fn is_sick(&self) -> bool {
        self.sick.load(Relaxed)
    }

    /// Fails while the device does not answer, so that no caller waits for it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` while the device is sick.
    pub(crate) fn check(&self) -> Result {
        if self.is_sick() {
            Err(ETIMEDOUT)
        } else {
            Ok(())
        }
    }

    /// Notes a timeout of the device. Returns `ETIMEDOUT`.
    pub(super) fn timed_out(&self, dev: &Device<Bound>, failure: Failure) -> Error {
        if self.note_timeout() {
            let what = match failure {
                Failure::Silent => "does not answer",
                Failure::Overdue => "works, but does not end a request",
            };
            dev_err_ratelimited!(
                Sick,
                dev,
                "adapter {what}; requests fail at once until it does, and memory stays pinned\n"
            );
        }
        ETIMEDOUT
    }

    /// Notes that the device does not answer accesses to its registers. Returns `ETIMEDOUT`.
    pub(super) fn silent(&self, dev: &Device<Bound>) -> Error {
        if self.is_sick() {
            ETIMEDOUT
        } else {
            self.timed_out(dev, Failure::Silent)
        }
    }

    /// Returns true if the device was well before.
    fn note_timeout(&self) -> bool {
        self.timeouts.fetch_add(1, Relaxed);
        !self.sick.xchg(true, Full)
    }

    /// Notes that the device has ended what the driver waits for, or was reset.
    pub(crate) fn recovered(&self, dev: &Device<Bound>) {
        if self.note_recovery() {
            dev_info_ratelimited!(Well, dev, "adapter answers again\n");
        }
    }

    /// Returns true if the device was sick before.
    fn note_recovery(&self) -> bool {
        let was_sick = self.sick.xchg(false, Full);
        if was_sick {
            self.recoveries.fetch_add(1, Relaxed);
        }
        was_sick
    }

    /// Counts pages that stay pinned because the device did not confirm their invalidation.
    pub(crate) fn keeps_pages(&self, pages: usize) {
        self.kept_pages.fetch_add(pages, Relaxed);
    }

    /// Counts a context that stays taken because the device did not stop it.
    pub(crate) fn keeps_context(&self) {
        self.kept_contexts.fetch_add(1, Relaxed);
    }

    /// Counts an endpoint that stays taken because the device did not invalidate it.
    pub(crate) fn keeps_endpoint(&self) {
        self.kept_endpoints.fetch_add(1, Relaxed);
    }

    /// Notes that the device was reset without the driver.
    pub(crate) fn was_reset(&self, dev: &Device<Bound>) {
        if !self.reset.xchg(true, Full) {
            dev_err!(
                dev,
                "adapter was reset and has lost its configuration; unbind and bind the driver\n"
            );
        }
    }

    /// Returns true if the device was reset without the driver.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset.load(Relaxed)
    }

    /// Returns a snapshot of the state.
    pub(crate) fn report(&self) -> Report {
        Report {
            sick: self.is_sick(),
            timeouts: self.timeouts.load(Relaxed),
            recoveries: self.recoveries.load(Relaxed),
            kept_pages: self.kept_pages.load(Relaxed),
            kept_contexts: self.kept_contexts.load(Relaxed),
            kept_endpoints: self.kept_endpoints.load(Relaxed),
            reset: self.is_reset(),
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
            kept_contexts: 0,
            kept_endpoints: 0,
            reset: false,
        };
        assert_eq!(health.report(), report);
    }
}
