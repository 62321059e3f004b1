// SPDX-License-Identifier: GPL-2.0

//! PCI calls that `kernel::pci` lacks.

use kernel::{
    bindings,
    device::Bound,
    pci, //
};

/// The one place where a `struct pci_dev` pointer is taken out of [`pci::Device`].
pub(super) fn as_raw(pdev: &pci::Device<Bound>) -> *mut bindings::pci_dev {
    // CAST: `pci::Device` is `#[repr(transparent)]` over `Opaque<struct pci_dev>`.
    core::ptr::from_ref(pdev).cast_mut().cast()
}

/// Takes the device off the bus as a master: it can start no more DMA.
pub(crate) fn clear_master(pdev: &pci::Device<Bound>) {
    // SAFETY: The pointer is valid, and a bound device may be changed by its driver.
    unsafe { bindings::pci_clear_master(as_raw(pdev)) };
}
