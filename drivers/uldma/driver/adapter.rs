// SPDX-License-Identifier: GPL-2.0

//! The driver of the uldma adapter.

use kernel::{
    device::{
        Bound,
        Core,
        Device, //
    },
    irq::{
        Flags,
        Handler,
        IrqReturn,
        Registration,
        ThreadedHandler,
        ThreadedRegistration, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

use super::{
    enable,
    Node, //
};
use crate::{
    device::{
        Binding,
        Shared, //
    },
    hw::{
        adapter::Adapter,
        layout, //
    }, //
};

/// The driver.
pub(super) struct Driver;

/// Handles the vector of events.
struct EventHandler(Arc<Shared>);

impl ThreadedHandler for EventHandler {
    fn handle_threaded(&self, device: &Device<Bound>) -> IrqReturn {
        // The only error is a device that has left the bus, which its removal takes care of.
        let _ = self.0.handle_events(device);
        IrqReturn::Handled
    }
}

/// Handles the vector by which the drivers of peers ring.
struct ControlHandler(Arc<Shared>);

impl Handler for ControlHandler {
    fn handle(&self, _device: &Device<Bound>) -> IrqReturn {
        self.0.pump.rung();
        IrqReturn::Handled
    }
}

/// The private data of a bound device; fields are dropped in this order.
#[pin_data]
pub(super) struct Data<'bound> {
    #[pin]
    node: Node<'bound>,
    /// The device is quiet, so no handler has anything left to do.
    #[pin]
    events: ThreadedRegistration<EventHandler>,
    #[pin]
    control: Registration<ControlHandler>,
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
            enable(pdev)?;
            let hw = Arc::pin_init(Adapter::new(pdev)?, GFP_KERNEL)?;
            let binding = Binding::new(pdev.as_ref(), hw)?;
            let shared = binding.shared().clone();
            let vectors = pdev.alloc_irq_vectors(
                layout::MSIX_VECTORS.into(),
                layout::MSIX_VECTORS.into(),
                pci::IrqTypes::default().with(pci::IrqType::MsiX),
            )?;
            let (event, control) = vectors.into_inner();

            Ok(try_pin_init!(Data {
                control <- pdev.request_irq(
                    control,
                    Flags::TRIGGER_NONE,
                    c"uldma-control",
                    Ok::<_, Error>(ControlHandler(shared.clone())),
                ),
                events <- pdev.request_threaded_irq(
                    event,
                    Flags::TRIGGER_NONE,
                    c"uldma-event",
                    Ok::<_, Error>(EventHandler(shared)),
                ),
                node <- Node::new(pdev.as_ref(), binding),
            }))
        })
    }
}
