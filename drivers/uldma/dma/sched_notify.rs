// SPDX-License-Identifier: GPL-2.0

//! Telling the device which context runs on which CPU.
//!
//! Some initiation methods rest on it: arguments that different processes pass never combine, since
//! each context switch says so. The papers changed the kernel's context switch for that; here it
//! is asked to tell.
//!
//! Nothing is told while no context needs it.

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
    hw::Hardware,
    kernel_ext::{
        errno::eopnotsupp,
        gate::Gate,
        sched_switch::{
            possible_cpus,
            Registration,
            Switched, //
        }, //
    }, //
};

/// Address spaces that can have a context that the device is told of; each switch looks at all.
const SPACES: usize = 16;

/// Whose context is which.
struct Entry {
    /// Address of the `mm_struct`; 0 for none.
    mm: Atomic<usize>,
    context: Atomic<u32>,
}

impl Entry {
    const fn none() -> Self {
        Self {
            mm: Atomic::new(0),
            context: Atomic::new(0),
        }
    }
}

/// What context switches look at.
struct Table {
    gate: Arc<Gate>,
    hw: Arc<dyn Hardware>,
    entries: [Entry; SPACES],
    /// What the device was told of each CPU last.
    reported: KVec<Atomic<u32>>,
}

impl Table {
    fn context(&self, mm: usize) -> Option<u32> {
        let mut entries = self.entries.iter().filter(|_| mm != 0);
        let entry = entries.find(|entry| entry.mm.load(Acquire) == mm)?;
        Some(entry.context.load(Relaxed))
    }
}

impl Switched for Table {
    fn switched(&self, cpu: u32, mm: usize) {
        let place = usize::try_from(cpu).ok();
        let Some(reported) = place.and_then(|cpu| self.reported.get(cpu)) else {
            return;
        };
        let context = self.context(mm);
        // Only this CPU changes its entry. A context that goes on is told of again: whoever shares
        // it may have been in the middle of passing arguments.
        if context.is_none() && reported.load(Relaxed) == 0 {
            return;
        }
        if let Some(guard) = self.gate.enter() {
            reported.store(context.unwrap_or(0), Relaxed);
            // A device that does not take it has left the bus.
            let _ = self.hw.sched_notify(guard.dev(), cpu, context);
        }
    }
}

struct State {
    users: usize,
    registration: Option<Registration<Table>>,
}

/// The contexts of one device that it is told of.
#[pin_data]
pub(crate) struct SchedNotify {
    table: Arc<Table>,
    #[pin]
    state: Mutex<State>,
}

impl SchedNotify {
    /// Creates an empty table.
    pub(crate) fn new(gate: Arc<Gate>, hw: Arc<dyn Hardware>) -> Result<impl PinInit<Self>> {
        let cpus = hw.geometry().cpus.min(possible_cpus());
        let mut reported = KVec::with_capacity(usize::try_from(cpus)?, GFP_KERNEL)?;
        for _ in 0..cpus {
            reported.push(Atomic::new(0), GFP_KERNEL)?;
        }
        let table = Table {
            gate,
            hw,
            entries: [const { Entry::none() }; SPACES],
            reported,
        };
        let state = State {
            users: 0,
            registration: None,
        };
        let table = Arc::new(table, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            table,
            state <- new_mutex!(state, "uldma::SchedNotify::state"),
        }))
    }

    /// Tells the device from now on, and at once, where threads of the address space at `mm` run:
    /// there `context` does. Until [`SchedNotify::remove`].
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is a context of that address space, or no room; `EOPNOTSUPP` when there
    /// are more CPUs than the device knows, or when this kernel does not tell of switches.
    pub(crate) fn add(&self, mm: usize, context: u32) -> Result {
        if possible_cpus() > self.table.hw.geometry().cpus {
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
        match &state.registration {
            Some(registration) => registration.refresh(),
            None => match Registration::new(self.table.clone()) {
                Ok(registration) => state.registration = Some(registration),
                Err(err) => {
                    entry.mm.store(0, Relaxed);
                    return Err(err);
                }
            },
        }
        state.users += 1;
        Ok(())
    }

    /// Ends what [`SchedNotify::add`] began, if it did for this address space.
    pub(crate) fn remove(&self, mm: usize) {
        let mut state = self.state.lock();
        let mut entries = self.table.entries.iter();
        let Some(entry) = entries.find(|entry| entry.mm.load(Relaxed) == mm) else {
            return;
        };
        entry.mm.store(0, Relaxed);
        if let Some(registration) = &state.registration {
            registration.refresh();
        }
        state.users -= 1;
        if state.users == 0 {
            state.registration = None;
        }
    }
}
