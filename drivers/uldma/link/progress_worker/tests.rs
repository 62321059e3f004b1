// SPDX-License-Identifier: GPL-2.0

//! Unit tests of the worker with operations that only count.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Delta, //
};

use super::{
    ProgressOps,
    ProgressWorker, //
};
use crate::{
    hw::{
        Consumer,
        SegmentDoorbells, //
    },
    kernel_ext::workqueue::{
        flush,
        module, //
    }, //
};

/// A device without peers.
struct Counting {
    /// Commands are in flight.
    busy: Atomic<bool>,
    /// Number of times that peers were told that they need not ring.
    awoke: Atomic<u32>,
    /// Number of times that the doorbell was unmasked.
    unmasked: Atomic<u32>,
}

impl ProgressOps for Counting {
    fn poll_once(&self, _ask_hw: bool) -> bool {
        false
    }

    fn has_work(&self) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }

    fn set_asleep(&self, asleep: bool) -> bool {
        if !asleep {
            self.awoke.fetch_add(1, Relaxed);
        }
        false
    }

    fn rung(&self) {}

    fn has_rung(&self) -> bool {
        false
    }

    fn doorbell_cost(&self) -> Delta {
        Delta::ZERO
    }

    fn completion_cost(&self) -> Delta {
        Delta::ZERO
    }

    fn heartbeat(&self) {}

    fn release(&self) {}

    fn ring_segments(&self, _rung: SegmentDoorbells) {}

    fn unmask(&self, consumer: Consumer) {
        if consumer == Consumer::Link {
            self.unmasked.fetch_add(1, Relaxed);
        }
    }
}

/// A worker that runs, and has fallen asleep.
fn asleep() -> Result<(Arc<ProgressWorker>, Arc<Counting>)> {
    // Without the queue no work item runs, and the tests would show nothing.
    module().ok_or(ENODEV)?;
    let worker = ProgressWorker::new()?;
    let counting = Counting {
        busy: Atomic::new(false),
        awoke: Atomic::new(0),
        unmasked: Atomic::new(0),
    };
    let ops = Arc::new(counting, GFP_KERNEL)?;
    worker.start(ops.clone());
    flush(&worker.work);
    Ok((worker, ops))
}

#[kunit_tests(uldma_progress_worker)]
mod tests {
    use super::*;

    /// A program that polled in vain does not have the work item poll once more.
    #[test]
    fn a_node_that_fell_asleep_sleeps_until_something_comes() -> Result {
        let (worker, ops) = asleep()?;
        ops.busy.store(true, Relaxed);
        // Of a command that was submitted; the timer is armed, since it does not interrupt.
        worker.kick();
        assert!(worker.timer_armed.load(Relaxed));
        assert!(!worker.poll_until(Delta::ZERO, || false));
        let before = ops.awoke.load(Relaxed);
        worker.poll_now();
        flush(&worker.work);
        assert_eq!(ops.awoke.load(Relaxed), before);
        worker.stop();
        Ok(())
    }

    /// A program that is about to sleep has the work item look after the command.
    #[test]
    fn a_command_that_does_not_interrupt_is_looked_after() -> Result {
        let (worker, ops) = asleep()?;
        ops.busy.store(true, Relaxed);
        worker.kick();
        let before = ops.awoke.load(Relaxed);
        worker.poll_now();
        flush(&worker.work);
        assert!(ops.awoke.load(Relaxed) > before);
        worker.stop();
        Ok(())
    }

    /// Each doorbell is followed by one unmasking, whether the work item or a caller finds it.
    #[test]
    fn a_doorbell_is_unmasked_by_what_answers_it() -> Result {
        let (worker, ops) = asleep()?;
        worker.rung();
        flush(&worker.work);
        assert_eq!(ops.unmasked.load(Relaxed), 1);
        {
            let _running = worker.running.lock();
            worker.rung();
            flush(&worker.work);
            assert_eq!(ops.unmasked.load(Relaxed), 1);
        }
        worker.kick();
        assert_eq!(ops.unmasked.load(Relaxed), 2);
        worker.kick();
        assert_eq!(ops.unmasked.load(Relaxed), 2);
        worker.stop();
        Ok(())
    }
}
