// SPDX-License-Identifier: GPL-2.0

//! Register contexts, and the virtual contexts that share them.
//!
//! There may be more virtual contexts than contexts. A virtual context that finds no context free
//! takes that of another one, which has had it for at least a time slice and is idle. The other one
//! is *detached*: it loses its mappings, and the next access of its process faults and attaches it
//! again. The process notices only the time that this takes, and that arguments which it had passed
//! in part are lost. It waits without `mmap_lock` and can be killed; after `context_wait_ms` the
//! access fails with SIGBUS. One thread waits for a context at a time, and the others for that thread:
//! each change wakes as many threads as there are virtual contexts that are waited for, at most.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        MutexGuard, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    dma::engine,
    hw::{
        gate::Gate,
        layout,
        ContextCounters,
        ContextSetup,
        Hw, //
    },
    kernel_ext::{
        changes::Changes,
        ratelimit::dev_warn_ratelimited,
        wait::{
            self,
            Deadline,
            EndedBy, //
        }, //
    },
    params,
    user_abi::{
        mmap_offset::MmapOffsets,
        status_page::StatusPage, //
    }, //
};

mod slot;
mod table;
mod virtual_context;

use slot::{
    Owner,
    Slot, //
};
use table::{
    Choice,
    ContextTable,
    Place, //
};
pub(crate) use virtual_context::{
    NewContext,
    VirtualContext, //
};

/// The contexts of one device.
#[pin_data]
pub(crate) struct Contexts {
    /// Taken by all users, and by the thread of the interrupts, so nothing waits under it.
    #[pin]
    state: Mutex<ContextTable>,
    /// Number of contexts in use, without the kernel's.
    used: Arc<Atomic<u32>>,
    /// Notified when a context was released or may be idle.
    #[pin]
    changes: Changes,
}

impl Contexts {
    /// Creates `count` free contexts.
    pub(crate) fn new(count: u32) -> Result<impl PinInit<Self>> {
        let used = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let state = ContextTable::new(count, used.clone())?;
        Ok(pin_init!(Self {
            state <- new_mutex!(state, "uldma::Contexts::state"),
            used,
            changes <- Changes::new(),
        }))
    }

    /// Enables the kernel's context with the status page of the engine.
    pub(crate) fn take_kernel(&self, hw: Hw<'_>, page: Arc<StatusPage>) -> Result {
        let mut state = self.state.lock();
        let slot = state.slots.first_mut().ok_or(ENOSPC)?;
        let setup = ContextSetup {
            interrupt_always: true,
            ..ContextSetup::default()
        };
        let number = engine::CONTEXT;
        *slot = Some(Slot::enable(hw, number, setup, page, None, Owner::Kernel)?);
        Ok(())
    }

    /// Attaches `new` to a context, which its open file can map from now on. Returns number and,
    /// if the method needs one, key.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all contexts are in use and none can be detached now, or the limits of exclusive
    /// contexts are reached; `ETIMEDOUT` if the device does not answer; `EREMOTEIO` if it cannot access
    /// the status page.
    pub(crate) fn attach(
        &self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        NewContext { vctx, room }: NewContext,
    ) -> Result<(u32, u64)> {
        let node = room.into_node(vctx.open_file, vctx.clone());
        let vctx = &vctx;
        let limit = Delta::from_millis(params::context_wait_ms());
        // Before a fault of the open file finds it.
        let _turn = vctx.turns.lock(limit, EndedBy::Death)?;
        self.state.lock().add(node);
        self.attach_detached(hw, offsets, vctx)
            .inspect_err(|_| self.state.lock().remove(vctx))
    }

    /// Attaches `vctx`, which is detached, and whose turn the caller has.
    fn attach_detached(
        &self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<(u32, u64)> {
        let mut state = self.state.lock();
        let (number, owner, shares) = match state.choose(hw, offsets, vctx)? {
            Choice::Free(number, shares) => {
                return state.attach(hw, offsets, vctx, number, shares);
            }
            Choice::Detaching(number, owner, shares) => (number, owner, shares),
        };
        drop(state);
        self.detach(hw, offsets, number, &owner)?;
        let mut state = self.disable(hw, number, &owner)?;
        // The other one may have had the last one of these.
        let shares = match shares {
            Some(shares) => shares,
            None => vctx.pay().map_err(|_| EBUSY)?,
        };
        match state.place_of(vctx) {
            Place::Detached => state.attach(hw, offsets, vctx, number, shares),
            _ => Err(ENXIO),
        }
    }

    /// Detaches `owner`, which was chosen, from context `number`, which is leaving then.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it has ended or is not idle; `ETIMEDOUT` if the device does not answer.
    fn detach(
        &self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        number: u32,
        owner: &Arc<VirtualContext>,
    ) -> Result {
        // Without the lock, since this waits for locks of mappings.
        offsets.zap_context(owner.open_file);
        let detached = self.state.lock().detach(hw, offsets, number, owner);
        detached.inspect_err(|_| self.changes.notify())
    }

    /// Disables context `number`, which `owner` is leaving. Returns the lock, under which it is free.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer. The context, and the number of the owner's space, stay in
    /// use until the device is unbound, since the device may still write the status page, and transfers may
    /// name the pages of the space.
    fn disable(
        &self,
        hw: Hw<'_>,
        number: u32,
        owner: &Arc<VirtualContext>,
    ) -> Result<MutexGuard<'_, ContextTable>> {
        // Without the lock, since the device may need seconds for it.
        let result = hw.disable_context(number);
        let mut state = self.state.lock();
        // Waiters check when the lock is free.
        self.changes.notify();
        match result {
            Ok(()) => {
                if let Some(slot) = state.take(number) {
                    slot.unmap(hw.dev());
                }
                Ok(state)
            }
            Err(err) => {
                state.set_owner(number, Owner::Kept);
                drop(state);
                hw.health().keeps_context();
                owner.space.keep_until_unbound();
                Err(err)
            }
        }
    }

    /// Waits until the virtual context of `open_file`, if there is one, is attached. Waits that signals
    /// have ended count for `context_wait_ms`, lest a process that is stopped again and again wait for
    /// ever.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if no context becomes free within `context_wait_ms` and until `deadline`, or the
    /// device does not answer; `ENODEV` if the device is unbound; as [`wait::until`] if a signal ends
    /// the wait.
    pub(crate) fn wait_for_registers(
        &self,
        gate: &Gate,
        offsets: &MmapOffsets,
        open_file: u64,
        deadline: Deadline,
        signals: EndedBy,
    ) -> Result {
        let begun: Instant<Monotonic> = Instant::now();
        let limit = Delta::from_millis(params::context_wait_ms());
        let found = self.state.lock().vctxs.get(&open_file).cloned();
        let Some(vctx) = found else {
            // It has ended.
            return Ok(());
        };
        let _turn = vctx.turns.lock(limit.min(deadline.time_left()), signals)?;
        let (looking, before): (Instant<Monotonic>, _) = (Instant::now(), vctx.waited());
        let waited = || before + looking.elapsed();
        let left = || (limit - waited().max(begun.elapsed())).min(deadline.time_left());
        let result = self.look_for_registers((gate, offsets), &vctx, left, signals);
        vctx.set_waited(match result {
            Err(err) if wait::is_interrupted(err) => waited(),
            _ => Delta::ZERO,
        });
        result
    }

    /// Waits until `vctx` is attached, as long as time is `left`.
    fn look_for_registers(
        &self,
        (gate, offsets): (&Gate, &MmapOffsets),
        vctx: &Arc<VirtualContext>,
        left: impl Fn() -> Delta,
        signals: EndedBy,
    ) -> Result {
        loop {
            // Before the check, so that no change is missed.
            let seen = self.changes.count();
            let guard = gate.try_enter()?;
            let pause = self.reattach(guard.hw(), offsets, vctx)?;
            drop(guard);
            let Some(pause) = pause else {
                return Ok(());
            };
            let left = left();
            if left <= Delta::ZERO {
                return Err(ETIMEDOUT);
            }
            if !self.changes.wait(seen, pause.min(left), signals) {
                return Err(ERESTARTNOHAND);
            }
        }
    }

    /// Attaches `vctx` if it is detached. Returns `None` on success, or the time after which the
    /// caller should retry even without a change.
    fn reattach(
        &self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<Option<Delta>> {
        let place = self.state.lock().place_of(vctx);
        let attached = match place {
            Place::Ended | Place::Attached => return Ok(None),
            Place::Moving => Err(EBUSY),
            Place::Detached => self.attach_detached(hw, offsets, vctx),
        };
        match attached {
            // It may have ended meanwhile.
            Ok(_) | Err(ENXIO) => Ok(None),
            Err(EBUSY) => Ok(Some(self.state.lock().next_idle(hw)?)),
            Err(err) => Err(err),
        }
    }

    /// Wakes the device for the queue of `vctx`. Returns false if it is detached.
    ///
    /// # Errors
    ///
    /// `ENXIO` if it has ended.
    pub(crate) fn wake(&self, hw: Hw<'_>, vctx: &Arc<VirtualContext>) -> Result<bool> {
        let state = self.state.lock();
        match vctx.number() {
            0 if state.place_of(vctx) == Place::Ended => Err(ENXIO),
            0 => Ok(false),
            number => hw.wake_context(number).map(|()| true),
        }
    }

    /// Ends a virtual context, which is not mapped any more. Without `hw`, since the device is being
    /// unbound, [`Contexts::tear_down`] frees its context.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not disable the context. The context stays in use until the
    /// device is unbound, since the device may still write the status page.
    pub(crate) fn release(&self, hw: Option<Hw<'_>>, vctx: &Arc<VirtualContext>) -> Result {
        let ended = self.state.lock().end(vctx);
        self.changes.notify();
        match (ended, hw) {
            (Some(number), Some(hw)) => self.disable(hw, number, vctx).map(drop),
            // Without a number, a thread that has detached it may be waiting for the device, which has
            // done all of it.
            _ => Ok(()),
        }
    }

    /// Returns the number of contexts in use, without the kernel's. Does not wait for a call that
    /// waits for the device.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns the number of detached virtual contexts.
    pub(crate) fn detached(&self) -> usize {
        self.state.lock().detached()
    }

    /// Returns the last ticket that was issued for `vctx`.
    pub(crate) fn last_ticket(&self, hw: Hw<'_>, vctx: &VirtualContext) -> Result<u64> {
        let _state = self.state.lock();
        match vctx.number() {
            0 => Ok(vctx.past.lock().ticket),
            number => hw.last_ticket(number),
        }
    }

    /// Returns the counters of `vctx`.
    pub(crate) fn counters(&self, hw: Hw<'_>, vctx: &VirtualContext) -> Result<ContextCounters> {
        let _state = self.state.lock();
        let past = vctx.past.lock().counters;
        match vctx.number() {
            0 => Ok(past),
            number => Ok(past + hw.context_counters(number)?),
        }
    }

    /// Notifies the open files of all contexts that transfers may have ended.
    pub(crate) fn progress(&self, hw: Hw<'_>) -> Result {
        let state = self.state.lock();
        for (number, slot) in state.slots.iter().enumerate() {
            let Some(vctx) = slot.as_ref().and_then(Slot::attached) else {
                continue;
            };
            let completed = vctx.page.completed();
            vctx.events.context_progress();
            if vctx.events.has_eventfd() {
                hw.arm_context(u32::try_from(number)?, completed)?;
            }
        }
        drop(state);
        self.changes.notify();
        Ok(())
    }

    /// Logs contexts with too many wrong keys since the last call.
    pub(crate) fn report_bad_keys(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        for (number, slot) in state.slots.iter_mut().enumerate().skip(1) {
            let Some(slot) = slot else {
                continue;
            };
            let bad_keys = hw.bad_keys(u32::try_from(number)?)?;
            // Once per attachment, so that guessing alone cannot flood the log.
            if bad_keys >= layout::MAX_BAD_KEYS && slot.bad_keys < layout::MAX_BAD_KEYS {
                dev_warn_ratelimited!(
                    Keys,
                    hw.dev(),
                    "context {number} passed too many wrong keys; the device ignores it\n"
                );
            }
            slot.bad_keys = bad_keys;
        }
        Ok(())
    }

    /// Unmaps all pages; the device no longer uses them.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        for slot in &mut self.state.lock().slots {
            if let Some(slot) = slot.take() {
                slot.unmap(dev);
            }
        }
    }
}
