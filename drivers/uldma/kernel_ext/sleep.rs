// SPDX-License-Identifier: GPL-2.0

//! Devices that their drivers release before the system sleeps, and get back when it is awake.
//!
//! A device may lose everything while the system is suspended or hibernates. Its driver would have to
//! save and restore that while no process runs, and `kernel::pci` has no callbacks for it. Here the
//! driver is unbound while all processes still run, so that it needs only one way to release a
//! device. C precedent: `mmc_pm_notify()`.

use core::ptr;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::global::{
    Global,
    Keeper, //
};

unsafe extern "C" {
    fn uldma_pm_notifier_register(notifier: *mut bindings::notifier_block) -> c_int;
    fn uldma_pm_notifier_unregister(notifier: *mut bindings::notifier_block);
}

static SLEEP: Global<Sleep> = Global::new();

struct State {
    /// The system is about to sleep, or sleeps.
    asleep: bool,
    /// Devices with a driver of the module.
    bound: KVec<ARef<Device>>,
    /// Devices without it until the system is awake.
    released: KVec<ARef<Device>>,
}

/// The devices of the module's drivers.
///
/// # Invariants
///
/// `notifier` is registered from `new()` to `drop()`.
#[pin_data(PinnedDrop)]
struct Sleep {
    #[pin]
    state: Mutex<State>,
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
}

// SAFETY: The notifier is changed by the kernel only, which takes its own lock.
unsafe impl Send for Sleep {}
// SAFETY: As above, and the mutex is `Sync`.
unsafe impl Sync for Sleep {}

impl Sleep {
    fn new() -> impl PinInit<Self, Error> {
        let state = State {
            asleep: false,
            bound: KVec::new(),
            released: KVec::new(),
        };
        // INVARIANT: It is registered by the last field's initializer.
        try_pin_init!(Self {
            state <- new_mutex!(state, "uldma::Sleep::state"),
            notifier <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let notifier = bindings::notifier_block {
                    notifier_call: Some(Self::notify),
                    next: ptr::null_mut(),
                    priority: 0,
                };
                // SAFETY: `slot` is memory for a `notifier_block` that is pinned from now on.
                unsafe { slot.write(notifier) };
                // SAFETY: It was initialised just now, and the field before it, which is all that
                // the callback uses, too.
                to_result(unsafe { uldma_pm_notifier_register(slot) })
            }),
        })
    }

    /// # Safety
    ///
    /// Called by the kernel for a notifier that [`Self::new`] registered.
    unsafe extern "C" fn notify(
        notifier: *mut bindings::notifier_block,
        event: c_ulong,
        _data: *mut c_void,
    ) -> c_int {
        let notifier = Opaque::cast_from(notifier);
        // SAFETY: By the invariant the notifier is the field of a `Sleep` that has not been dropped.
        let this = unsafe { &*kernel::container_of!(notifier, Self, notifier) };
        let result = match u32::try_from(event) {
            Ok(
                bindings::PM_SUSPEND_PREPARE
                | bindings::PM_HIBERNATION_PREPARE
                | bindings::PM_RESTORE_PREPARE,
            ) => this.release_all().inspect_err(|_| this.bind_all()),
            Ok(
                bindings::PM_POST_SUSPEND
                | bindings::PM_POST_HIBERNATION
                | bindings::PM_POST_RESTORE,
            ) => {
                this.bind_all();
                Ok(())
            }
            _ => Ok(()),
        };
        match result {
            // CAST: Both are small.
            Ok(()) => bindings::NOTIFY_DONE as c_int,
            // CAST: As above. This is `notifier_from_errno()`.
            Err(err) => {
                bindings::NOTIFY_STOP_MASK as c_int
                    | (bindings::NOTIFY_OK as c_int - err.to_errno())
            }
        }
    }

    /// Has the drivers release all devices.
    fn release_all(&self) -> Result {
        self.state.lock().asleep = true;
        loop {
            let dev = {
                let mut state = self.state.lock();
                let Some(dev) = state.bound.last().cloned() else {
                    return Ok(());
                };
                state.released.push(dev.clone(), GFP_KERNEL)?;
                state.bound.pop();
                dev
            };
            // SAFETY: The reference keeps the device allocated, and it is on a bus. Its lock is free,
            // since neither a probe nor a removal of it waits for this.
            unsafe { bindings::device_release_driver(raw(&dev)) };
        }
    }

    /// Has the drivers probe all devices that they have released.
    fn bind_all(&self) {
        let released = {
            let mut state = self.state.lock();
            state.asleep = false;
            core::mem::take(&mut state.released)
        };
        for dev in released {
            // A driver that fails has said why, and a device that is gone has none.
            // SAFETY: As in `release_all`.
            let _ = unsafe { bindings::device_attach(raw(&dev)) };
        }
    }
}

fn raw(dev: &Device) -> *mut bindings::device {
    // CAST: `Device` is transparent over `struct device`.
    ptr::from_ref(dev).cast_mut().cast()
}

#[pinned_drop]
impl PinnedDrop for Sleep {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the notifier is registered. It is not called afterwards.
        unsafe { uldma_pm_notifier_unregister(self.notifier.get()) };
    }
}

/// What the module needs to know of the system's sleep. It has to be dropped after all its drivers.
pub(crate) struct ModuleSleep {
    _sleep: Keeper<Sleep>,
}

impl ModuleSleep {
    /// Begins to be told of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EBUSY` if there is one.
    pub(crate) fn new() -> Result<Self> {
        let sleep = Arc::pin_init(Sleep::new(), GFP_KERNEL)?;
        Ok(Self {
            _sleep: SLEEP.keep(sleep)?,
        })
    }
}

/// A bound device that its driver releases before the system sleeps.
pub(crate) struct Registration {
    sleep: Arc<Sleep>,
    dev: ARef<Device>,
}

impl Registration {
    /// Registers `dev`, which a driver of the module probes.
    ///
    /// # Errors
    ///
    /// `EPROBE_DEFER` if the system is about to sleep; it is probed again afterwards. `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>) -> Result<Self> {
        let sleep = SLEEP.get().ok_or(ENODEV)?;
        let dev: ARef<Device> = (&**dev).into();
        {
            let mut state = sleep.state.lock();
            if state.asleep {
                state.released.push(dev, GFP_KERNEL)?;
                return Err(EPROBE_DEFER);
            }
            state.bound.push(dev.clone(), GFP_KERNEL)?;
        }
        Ok(Self { sleep, dev })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.sleep.state.lock();
        state.bound.retain(|dev| !ptr::eq(raw(dev), raw(&self.dev)));
    }
}
