// SPDX-License-Identifier: GPL-2.0

//! Waiting for a work item.

use kernel::{
    bindings,
    workqueue::Work, //
};

/// Waits until `work` is neither queued nor running.
///
/// Whoever makes sure that nobody queues it any more can then let go of what it uses, and of the
/// module.
pub(crate) fn flush<T: ?Sized, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The work item is initialized, and lives as long as the reference.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}
