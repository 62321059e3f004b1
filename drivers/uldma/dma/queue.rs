// SPDX-License-Identifier: GPL-2.0

//! A queue of descriptors of the kernel. Submission takes no register access while the device polls
//! the queue, and nothing in it sleeps.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*, //
};

use super::{
    descriptor,
    method::Method, //
};
use crate::{
    hw::{
        ContextSetup,
        Hw, //
    },
    kernel_ext::{
        bh_lock::{
            new_bh_lock,
            BhLock, //
        },
        dma::{
            self,
            SharedPage, //
        },
        window, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    },
    user_abi::status_page::{
        Outcome,
        StatusPage, //
    }, //
};

mod commands;
mod measure;
mod tickets;

use tickets::Tickets;

/// What the device uses while a queue is enabled.
struct Enabled<M> {
    status_page: DmaAddress,
    descriptors: DmaAddress,
    memory: M,
}

struct State<T, M> {
    tickets: Tickets<T>,
    /// None before the queue is enabled, and after it was torn down.
    enabled: Option<Enabled<M>>,
}

/// A queue of the kernel. `T` is what the queue keeps until a command has ended: its waiter, or memory
/// that the device uses. `M` is memory to which descriptors of the queue refer.
#[pin_data]
pub(crate) struct Queue<T, M = ()> {
    context: u32,
    page: StatusPage,
    descriptors: SharedPage,
    #[pin]
    state: BhLock<State<T, M>>,
}

impl<T: Unpin, M: Unpin> Queue<T, M> {
    /// Creates the queue of `context`, which works after [`Queue::enable_with`].
    pub(crate) fn new(context: u32) -> Result<impl PinInit<Self>> {
        let page = StatusPage::new()?;
        let descriptors = SharedPage::new()?;
        let state = State {
            tickets: Tickets::new()?,
            enabled: None,
        };
        Ok(pin_init!(Self {
            context,
            page,
            descriptors,
            state <- new_bh_lock!(state, "uldma::Queue::state"),
        }))
    }

    /// Enables the context of the queue, whose descriptors may refer to `memory`.
    pub(super) fn enable_with(&self, hw: Hw<'_>, memory: M) -> Result {
        let status_page = self.page.map(hw.dev())?;
        let descriptors = self
            .descriptors
            .map(hw.dev())
            .inspect_err(|_| dma::unmap(hw.dev(), status_page))?;
        self.state.lock().enabled = Some(Enabled {
            status_page,
            descriptors,
            memory,
        });
        let setup = ContextSetup {
            status_page,
            queue: descriptors,
            methods: Method::QUEUE.bit(),
            privileged: true,
            ..ContextSetup::default()
        };
        hw.enable_context(self.context, &setup)
    }

    /// Frees what the device uses, which does no DMA any more, and passes what is kept for commands to
    /// `end`.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>, mut end: impl FnMut(T)) {
        let enabled = self.state.lock().enabled.take();
        if let Some(enabled) = enabled {
            dma::unmap(dev, enabled.status_page);
            dma::unmap(dev, enabled.descriptors);
        }
        self.reap_to(u64::MAX, |kept, _| end(kept));
    }

    /// Submits the descriptor that `describe` makes for a ticket, and takes what is to be kept until it
    /// has ended. Returns the ticket. If a caller awaits its outcome, that has to be [taken](Queue::take)
    /// or [abandoned](Queue::abandon).
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, `ENODEV` if it is not enabled, and errors of `describe`. Nothing was
    /// taken then, and the device has not seen the command.
    pub(super) fn submit_with(
        &self,
        hw: Hw<'_>,
        kept: &mut Option<T>,
        is_awaited: bool,
        describe: impl FnOnce(&M, u64, Option<&T>) -> Result<uldma_descriptor>,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let State { tickets, enabled } = &mut *state;
        let Enabled { memory, .. } = enabled.as_ref().ok_or(ENODEV)?;
        tickets.reap_awaited(self.page.completed(), |ticket| self.outcome(ticket));
        let ticket = tickets.next().ok_or(EBUSY)?;
        descriptor::write(&self.descriptors, &describe(memory, ticket, kept.as_ref())?)?;
        tickets.submit(kept.take(), is_awaited);
        window::full_fence();
        if self.page.is_asleep() {
            // The only error is a device that has left the bus, and its removal ends the ticket.
            let _ = hw.wake_context(self.context);
        }
        Ok(ticket)
    }

    /// Returns the outcome of a command that has completed.
    fn outcome(&self, ticket: u64) -> Outcome {
        const WITHOUT_RECORD: Outcome = Outcome {
            bytes: 0,
            status: uapi::ULDMA_DMA_ABORTED,
        };
        self.page.record(ticket).unwrap_or(WITHOUT_RECORD)
    }

    /// Passes what is kept for completed commands to `end`, in order and without the lock of the queue.
    /// Returns true if any completed.
    pub(crate) fn reap(&self, end: impl FnMut(T, Outcome)) -> bool {
        self.reap_to(self.page.completed(), end)
    }

    fn reap_to(&self, completed: u64, mut end: impl FnMut(T, Outcome)) -> bool {
        let next = || {
            let mut state = self.state.lock();
            state.tickets.reap(completed, |ticket| self.outcome(ticket))
        };
        let mut any = false;
        while let Some((kept, outcome)) = next() {
            any = true;
            if let Some(kept) = kept {
                end(kept, outcome);
            }
        }
        any
    }

    /// Takes the outcome of a command that the caller awaits; none before it has completed.
    pub(super) fn take(&self, ticket: u64) -> Option<Outcome> {
        let completed = self.page.completed();
        let outcome_of = |ticket| self.outcome(ticket);
        let tickets = &mut self.state.lock().tickets;
        tickets.reap_awaited(completed, outcome_of);
        tickets.take(ticket, completed, outcome_of)
    }

    /// Has nothing await the outcome of a command any more.
    pub(super) fn abandon(&self, ticket: u64) {
        self.state.lock().tickets.abandon(ticket);
    }

    /// Returns true if completed commands have not been reaped.
    pub(crate) fn has_ended(&self) -> bool {
        let completed = self.page.completed();
        self.state.lock().tickets.has_ended(completed)
    }

    /// Returns true if commands are in flight or not reaped.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().tickets.is_busy()
    }

    /// Returns the ticket of the command that was submitted last.
    pub(crate) fn submitted(&self) -> u64 {
        self.state.lock().tickets.submitted()
    }

    /// Returns the ticket of the command that the device has read last.
    pub(crate) fn last_read(&self, hw: Hw<'_>) -> Result<u64> {
        hw.last_ticket(self.context)
    }

    /// Returns the ticket of the command that has completed last.
    pub(crate) fn completed(&self) -> u64 {
        self.page.completed()
    }
}
