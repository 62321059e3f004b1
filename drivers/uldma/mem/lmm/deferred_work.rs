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
    subscription::Wake, //
};

/// What there is to do for a space.
#[pin_data]
pub(super) struct Attention {
    /// Whether anything may have changed.
    changed: Atomic<bool>,
    /// Pages that the cache is to give up.
    unwanted: Atomic<usize>,
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

impl Attention {
    pub(super) fn new(queue: Arc<OwnQueue>) -> impl PinInit<Self> {
        pin_init!(Self {
            queue,
            left <- new_mutex!(false, "uldma::Attention::left"),
            leaving <- new_condvar!("uldma::Attention::leaving"),
            changed: Atomic::new(false),
            unwanted: Atomic::new(0),
            space <- new_spinlock!(None, "uldma::Attention::space"),
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
    pub(super) fn give_up(&self, pages: usize) {
        self.unwanted.store(pages, Relaxed);
        self.queue();
    }
}

impl Wake for Attention {
    fn wake(&self) {
        self.changed.store(true, Relaxed);
        self.queue();
    }
}

impl Space {
    /// Lets this space be worked for, until [`Space::stop_work`].
    pub(super) fn start_work(self: &Arc<Self>) {
        *self.attention.space.lock() = Some(self.clone());
    }

    /// Waits until nothing is done for this space any more.
    pub(super) fn stop_work(&self) {
        let space = self.attention.space.lock().take();
        *self.attention.left.lock() = true;
        self.attention.leaving.notify_all();
        flush(&self.work);
        drop(space);
    }
}

impl WorkItem for Space {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.attention.changed.xchg(false, Relaxed) {
            this.look();
        }
        this.shrink(this.attention.unwanted.xchg(0, Relaxed));
    }
}
