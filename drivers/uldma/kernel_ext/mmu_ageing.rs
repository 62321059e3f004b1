// SPDX-License-Identifier: GPL-2.0

//! Notifiers by which the memory manager asks whether a device has accessed memory of a process.
//!
//! C header: `include/linux/mmu_notifier.h`.

use core::ops::Range;

use kernel::{
    bindings,
    mm::MmWithUser,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    types::Opaque, //
};

use super::mmu_notifier::{
    register,
    Removable,
    Removed,
    Remover, //
};

/// What knows which memory a device has accessed.
pub(crate) trait Ageing: Send + Sync + 'static {
    /// Returns true if the device has accessed addresses in `range`, in bytes, since that was `forgotten`
    /// for the last time.
    ///
    /// Called under spinlocks of the memory manager. So this must not sleep.
    fn was_accessed(&self, range: Range<usize>, forgotten: bool) -> bool;
}

/// A notifier of one address space.
///
/// # Invariants
///
/// `notifier` is registered.
#[pin_data(PinnedDrop)]
struct Registered<A: Ageing> {
    #[pin]
    notifier: Opaque<bindings::mmu_notifier>,
    #[pin]
    ageing: A,
    remover: Arc<Remover>,
    #[pin]
    next: SpinLock<Option<Arc<dyn Removable>>>,
}

// SAFETY: A notifier belongs to no thread, and `Ageing` is `Send`.
unsafe impl<A: Ageing> Send for Registered<A> {}
// SAFETY: Nothing of the notifier can be reached by a shared reference, and `Ageing` is `Sync`.
unsafe impl<A: Ageing> Sync for Registered<A> {}

impl<A: Ageing> Removable for Registered<A> {
    fn remover(&self) -> &Arc<Remover> {
        &self.remover
    }

    fn next(&self) -> &SpinLock<Option<Arc<dyn Removable>>> {
        &self.next
    }
}

impl<A: Ageing> Registered<A> {
    const OPS: bindings::mmu_notifier_ops = bindings::mmu_notifier_ops {
        clear_flush_young: Some(Self::clear_young),
        clear_young: Some(Self::clear_young),
        test_young: Some(Self::test_young),
        ..pin_init::zeroed()
    };

    fn new<'a>(
        mm: &'a MmWithUser,
        ageing: impl PinInit<A> + 'a,
        remover: &'a Arc<Remover>,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            ageing <- ageing,
            remover: remover.clone(),
            next <- new_spinlock!(None, "uldma::AgeNotifier::next"),
            // Last, since it may be asked from here on.
            notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::mmu_notifier| {
                let notifier = bindings::mmu_notifier {
                    ops: &Self::OPS,
                    ..pin_init::zeroed()
                };
                // SAFETY: `slot` is memory for a notifier.
                unsafe { slot.write(notifier) };
                // SAFETY: The notifier is pinned, next to what its operations use, which is initialized
                // and is dropped after it was unregistered.
                unsafe { register(slot, mm) }
                // INVARIANT: The notifier was registered.
            }),
        })
    }

    /// # Safety
    ///
    /// `notifier` is that of an object of this type, and is registered.
    unsafe fn was_accessed(
        notifier: *mut bindings::mmu_notifier,
        range: Range<usize>,
        forgotten: bool,
    ) -> bool {
        // SAFETY: The notifier is the field of an object of this type, which is alive as long as the
        // notifier is registered.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(notifier), Self, notifier) };
        this.ageing.was_accessed(range, forgotten)
    }

    /// # Safety
    ///
    /// Called by the memory manager for a notifier of this type that is registered.
    unsafe extern "C" fn clear_young(
        notifier: *mut bindings::mmu_notifier,
        _: *mut bindings::mm_struct,
        start: c_ulong,
        end: c_ulong,
    ) -> bool {
        // SAFETY: The caller ensures it.
        unsafe { Self::was_accessed(notifier, start..end, true) }
    }

    /// # Safety
    ///
    /// Called by the memory manager for a notifier of this type that is registered.
    unsafe extern "C" fn test_young(
        notifier: *mut bindings::mmu_notifier,
        _: *mut bindings::mm_struct,
        address: c_ulong,
    ) -> bool {
        // SAFETY: The caller ensures it.
        unsafe { Self::was_accessed(notifier, address..address.saturating_add(1), false) }
    }
}

#[pinned_drop]
impl<A: Ageing> PinnedDrop for Registered<A> {
    fn drop(self: Pin<&mut Self>) {
        let notifier = self.notifier.get();
        // SAFETY: The notifier is registered by the type invariant, and so has its address space.
        unsafe { bindings::mmu_notifier_unregister(notifier, (*notifier).mm) };
    }
}

/// A reference to a notifier of an address space, by which the memory manager asks what a device has
/// accessed. When the last one is dropped, which waits for nothing, a [`Remover`] removes the notifier; it
/// may be asked until then.
pub(crate) struct AgeNotifier<A: Ageing>(Removed<Registered<A>>);

impl<A: Ageing> Clone for AgeNotifier<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: Ageing> AgeNotifier<A> {
    /// Has the memory manager ask `ageing` about `mm`, until `remover` removes the notifier.
    ///
    /// # Errors
    ///
    /// Those of [`prepare`](super::mmu_notifier::prepare).
    pub(crate) fn new(
        mm: &MmWithUser,
        ageing: impl PinInit<A>,
        remover: &Arc<Remover>,
    ) -> Result<Self> {
        let registered = Arc::pin_init(Registered::new(mm, ageing, remover), GFP_KERNEL_ACCOUNT)?;
        Ok(Self(Removed::new(registered)))
    }

    /// The one that is asked.
    pub(crate) fn ageing(&self) -> &A {
        &self.0.ageing
    }
}
