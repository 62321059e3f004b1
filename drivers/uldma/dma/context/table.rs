// SPDX-License-Identifier: GPL-2.0

//! The contexts of a device and the virtual contexts that want one. Nothing here waits: the lock is
//! taken by all users.

use kernel::{
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
        Arc, //
    },
    time::Delta, //
};

use super::{
    slot::{
        Owner,
        Payment,
        Slot, //
    },
    virtual_context::{
        self,
        Past,
        Shares, //
    },
    VirtualContext, //
};
use crate::{
    hw::{
        layout,
        ContextSetup,
        Hw, //
    },
    kernel_ext::errno::edquot,
    params,
    user_abi::mmap_offset::MmapOffsets, //
};

/// A context for a virtual context.
pub(super) enum Choice {
    /// One that is free.
    Free(u32, Shares),
    /// One that is being detached from this virtual context; without shares, they are taken of those
    /// that it has.
    Detaching(u32, Arc<VirtualContext>, Option<Shares>),
}

/// Where a virtual context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has ended.
    Ended,
    /// It is attached to a context.
    Attached,
    /// It is on its way from a context, and detached or attached again soon.
    Moving,
    /// It has no context.
    Detached,
}

/// What the lock of the contexts protects.
pub(super) struct ContextTable {
    pub(super) slots: KVec<Option<Slot>>,
    /// All virtual contexts, by open file.
    pub(super) vctxs: RBTree<u64, Arc<VirtualContext>>,
    /// Number of virtual contexts.
    count: usize,
    used: Arc<Atomic<u32>>,
}

impl ContextTable {
    /// Creates a table of `count` free contexts; `used` counts those in use, without the kernel's.
    pub(super) fn new(count: u32, used: Arc<Atomic<u32>>) -> Result<Self> {
        let mut slots = KVec::new();
        for _ in 0..count {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            vctxs: RBTree::new(),
            count: 0,
            used,
        })
    }

    fn slot(&mut self, number: u32) -> Option<&mut Option<Slot>> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    /// Sets the owner of a context in use.
    pub(super) fn set_owner(&mut self, number: u32, owner: Owner) {
        if let Some(Some(slot)) = self.slot(number) {
            slot.owner = owner;
        }
    }

    /// Frees a context, which the device has stopped. Its pages have to be unmapped.
    pub(super) fn take(&mut self, number: u32) -> Option<Slot> {
        self.slot(number).and_then(Option::take)
    }

    /// Adds a virtual context, which is detached.
    pub(super) fn add(&mut self, node: RBTreeNode<u64, Arc<VirtualContext>>) {
        self.vctxs.insert(node);
        self.count += 1;
    }

    /// Removes a virtual context, if it is there.
    pub(super) fn remove(&mut self, vctx: &Arc<VirtualContext>) {
        if self.has(vctx) {
            self.vctxs.remove(&vctx.open_file);
            self.count -= 1;
        }
    }

    /// Returns true if `vctx` has not ended.
    fn has(&self, vctx: &Arc<VirtualContext>) -> bool {
        let found = self.vctxs.get(&vctx.open_file);
        found.is_some_and(|found| Arc::ptr_eq(found, vctx))
    }

    /// Returns where `vctx` is.
    pub(super) fn place_of(&self, vctx: &Arc<VirtualContext>) -> Place {
        let is_here = |slot: &&Slot| match &slot.owner {
            Owner::Attached(it) | Owner::Detaching(it) | Owner::Leaving(it) => {
                Arc::ptr_eq(it, vctx)
            }
            Owner::Kernel | Owner::Kept => false,
        };
        if !self.has(vctx) {
            return Place::Ended;
        }
        match self.slots.iter().flatten().find(is_here) {
            None => Place::Detached,
            Some(slot) if matches!(slot.owner, Owner::Attached(_)) => Place::Attached,
            Some(_) => Place::Moving,
        }
    }

    /// Returns the number of virtual contexts without a context.
    pub(super) fn detached(&self) -> usize {
        let slots = self.slots.iter().flatten();
        let attached = slots.filter(|slot| slot.attached().is_some()).count();
        self.count.saturating_sub(attached)
    }

    /// Chooses a context for `vctx`: a free one, or else that of the virtual context that has been
    /// attached for longest and is idle. That one, if the user has too many contexts, is one of the user's.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no virtual context is idle whose time slice is over, or the limits of exclusive
    /// contexts are reached.
    pub(super) fn choose(
        &mut self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &VirtualContext,
    ) -> Result<Choice> {
        let shares = match vctx.pay() {
            Ok(shares) => match self.free(vctx) {
                Some(number) => return Ok(Choice::Free(number, shares)),
                None => Some(shares),
            },
            Err(err) if err == edquot() => None,
            Err(err) => return Err(err),
        };
        let (number, owner) = self.oldest_idle(hw, vctx, shares.is_none())?;
        // Faults of its process wait from here on.
        offsets.set_context(owner.open_file, None);
        self.set_owner(number, Owner::Detaching(owner.clone()));
        Ok(Choice::Detaching(number, owner, shares))
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

    /// Returns the idle virtual context that has been attached for longest, and whose context `vctx`
    /// can use; with `own`, one of the same user.
    ///
    /// # Errors
    ///
    /// `EBUSY` if no virtual context is idle whose time slice is over.
    fn oldest_idle(
        &self,
        hw: Hw<'_>,
        vctx: &VirtualContext,
        own: bool,
    ) -> Result<(u32, Arc<VirtualContext>)> {
        let slice = Delta::from_millis(params::context_slice_ms());
        let mut oldest: Option<(Delta, u32, &Arc<VirtualContext>)> = None;
        for (number, slot) in self.slots.iter().enumerate().skip(1) {
            let Some((age, owner)) = slot.as_ref().and_then(Slot::movable) else {
                continue;
            };
            let number = u32::try_from(number)?;
            if fits(number, vctx)
                && (!own || owner.payer.is_same_user(&vctx.payer))
                && age >= slice
                && oldest.as_ref().is_none_or(|(other, ..)| age > *other)
                && is_idle(hw, number, owner)?
            {
                oldest = Some((age, number, owner));
            }
        }
        let (_, number, owner) = oldest.ok_or(EBUSY)?;
        Ok((number, owner.clone()))
    }

    /// Detaches `owner`, whose mappings were removed, from context `number`, which is leaving then.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it has ended, or is not idle and so attached again; `ETIMEDOUT` if the device does
    /// not answer, and it is attached again.
    pub(super) fn detach(
        &mut self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        number: u32,
        owner: &Arc<VirtualContext>,
    ) -> Result {
        let slot = self.slot(number).and_then(Option::as_mut).ok_or(EBUSY)?;
        if !slot.is_detaching(owner) {
            return Err(EBUSY);
        }
        match idle_state(hw, number, owner) {
            Ok(past) => *owner.past.lock() = past,
            Err(err) => {
                slot.owner = Owner::Attached(owner.clone());
                offsets.set_context(owner.open_file, Some(number));
                return Err(err);
            }
        }
        slot.owner = Owner::Leaving(owner.clone());
        owner.number.store(0, Relaxed);
        owner.events.set_registers(None);
        if owner.method.needs_queue() {
            owner.page.ask_to_wake();
        }
        Ok(())
    }

    /// Ends a virtual context. Returns the context that is leaving then, if it had one.
    pub(super) fn end(&mut self, vctx: &Arc<VirtualContext>) -> Option<u32> {
        self.remove(vctx);
        let number = vctx.number.xchg(0, Relaxed);
        if number == 0 {
            return None;
        }
        // A thread that was detaching it finds that out.
        self.set_owner(number, Owner::Leaving(vctx.clone()));
        Some(number)
    }

    /// Attaches `vctx` to context `number`, which is free.
    pub(super) fn attach(
        &mut self,
        hw: Hw<'_>,
        offsets: &MmapOffsets,
        vctx: &Arc<VirtualContext>,
        number: u32,
        shares: Shares,
    ) -> Result<(u32, u64)> {
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
            Owner::Attached(vctx.clone()),
        )?;
        let payment = Payment::new(shares, &self.used);
        *self.slot(number).ok_or(EBUSY)? = Some(slot.paid(payment));
        vctx.number.store(number, Relaxed);
        vctx.events.set_registers(Some(number));
        offsets.set_context(vctx.open_file, Some(number));
        // The only error is a device that has left the bus.
        let _ = hw.arm_context(number, completed);
        Ok((number, key.bits()))
    }

    /// Requests completion interrupts of all movable contexts whose time slice is over. Returns the
    /// time until the next time slice ends, or until the caller should check again for contexts
    /// that do not interrupt.
    pub(super) fn next_idle(&self, hw: Hw<'_>) -> Result<Delta> {
        let slice = Delta::from_millis(params::context_slice_ms());
        let mut pause = slice;
        for (number, slot) in self.slots.iter().enumerate().skip(1) {
            let Some((age, vctx)) = slot.as_ref().and_then(Slot::movable) else {
                continue;
            };
            let left = slice - age;
            if left > Delta::ZERO {
                pause = pause.min(left);
            } else {
                hw.arm_context(u32::try_from(number)?, vctx.page.completed())?;
            }
        }
        Ok(pause)
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

/// Returns the state to be saved of a context whose registers are not mapped any more.
///
/// # Errors
///
/// `EBUSY` if it is not idle; `ETIMEDOUT` if the device does not answer.
fn idle_state(hw: Hw<'_>, number: u32, vctx: &VirtualContext) -> Result<Past> {
    // No transfer can start from here on, but one may have started just before.
    if !is_idle(hw, number, vctx)? {
        return Err(EBUSY);
    }
    let before = vctx.past.lock().counters;
    Ok(Past {
        ticket: hw.last_ticket(number)?,
        counters: before + hw.context_counters(number)?,
    })
}
