// SPDX-License-Identifier: GPL-2.0

//! Interval notifiers of changes to a range of user addresses, and the removal of notifiers.
//!
//! C header: `include/linux/mmu_notifier.h`.

use core::{
    mem::ManuallyDrop,
    ops::{
        Deref,
        Range, //
    }, //
};

use kernel::{
    bindings,
    error::to_result,
    impl_has_work,
    mm::MmWithUser,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    types::Opaque,
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::workqueue;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Addresses may mean other memory afterwards, or none.
    Content,
    /// Addresses mean the same memory, but rights change.
    Protection,
    /// The process loses the right to write single pages without a fault: fork(), write-back, or the
    /// tracking of writes.
    WriteProtection,
    /// The address space ends: no thread runs in it any more. This is the last change.
    End,
}

impl From<bindings::mmu_notifier_event> for Change {
    fn from(event: bindings::mmu_notifier_event) -> Self {
        match event {
            bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_VMA => Self::Protection,
            bindings::mmu_notifier_event_MMU_NOTIFY_PROTECTION_PAGE
            | bindings::mmu_notifier_event_MMU_NOTIFY_SOFT_DIRTY => Self::WriteProtection,
            bindings::mmu_notifier_event_MMU_NOTIFY_RELEASE => Self::End,
            _ => Self::Content,
        }
    }
}

/// A notification: what is about to change.
pub(crate) struct Event {
    /// Addresses in bytes, which may exceed the watched range.
    pub(crate) range: Range<usize>,
    pub(crate) change: Change,
    /// True if the watcher may sleep.
    pub(crate) may_sleep: bool,
}

/// A receiver of notifications.
pub(crate) trait Watcher: Send + Sync + 'static {
    /// Notes a change before it is made. May return false if it would have to sleep and may not: the
    /// memory manager notifies again then, and leaves the memory alone until it does.
    ///
    /// May be called in any process, under locks of the memory manager, also by a thread that reclaims
    /// memory. So this must neither fail nor allocate, and take no lock under which a thread does.
    fn changes(&self, event: &Event) -> bool;
}

unsafe extern "C" {
    fn uldma_mmu_notifier_register(
        notifier: *mut bindings::mmu_notifier,
        mm: *mut bindings::mm_struct,
    ) -> c_int;
}

/// Prepares `mm` for interval notifiers, none of which takes its `mmap_lock` from then on.
///
/// # Errors
///
/// Those of [`register`].
pub(crate) fn prepare(mm: &MmWithUser) -> Result {
    // SAFETY: There is no notifier.
    unsafe { register(core::ptr::null_mut(), mm) }
}

/// Registers `notifier`, if it is not null, for `mm`.
///
/// Takes `mmap_lock`, and a fatal signal ends the wait for it.
///
/// # Errors
///
/// `ENOMEM`; `EINTR` if a signal with a handler comes. Other wake-ups, for example SIGSTOP and
/// SIGCONT, restart the call.
///
/// # Safety
///
/// `notifier` is null, or has operations that may be called until it is unregistered, is pinned, and is
/// not registered.
pub(super) unsafe fn register(notifier: *mut bindings::mmu_notifier, mm: &MmWithUser) -> Result {
    // SAFETY: `mm` has users. The caller ensures the rest.
    let result = to_result(unsafe { uldma_mmu_notifier_register(notifier, mm.as_raw()) });
    result.map_err(|err| match err {
        EINTR => ERESTARTNOHAND,
        err => err,
    })
}

/// A notifier that a [`Remover`] removes.
pub(super) trait Removable: Send + Sync {
    /// What removes it.
    fn remover(&self) -> &Arc<Remover>;

    /// The place for the one that its remover removes next.
    fn next(&self) -> &SpinLock<Option<Arc<dyn Removable>>>;
}

/// A reference to a notifier. When the last one is dropped, which waits for nothing, the notifier is
/// handed to its [`Remover`].
pub(super) struct Removed<T: Removable + 'static>(ManuallyDrop<Arc<T>>);

impl<T: Removable> Removed<T> {
    pub(super) fn new(notifier: Arc<T>) -> Self {
        Self(ManuallyDrop::new(notifier))
    }
}

impl<T: Removable> Deref for Removed<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Removable> Clone for Removed<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Removable> Drop for Removed<T> {
    fn drop(&mut self) {
        // SAFETY: It is not used after this.
        let notifier = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(last) = Arc::into_unique_or_drop(notifier) {
            let last: Arc<T> = last.into();
            last.remover().clone().add(last);
        }
    }
}

/// Removes notifiers of one address space after their end.
///
/// A removal waits until no change of the address space is going on, which its process can delay
/// for as long as it likes. So a work item does that, one notifier after the other.
#[pin_data]
pub(crate) struct Remover {
    #[pin]
    ended: SpinLock<Option<Arc<dyn Removable>>>,
    #[pin]
    work: Work<Remover>,
}

impl_has_work! {
    impl HasWork<Self> for Remover { self.work }
}

impl Remover {
    /// Creates a remover that has nothing to remove.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let remover = pin_init!(Self {
            ended <- new_spinlock!(None, "uldma::Remover::ended"),
            work <- new_work!("uldma::Remover::work"),
        });
        Arc::pin_init(remover, GFP_KERNEL)
    }

    fn add(self: &Arc<Self>, notifier: Arc<dyn Removable>) {
        let Some(queue) = workqueue::waiting() else {
            // The module ends.
            return;
        };
        let mut ended = self.ended.lock();
        *notifier.next().lock() = ended.take();
        *ended = Some(notifier);
        drop(ended);
        // If it is queued already, it has not begun yet.
        let _ = queue.enqueue(self.clone());
    }

    fn take(&self) -> Option<Arc<dyn Removable>> {
        let mut ended = self.ended.lock();
        let first = ended.take()?;
        *ended = first.next().lock().take();
        Some(first)
    }
}

impl WorkItem for Remover {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(notifier) = this.take() {
            drop(notifier);
        }
    }
}

/// A notifier of a range of addresses.
///
/// # Invariants
///
/// `notifier` is inserted.
#[pin_data(PinnedDrop)]
struct Inserted<W: Watcher> {
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
    #[pin]
    watcher: W,
    remover: Arc<Remover>,
    #[pin]
    next: SpinLock<Option<Arc<dyn Removable>>>,
}

// SAFETY: A notifier belongs to no thread, and watchers are `Send`.
unsafe impl<W: Watcher> Send for Inserted<W> {}
// SAFETY: The functions called through a shared reference lock what they need, and watchers are
// `Sync`.
unsafe impl<W: Watcher> Sync for Inserted<W> {}

impl<W: Watcher> Removable for Inserted<W> {
    fn remover(&self) -> &Arc<Remover> {
        &self.remover
    }

    fn next(&self) -> &SpinLock<Option<Arc<dyn Removable>>> {
        &self.next
    }
}

impl<W: Watcher> Inserted<W> {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        ..pin_init::zeroed()
    };

    fn new<'a>(
        mm: &'a MmWithUser,
        start: usize,
        length: usize,
        watcher: impl PinInit<W> + 'a,
        remover: &'a Arc<Remover>,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            watcher <- watcher,
            remover: remover.clone(),
            next <- new_spinlock!(None, "uldma::IntervalNotifier::next"),
            // Last, since the watcher may be called from here on.
            notifier <- Opaque::try_ffi_init(move |slot: *mut bindings::mmu_interval_notifier| {
                // SAFETY: `slot` is memory for a notifier that is pinned from now on, next to a
                // watcher that is initialized, and `mm` has users.
                to_result(unsafe {
                    bindings::mmu_interval_notifier_insert(
                        slot,
                        mm.as_raw(),
                        start,
                        length,
                        &Self::OPS,
                    )
                })
                // INVARIANT: The notifier was inserted.
            }),
        })
    }

    /// # Safety
    ///
    /// Called by the memory manager for a notifier of this type that is inserted.
    unsafe extern "C" fn invalidate(
        notifier: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: c_ulong,
    ) -> bool {
        // SAFETY: The notifier is the field of an object of this type, which is alive as long as the
        // notifier is inserted.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(notifier), Self, notifier) };
        // This is `mmu_interval_set_seq()`, which `wait_for_changes` and `Snapshot::if_current` rely on.
        // SAFETY: The field is written here only, and read with `READ_ONCE()`.
        unsafe { (&raw mut (*notifier).invalidate_seq).write_volatile(seq) };
        // SAFETY: The range is valid during this call.
        let range = unsafe { &*range };
        this.watcher.changes(&Event {
            range: range.start..range.end,
            change: range.event.into(),
            may_sleep: range.flags & bindings::MMU_NOTIFIER_RANGE_BLOCKABLE != 0,
        })
    }
}

#[pinned_drop]
impl<W: Watcher> PinnedDrop for Inserted<W> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The notifier is inserted by the type invariant.
        unsafe { bindings::mmu_interval_notifier_remove(self.notifier.get()) };
    }
}

/// A reference to a notifier of a range of addresses. When the last one is dropped, which waits for
/// nothing, a [`Remover`] removes the notifier; the watcher may be called until then.
pub(crate) struct IntervalNotifier<W: Watcher>(Removed<Inserted<W>>);

impl<W: Watcher> IntervalNotifier<W> {
    /// Watches `length` bytes from `start` on of `mm`, which has to be [prepared](prepare), until
    /// `remover` removes the notifier.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EOVERFLOW`.
    pub(crate) fn new(
        mm: &MmWithUser,
        start: usize,
        length: usize,
        watcher: impl PinInit<W>,
        remover: &Arc<Remover>,
    ) -> Result<Self> {
        let inserted = Inserted::new(mm, start, length, watcher, remover);
        let inserted = Arc::pin_init(inserted, GFP_KERNEL_ACCOUNT)?;
        Ok(Self(Removed::new(inserted)))
    }

    /// The watcher.
    pub(crate) fn watcher(&self) -> &W {
        &self.0.watcher
    }

    /// The C object, which is inserted.
    pub(super) fn as_raw(&self) -> *mut bindings::mmu_interval_notifier {
        self.0.notifier.get()
    }

    /// Returns true if `other` refers to the same notifier.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits until all changes of the range that have begun are complete.
    ///
    /// The watcher is notified of later changes. Must not be called under `mmap_lock`.
    pub(crate) fn wait_for_changes(&self) {
        // SAFETY: The notifier is inserted by the type invariant.
        unsafe { bindings::mmu_interval_read_begin(self.0.notifier.get()) };
    }
}

impl<W: Watcher> Clone for IntervalNotifier<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
