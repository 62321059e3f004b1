// SPDX-License-Identifier: GPL-2.0

//! Deferred work of a space: revalidation, which the memory manager requests in contexts that hold locks
//! and must not sleep.
//!
//! Each space has a work item. A revalidation waits for the process whose memory it checks: for its
//! file locks within a limit, and for its `mmap_lock` and its changes as long as these take. So all
//! work items can wait at a time, and nothing waits for one of them.

use kernel::{
    new_condvar,
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    },
    time::Jiffies,
    workqueue::{
        HasWork,
        WorkItem, //
    }, //
};

use crate::kernel_ext::workqueue;

use super::subscription::Revalidator;

/// The deferred work of one space, which is a `W`.
#[pin_data]
pub(super) struct DeferredWork<W> {
    /// True if addresses were invalidated.
    changed: Atomic<bool>,
    /// True if the space has no user any more, so that a revalidation stops waiting.
    #[pin]
    left: Mutex<bool>,
    #[pin]
    leaving: CondVar,
    /// The space, while the work item may be queued.
    #[pin]
    space: SpinLock<Option<Arc<W>>>,
}

impl<W> DeferredWork<W>
where
    W: WorkItem<Pointer = Arc<W>> + HasWork<W> + Send + Sync + 'static,
{
    /// Creates deferred work that is not started.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            left <- new_mutex!(false, "uldma::DeferredWork::left"),
            leaving <- new_condvar!("uldma::DeferredWork::leaving"),
            changed: Atomic::new(false),
            space <- new_spinlock!(None, "uldma::DeferredWork::space"),
        })
    }

    /// Allows `space` to be queued, until [`DeferredWork::stop`].
    pub(super) fn start(&self, space: Arc<W>) {
        *self.space.lock() = Some(space);
    }

    /// Forbids the space to be queued, and ends the waiting of a revalidation. Returns the space.
    pub(super) fn stop(&self) -> Option<Arc<W>> {
        let space = self.space.lock().take();
        *self.left.lock() = true;
        self.leaving.notify_all();
        space
    }

    fn queue(&self) {
        if let (Some(queue), Some(space)) = (workqueue::waiting(), &*self.space.lock()) {
            // If it is queued already, it has not begun yet.
            let _ = queue.enqueue(space.clone());
        }
    }

    /// Sleeps for `time`, or until the space has no user any more. Returns true if it still has
    /// one.
    pub(super) fn sleep(&self, time: Jiffies) -> bool {
        let mut left = self.left.lock();
        if !*left {
            // The worker gets no signals, and an early wake-up does no harm.
            let _ = self.leaving.wait_interruptible_timeout(&mut left, time);
        }
        !*left
    }

    /// Returns true if addresses were invalidated since the last call.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.xchg(false, Relaxed)
    }
}

impl<W> Revalidator for DeferredWork<W>
where
    W: WorkItem<Pointer = Arc<W>> + HasWork<W> + Send + Sync + 'static,
{
    fn request(&self) {
        self.changed.store(true, Relaxed);
        self.queue();
    }
}
