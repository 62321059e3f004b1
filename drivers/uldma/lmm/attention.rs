// SPDX-License-Identifier: GPL-2.0

//! What is done for a space later, as it was asked for where it cannot be done: by the memory
//! manager, which tells of changes and asks for memory with all kinds of locks taken.
//!
//! Every space has a work item of its own, since looking at a process's memory can take as long as
//! that process likes.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    workqueue::WorkItem, //
};

use crate::kernel_ext::workqueue::{
    flush,
    system_default, //
};

use super::{
    origin::Wake,
    space::Space, //
};

/// What there is to do for a space.
#[pin_data]
pub(super) struct Attention {
    /// Whether anything may have changed.
    changed: Atomic<bool>,
    /// Pages that the cache is to give up.
    unwanted: Atomic<usize>,
    /// The space, as long as it may be worked for.
    #[pin]
    space: SpinLock<Option<Arc<Space>>>,
}

impl Attention {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            changed: Atomic::new(false),
            unwanted: Atomic::new(0),
            space <- new_spinlock!(None, "uldma::Attention::space"),
        })
    }

    fn queue(&self) {
        if let Some(space) = &*self.space.lock() {
            // If it is queued already, it has not begun yet.
            let _ = system_default().enqueue(space.clone());
        }
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
