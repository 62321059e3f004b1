// SPDX-License-Identifier: GPL-2.0

//! The PCI driver: probe and unbind.

use kernel::{
    device::{
        Bound,
        Core,
        Device, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    irq::{
        self,
        Flags,
        IrqReturn,
        ThreadedHandler, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

use crate::{
    debugfs,
    device::{
        Binding,
        Shared, //
    },
    hw::layout,
    kernel_ext::{
        chardev,
        shrinker, //
    },
    opener::Opener, //
};

/// The driver.
pub(crate) struct Driver;

/// Handles the vector of events.
struct EventHandler(Arc<Shared>);

/// Handles the vector of doorbells.
struct DoorbellHandler(Arc<Shared>);

impl ThreadedHandler for EventHandler {
    fn handle_threaded(&self, device: &Device<Bound>) -> IrqReturn {
        // The only error is a device that has left the bus, which its removal takes care of.
        let _ = self.0.handle_events(device);
        IrqReturn::Handled
    }
}

impl ThreadedHandler for DoorbellHandler {
    fn handle_threaded(&self, device: &Device<Bound>) -> IrqReturn {
        // As for events.
        let _ = self.0.handle_doorbell(device);
        IrqReturn::Handled
    }
}

/// The private data of a bound device; fields are dropped in this order.
#[pin_data]
pub(crate) struct Data<'bound> {
    #[pin]
    debugfs: debugfs::Files,
    /// Nobody is asked for memory from here on.
    shrinker: shrinker::Registration<Shared>,
    /// Nobody can open the device from here on.
    chardev: chardev::Registration<'bound, Opener>,
    /// Ends all calls, mappings and DMA.
    binding: Binding<'bound>,
    /// The device is quiet, so no handler has anything left to do.
    #[pin]
    events: irq::ThreadedRegistration<EventHandler>,
    #[pin]
    doorbells: irq::ThreadedRegistration<DoorbellHandler>,
}

kernel::pci_device_table!(
    PCI_TABLE,
    MODULE_PCI_TABLE,
    <Driver as pci::Driver>::IdInfo,
    [(
        pci::DeviceId::from_id(pci::Vendor::REDHAT, layout::DEVICE_ID as u32),
        ()
    )]
);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Data<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: &'bound Self::IdInfo,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            pdev.enable_device_mem()?;
            pdev.set_master();
            // SAFETY: No DMA address of this device is in use yet.
            unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>())? };

            let binding = Binding::new(pdev)?;
            let shared = binding.shared().clone();
            let vectors = pdev.alloc_irq_vectors(
                layout::MSIX_VECTORS.into(),
                layout::MSIX_VECTORS.into(),
                pci::IrqTypes::default().with(pci::IrqType::MsiX),
            )?;
            let (event, doorbell) = vectors.into_inner();

            Ok(try_pin_init!(Data {
                doorbells <- pdev.request_threaded_irq(
                    doorbell,
                    Flags::TRIGGER_NONE,
                    c"uldma-doorbell",
                    Ok::<_, Error>(DoorbellHandler(shared.clone())),
                ),
                events <- pdev.request_threaded_irq(
                    event,
                    Flags::TRIGGER_NONE,
                    c"uldma-event",
                    Ok::<_, Error>(EventHandler(shared.clone())),
                ),
                binding,
                _: { binding.enable()? },
                chardev: chardev::Registration::new(pdev.as_ref(), c"uldma", shared.clone())?,
                shrinker: shrinker::Registration::new(c"uldma-pins", shared.clone())?,
                debugfs <- debugfs::Files::new(chardev.number(), shared),
            }))
        })
    }
}
