// SPDX-License-Identifier: GPL-2.0

//! A lock whose waiters have a timeout and can be killed, as page faults need it; `Mutex` has neither.

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
    fn uldma_timed_lock(
        queue: *mut bindings::wait_queue_head,
        held: *mut u32,
        timeout: c_ulong,
        state: c_uint,
    ) -> c_long;
    fn uldma_timed_unlock(queue: *mut bindings::wait_queue_head, held: *mut u32);
}

/// A lock that protects no data. Its end wakes one waiter, however many there are.
#[pin_data]
pub(crate) struct TimedLock {
    #[pin]
    queue: Opaque<bindings::wait_queue_head>,
    /// 1 while the lock is held. Accessed by the functions above only.
    held: Opaque<u32>,
}

// SAFETY: A wait queue belongs to no thread, and the rest is plain data.
unsafe impl Send for TimedLock {}
// SAFETY: The functions above lock the queue, and access the rest atomically.
unsafe impl Sync for TimedLock {}

/// A lock that is held until this is dropped.
pub(crate) struct Held<'a>(&'a TimedLock);

impl TimedLock {
    /// Creates a lock that is not held.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            queue <- Opaque::ffi_init(|slot: *mut bindings::wait_queue_head| {
                // SAFETY: `slot` is memory for a wait queue that is pinned from now on.
                unsafe { uldma_waitqueue_init(slot) }
            }),
            held: Opaque::new(0),
        })
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` after `timeout`; as [`wait::until`](super::wait::until) if a signal ends the wait.
    pub(crate) fn lock(&self, timeout: Delta, signals: EndedBy) -> Result<Held<'_>> {
        let ms = u32::try_from(timeout.as_millis()).unwrap_or(0);
        let jiffies = msecs_to_jiffies(ms.max(1));
        // SAFETY: Queue and word are alive and initialized, and the caller may sleep.
        let left = unsafe {
            uldma_timed_lock(self.queue.get(), self.held.get(), jiffies, signals.state())
        };
        match left {
            0 => Err(ETIMEDOUT),
            1.. => Ok(Held(self)),
            _ => Err(ERESTARTNOHAND),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: Queue and word are alive and initialized, and `lock` took the lock.
        unsafe { uldma_timed_unlock(self.0.queue.get(), self.0.held.get()) }
    }
}

#[kunit_tests(uldma_timed_lock)]
mod tests {
    use kernel::sync::Arc;

    use super::*;

    #[test]
    fn one_has_it_at_a_time() -> Result {
        let lock = Arc::pin_init(TimedLock::new(), GFP_KERNEL)?;
        let held = lock.lock(Delta::from_millis(1), EndedBy::Death)?;
        for signals in [EndedBy::Nothing, EndedBy::Death, EndedBy::Signals] {
            let second = lock.lock(Delta::from_millis(1), signals);
            assert_eq!(second.err(), Some(ETIMEDOUT));
        }
        drop(held);
        let again = lock.lock(Delta::ZERO, EndedBy::Signals)?;
        drop(again);
        Ok(())
    }
}
