// SPDX-License-Identifier: GPL-2.0

//! Unit tests of the worker with operations that only count.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
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
    kernel_ext::{
        noio::is_without_io,
        wait,
        workqueue::{
            flush,
            progress, //
        }, //
    }, //
};

/// Heartbeats that are waited for, and the time for that.
const BEATS: u32 = 3;
const LIMIT_NS: u64 = 10_000_000_000;

/// A device without peers.
#[pin_data]
struct Counting {
    /// Commands are in flight.
    busy: Atomic<bool>,
    /// Number of times that peers were told that they need not ring.
    awoke: Atomic<u32>,
    /// Number of times that the doorbell was unmasked.
    unmasked: Atomic<u32>,
    /// A round allowed allocations to do I/O.
    has_io: Atomic<bool>,
    /// The tick waits for heartbeats.
    is_slow: Atomic<bool>,
    /// Heartbeats while a tick waits for them, and whether one has had all of them.
    #[pin]
    beats: Mutex<(u32, bool)>,
    #[pin]
    changed: CondVar,
}

impl ProgressOps for Counting {
    fn poll_once(&self, _ask_hw: bool) -> bool {
        self.has_io.store(!is_without_io(), Relaxed);
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

    fn heartbeat(&self) {
        self.beats.lock().0 += 1;
        self.changed.notify_all();
    }

    fn tick(&self) {
        if self.is_slow.xchg(false, Full) {
            let mut beats = self.beats.lock();
            beats.0 = 0;
            drop(beats);
            let all = |beats: &mut (u32, bool)| (beats.0 >= BEATS).then_some(());
            let has_all = wait::until(&self.changed, &self.beats, LIMIT_NS, all).is_ok();
            self.beats.lock().1 = has_all;
            self.changed.notify_all();
        }
    }

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
    progress().ok_or(ENODEV)?;
    let worker = ProgressWorker::new()?;
    let counting = pin_init!(Counting {
        busy: Atomic::new(false),
        awoke: Atomic::new(0),
        unmasked: Atomic::new(0),
        has_io: Atomic::new(false),
        is_slow: Atomic::new(false),
        beats <- new_mutex!((0, false), "uldma::Counting::beats"),
        changed <- new_condvar!("uldma::Counting::changed"),
    });
    let ops = Arc::pin_init(counting, GFP_KERNEL)?;
    worker.start(ops.clone());
    flush(&worker.work);
    Ok((worker, ops))
}

#[kunit_tests(uldma_progress_worker)]
mod tests {
    use super::*;

    /// What I/O depends on does none, whether the work item or a caller does it.
    #[test]
    fn rounds_allocate_without_io() -> Result {
        let (worker, ops) = asleep()?;
        assert!(!ops.has_io.load(Relaxed));
        ops.has_io.store(true, Relaxed);
        worker.kick();
        assert!(!ops.has_io.load(Relaxed));
        worker.stop();
        Ok(())
    }

    /// A lock that is held for long delays no heartbeat.
    #[test]
    fn heartbeats_do_not_wait_for_the_tick() -> Result {
        let (worker, ops) = asleep()?;
        ops.is_slow.store(true, Relaxed);
        let has_all = |beats: &mut (u32, bool)| beats.1.then_some(());
        let waited = wait::until(&ops.changed, &ops.beats, 2 * LIMIT_NS, has_all);
        worker.stop();
        waited
    }

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
