// SPDX-License-Identifier: GPL-2.0

//! Work queues: those that `kernel::workqueue` does not have yet, and waiting for a work item.

use core::{
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    workqueue::{
        DelayedWork,
        Queue,
        Work, //
    }, //
};

/// The system's queue for work that is bound to no CPU and may take long.
pub(crate) fn system_default() -> &'static Queue {
    // SAFETY: The system's queues are made before modules are loaded, and never go.
    unsafe { Queue::from_raw(bindings::system_dfl_wq) }
}

unsafe extern "C" {
    fn uldma_workqueue_new(
        name: *const c_char,
        max_active: c_int,
    ) -> *mut bindings::workqueue_struct;
}

/// A queue for work that is bound to no CPU and may take long; dropping it waits for its work.
///
/// # Invariants
///
/// The queue was made by `uldma_workqueue_new()`, and is destroyed by `drop` only.
pub(crate) struct OwnQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A work queue may be used from any thread.
unsafe impl Send for OwnQueue {}
// SAFETY: As above, also from many at once.
unsafe impl Sync for OwnQueue {}

impl OwnQueue {
    /// Creates a queue by which at most `most` work items run at a time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &'static CStr, most: u16) -> Result<Self> {
        // SAFETY: The name is a string.
        let queue = unsafe { uldma_workqueue_new(name.as_char_ptr(), most.into()) };
        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
}

impl Deref for OwnQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant the queue lives as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid, and `self` was what it could be reached by.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// The module's queue, as long as there is one.
static MODULE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(ptr::null_mut());

/// The module's own queue; there is one at a time.
///
/// It has to be dropped after all that queues work, and before the module's text goes. Dropping it waits
/// for work that was queued last, whoever did that: so none of it runs in a module that is gone.
pub(crate) struct ModuleQueue {
    _queue: OwnQueue,
}

impl ModuleQueue {
    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EBUSY` when there is one.
    pub(crate) fn new(name: &'static CStr) -> Result<Self> {
        if !MODULE.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        let queue = OwnQueue::new(name, 0)?;
        MODULE.store(queue.0.as_ptr(), Release);
        Ok(Self { _queue: queue })
    }
}

impl Drop for ModuleQueue {
    fn drop(&mut self) {
        // It is dropped when no device is bound and no file open, so only work that has been queued
        // knows of it, and is waited for when the field is dropped.
        MODULE.store(ptr::null_mut(), Release);
    }
}

/// The module's own queue; none before it is made, and after it was dropped.
pub(crate) fn module() -> Option<&'static Queue> {
    let queue = MODULE.load(Acquire);
    // SAFETY: Whoever asks belongs to a bound device or an open file, or is work of the queue: all of
    // these end before a `ModuleQueue` is dropped, which is what `'static` stands for.
    (!queue.is_null()).then(|| unsafe { Queue::from_raw(queue) })
}

/// Waits until `work` is neither queued nor running.
///
/// Whoever makes sure that nobody queues it any more can then let go of what it uses, and of the
/// module.
pub(crate) fn flush<T: ?Sized, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The work item is initialized, and lives as long as the reference.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// As [`flush`], without waiting for its time.
pub(crate) fn flush_delayed<T: ?Sized, const ID: u64>(work: &DelayedWork<T, ID>) {
    // SAFETY: As in `flush`. A `DelayedWork` is the `work` field of a `struct delayed_work`.
    unsafe {
        let work = Work::raw_get(DelayedWork::raw_as_work(work));
        bindings::flush_delayed_work(kernel::container_of!(work, bindings::delayed_work, work));
    }
}
