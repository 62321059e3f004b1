// SPDX-License-Identifier: GPL-2.0

//! Register contexts: which claims to them the device has registers for.
//!
//! There may be more claims than contexts. A claim that finds no context free takes that of another
//! which has had it for a while and is idle now. The other loses its mappings, so it is asked for a
//! context again when it next touches one; the process does not notice, but for the time it takes,
//! and that arguments that it had passed in part are forgotten. It waits without the lock of its
//! address space and can be killed, and after `context_wait_ms` the access is a bus error.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    new_mutex,
    prelude::*,
    sync::{
        atomic::Relaxed,
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
        Hardware, //
    },
    kernel_ext::{
        changes::Changes,
        dma::{
            self,
            SharedPage, //
        },
        errno::edquot,
        gate::Gate,
        ratelimit::dev_warn_ratelimited, //
    },
    params,
    user_abi::{
        mmap_offset::MmapOffsets,
        status_page::StatusPage, //
    }, //
};

mod virtual_context;

use virtual_context::Shares;
pub(crate) use virtual_context::VirtualContext;

struct Slot {
    page: Arc<StatusPage>,
    address: DmaAddress,
    /// The descriptors, and where the device finds them.
    queue: Option<(Arc<SharedPage>, DmaAddress)>,
    /// None for the kernel's context.
    vctx: Option<Arc<VirtualContext>>,
    since: Instant<Monotonic>,
    /// Wrong keys that were told of.
    bad_keys: u32,
    /// None for the kernel's context.
    _shares: Option<Shares>,
}

struct State {
    slots: KVec<Option<Slot>>,
    /// Claims that have no context at the moment.
    detached: KVec<Arc<VirtualContext>>,
}

/// The contexts of one device.
#[pin_data]
pub(crate) struct Contexts {
    #[pin]
    state: Mutex<State>,
    /// Contexts have come free, or may be idle now.
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
        let state = State {
            slots,
            detached: KVec::new(),
        };
        Ok(pin_init!(Self {
            state <- new_mutex!(state, "uldma::Contexts::state"),
            changes <- Changes::new(),
        }))
    }

    /// Enables the kernel's context, whose status page the engine reads.
    pub(crate) fn take_kernel(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        page: Arc<StatusPage>,
    ) -> Result {
        let mut state = self.state.lock();
        let slot = state.slots.first_mut().ok_or(ENOSPC)?;
        let setup = ContextSetup {
            interrupt_always: true,
            ..ContextSetup::default()
        };
        let number = engine::CONTEXT;
        *slot = Some(Slot::enable(dev, hw, number, setup, page, None, None)?);
        Ok(())
    }

    /// Gets a context for `vctx`, whose open file can map it from now on; returns its number and, if the method
    /// needs one, its key.
    ///
    /// # Errors
    ///
    /// `EBUSY` when all are taken and none can be taken back now.
    pub(crate) fn attach(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<(u32, u64)> {
        self.state.lock().attach(dev, hw, offsets, vctx)
    }

    /// Waits until `open_file` has registers for its context again, if it has a context; until a signal
    /// comes, which has to be one that kills unless `interruptible`.
    ///
    /// # Errors
    ///
    /// `EINTR`; `ETIMEDOUT` when none have come free in `context_wait_ms`; `ENODEV` when the device is
    /// gone, and its errors.
    pub(crate) fn wait_for_registers(
        &self,
        gate: &Gate,
        hw: &dyn Hardware,
        offsets: &MmapOffsets,
        open_file: u64,
        interruptible: bool,
    ) -> Result {
        let begun: Instant<Monotonic> = Instant::now();
        let limit = Delta::from_millis(params::context_wait_ms());
        loop {
            // Before the look, so that no change is missed.
            let seen = self.changes.count();
            let Some(pause) = self.reattach(gate.try_enter()?.dev(), hw, offsets, open_file)?
            else {
                return Ok(());
            };
            let left = limit - begun.elapsed();
            if left <= Delta::ZERO {
                return Err(ETIMEDOUT);
            }
            if !self.changes.wait(seen, pause.min(left), interruptible) {
                return Err(EINTR);
            }
        }
    }

    /// Gets a context again for the claim of `open_file`, if it has one without. Returns after which
    /// time it is worth trying again, whether or not there is a change before; none if it has one.
    fn reattach(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        offsets: &MmapOffsets,
        open_file: u64,
    ) -> Result<Option<Delta>> {
        let mut state = self.state.lock();
        let mut detached = state.detached.iter();
        let Some(place) = detached.position(|vctx| vctx.open_file == open_file) else {
            // Another thread has revived it, or it has ended.
            return Ok(None);
        };
        let vctx = state.detached.get(place).ok_or(EINVAL)?.clone();
        match state.attach(dev, hw, offsets, &vctx) {
            Ok(_) => {
                let _ = state.detached.remove(place);
                Ok(None)
            }
            Err(EBUSY) => Ok(Some(state.next_idle(dev, hw)?)),
            Err(err) => Err(err),
        }
    }

    /// Ends a claim, which nobody has mapped any more.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when the device does not let go of its context: that stays taken until the device
    /// is unbound, since the device may still write its status page.
    pub(crate) fn release(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        vctx: &Arc<VirtualContext>,
    ) -> Result {
        let mut state = self.state.lock();
        state.detached.retain(|other| !Arc::ptr_eq(other, vctx));
        // Who waits for one looks when the lock is free.
        self.changes.notify();
        let number = vctx.number.xchg(0, Relaxed);
        if number == 0 {
            return Ok(());
        }
        hw.disable_context(dev, number)
            .inspect_err(|_| hw.health().keeps_context())?;
        if let Some(slot) = state.slot(number).and_then(Option::take) {
            slot.unmap(dev);
        }
        Ok(())
    }

    /// How many are taken, without the kernel's.
    pub(crate) fn used(&self) -> u32 {
        let state = self.state.lock();
        let used = state.slots.iter().skip(1).filter(|slot| slot.is_some());
        u32::try_from(used.count()).unwrap_or(u32::MAX)
    }

    /// How many claims have no context at the moment.
    pub(crate) fn detached(&self) -> usize {
        self.state.lock().detached.len()
    }

    /// The last ticket that was given out for `vctx`.
    pub(crate) fn last_ticket(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        vctx: &VirtualContext,
    ) -> Result<u64> {
        let _state = self.state.lock();
        match vctx.number() {
            0 => Ok(vctx.past.lock().ticket),
            number => hw.last_ticket(dev, number),
        }
    }

    /// What was counted for `vctx`.
    pub(crate) fn counters(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        vctx: &VirtualContext,
    ) -> Result<ContextCounters> {
        let _state = self.state.lock();
        let past = vctx.past.lock().counters;
        match vctx.number() {
            0 => Ok(past),
            number => Ok(past + hw.context_counters(dev, number)?),
        }
    }

    /// Tells the open files of all contexts that transfers may have ended.
    pub(crate) fn progress(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
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
                hw.arm_context(dev, u32::try_from(number)?, completed)?;
            }
        }
        drop(state);
        self.changes.notify();
        Ok(())
    }

    /// Reports which contexts have named too many wrong keys since it was last called.
    pub(crate) fn report_bad_keys(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        for (number, slot) in state.slots.iter_mut().enumerate().skip(1) {
            let Some(slot) = slot else {
                continue;
            };
            let bad_keys = hw.bad_keys(dev, u32::try_from(number)?)?;
            // Once for each time that a context is taken, so that nobody can flood the log by guessing
            // alone.
            if bad_keys >= layout::MAX_BAD_KEYS && slot.bad_keys < layout::MAX_BAD_KEYS {
                dev_warn_ratelimited!(
                    Keys,
                    dev,
                    "context {number} guesses keys, and is not served any more\n"
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

impl State {
    fn slot(&mut self, number: u32) -> Option<&mut Option<Slot>> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    /// Gets a context for `vctx`.
    fn attach(
        &mut self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
    ) -> Result<(u32, u64)> {
        let (number, shares) = match vctx.pay() {
            Ok(shares) => match self.free(vctx) {
                Some(number) => (number, shares),
                None => (self.detach_oldest(dev, hw, offsets, vctx, false)?, shares),
            },
            Err(err) if err == edquot() => {
                let number = self.detach_oldest(dev, hw, offsets, vctx, true)?;
                (number, vctx.pay().map_err(|_| EBUSY)?)
            }
            Err(err) => return Err(err),
        };
        let key = match vctx.method.needs_key() {
            true => virtual_context::new_key(number),
            false => 0,
        };
        let setup = ContextSetup {
            space: vctx.space,
            methods: vctx.method.bit(),
            key,
            no_data: vctx.no_data,
            ..ContextSetup::default()
        };
        let slot = Slot::enable(
            dev,
            hw,
            number,
            setup,
            vctx.page.clone(),
            vctx.queue.clone(),
            Some(vctx.clone()),
        )?;
        *self.slot(number).ok_or(EBUSY)? = Some(Slot {
            _shares: Some(shares),
            ..slot
        });
        vctx.number.store(number, Relaxed);
        vctx.events.set_registers(Some(number));
        offsets.move_context(vctx.open_file, Some(number));
        // Somebody may wait already. A device that does not take it has left the bus.
        let _ = hw.arm_context(dev, number, vctx.page.completed());
        Ok((number, key))
    }

    /// A context that is free and that `vctx` can have.
    fn free(&self, vctx: &VirtualContext) -> Option<u32> {
        let numbers = 1..u32::try_from(self.slots.len()).ok()?;
        let is_free = |number: &u32| {
            let place = usize::try_from(*number).ok();
            let slot = place.and_then(|place| self.slots.get(place));
            slot.is_some_and(Option::is_none) && fits(*number, vctx)
        };
        // A key can name the first ones only, so they are left for those who need one.
        let mut last_first = numbers.rev();
        last_first.find(is_free)
    }

    /// Asks the contexts that can be taken back, and have been had for long enough, to interrupt when
    /// a transfer ends; returns when the next of the others has been had for long enough, or when
    /// it is time to look whether those that tell nothing are idle.
    fn next_idle(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result<Delta> {
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
            match left > Delta::ZERO {
                true => pause = pause.min(left),
                false => hw.arm_context(dev, u32::try_from(number)?, vctx.page.completed())?,
            }
        }
        Ok(pause)
    }

    /// Takes a context back that `vctx` can have, from the open file that has had it for longest;
    /// with `own` from one of the same user.
    ///
    /// # Errors
    ///
    /// `EBUSY` when nobody is idle who has had one for long enough.
    fn detach_oldest(
        &mut self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        offsets: &MmapOffsets,
        vctx: &VirtualContext,
        own: bool,
    ) -> Result<u32> {
        self.detached.reserve(1, GFP_KERNEL_ACCOUNT)?;
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
                && is_idle(dev, hw, number, owner)?
            {
                oldest = Some((age, number, owner.clone()));
            }
        }
        let (_, number, owner) = oldest.ok_or(EBUSY)?;
        offsets.move_context(owner.open_file, None);
        // Nobody can start anything from here on, but may have just now.
        if !is_idle(dev, hw, number, &owner)? {
            offsets.move_context(owner.open_file, Some(number));
            return Err(EBUSY);
        }
        {
            let mut past = owner.past.lock();
            past.ticket = hw.last_ticket(dev, number)?;
            past.counters = past.counters + hw.context_counters(dev, number)?;
        }
        owner.number.store(0, Relaxed);
        owner.events.set_registers(None);
        if owner.method.needs_queue() {
            owner.page.ask_to_wake();
        }
        // There is room.
        let _ = self.detached.push_within_capacity(owner);
        if let Err(err) = hw.disable_context(dev, number) {
            hw.health().keeps_context();
            // It stays taken, as the device may still write the status page, and is nobody's.
            if let Some(Some(slot)) = self.slot(number) {
                slot.vctx = None;
            }
            return Err(err);
        }
        if let Some(slot) = self.slot(number).and_then(Option::take) {
            slot.unmap(dev);
        }
        Ok(number)
    }
}

/// Whether a claim can have context `number`.
fn fits(number: u32, vctx: &VirtualContext) -> bool {
    !vctx.method.needs_key() || number < layout::KEY_CONTEXTS
}

/// Whether nothing of a context is under way, nor will be unless its process touches a register.
fn is_idle(
    dev: &Device<Bound>,
    hw: &dyn Hardware,
    number: u32,
    vctx: &VirtualContext,
) -> Result<bool> {
    let asleep = !vctx.method.needs_queue() || vctx.page.is_asleep();
    Ok(asleep && hw.last_ticket(dev, number)? == vctx.page.completed())
}

impl Slot {
    /// Enables context `number` as `setup` says, but for the pages.
    fn enable(
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        number: u32,
        setup: ContextSetup,
        page: Arc<StatusPage>,
        queue: Option<Arc<SharedPage>>,
        vctx: Option<Arc<VirtualContext>>,
    ) -> Result<Self> {
        let mut slot = Self {
            address: page.map(dev)?,
            page,
            queue: None,
            vctx,
            since: Instant::now(),
            bad_keys: 0,
            _shares: None,
        };
        let result = (|| {
            if let Some(queue) = queue {
                let address = queue.map(dev)?;
                slot.queue = Some((queue, address));
            }
            let setup = ContextSetup {
                status_page: slot.address,
                queue: slot.queue.as_ref().map_or(0, |(_, address)| *address),
                ..setup
            };
            hw.enable_context(dev, number, &setup)
        })();
        match result {
            Ok(()) => Ok(slot),
            Err(err) => {
                slot.unmap(dev);
                Err(err)
            }
        }
    }

    /// Ends the mappings of what the device no longer uses.
    fn unmap(self, dev: &Device<Bound>) {
        dma::unmap(dev, self.address);
        if let Some((_, address)) = self.queue {
            dma::unmap(dev, address);
        }
    }
}
