// SPDX-License-Identifier: GPL-2.0

//! The work item of a space, which does its [deferred work](super::deferred_work).

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};

use super::space::Space;

impl Space {
    /// Allows the work item to be queued, and reclaim of memory to evict, until [`Space::stop_work`].
    pub(super) fn start_work(self: &Arc<Self>) {
        self.deferred_work.start(self.clone());
        self.reclaimable.start(self.clone());
    }

    /// Forbids both. A work item that runs may wait for the address space, and has a
    /// reference of its own.
    pub(super) fn stop_work(&self) {
        drop(self.deferred_work.stop());
        self.reclaimable.stop();
    }
}

impl WorkItem for Space {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.deferred_work.take_changed() {
            this.revalidate();
        }
    }
}
