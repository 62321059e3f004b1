// SPDX-License-Identifier: GPL-2.0

//! Deferred work of a space: revalidation and shrinking. The memory manager requests both in
//! contexts that hold locks and must not sleep.
//!
//! Each space has a work item, in a queue of the device that runs a few at a time. A revalidation
//! waits for the process whose memory it checks, within a limit.

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
    workqueue::WorkItem, //
};

use crate::kernel_ext::workqueue::{
    flush,
    OwnQueue, //
};

use super::{
    space::Space,
    subscription::Revalidator, //
};

/// The deferred work of one space.
#[pin_data]
pub(super) struct DeferredWork {
    /// True if addresses were invalidated.
    changed: Atomic<bool>,
    /// Number of pages that the cache has to release.
    to_shrink: Atomic<usize>,
    /// The queue of the work item.
    queue: Arc<OwnQueue>,
    /// True if the space has no user any more, so that a revalidation stops waiting.
    #[pin]
    left: Mutex<bool>,
    #[pin]
    leaving: CondVar,
    /// The space, while the work item may be queued.
    #[pin]
    space: SpinLock<Option<Arc<Space>>>,
}

impl DeferredWork {
    pub(super) fn new(queue: Arc<OwnQueue>) -> impl PinInit<Self> {
        pin_init!(Self {
            queue,
            left <- new_mutex!(false, "uldma::DeferredWork::left"),
            leaving <- new_condvar!("uldma::DeferredWork::leaving"),
            changed: Atomic::new(false),
            to_shrink: Atomic::new(0),
            space <- new_spinlock!(None, "uldma::DeferredWork::space"),
        })
    }

    fn queue(&self) {
        if let Some(space) = &*self.space.lock() {
            // If it is queued already, it has not begun yet.
            let _ = self.queue.enqueue(space.clone());
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

    /// Requests the cache to release `pages` pages.
    pub(super) fn request_shrink(&self, pages: usize) {
        self.to_shrink.store(pages, Relaxed);
        self.queue();
    }
}

impl Revalidator for DeferredWork {
    fn request(&self) {
        self.changed.store(true, Relaxed);
        self.queue();
    }
}

impl Space {
    /// Allows the work item to be queued, until [`Space::stop_work`].
    pub(super) fn start_work(self: &Arc<Self>) {
        *self.deferred_work.space.lock() = Some(self.clone());
    }

    /// Forbids the work item to be queued, and waits until it is idle.
    pub(super) fn stop_work(&self) {
        let space = self.deferred_work.space.lock().take();
        *self.deferred_work.left.lock() = true;
        self.deferred_work.leaving.notify_all();
        flush(&self.work);
        drop(space);
    }
}

impl WorkItem for Space {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.deferred_work.changed.xchg(false, Relaxed) {
            this.revalidate();
        }
        this.shrink(this.deferred_work.to_shrink.xchg(0, Relaxed));
    }
}
