// SPDX-License-Identifier: GPL-2.0

//! A gate that unbinding closes: a caller inside may use the bound device and may sleep.
//!
//! C precedent: `drm_dev_enter()`. RCU does not work, since callers inside sleep. A lock does not
//! work, since ioctls take the gate before `mmap_lock` and page faults after it. Readers of SRCU
//! never wait, so neither order can deadlock.

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

unsafe extern "C" {
    fn uldma_srcu_init(srcu: *mut bindings::srcu_struct) -> c_int;
    fn uldma_srcu_read_lock(srcu: *mut bindings::srcu_struct) -> c_int;
    fn uldma_srcu_read_unlock(srcu: *mut bindings::srcu_struct, idx: c_int);
}

/// A gate in front of a device, and of what is of use with the bound device only.
///
/// # Invariants
///
/// While `open` is true, and until all callers that entered have left after it became false, `dev`
/// is bound.
#[pin_data(PinnedDrop)]
pub(crate) struct Gate<T> {
    dev: ARef<Device>,
    behind: T,
    open: Atomic<bool>,
    #[pin]
    srcu: Opaque<bindings::srcu_struct>,
}

// SAFETY: `srcu_struct` may be used from any thread, and the other fields are `Send`.
unsafe impl<T: Send> Send for Gate<T> {}
// SAFETY: `srcu_struct` may be used from many threads at once, and the other fields are `Sync`.
unsafe impl<T: Sync> Sync for Gate<T> {}

impl<T> Gate<T> {
    /// Creates a gate in front of `dev` and `behind`, closed until a [`GateKeeper`] opens it.
    pub(crate) fn new(dev: &Device, behind: T) -> impl PinInit<Self, Error> {
        let dev: ARef<Device> = dev.into();
        // INVARIANT: The gate is closed and no caller has entered.
        try_pin_init!(Self {
            dev,
            behind,
            open: Atomic::new(false),
            srcu <- Opaque::try_ffi_init(|slot: *mut bindings::srcu_struct| {
                // SAFETY: `slot` is memory for a `srcu_struct` that is pinned from now on.
                to_result(unsafe { uldma_srcu_init(slot) })
            }),
        })
    }

    /// Enters the gate, unless it is closed.
    ///
    /// A caller must not wait for an action of a user while inside, since unbinding waits until all
    /// have left.
    pub(crate) fn enter(&self) -> Option<GateGuard<'_, T>> {
        // SAFETY: `srcu` was initialised by `new`.
        let idx = unsafe { uldma_srcu_read_lock(self.srcu.get()) };
        let guard = GateGuard {
            gate: self,
            idx,
            _not_send: NotThreadSafe,
        };
        self.open.load(Acquire).then_some(guard)
    }

    /// Enters the gate.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the gate is closed, since the device is unbound.
    pub(crate) fn try_enter(&self) -> Result<GateGuard<'_, T>> {
        self.enter().ok_or(ENODEV)
    }

    /// Checks that the gate is open now; it may be closed at any time.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the gate is closed, since the device is unbound.
    pub(crate) fn check(&self) -> Result {
        self.try_enter().map(drop)
    }

    /// Returns true if the gate is open now. It may be closed at any time.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Gate<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `srcu` was initialised by `new`; no reader is left, since each borrows the gate.
        unsafe { bindings::cleanup_srcu_struct(self.srcu.get()) };
    }
}

/// Proof that the device stays bound, and the right to use it.
pub(crate) struct GateGuard<'a, T> {
    gate: &'a Gate<T>,
    idx: c_int,
    _not_send: NotThreadSafe,
}

impl<T> GateGuard<'_, T> {
    /// Returns the bound device.
    pub(crate) fn dev(&self) -> &Device<Bound> {
        // SAFETY: By the invariant of `Gate` the device is bound while this guard lives.
        unsafe { self.gate.dev.as_bound() }
    }

    /// Returns what is of use with the bound device only.
    pub(crate) fn behind(&self) -> &T {
        &self.gate.behind
    }
}

impl<T> Drop for GateGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `idx` came from `uldma_srcu_read_lock` on the same `srcu_struct`.
        unsafe { uldma_srcu_read_unlock(self.gate.srcu.get(), self.idx) };
    }
}

/// Keeps a gate open; dropping it closes the gate and waits until all callers have left.
///
/// It borrows the bound device, so it cannot outlive the binding unless it is leaked; it is only
/// ever part of a driver's private data, which the driver core drops.
pub(crate) struct GateKeeper<'bound, T> {
    gate: Arc<Gate<T>>,
    _dev: &'bound Device<Bound>,
}

impl<'bound, T> GateKeeper<'bound, T> {
    /// Opens `gate`, which must be a gate of `dev`.
    pub(crate) fn open(gate: Arc<Gate<T>>, dev: &'bound Device<Bound>) -> Result<Self> {
        if !core::ptr::eq::<Device>(&*gate.dev, &**dev) {
            return Err(EINVAL);
        }
        // INVARIANT: `dev` is bound for `'bound`, and `drop` closes the gate before that ends.
        gate.open.store(true, Release);
        Ok(Self { gate, _dev: dev })
    }
}

impl<T> Drop for GateKeeper<'_, T> {
    fn drop(&mut self) {
        self.gate.open.store(false, Release);
        // SAFETY: `srcu` was initialised by `Gate::new`, and this context has not entered.
        unsafe { bindings::synchronize_srcu(self.gate.srcu.get()) };
    }
}
