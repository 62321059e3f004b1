// SPDX-License-Identifier: GPL-2.0

//! Transfers that the kernel starts for open files, without a context of theirs.
//!
//! All use the kernel's context. Completion records are copied as transfers end, so that transfers
//! of one open file do not overwrite results of another.

use kernel::{
    new_condvar,
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
        CondVar,
        Mutex,
        UniqueArc, //
    }, //
};

use crate::{
    hw::{
        layout,
        Hw,
        RegionOffset, //
    },
    kernel_ext::ratelimit::dev_err_ratelimited,
    uapi,
    user_abi::{
        events::Events,
        ledger::Share,
        status_page::{
            Outcome,
            StatusPage, //
        }, //
    }, //
};

/// The kernel's context.
pub(crate) const CONTEXT: u32 = 0;

/// Status of a transfer that has not ended.
const PENDING: u32 = u32::MAX;

/// One transfer.
pub(crate) struct Transfer {
    pub(crate) ticket: u64,
    bytes: Atomic<u64>,
    status: Atomic<u32>,
    events: Arc<Events>,
}

impl Transfer {
    /// Returns the outcome, if the transfer has ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let status = self.status.load(Acquire);
        (status != PENDING).then(|| Outcome {
            bytes: self.bytes.load(Relaxed),
            status,
        })
    }

    fn end(&self, outcome: Outcome) {
        self.bytes.store(outcome.bytes, Relaxed);
        self.status.store(outcome.status, Release);
    }
}

/// A transfer before [`Engine::start`]: what a process pays for, which may make that process sleep.
pub(crate) struct NewTransfer(UniqueArc<Transfer>);

impl NewTransfer {
    /// Allocates a transfer, the end of which `events` are notified of.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn allocate(events: &Arc<Events>) -> Result<Self> {
        let transfer = Transfer {
            ticket: 0,
            bytes: Atomic::new(0),
            status: Atomic::new(PENDING),
            events: events.clone(),
        };
        Ok(Self(UniqueArc::new(transfer, GFP_KERNEL_ACCOUNT)?))
    }
}

/// A transfer that has not ended, and its place in the share of its user.
struct Pending {
    transfer: Arc<Transfer>,
    _share: Share,
}

struct EngineState {
    /// Transfers that have not ended, by ticket modulo the queue's depth.
    pending: [Option<Pending>; layout::QUEUE_DEPTH],
    /// Last reaped ticket.
    ended: u64,
    /// Last issued ticket.
    started: u64,
}

/// The kernel's context of one device.
#[pin_data]
pub(crate) struct Engine {
    status_page: Arc<StatusPage>,
    #[pin]
    state: Mutex<EngineState>,
    /// Notified, under no lock, when transfers have ended.
    #[pin]
    changed: CondVar,
}

fn slot(ticket: u64) -> usize {
    // The remainder is less than the depth, which is a usize.
    (ticket % layout::QUEUE_DEPTH as u64) as usize
}

impl Engine {
    /// Creates an engine whose completions the device writes to `status_page`.
    pub(crate) fn new(status_page: Arc<StatusPage>) -> impl PinInit<Self> {
        let state = EngineState {
            pending: [const { None }; layout::QUEUE_DEPTH],
            ended: 0,
            started: 0,
        };
        pin_init!(Self {
            status_page,
            state <- new_mutex!(state, "uldma::Engine::state"),
            changed <- new_condvar!("uldma::Engine::changed"),
        })
    }

    /// Starts `new`, a transfer of a number of bytes from a source to a destination. `share` is
    /// returned when it has ended.
    ///
    /// The caller must keep both regions registered until this returns, and [`Engine::poll`] before.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full; `EACCES`, `EINVAL`, `ENOENT`, `ENOTCONN`, `ENODEV` or
    /// `EIO` if the device refuses the transfer; `EIO` if it issues a wrong ticket; `EOPNOTSUPP`
    /// without an engine.
    pub(crate) fn start(
        &self,
        hw: Hw<'_>,
        (src, dst, length): (RegionOffset, RegionOffset, u64),
        share: Share,
        NewTransfer(mut transfer): NewTransfer,
    ) -> Result<Arc<Transfer>> {
        let mut state = self.state.lock();
        let expected = state.started + 1;
        let place = state.pending.get(slot(expected)).ok_or(EBUSY)?;
        if place.is_some() {
            return Err(EBUSY);
        }
        transfer.ticket = expected;
        let transfer: Arc<Transfer> = transfer.into();
        let ticket = hw.start(src, dst, length)?;
        if ticket != expected {
            dev_err_ratelimited!(
                Ticket,
                hw.dev(),
                "adapter issued ticket {ticket} instead of {expected}\n"
            );
            return Err(EIO);
        }
        state.started = ticket;
        if let Some(place) = state.pending.get_mut(slot(ticket)) {
            *place = Some(Pending {
                transfer: transfer.clone(),
                _share: share,
            });
        }
        Ok(transfer)
    }

    /// Reaps transfers, and wakes their waiters.
    pub(crate) fn poll(&self) {
        let progress = {
            let mut state = self.state.lock();
            self.reap(&mut state)
        };
        if progress {
            self.changed.notify_all();
        }
    }

    fn reap(&self, state: &mut EngineState) -> bool {
        // A device that reports wrong tickets cannot end transfers that were not started.
        let completed = self.status_page.completed().min(state.started);
        let progress = state.ended < completed;
        while state.ended < completed {
            state.ended += 1;
            let place = state.pending.get_mut(slot(state.ended));
            let Some(Pending { transfer, .. }) = place.and_then(Option::take) else {
                continue;
            };
            let record = self.status_page.record(transfer.ticket);
            transfer.end(record.unwrap_or(Outcome {
                bytes: 0,
                status: uapi::ULDMA_DMA_ABORTED,
            }));
            transfer.events.transfer_ended();
        }
        progress
    }

    /// Waits until `transfer` has ended, for at most `timeout_ns`.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`.
    pub(crate) fn wait(&self, transfer: &Transfer, timeout_ns: u64) -> Result<Outcome> {
        self.poll();
        crate::kernel_ext::wait::until(&self.changed, &self.state, timeout_ns, |_| {
            transfer.outcome()
        })
    }

    /// Aborts all transfers, since the device is unbound.
    pub(crate) fn abort(&self) {
        let mut state = self.state.lock();
        self.reap(&mut state);
        for place in &mut state.pending {
            if let Some(Pending { transfer, .. }) = place.take() {
                transfer.end(Outcome {
                    bytes: 0,
                    status: uapi::ULDMA_DMA_ABORTED,
                });
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}
