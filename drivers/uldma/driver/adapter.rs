// SPDX-License-Identifier: GPL-2.0

//! The driver of the uldma adapter.

use kernel::{
    device::{
        Bound,
        Core,
        Device, //
    },
    irq::IrqReturn,
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
        layout,
        KernelDoorbell, //
    },
    kernel_ext::compat::{
        pci_device_table,
        IdInfo,
        IrqHandler,
        IrqRegistration,
        IrqThread,
        IrqThreadRegistration,
        IrqVectors, //
    }, //
};

/// The driver.
pub(super) struct Driver;

/// Handles the event vector.
struct EventHandler(Arc<Shared>);

impl IrqThread for EventHandler {
    fn handle(&self, device: &Device<Bound>) -> IrqReturn {
        // The only error is a device that has left the bus, which its removal takes care of.
        let _ = self.0.handle_events(device);
        IrqReturn::Handled
    }
}

/// Handles the vector of the control channel's doorbell.
struct ControlHandler {
    shared: Arc<Shared>,
    /// The network interface has no vector of its own.
    is_network: bool,
}

impl IrqHandler for ControlHandler {
    fn handle(&self, device: &Device<Bound>) -> IrqReturn {
        if self.is_network {
            self.shared
                .handle_network_doorbell(device, KernelDoorbell::Link.into());
        }
        self.shared.worker.rung();
        IrqReturn::Handled
    }
}

/// Handles the vector of the network interface's doorbell.
struct NetworkHandler(Arc<Shared>);

impl IrqHandler for NetworkHandler {
    fn handle(&self, device: &Device<Bound>) -> IrqReturn {
        self.0
            .handle_network_doorbell(device, KernelDoorbell::Network.into());
        IrqReturn::Handled
    }
}

/// Handles the interrupts as long as it lives.
pub(super) struct Interrupts {
    _network: Option<IrqRegistration<NetworkHandler>>,
    _control: IrqRegistration<ControlHandler>,
    _events: IrqThreadRegistration<EventHandler>,
}

pci_device_table!(
    PCI_TABLE,
    [pci::DeviceId::from_id(
        pci::Vendor::REDHAT,
        layout::DEVICE_ID as u32
    )]
);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Node<'bound, Interrupts>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: IdInfo<'bound, Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            let sleep = enable(pdev)?;
            let hw = Arc::pin_init(Adapter::new(pdev)?, GFP_KERNEL)?;
            let has_network_vector = hw.has_network_vector();
            let binding = Binding::new(pdev.as_ref(), hw.clone())?;
            let shared = binding.shared().clone();
            let count = if has_network_vector {
                layout::MSIX_VECTORS
            } else {
                layout::VECTOR_NETWORK
            };
            let mut vectors = IrqVectors::new(pdev, count.into())?;
            let mask = |vector| hw.mask_of(vector).cloned();
            let network = if has_network_vector {
                let (vector, handler) = (layout::VECTOR_NETWORK, NetworkHandler(shared.clone()));
                Some(vectors.request(vector.into(), c"uldma-network", mask(vector)?, handler)?)
            } else {
                None
            };
            let control = ControlHandler {
                shared: shared.clone(),
                is_network: !has_network_vector,
            };
            let vector = layout::VECTOR_CONTROL;
            let control =
                vectors.request(vector.into(), c"uldma-control", mask(vector)?, control)?;
            let (vector, events) = (layout::VECTOR_EVENT, EventHandler(shared));
            let events = vectors.request_threaded(vector.into(), c"uldma-event", events)?;
            let interrupts = Interrupts {
                _network: network,
                _control: control,
                _events: events,
            };
            Ok(Node::new(pdev.as_ref(), binding, interrupts, Some(sleep)))
        })
    }
}
