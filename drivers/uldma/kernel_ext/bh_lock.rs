// SPDX-License-Identifier: GPL-2.0

//! Sections with bottom halves disabled, and a spinlock for data that both they and threads use.
//!
//! C header: `include/linux/bottom_half.h`.

use core::{
    marker::PhantomData,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

use kernel::{
    prelude::*,
    sync::{
        lock::{
            spinlock::SpinLockBackend,
            Guard, //
        },
        LockClassKey,
        SpinLock, //
    },
    types::NotThreadSafe, //
};

unsafe extern "C" {
    fn uldma_bh_disable();
    fn uldma_bh_enable();
}

/// Bottom halves are disabled on this CPU until this is dropped.
struct BhDisabled(PhantomData<NotThreadSafe>);

impl BhDisabled {
    fn new() -> Self {
        // SAFETY: May be called from any context but interrupts, and is undone on this CPU, since the
        // type stays in its thread.
        unsafe { uldma_bh_disable() };
        Self(PhantomData)
    }
}

impl Drop for BhDisabled {
    fn drop(&mut self) {
        // SAFETY: `new` has disabled them in this thread.
        unsafe { uldma_bh_enable() };
    }
}

/// Calls `call` with bottom halves disabled. Those that became due run before this returns.
pub(crate) fn bottom_halves_disabled<R>(call: impl FnOnce() -> R) -> R {
    let _disabled = BhDisabled::new();
    call()
}

/// A lock of a `T`, as by `spin_lock_bh()`. Not for interrupts.
#[pin_data]
pub(crate) struct BhLock<T> {
    #[pin]
    inner: SpinLock<T>,
}

/// Creates a [`BhLock`] of `$value`, with a lock class of its own.
macro_rules! new_bh_lock {
    ($value:expr, $name:literal) => {
        $crate::kernel_ext::bh_lock::BhLock::new(
            $value,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_bh_lock;

/// The right to use what a [`BhLock`] protects.
pub(crate) struct BhGuard<'a, T> {
    /// Dropped first.
    guard: Guard<'a, T, SpinLockBackend>,
    _disabled: BhDisabled,
}

impl<T> BhLock<T> {
    /// Creates a lock of `value`, by [`new_bh_lock`].
    pub(crate) fn new(
        value: T,
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- SpinLock::new(value, name, key),
        })
    }

    /// Acquires the lock.
    pub(crate) fn lock(&self) -> BhGuard<'_, T> {
        let disabled = BhDisabled::new();
        BhGuard {
            guard: self.inner.lock(),
            _disabled: disabled,
        }
    }
}

impl<T> Deref for BhGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: Unpin> DerefMut for BhGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
