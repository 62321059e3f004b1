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
    hw::{
        Consumer,
        SegmentDoorbells, //
    },
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

    /// Records doorbells of segments, which are masked until they have been forwarded. Does not sleep.
    pub(crate) fn segments_rung(self: &Arc<Self>, rung: SegmentDoorbells) {
        let mut noted = self.segment_bits.load(Relaxed);
        while let Err(other) = self.segment_bits.cmpxchg(noted, noted | rung.bits(), Full) {
            noted = other;
        }
        // Without any, too: the last pass may have ended just before they were masked.
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
        // Those that rang meanwhile interrupt now.
        ops.unmask(Consumer::Segments);
    }
}
