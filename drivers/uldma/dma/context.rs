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
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
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
        layout,
        ContextCounters,
        ContextSetup,
        Hardware,
        Hw, //
    },
    kernel_ext::{
        changes::Changes,
        errno::edquot,
        gate::Gate,
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
mod virtual_context;

use slot::{
    Counted,
    Slot, //
};
pub(crate) use virtual_context::VirtualContext;

struct ContextTable {
    slots: KVec<Option<Slot>>,
    /// All virtual contexts, by open file.
    vctxs: RBTree<u64, Arc<VirtualContext>>,
    /// Number of virtual contexts.
    count: usize,
    used: Arc<Atomic<u32>>,
}

/// The contexts of one device.
#[pin_data]
pub(crate) struct Contexts {
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
        let mut slots = KVec::new();
        for _ in 0..count {
            slots.push(None, GFP_KERNEL)?;
        }
        let used = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let state = ContextTable {
            slots,
            vctxs: RBTree::new(),
            count: 0,
            used: used.clone(),
        };
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
        *slot = Some(Slot::enable(hw, number, setup, page, None, None)?);
        Ok(())
    }

    /// Attaches `vctx` to a context, which its open file can map from now on. Returns number and,
    /// if the method needs one, key.
    ///
    /// # Errors
    ///
    /// `EBUSY` if all contexts are in use and none can be detached now, or the limits of exclusive
    /// contexts are reached; `ENOMEM`; `ETIMEDOUT` if the device does not answer; `EREMOTEIO` if it
    /// cannot access the status page.
    pub(crate) fn attach(
        &self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<(u32, u64)> {
        // Without the lock, as the control group of the process can make this sleep.
        let node = RBTreeNode::new(vctx.open_file, vctx.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        let attached = state.attach(hw, offsets, vctx)?;
        state.vctxs.insert(node);
        state.count += 1;
        Ok(attached)
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
        ops: &dyn Hardware,
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
        let result = self.look_for_registers((gate, ops, offsets), &vctx, left, signals);
        vctx.set_waited(match result {
            Err(err) if wait::is_interrupted(err) => waited(),
            _ => Delta::ZERO,
        });
        result
    }

    /// Waits until `vctx` is attached, as long as time is `left`.
    fn look_for_registers(
        &self,
        (gate, ops, offsets): (&Gate, &dyn Hardware, &MmapOffsets),
        vctx: &Arc<VirtualContext>,
        left: impl Fn() -> Delta,
        signals: EndedBy,
    ) -> Result {
        loop {
            // Before the check, so that no change is missed.
            let seen = self.changes.count();
            let guard = gate.try_enter()?;
            let hw = Hw::new(guard.dev(), ops);
            let pause = self.reattach(hw, offsets, vctx)?;
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
        let mut state = self.state.lock();
        if !state.is_detached(vctx) {
            // Another thread has attached it, or it has ended.
            return Ok(None);
        }
        match state.attach(hw, offsets, vctx) {
            Ok(_) => Ok(None),
            Err(EBUSY) => Ok(Some(state.next_idle(hw)?)),
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
            0 if state.is_detached(vctx) => Ok(false),
            0 => Err(ENXIO),
            number => hw.wake_context(number).map(|()| true),
        }
    }

    /// Ends a virtual context, which is not mapped any more.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not disable the context. The context stays in use until the
    /// device is unbound, since the device may still write the status page.
    pub(crate) fn release(&self, hw: Hw<'_>, vctx: &Arc<VirtualContext>) -> Result {
        let mut state = self.state.lock();
        if state.has(vctx) {
            state.vctxs.remove(&vctx.open_file);
            state.count -= 1;
        }
        // Waiters check when the lock is free.
        self.changes.notify();
        let number = vctx.number.xchg(0, Relaxed);
        if number == 0 {
            return Ok(());
        }
        hw.disable_context(number)
            .inspect_err(|_| hw.health().keeps_context())?;
        if let Some(slot) = state.slot(number).and_then(Option::take) {
            slot.unmap(hw.dev());
        }
        Ok(())
    }

    /// Returns the number of contexts in use, without the kernel's. Does not wait for a call that
    /// waits for the device.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns the number of detached virtual contexts.
    pub(crate) fn detached(&self) -> usize {
        let state = self.state.lock();
        let slots = state.slots.iter().flatten();
        let attached = slots.filter(|slot| slot.vctx.is_some()).count();
        state.count.saturating_sub(attached)
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
            let Some(Slot {
                page,
                vctx: Some(vctx),
                ..
            }) = slot
            else {
                continue;
            };
            let completed = page.completed();
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

impl ContextTable {
    fn slot(&mut self, number: u32) -> Option<&mut Option<Slot>> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    /// Returns true if `vctx` has not ended.
    fn has(&self, vctx: &Arc<VirtualContext>) -> bool {
        let found = self.vctxs.get(&vctx.open_file);
        found.is_some_and(|found| Arc::ptr_eq(found, vctx))
    }

    /// Returns true if `vctx` has not ended, and has no context.
    fn is_detached(&self, vctx: &Arc<VirtualContext>) -> bool {
        vctx.number() == 0 && self.has(vctx)
    }

    /// Attaches `vctx` to a context.
    fn attach(
        &mut self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<(u32, u64)> {
        let (number, shares) = match vctx.pay() {
            Ok(shares) => match self.free(vctx) {
                Some(number) => (number, shares),
                None => (self.detach_oldest(hw, offsets, vctx, false)?, shares),
            },
            Err(err) if err == edquot() => {
                let number = self.detach_oldest(hw, offsets, vctx, true)?;
                (number, vctx.pay().map_err(|_| EBUSY)?)
            }
            Err(err) => return Err(err),
        };
        let key = if vctx.method.needs_key() {
            virtual_context::new_key(number)?
        } else {
            layout::Key::NONE
        };
        let setup = ContextSetup {
            space: vctx.space.id(),
            methods: vctx.method.bit(),
            key,
            no_data: vctx.no_data,
            ..ContextSetup::default()
        };
        // What ends from here on interrupts those that wait already.
        let completed = vctx.page.completed();
        let slot = Slot::enable(
            hw,
            number,
            setup,
            vctx.page.clone(),
            vctx.queue.clone(),
            Some(vctx.clone()),
        )?;
        let counted = Counted::new(&self.used);
        *self.slot(number).ok_or(EBUSY)? = Some(Slot {
            _shares: Some(shares),
            _counted: Some(counted),
            ..slot
        });
        vctx.number.store(number, Relaxed);
        vctx.events.set_registers(Some(number));
        offsets.move_context(vctx.open_file, Some(number));
        // The only error is a device that has left the bus.
        let _ = hw.arm_context(number, completed);
        Ok((number, key.bits()))
    }

    /// Returns a free context that `vctx` can use.
    fn free(&self, vctx: &VirtualContext) -> Option<u32> {
        let numbers = 1..u32::try_from(self.slots.len()).ok()?;
        let is_free = |number: &u32| {
            let place = usize::try_from(*number).ok();
            let slot = place.and_then(|place| self.slots.get(place));
            slot.is_some_and(Option::is_none) && fits(*number, vctx)
        };
        // Keys can name the first contexts only, so these are left for methods that need a key.
        let mut last_first = numbers.rev();
        last_first.find(is_free)
    }

    /// Requests completion interrupts of all movable contexts whose time slice is over. Returns the
    /// time until the next time slice ends, or until the caller should check again for contexts
    /// that do not interrupt.
    fn next_idle(&self, hw: Hw<'_>) -> Result<Delta> {
        let slice = Delta::from_millis(params::context_slice_ms());
        let mut pause = slice;
        for (number, slot) in self.slots.iter().enumerate().skip(1) {
            let vctx = slot
                .as_ref()
                .and_then(|slot| Some((slot, slot.vctx.as_ref()?)));
            let Some((slot, vctx)) = vctx.filter(|(_, vctx)| vctx.is_movable()) else {
                continue;
            };
            let left = slice - slot.since.elapsed();
            if left > Delta::ZERO {
                pause = pause.min(left);
            } else {
                hw.arm_context(u32::try_from(number)?, vctx.page.completed())?;
            }
        }
        Ok(pause)
    }

    /// Detaches the idle virtual context that has been attached for longest, and whose context
    /// `vctx` can use; with `own`, one of the same user. Returns the number of the context.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no virtual context is idle whose time slice is over.
    fn detach_oldest(
        &mut self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &VirtualContext,
        own: bool,
    ) -> Result<u32> {
        let slice = Delta::from_millis(params::context_slice_ms());
        let mut oldest: Option<(Delta, u32, Arc<VirtualContext>)> = None;
        for (number, slot) in self.slots.iter().enumerate().skip(1) {
            let Some((slot, owner)) = slot
                .as_ref()
                .and_then(|slot| Some((slot, slot.vctx.as_ref()?)))
            else {
                continue;
            };
            let number = u32::try_from(number)?;
            let age = slot.since.elapsed();
            if owner.is_movable()
                && fits(number, vctx)
                && (!own || owner.payer.is_same_user(&vctx.payer))
                && age >= slice
                && oldest.as_ref().is_none_or(|(other, ..)| age > *other)
                && is_idle(hw, number, owner)?
            {
                oldest = Some((age, number, owner.clone()));
            }
        }
        let (_, number, owner) = oldest.ok_or(EBUSY)?;
        offsets.move_context(owner.open_file, None);
        // No transfer can start from here on, but one may have started just before.
        if !is_idle(hw, number, &owner)? {
            offsets.move_context(owner.open_file, Some(number));
            return Err(EBUSY);
        }
        {
            let mut past = owner.past.lock();
            past.ticket = hw.last_ticket(number)?;
            past.counters = past.counters + hw.context_counters(number)?;
        }
        owner.number.store(0, Relaxed);
        owner.events.set_registers(None);
        if owner.method.needs_queue() {
            owner.page.ask_to_wake();
        }
        if let Err(err) = hw.disable_context(number) {
            hw.health().keeps_context();
            // Its transfers may still name the pages of the space, so no other one gets its number.
            owner.space.keep_until_unbound();
            // It stays in use without an owner, as the device may still write the status page.
            if let Some(Some(slot)) = self.slot(number) {
                slot.vctx = None;
            }
            return Err(err);
        }
        if let Some(slot) = self.slot(number).and_then(Option::take) {
            slot.unmap(hw.dev());
        }
        Ok(number)
    }
}

/// Returns true if `vctx` can use context `number`.
fn fits(number: u32, vctx: &VirtualContext) -> bool {
    !vctx.method.needs_key() || number < layout::KEY_CONTEXTS
}

/// Returns true if no transfer of a context is in flight, and none begins unless its process
/// accesses a register.
fn is_idle(hw: Hw<'_>, number: u32, vctx: &VirtualContext) -> Result<bool> {
    let asleep = !vctx.method.needs_queue() || vctx.page.is_asleep();
    Ok(asleep && hw.last_ticket(number)? == vctx.page.completed())
}
