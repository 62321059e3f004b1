// SPDX-License-Identifier: GPL-2.0

//! Notifies the device of context switches: which context runs on which CPU.
//!
//! Some initiation methods depend on it, so that arguments which different processes pass are never
//! combined. The papers modified the context switch of the kernel for that; this driver uses the
//! `sched_switch` tracepoint.
//!
//! A probe of the tracepoint changes the text of the scheduler, for which every CPU is interrupted several
//! times, and its end waits for a grace period. So that no process can repeat that, the probe that the first
//! such context registers stays until the driver is unbound.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    hw::gate::Gate,
    kernel_ext::{
        errno::eopnotsupp,
        sched_switch::{
            possible_cpus,
            Registration,
            Switched, //
        }, //
    }, //
};

/// Maximum number of address spaces with such a context; each switch checks all.
const SPACES: usize = 16;

/// The context of an address space.
struct SpaceContext {
    /// Address of the `mm_struct`; 0 for none.
    mm: Atomic<usize>,
    context: Atomic<u32>,
}

impl SpaceContext {
    const fn none() -> Self {
        Self {
            mm: Atomic::new(0),
            context: Atomic::new(0),
        }
    }
}

/// The table that context switches read.
struct RunningContexts {
    gate: Arc<Gate>,
    /// The number of processors that the device knows.
    cpus: u32,
    entries: [SpaceContext; SPACES],
    /// The last context that the device was notified of, per CPU.
    reported: KVec<Atomic<u32>>,
}

impl RunningContexts {
    fn context(&self, mm: usize) -> Option<u32> {
        let mut entries = self.entries.iter().filter(|_| mm != 0);
        let entry = entries.find(|entry| entry.mm.load(Acquire) == mm)?;
        Some(entry.context.load(Relaxed))
    }
}

impl Switched for RunningContexts {
    fn switched(&self, cpu: u32, mm: usize) {
        let place = usize::try_from(cpu).ok();
        let Some(reported) = place.and_then(|cpu| self.reported.get(cpu)) else {
            return;
        };
        let context = self.context(mm);
        // Only this CPU changes its entry. A context that continues is reported again, since
        // another thread that shares it may have been passing arguments.
        if context.is_none() && reported.load(Relaxed) == 0 {
            return;
        }
        if let Some(guard) = self.gate.enter() {
            reported.store(context.unwrap_or(0), Relaxed);
            // The only error is a device that has left the bus.
            let _ = guard.hw().sched_notify(cpu, context);
        }
    }
}

/// The contexts of a device that need notification.
#[pin_data]
pub(crate) struct SchedNotify {
    table: Arc<RunningContexts>,
    /// The probe, from the first context on that needed it.
    #[pin]
    state: Mutex<Option<Registration<RunningContexts>>>,
}

impl SchedNotify {
    /// Creates an empty table.
    pub(crate) fn new(gate: Arc<Gate>, cpus: u32) -> Result<impl PinInit<Self>> {
        let known = cpus.min(possible_cpus());
        let mut reported = KVec::with_capacity(usize::try_from(known)?, GFP_KERNEL)?;
        for _ in 0..known {
            reported.push(Atomic::new(0), GFP_KERNEL)?;
        }
        let table = RunningContexts {
            gate,
            cpus,
            entries: [const { SpaceContext::none() }; SPACES],
            reported,
        };
        let table = Arc::new(table, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            table,
            state <- new_mutex!(None, "uldma::SchedNotify::state"),
        }))
    }

    /// Notifies the device from now on where threads of the address space at `mm`, which use
    /// `context`, run. Ends with [`SchedNotify::remove`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if the address space has such a context already, or the table is full; `EOPNOTSUPP`
    /// if there are more CPUs than the device supports, or the kernel has no such tracepoint;
    /// `ENOMEM`.
    pub(crate) fn add(&self, mm: usize, context: u32) -> Result {
        if possible_cpus() > self.table.cpus {
            return Err(eopnotsupp());
        }
        let mut state = self.state.lock();
        if self.table.context(mm).is_some() {
            return Err(EBUSY);
        }
        let mut entries = self.table.entries.iter();
        let entry = entries.find(|entry| entry.mm.load(Relaxed) == 0);
        let entry = entry.ok_or(EBUSY)?;
        entry.context.store(context, Relaxed);
        entry.mm.store(mm, Release);
        if let Some(registration) = &*state {
            registration.refresh();
            return Ok(());
        }
        match Registration::new(self.table.clone()) {
            Ok(registration) => *state = Some(registration),
            Err(err) => {
                entry.mm.store(0, Relaxed);
                return Err(err);
            }
        }
        Ok(())
    }

    /// Ends the notifications for an address space, if there are any.
    pub(crate) fn remove(&self, mm: usize) {
        let state = self.state.lock();
        let mut entries = self.table.entries.iter();
        let Some(entry) = entries.find(|entry| entry.mm.load(Relaxed) == mm) else {
            return;
        };
        entry.mm.store(0, Relaxed);
        if let Some(registration) = &*state {
            registration.refresh();
        }
    }

    /// Ends all notifications, for which this waits. The caller has closed the gate, so that no context is made.
    pub(crate) fn tear_down(&self) {
        let registration = self.state.lock().take();
        drop(registration);
    }
}
