// SPDX-License-Identifier: GPL-2.0

//! The driver of QEMU's ivshmem-doorbell.

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
        ivshmem::{
            self,
            Ivshmem,
            VECTORS,
            VECTOR_CONTROL,
            VECTOR_NETWORK,
            VECTOR_SEGMENTS, //
        },
        Doorbells,
        Hardware,
        KernelDoorbell,
        SegmentDoorbells, //
    },
    kernel_ext::compat::{
        pci_device_table,
        IdInfo,
        IrqHandler,
        IrqRegistration,
        IrqVectors, //
    },
    params, //
};

/// The driver.
pub(super) struct Driver;

/// Handles the vector of all doorbells, by which peers ring for the network interface and for segments,
/// too, unless both nodes have a vector for that.
struct DoorbellHandler {
    shared: Arc<Shared>,
    hw: Arc<Ivshmem>,
}

impl IrqHandler for DoorbellHandler {
    fn handle(&self, device: &Device<Bound>) -> IrqReturn {
        // No register says what rang.
        let of_network = match self.hw.network_doorbell() {
            KernelDoorbell::Network => Doorbells::ALL.without(KernelDoorbell::Network),
            KernelDoorbell::Link => Doorbells::ALL,
        };
        self.shared.handle_network_doorbell(device, of_network);
        self.shared.handle_other_doorbells(Doorbells::ALL);
        IrqReturn::Handled
    }
}

/// Handles the vector of the network interface's doorbell.
struct NetworkHandler {
    shared: Arc<Shared>,
    hw: Arc<Ivshmem>,
}

impl IrqHandler for NetworkHandler {
    fn handle(&self, device: &Device<Bound>) -> IrqReturn {
        self.hw.vector_rang(VECTOR_NETWORK);
        self.shared
            .handle_network_doorbell(device, KernelDoorbell::Network.into());
        IrqReturn::Handled
    }
}

/// Handles the vector of the doorbells of segments.
struct SegmentHandler {
    shared: Arc<Shared>,
    hw: Arc<Ivshmem>,
}

impl IrqHandler for SegmentHandler {
    fn handle(&self, _device: &Device<Bound>) -> IrqReturn {
        self.hw.vector_rang(VECTOR_SEGMENTS);
        // No register says which rang.
        self.shared.worker.segments_rung(SegmentDoorbells::ALL);
        IrqReturn::Handled
    }
}

/// Handles the interrupts as long as it lives.
pub(super) struct Interrupts {
    _segments: Option<IrqRegistration<SegmentHandler>>,
    _network: Option<IrqRegistration<NetworkHandler>>,
    _doorbell: IrqRegistration<DoorbellHandler>,
}

/// Allocates as many vectors as there are, and the kernel hands out, up to [`VECTORS`].
fn vectors<'bound>(pdev: &'bound pci::Device<Bound>) -> Result<(IrqVectors<'bound>, u16)> {
    let mut count = match u32::from(VECTOR_SEGMENTS) < IrqVectors::MOST {
        true => VECTORS,
        false => VECTOR_SEGMENTS,
    };
    loop {
        match IrqVectors::new(pdev, count.into()) {
            Err(_) if count > 1 => count -= 1,
            allocated => return Ok((allocated?, count)),
        }
    }
}

impl Interrupts {
    /// Requests the vectors of `pdev`, of which all but the first need not be there, and rings those.
    fn new(pdev: &pci::Device<Bound>, shared: &Arc<Shared>, hw: &Arc<Ivshmem>) -> Result<Self> {
        let (mut vectors, count) = vectors(pdev)?;
        let mask = |vector| hw.mask_of(vector).cloned();
        let segments = if count > VECTOR_SEGMENTS {
            let vector = VECTOR_SEGMENTS;
            let handler = SegmentHandler {
                shared: shared.clone(),
                hw: hw.clone(),
            };
            Some(vectors.request(vector.into(), c"uldma-segments", mask(vector)?, handler)?)
        } else {
            None
        };
        let network = if count > VECTOR_NETWORK && shared.network.is_some() {
            let vector = VECTOR_NETWORK;
            let handler = NetworkHandler {
                shared: shared.clone(),
                hw: hw.clone(),
            };
            Some(vectors.request(vector.into(), c"uldma-network", mask(vector)?, handler)?)
        } else {
            None
        };
        let vector = VECTOR_CONTROL;
        let handler = DoorbellHandler {
            shared: shared.clone(),
            hw: hw.clone(),
        };
        let doorbell = vectors.request(vector.into(), c"uldma-doorbell", mask(vector)?, handler)?;
        if network.is_some() {
            hw.probe_vector(pdev.as_ref(), VECTOR_NETWORK)?;
        }
        if segments.is_some() {
            hw.probe_vector(pdev.as_ref(), VECTOR_SEGMENTS)?;
            hw.offer_segment_vector();
        }
        Ok(Self {
            _segments: segments,
            _network: network,
            _doorbell: doorbell,
        })
    }
}

pci_device_table!(
    PCI_TABLE,
    [pci::DeviceId::from_id(
        pci::Vendor::REDHAT_QUMRANET,
        ivshmem::DEVICE_ID
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
            let hw = Arc::new(Ivshmem::new(pdev, params::ivshmem_nodes())?, GFP_KERNEL)?;
            let binding = Binding::new(pdev.as_ref(), hw.clone())?;
            let interrupts = Interrupts::new(pdev, binding.shared(), &hw)?;
            Ok(Node::new(pdev.as_ref(), binding, interrupts, Some(sleep)))
        })
    }
}
