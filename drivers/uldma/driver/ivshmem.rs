// SPDX-License-Identifier: GPL-2.0

//! The driver of QEMU's ivshmem-doorbell.

use kernel::{
    device::Core,
    pci,
    prelude::*,
    sync::Arc, //
};

use super::{
    enable,
    DoorbellHandler,
    Node, //
};
use crate::{
    device::Binding,
    hw::ivshmem::{
        self,
        Ivshmem, //
    },
    kernel_ext::compat::{
        pci_device_table,
        IdInfo,
        IrqThreadRegistration,
        IrqVectors, //
    },
    options, //
};

/// The driver.
pub(super) struct Driver;

/// The private data of a bound device; fields are dropped in this order.
#[pin_data]
pub(super) struct Data<'bound> {
    #[pin]
    node: Node<'bound>,
    doorbells: IrqThreadRegistration<DoorbellHandler>,
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
    type Data<'bound> = Data<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: IdInfo<'bound, Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            enable(pdev)?;
            let hw = Arc::new(Ivshmem::new(pdev, options::ivshmem_nodes())?, GFP_KERNEL)?;
            let binding = Binding::new(pdev.as_ref(), hw)?;
            let shared = binding.shared().clone();
            let mut vectors = IrqVectors::new(pdev, ivshmem::VECTORS)?;

            Ok(try_pin_init!(Data {
                doorbells: vectors.request_threaded(0, c"uldma-doorbell", DoorbellHandler(shared))?,
                node <- Node::new(pdev.as_ref(), binding),
            }))
        })
    }
}
