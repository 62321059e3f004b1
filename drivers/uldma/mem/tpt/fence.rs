// SPDX-License-Identifier: GPL-2.0

//! The state by which a wait for the device is left out: what it uses, and whether it does DMA at all.
//!
//! Notifications of the memory manager use it, so nothing allocates under its lock.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    new_spinlock,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        SpinLock, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::hw::{
    touch::TouchPage,
    Geometry,
    Hw, //
};

/// Numbers of waits for transfers that may use entries which the driver has retracted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    /// All of them.
    pub(crate) all: u64,
    /// Those that needed an invalidation.
    pub(crate) invalidations: u64,
}

/// The state of one device.
#[pin_data]
pub(super) struct Fence {
    /// None if the device does not write one, or is unbound.
    #[pin]
    touch_page: SpinLock<Option<TouchPage>>,
    /// True if the device does no DMA any more, until it is bound anew.
    is_off: Atomic<bool>,
    all: Atomic<u64>,
    invalidations: Atomic<u64>,
}

impl Fence {
    /// Creates the state of a device that is not enabled yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new<'a>(
        dev: &'a Device<Bound>,
        geometry: &'a Geometry,
    ) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || {
            let touch_page = geometry.is_optimistic.then(|| TouchPage::new(dev));
            let touch_page = touch_page.transpose()?;
            Ok(try_pin_init!(Self {
                touch_page <- new_spinlock!(touch_page, "uldma::Fence::touch_page"),
                is_off: Atomic::new(false),
                all: Atomic::new(0),
                invalidations: Atomic::new(0),
            }))
        })
    }

    /// Bus address of the touch page, or 0.
    pub(super) fn address(&self) -> DmaAddress {
        self.touch_page
            .lock()
            .as_ref()
            .map_or(0, TouchPage::address)
    }

    /// Returns true once no look-up of the device from before this call may still be used; false if that
    /// takes longer than `spin`.
    pub(super) fn passes(&self, spin: Delta) -> bool {
        self.all.fetch_add(1, Relaxed);
        // A page has both words. Without one there is nothing to wait by.
        let Some(Ok(begun)) = self.touched(TouchPage::begun) else {
            return self.is_off();
        };
        let start = Instant::<Monotonic>::now();
        loop {
            let passed = self.touched(|page| page.has_passed(begun));
            if self.is_off() || matches!(passed, Some(Ok(true))) {
                return true;
            }
            if start.elapsed() >= spin {
                return false;
            }
            cpu_relax();
        }
    }

    fn touched<R>(&self, read: impl FnOnce(&TouchPage) -> R) -> Option<R> {
        self.touch_page.lock().as_ref().map(read)
    }

    /// Returns true if the device does no DMA any more.
    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Acquire)
    }

    /// Counts a fence that needs an invalidation.
    pub(super) fn count_invalidation(&self) {
        self.invalidations.fetch_add(1, Relaxed);
    }

    /// Has the device do no DMA any more. Returns when it does none.
    pub(super) fn end_dma(&self, hw: Hw<'_>) {
        hw.quiesce();
        // Last, since a notification that finds it does not wait.
        self.is_off.store(true, Release);
    }

    /// Returns the numbers of fences.
    pub(super) fn count(&self) -> Fences {
        Fences {
            all: self.all.load(Relaxed),
            invalidations: self.invalidations.load(Relaxed),
        }
    }

    /// Frees the touch page. The device does no DMA any more.
    pub(super) fn tear_down(&self) {
        let touch_page = self.touch_page.lock().take();
        drop(touch_page);
    }
}
