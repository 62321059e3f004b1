// SPDX-License-Identifier: GPL-2.0

//! Devices of the faux bus with what `kernel::faux` lacks: private data that lives as long as they
//! are bound, and a DMA mask.
//!
//! C header: `include/linux/device/faux.h`.

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    faux,
    prelude::*, //
};

use super::compat::faux_device;

unsafe extern "C" {
    fn uldma_dma_coerce_mask_and_coherent(dev: *mut bindings::device, mask: u64) -> c_int;
}

/// A driver of faux devices.
pub(crate) trait Driver {
    /// The information that `probe` gets.
    type Info;

    /// The private data of a device.
    type Data<'bound>: Send + 'bound;

    /// Makes the private data of `dev`.
    fn probe<'bound>(
        dev: &'bound Device<Bound>,
        info: Self::Info,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound;
}

/// A faux device, which is bound as long as this object lives, and can be given bus addresses of
/// any memory.
pub(crate) struct Registration<T: Driver> {
    /// Dropped first, as it borrows the bound device.
    _data: Pin<KBox<T::Data<'static>>>,
    _device: faux::Registration,
}

// SAFETY: Nothing can be done with a shared reference.
unsafe impl<T: Driver> Sync for Registration<T> {}

impl<T: Driver> Registration<T> {
    /// Makes the device `name`.
    pub(crate) fn new(name: &CStr, info: T::Info) -> Result<Self> {
        let device = faux::Registration::new(name, None)?;
        // SAFETY: A faux device is bound from when it is made until it is dropped, which is after
        // the private data. `probe` cannot keep the reference elsewhere, since it has to do with
        // any lifetime.
        let dev: &'static Device<Bound> = unsafe { &*core::ptr::from_ref(faux_device(&device)) };
        // CAST: `Device` is `#[repr(transparent)]` over `Opaque<struct device>`.
        let raw = core::ptr::from_ref(dev).cast_mut().cast();
        // SAFETY: The device is valid, and no other thread has a reference to it yet.
        to_result(unsafe { uldma_dma_coerce_mask_and_coherent(raw, u64::MAX) })?;
        Ok(Self {
            _data: KBox::pin_init(T::probe(dev, info), GFP_KERNEL)?,
            _device: device,
        })
    }
}
