// SPDX-License-Identifier: GPL-2.0

//! Work queues: the one that `kernel::workqueue` does not have yet, and waiting for a work item.

use kernel::{
    bindings,
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
