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
        IrqRegistration,
        IrqVectors, //
    },
    params, //
};

/// The driver.
pub(super) struct Driver;

pci_device_table!(
    PCI_TABLE,
    [pci::DeviceId::from_id(
        pci::Vendor::REDHAT_QUMRANET,
        ivshmem::DEVICE_ID
    )]
);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Node<'bound, IrqRegistration<DoorbellHandler>>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: IdInfo<'bound, Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            enable(pdev)?;
            let hw = Arc::new(Ivshmem::new(pdev, params::ivshmem_nodes())?, GFP_KERNEL)?;
            let binding = Binding::new(pdev.as_ref(), hw)?;
            let shared = binding.shared().clone();
            let mut vectors = IrqVectors::new(pdev, ivshmem::VECTORS)?;

            let doorbell = vectors.request(0, c"uldma-doorbell", DoorbellHandler(shared))?;
            Ok(Node::new(pdev.as_ref(), binding, doorbell))
        })
    }
}
