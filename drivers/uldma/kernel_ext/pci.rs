// SPDX-License-Identifier: GPL-2.0

//! PCI calls that `kernel::pci` lacks.

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    pci,
    prelude::*, //
};

unsafe extern "C" {
    fn uldma_mask_vector(dev: *mut bindings::device, vector: u32, masked: u32) -> c_int;
}

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

/// Masks or unmasks an MSI-X vector of a PCI device, which has a handler. What interrupted while it
/// was masked interrupts when it is unmasked. Calls have to take turns with the opposite one.
///
/// # Errors
///
/// `EINVAL` if there is no such vector, or the device is not on PCI.
pub(crate) fn mask_vector(dev: &Device<Bound>, vector: u16, masked: bool) -> Result {
    let raw = core::ptr::from_ref(dev).cast_mut().cast();
    // SAFETY: `Device` is transparent over `struct device`, which is alive while it is bound.
    to_result(unsafe { uldma_mask_vector(raw, vector.into(), masked.into()) })
}
