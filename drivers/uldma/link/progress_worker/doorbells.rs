// SPDX-License-Identifier: GPL-2.0

//! The doorbells of segments: interrupts note which rang, and a work item passes that on, at a
//! [pace](super::pace) of its own.

use kernel::{
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};

use super::{
    ProgressWorker,
    SEGMENTS, //
};
use crate::{
    hw::LINK_DOORBELL,
    kernel_ext::{
        wakeup,
        workqueue::module, //
    }, //
};

impl WorkItem<SEGMENTS> for ProgressWorker {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.forward_doorbells();
    }
}

impl ProgressWorker {
    /// Nanoseconds since the pump was made.
    fn age(&self) -> i64 {
        self.born.elapsed().as_nanos()
    }

    fn schedule_segments(self: &Arc<Self>) {
        if let Some(queue) = module() {
            // If it is queued already, it has not taken the bits yet.
            let _ = queue.enqueue::<_, SEGMENTS>(self.clone());
        }
    }

    /// Doorbell `bits` of segments rang. Does not sleep; whether some were noted before that have not
    /// been passed on.
    pub(crate) fn segments_rung(self: &Arc<Self>, bits: u32) -> bool {
        let bits = bits & !LINK_DOORBELL;
        if bits == 0 {
            return false;
        }
        let mut noted = self.segment_bits.load(Relaxed);
        while let Err(other) = self.segment_bits.cmpxchg(noted, noted | bits, Full) {
            noted = other;
        }
        if noted == 0 {
            self.schedule_segments();
        }
        noted != 0
    }

    /// The hardware was told not to interrupt for segments, until their rings are passed on.
    pub(crate) fn segments_masked(self: &Arc<Self>) {
        self.segment_bits_masked.xchg(true, Full);
        // The bits may have been taken just before.
        self.schedule_segments();
    }

    /// Passes on what has rung, once.
    fn forward_doorbells(&self) {
        let Some(ops) = self.ops() else {
            return;
        };
        let mut pace = self.pace.lock();
        if let Some(pause) = pace.pause(self.age()) {
            fsleep(Delta::from_nanos(pause));
        }
        let bits = self.segment_bits.xchg(0, Full);
        if bits != 0 && !self.is_stopping() {
            self.passes.fetch_add(1, Relaxed);
            let began = self.age();
            ops.ring_segments(bits);
            pace.passed(began, self.age(), wakeup::cost().as_nanos());
        }
        if self.segment_bits_masked.xchg(false, Full) {
            // What has rung meanwhile interrupts now.
            ops.mask(!LINK_DOORBELL, false);
        }
    }
}
