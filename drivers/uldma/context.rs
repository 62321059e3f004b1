// SPDX-License-Identifier: GPL-2.0

//! Register contexts: who has which, and the pages that they share with the device.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    engine,
    events::Events,
    hw::{
        layout,
        ContextSetup,
        Hardware, //
    },
    kernel_ext::{
        dma::{
            self,
            SharedPage, //
        },
        random, //
    },
    method::Method,
    status_page::StatusPage,
    uapi, //
};

/// Who wants a context, and what kind.
pub(crate) struct Wish {
    /// Space whose pages it may name.
    pub(crate) space: u32,
    pub(crate) method: Method,
    /// Whether transfers move nothing.
    pub(crate) no_data: bool,
    pub(crate) events: Arc<Events>,
}

/// A context that was taken.
pub(crate) struct Taken {
    pub(crate) number: u32,
    pub(crate) page: Arc<StatusPage>,
    /// What initiations have to name; 0 if the method needs no key.
    pub(crate) key: u64,
    /// The descriptors, if the method needs any.
    pub(crate) queue: Option<Arc<SharedPage>>,
}

struct Slot {
    page: Arc<StatusPage>,
    address: DmaAddress,
    /// The descriptors, and where the device finds them.
    queue: Option<(Arc<SharedPage>, DmaAddress)>,
    /// None for the kernel's context.
    events: Option<Arc<Events>>,
    /// Wrong keys that were told of.
    bad_keys: u32,
}

/// The contexts of one device.
#[pin_data]
pub(crate) struct Contexts {
    #[pin]
    slots: Mutex<KVec<Option<Slot>>>,
}

impl Contexts {
    /// Creates `count` free contexts.
    pub(crate) fn new(count: u32) -> Result<impl PinInit<Self>> {
        let mut slots = KVec::new();
        for _ in 0..count {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(pin_init!(Self {
            slots <- new_mutex!(slots, "uldma::Contexts::slots"),
        }))
    }

    /// Enables the kernel's context, whose status page the engine reads.
    pub(crate) fn take_kernel(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        page: Arc<StatusPage>,
    ) -> Result {
        let mut slots = self.slots.lock();
        let slot = slots.first_mut().ok_or(ENOSPC)?;
        let setup = ContextSetup {
            interrupt_always: true,
            ..ContextSetup::default()
        };
        *slot = Some(Slot::enable(
            dev,
            hw,
            engine::CONTEXT,
            setup,
            page,
            None,
            None,
        )?);
        Ok(())
    }

    /// Enables a free context.
    ///
    /// # Errors
    ///
    /// `EBUSY` when all are taken.
    pub(crate) fn take(&self, dev: &Device<Bound>, hw: &dyn Hardware, wish: Wish) -> Result<Taken> {
        let method = wish.method;
        let page = Arc::new(StatusPage::new()?, GFP_KERNEL_ACCOUNT)?;
        let queue = match method.needs_queue() {
            true => Some(Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?),
            false => None,
        };
        let mut slots = self.slots.lock();
        let is_free = |number: &usize| slots.get(*number).is_some_and(Option::is_none);
        // A key can name the first ones only, so leave these for those who need one.
        let named = usize::try_from(layout::KEY_CONTEXTS)?.min(slots.len());
        let number = match method.needs_key() {
            true => (1..named).find(is_free),
            false => {
                let mut numbers = (1..slots.len()).rev();
                numbers.find(is_free)
            }
        };
        let number = number.ok_or(EBUSY)?;
        let slot = slots.get_mut(number).ok_or(EBUSY)?;
        let number = u32::try_from(number)?;
        let key = match method.needs_key() {
            true => new_key(number),
            false => 0,
        };
        let setup = ContextSetup {
            space: wish.space,
            methods: method.bit(),
            key,
            no_data: wish.no_data,
            ..ContextSetup::default()
        };
        let events = Some(wish.events);
        *slot = Some(Slot::enable(
            dev,
            hw,
            number,
            setup,
            page.clone(),
            queue.clone(),
            events,
        )?);
        Ok(Taken {
            number,
            page,
            key,
            queue,
        })
    }

    /// Disables a context, and frees it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when the device does not let go of it: it stays taken until the device is
    /// unbound, since the device may still write its status page.
    pub(crate) fn give_back(&self, dev: &Device<Bound>, hw: &dyn Hardware, number: u32) -> Result {
        hw.disable_context(dev, number).inspect_err(|err| {
            dev_err!(dev, "context {number} does not stop: {err:?}\n");
        })?;
        let mut slots = self.slots.lock();
        let place = usize::try_from(number).ok();
        if let Some(slot) = place.and_then(|place| slots.get_mut(place)) {
            if let Some(slot) = slot.take() {
                slot.unmap(dev);
            }
        }
        Ok(())
    }

    /// How many are taken, without the kernel's.
    pub(crate) fn used(&self) -> u32 {
        let slots = self.slots.lock();
        let used = slots.iter().skip(1).filter(|slot| slot.is_some());
        u32::try_from(used.count()).unwrap_or(u32::MAX)
    }

    /// Tells the openers of all contexts that transfers may have ended.
    pub(crate) fn progress(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let slots = self.slots.lock();
        for (number, slot) in slots.iter().enumerate() {
            let Some(Slot {
                page,
                events: Some(events),
                ..
            }) = slot
            else {
                continue;
            };
            let completed = page.completed();
            events.context_progress();
            if events.has_eventfd() {
                hw.arm_context(dev, u32::try_from(number)?, completed)?;
            }
        }
        Ok(())
    }

    /// Reports which contexts have named wrong keys since it was last called.
    pub(crate) fn report_bad_keys(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut slots = self.slots.lock();
        for (number, slot) in slots.iter_mut().enumerate().skip(1) {
            let Some(slot) = slot else {
                continue;
            };
            let bad_keys = hw.bad_keys(dev, u32::try_from(number)?)?;
            // The device takes no more than a few of each context, so the log cannot be flooded by
            // one; whoever takes a new context for more leaves a line for each.
            if bad_keys >= layout::MAX_BAD_KEYS && slot.bad_keys < layout::MAX_BAD_KEYS {
                dev_warn!(
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
        for slot in self.slots.lock().iter_mut() {
            if let Some(slot) = slot.take() {
                slot.unmap(dev);
            }
        }
    }
}

/// A key that nobody can guess, for context `number`.
fn new_key(number: u32) -> u64 {
    let context = u64::from(uapi::ULDMA_KEY_CONTEXT_MASK);
    random::u64() & !context | u64::from(number) & context
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
        events: Option<Arc<Events>>,
    ) -> Result<Self> {
        let mut slot = Self {
            address: page.map(dev)?,
            page,
            queue: None,
            events,
            bad_keys: 0,
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
