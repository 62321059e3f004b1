// SPDX-License-Identifier: GPL-2.0

//! Register contexts: who has which, and their status pages.

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
        ContextSetup,
        Hardware, //
    },
    kernel_ext::dma,
    status_page::StatusPage, //
};

struct Slot {
    page: Arc<StatusPage>,
    address: DmaAddress,
    /// None for the kernel's context.
    events: Option<Arc<Events>>,
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
        *slot = Some(Slot::enable(dev, hw, engine::CONTEXT, 0, 0, page, None)?);
        Ok(())
    }

    /// Enables a free context for `space`; returns its number and status page.
    ///
    /// # Errors
    ///
    /// `EBUSY` when all are taken.
    pub(crate) fn take(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        space: u32,
        methods: u32,
        events: Arc<Events>,
    ) -> Result<(u32, Arc<StatusPage>)> {
        let page = Arc::new(StatusPage::new()?, GFP_KERNEL_ACCOUNT)?;
        let mut slots = self.slots.lock();
        let mut users = slots.iter_mut().enumerate().skip(1);
        let (number, slot) = users.find(|(_, slot)| slot.is_none()).ok_or(EBUSY)?;
        let number = u32::try_from(number)?;
        *slot = Some(Slot::enable(
            dev,
            hw,
            number,
            space,
            methods,
            page.clone(),
            Some(events),
        )?);
        Ok((number, page))
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
                dma::unmap(dev, slot.address);
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

    /// Unmaps all status pages; the device no longer writes them.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        for slot in self.slots.lock().iter_mut() {
            if let Some(slot) = slot.take() {
                dma::unmap(dev, slot.address);
            }
        }
    }
}

impl Slot {
    fn enable(
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        number: u32,
        space: u32,
        methods: u32,
        page: Arc<StatusPage>,
        events: Option<Arc<Events>>,
    ) -> Result<Self> {
        let address = page.map(dev)?;
        let setup = ContextSetup {
            space,
            status_page: address,
            methods,
            interrupt_always: events.is_none(),
        };
        if let Err(err) = hw.enable_context(dev, number, &setup) {
            dma::unmap(dev, address);
            return Err(err);
        }
        Ok(Self {
            page,
            address,
            events,
        })
    }
}
