// SPDX-License-Identifier: GPL-2.0

//! What is done for a space later, as it was asked for where it cannot be done: by the memory
//! manager, which tells of changes and asks for memory with all kinds of locks taken.
//!
//! Every space has a work item of its own, in a queue of the device's own that runs a few at a time:
//! looking at a process's memory waits for that process, within a limit.

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

/// What there is to do for a space.
#[pin_data]
pub(super) struct DeferredWork {
    /// Whether anything may have changed.
    changed: Atomic<bool>,
    /// Pages that the cache is to give up.
    to_shrink: Atomic<usize>,
    /// Where the work is done.
    queue: Arc<OwnQueue>,
    /// Whether nobody uses the space any more, so that the work is not worth waiting for.
    #[pin]
    left: Mutex<bool>,
    #[pin]
    leaving: CondVar,
    /// The space, as long as it may be worked for.
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

    /// Sleeps for `time`, or until nobody uses the space any more; whether somebody does.
    pub(super) fn sleep(&self, time: Jiffies) -> bool {
        let mut left = self.left.lock();
        if !*left {
            // The worker gets no signals, and whatever wakes it, it goes on.
            let _ = self.leaving.wait_interruptible_timeout(&mut left, time);
        }
        !*left
    }

    /// Asks for pages of the cache.
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
    /// Lets this space be worked for, until [`Space::stop_work`].
    pub(super) fn start_work(self: &Arc<Self>) {
        *self.deferred_work.space.lock() = Some(self.clone());
    }

    /// Waits until nothing is done for this space any more.
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
