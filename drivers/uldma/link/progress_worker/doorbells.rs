// SPDX-License-Identifier: GPL-2.0

//! Doorbells of segments. Interrupts record which rang, and a work item forwards them to programs
//! at a [pace](super::pace) of its own.

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
    hw::SegmentDoorbells,
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
    /// Returns nanoseconds since the worker was created.
    fn age(&self) -> i64 {
        self.born.elapsed().as_nanos()
    }

    pub(super) fn schedule_segments(self: &Arc<Self>) {
        if let Some(queue) = module() {
            // If it is queued already, it has not taken the bits yet.
            let _ = queue.enqueue::<_, SEGMENTS>(self.clone());
        }
    }

    /// Records doorbells of segments. Does not sleep. Returns true if earlier ones have not been
    /// forwarded yet.
    pub(crate) fn segments_rung(self: &Arc<Self>, rung: SegmentDoorbells) -> bool {
        if rung.is_empty() {
            return false;
        }
        let mut noted = self.segment_bits.load(Relaxed);
        while let Err(other) = self.segment_bits.cmpxchg(noted, noted | rung.bits(), Full) {
            noted = other;
        }
        if noted == 0 {
            self.schedule_segments();
        }
        noted != 0
    }

    /// Notes that the doorbells of segments are masked until they are forwarded.
    pub(crate) fn segments_masked(self: &Arc<Self>) {
        self.segment_bits_masked.xchg(true, Full);
        // The bits may have been taken just before.
        self.schedule_segments();
    }

    /// Forwards the doorbells that rang, once.
    fn forward_doorbells(&self) {
        let Some(ops) = self.ops() else {
            return;
        };
        let mut pace = self.pace.lock();
        if let Some(pause) = pace.pause(self.age()) {
            fsleep(Delta::from_nanos(pause));
        }
        let rung = SegmentDoorbells::of_bits(self.segment_bits.xchg(0, Full));
        if !rung.is_empty() && !self.is_stopping() {
            self.passes.fetch_add(1, Relaxed);
            let began = self.age();
            ops.ring_segments(rung);
            pace.passed(began, self.age(), wakeup::cost().as_nanos());
        }
        if self.segment_bits_masked.xchg(false, Full) {
            // Doorbells that rang meanwhile interrupt now.
            ops.mask(SegmentDoorbells::ALL.into(), false);
        }
    }
}
