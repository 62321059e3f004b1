// SPDX-License-Identifier: GPL-2.0

//! A wait for changes that a fatal signal ends, or none, and that ends in time; the waits of
//! `kernel::sync::CondVar` are others.

use kernel::{
    bindings,
    prelude::*,
    time::{
        msecs_to_jiffies,
        Delta, //
    },
    types::Opaque, //
};

use super::wait::EndedBy;

unsafe extern "C" {
    fn uldma_waitqueue_init(queue: *mut bindings::wait_queue_head);
    fn uldma_count_up(queue: *mut bindings::wait_queue_head, count: *mut u32);
    fn uldma_count(count: *const u32) -> u32;
    fn uldma_wait_for_count(
        queue: *mut bindings::wait_queue_head,
        count: *const u32,
        seen: u32,
        timeout: c_ulong,
        state: c_uint,
    ) -> bool;
}

/// A counter of changes with a wait queue.
#[pin_data]
pub(crate) struct Changes {
    #[pin]
    queue: Opaque<bindings::wait_queue_head>,
    /// Accessed by the functions above only.
    count: Opaque<u32>,
}

// SAFETY: A wait queue belongs to no thread, and the count is plain data.
unsafe impl Send for Changes {}
// SAFETY: The functions above lock the queue, and access the count atomically.
unsafe impl Sync for Changes {}

impl Changes {
    /// Creates a counter at zero.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- Opaque::ffi_init(|slot: *mut bindings::wait_queue_head| {
                // SAFETY: `slot` is memory for a wait queue that is pinned from now on.
                unsafe { uldma_waitqueue_init(slot) }
            }),
            count: Opaque::new(0),
        })
    }

    /// Returns the number of changes.
    pub(crate) fn count(&self) -> u32 {
        // SAFETY: The count is alive and initialized.
        unsafe { uldma_count(self.count.get()) }
    }

    /// Counts a change and wakes all waiters.
    pub(crate) fn notify(&self) {
        // SAFETY: Queue and count are alive and initialized.
        unsafe { uldma_count_up(self.queue.get(), self.count.get()) }
    }

    /// Waits until there are more changes than `seen`, for at most `timeout`. Returns false if a
    /// signal ended the wait.
    pub(crate) fn wait(&self, seen: u32, timeout: Delta, signals: EndedBy) -> bool {
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(0);
        // SAFETY: Queue and count are alive and initialized, and callers may sleep.
        unsafe {
            uldma_wait_for_count(
                self.queue.get(),
                self.count.get(),
                seen,
                msecs_to_jiffies(ms.max(1)),
                signals.state(),
            )
        }
    }
}
