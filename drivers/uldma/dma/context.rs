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
        mmap_offset::Maps,
        status_page::StatusPage, //
    }, //
};

mod virtual_context;

pub(crate) use virtual_context::Claim;
use virtual_context::Shares;

struct Slot {
    page: Arc<StatusPage>,
    address: DmaAddress,
    /// The descriptors, and where the device finds them.
    queue: Option<(Arc<SharedPage>, DmaAddress)>,
    /// None for the kernel's context.
    claim: Option<Arc<Claim>>,
    since: Instant<Monotonic>,
    /// Wrong keys that were told of.
    bad_keys: u32,
    /// None for the kernel's context.
    _shares: Option<Shares>,
}

struct State {
    slots: KVec<Option<Slot>>,
    /// Claims that have no context at the moment.
    parked: KVec<Arc<Claim>>,
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
            parked: KVec::new(),
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

    /// Gets a context for `claim`, whose open file can map it from now on; returns its number and, if the method
    /// needs one, its key.
    ///
    /// # Errors
    ///
    /// `EBUSY` when all are taken and none can be taken back now.
    pub(crate) fn take(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        maps: &Maps,
        claim: &Arc<Claim>,
    ) -> Result<(u32, u64)> {
        self.state.lock().give(dev, hw, maps, claim)
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
        maps: &Maps,
        open_file: u64,
        interruptible: bool,
    ) -> Result {
        let begun: Instant<Monotonic> = Instant::now();
        let limit = Delta::from_millis(params::context_wait_ms());
        loop {
            // Before the look, so that no change is missed.
            let seen = self.changes.count();
            let Some(pause) = self.revive(gate.try_enter()?.dev(), hw, maps, open_file)? else {
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
    fn revive(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        maps: &Maps,
        open_file: u64,
    ) -> Result<Option<Delta>> {
        let mut state = self.state.lock();
        let mut parked = state.parked.iter();
        let Some(place) = parked.position(|claim| claim.open_file == open_file) else {
            // Another thread has revived it, or it has ended.
            return Ok(None);
        };
        let claim = state.parked.get(place).ok_or(EINVAL)?.clone();
        match state.give(dev, hw, maps, &claim) {
            Ok(_) => {
                let _ = state.parked.remove(place);
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
    pub(crate) fn give_back(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        claim: &Arc<Claim>,
    ) -> Result {
        let mut state = self.state.lock();
        state.parked.retain(|other| !Arc::ptr_eq(other, claim));
        // Who waits for one looks when the lock is free.
        self.changes.tell();
        let number = claim.number.xchg(0, Relaxed);
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
    pub(crate) fn parked(&self) -> usize {
        self.state.lock().parked.len()
    }

    /// The last ticket that was given out for `claim`.
    pub(crate) fn last_ticket(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        claim: &Claim,
    ) -> Result<u64> {
        let _state = self.state.lock();
        match claim.number() {
            0 => Ok(claim.past.lock().ticket),
            number => hw.last_ticket(dev, number),
        }
    }

    /// What was counted for `claim`.
    pub(crate) fn counters(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        claim: &Claim,
    ) -> Result<ContextCounters> {
        let _state = self.state.lock();
        let past = claim.past.lock().counters;
        match claim.number() {
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
                claim: Some(claim),
                ..
            }) = slot
            else {
                continue;
            };
            let completed = page.completed();
            claim.events.context_progress();
            if claim.events.has_eventfd() {
                hw.arm_context(dev, u32::try_from(number)?, completed)?;
            }
        }
        drop(state);
        self.changes.tell();
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

    /// Gets a context for `claim`.
    fn give(
        &mut self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        maps: &Maps,
        claim: &Arc<Claim>,
    ) -> Result<(u32, u64)> {
        let (number, shares) = match claim.pay() {
            Ok(shares) => match self.free(claim) {
                Some(number) => (number, shares),
                None => (self.take_back(dev, hw, maps, claim, false)?, shares),
            },
            Err(err) if err == edquot() => {
                let number = self.take_back(dev, hw, maps, claim, true)?;
                (number, claim.pay().map_err(|_| EBUSY)?)
            }
            Err(err) => return Err(err),
        };
        let key = match claim.method.needs_key() {
            true => virtual_context::new_key(number),
            false => 0,
        };
        let setup = ContextSetup {
            space: claim.space,
            methods: claim.method.bit(),
            key,
            no_data: claim.no_data,
            ..ContextSetup::default()
        };
        let slot = Slot::enable(
            dev,
            hw,
            number,
            setup,
            claim.page.clone(),
            claim.queue.clone(),
            Some(claim.clone()),
        )?;
        *self.slot(number).ok_or(EBUSY)? = Some(Slot {
            _shares: Some(shares),
            ..slot
        });
        claim.number.store(number, Relaxed);
        claim.events.set_registers(Some(number));
        maps.move_context(claim.open_file, Some(number));
        // Somebody may wait already. A device that does not take it has left the bus.
        let _ = hw.arm_context(dev, number, claim.page.completed());
        Ok((number, key))
    }

    /// A context that is free and that `claim` can have.
    fn free(&self, claim: &Claim) -> Option<u32> {
        let numbers = 1..u32::try_from(self.slots.len()).ok()?;
        let is_free = |number: &u32| {
            let place = usize::try_from(*number).ok();
            let slot = place.and_then(|place| self.slots.get(place));
            slot.is_some_and(Option::is_none) && fits(*number, claim)
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
            let claim = slot
                .as_ref()
                .and_then(|slot| Some((slot, slot.claim.as_ref()?)));
            let Some((slot, claim)) = claim.filter(|(_, claim)| claim.is_movable()) else {
                continue;
            };
            let left = slice - slot.since.elapsed();
            match left > Delta::ZERO {
                true => pause = pause.min(left),
                false => hw.arm_context(dev, u32::try_from(number)?, claim.page.completed())?,
            }
        }
        Ok(pause)
    }

    /// Takes a context back that `claim` can have, from the open file that has had it for longest;
    /// with `own` from one of the same user.
    ///
    /// # Errors
    ///
    /// `EBUSY` when nobody is idle who has had one for long enough.
    fn take_back(
        &mut self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        maps: &Maps,
        claim: &Claim,
        own: bool,
    ) -> Result<u32> {
        self.parked.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let slice = Delta::from_millis(params::context_slice_ms());
        let mut oldest: Option<(Delta, u32, Arc<Claim>)> = None;
        for (number, slot) in self.slots.iter().enumerate().skip(1) {
            let Some((slot, owner)) = slot
                .as_ref()
                .and_then(|slot| Some((slot, slot.claim.as_ref()?)))
            else {
                continue;
            };
            let number = u32::try_from(number)?;
            let age = slot.since.elapsed();
            if owner.is_movable()
                && fits(number, claim)
                && (!own || owner.payer.is_same_user(&claim.payer))
                && age >= slice
                && oldest.as_ref().is_none_or(|(other, ..)| age > *other)
                && is_idle(dev, hw, number, owner)?
            {
                oldest = Some((age, number, owner.clone()));
            }
        }
        let (_, number, owner) = oldest.ok_or(EBUSY)?;
        maps.move_context(owner.open_file, None);
        // Nobody can start anything from here on, but may have just now.
        if !is_idle(dev, hw, number, &owner)? {
            maps.move_context(owner.open_file, Some(number));
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
        let _ = self.parked.push_within_capacity(owner);
        if let Err(err) = hw.disable_context(dev, number) {
            hw.health().keeps_context();
            // It stays taken, as the device may still write the status page, and is nobody's.
            if let Some(Some(slot)) = self.slot(number) {
                slot.claim = None;
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
fn fits(number: u32, claim: &Claim) -> bool {
    !claim.method.needs_key() || number < layout::KEY_CONTEXTS
}

/// Whether nothing of a context is under way, nor will be unless its process touches a register.
fn is_idle(dev: &Device<Bound>, hw: &dyn Hardware, number: u32, claim: &Claim) -> Result<bool> {
    let asleep = !claim.method.needs_queue() || claim.page.is_asleep();
    Ok(asleep && hw.last_ticket(dev, number)? == claim.page.completed())
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
        claim: Option<Arc<Claim>>,
    ) -> Result<Self> {
        let mut slot = Self {
            address: page.map(dev)?,
            page,
            queue: None,
            claim,
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
