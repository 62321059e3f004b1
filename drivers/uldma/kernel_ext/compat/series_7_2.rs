// SPDX-License-Identifier: GPL-2.0

//! Linux 7.2.

use core::ops::RangeInclusive;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    dma::{
        Coherent,
        DmaAddress, //
    },
    faux,
    irq::{
        self,
        Flags,
        IrqRequest,
        IrqReturn, //
    },
    module_param::ModuleParamAccess,
    pci,
    prelude::*,
    ptr::KnownSize,
    sync::barrier, //
};

use super::{
    IrqHandler,
    IrqThread, //
};

/// A PCI BAR that is unmapped when its device is unbound.
pub(crate) type DevresBar<const SIZE: usize = 0> = Devres<pci::Bar<'static, SIZE>>;

/// The information about the matching device ID that `probe()` gets.
pub(crate) type IdInfo<'a, T> = &'a T;

/// Makes the table of PCI device IDs `$table` of a driver that has no information about each.
macro_rules! pci_device_table {
    ($table:ident, [$($id:expr),+ $(,)?]) => {
        ::kernel::pci_device_table!($table, MODULE_PCI_TABLE, (), [$(($id, ())),+]);
    };
}
pub(crate) use pci_device_table;

/// The module's own `struct module`.
macro_rules! this_module {
    () => {
        &crate::THIS_MODULE
    };
}
pub(crate) use this_module;

pub(crate) use kernel::dma_write;

/// Bus address of coherent memory.
pub(crate) fn dma_address<T: KnownSize + ?Sized>(memory: &Coherent<T>) -> DmaAddress {
    memory.dma_handle()
}

/// The value of a module parameter.
pub(crate) fn parameter<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    *parameter.value()
}

/// Orders loads before it and loads after it, as other CPUs see them.
pub(crate) fn smp_rmb() {
    barrier::smp_rmb();
}

/// The device that a registration of the faux bus keeps bound.
pub(crate) fn faux_device(registration: &faux::Registration) -> &Device<Bound> {
    let dev: &Device = registration.as_ref();
    // SAFETY: A faux device is bound from when its registration is made until that is dropped.
    unsafe { dev.as_bound() }
}

/// The MSI-X vectors of a PCI device, which are freed when it is unbound.
pub(crate) struct IrqVectors<'bound>(RangeInclusive<pci::IrqVector<'bound>>);

impl<'bound> IrqVectors<'bound> {
    /// Maximum number of vectors: the kernel hands out only the first and the last.
    pub(crate) const MOST: u32 = 2;

    /// Allocates `count` vectors, at most [`Self::MOST`].
    pub(crate) fn new(pdev: &'bound pci::Device<Bound>, count: u32) -> Result<Self> {
        let types = pci::IrqTypes::default().with(pci::IrqType::MsiX);
        pdev.alloc_irq_vectors(count, count, types).map(Self)
    }

    fn vector(&self, index: usize) -> Result<IrqRequest<'bound>> {
        match index {
            0 => *self.0.start(),
            _ => *self.0.end(),
        }
        .try_into()
    }

    /// Has `handler` handle vector `index` until the registration is dropped.
    pub(crate) fn request<T: IrqHandler>(
        &mut self,
        index: usize,
        name: &'static CStr,
        handler: T,
    ) -> Result<IrqRegistration<T>> {
        let handler = Ok::<_, Error>(Adapted(handler));
        let registration =
            irq::Registration::new(self.vector(index)?, Flags::TRIGGER_NONE, name, handler);
        Ok(IrqRegistration {
            _registration: KBox::pin_init(registration, GFP_KERNEL)?,
        })
    }

    /// Has `handler` handle vector `index` in a thread until the registration is dropped.
    pub(crate) fn request_threaded<T: IrqThread>(
        &mut self,
        index: usize,
        name: &'static CStr,
        handler: T,
    ) -> Result<IrqThreadRegistration<T>> {
        let handler = Ok::<_, Error>(Adapted(handler));
        let registration =
            irq::ThreadedRegistration::new(self.vector(index)?, Flags::TRIGGER_NONE, name, handler);
        Ok(IrqThreadRegistration {
            _registration: KBox::pin_init(registration, GFP_KERNEL)?,
        })
    }
}

/// A handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqRegistration<T: IrqHandler> {
    _registration: Pin<KBox<irq::Registration<Adapted<T>>>>,
}

/// A threaded handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqThreadRegistration<T: IrqThread> {
    _registration: Pin<KBox<irq::ThreadedRegistration<Adapted<T>>>>,
}

/// A handler as the `kernel` crate calls it.
struct Adapted<T>(T);

impl<T: IrqHandler> irq::Handler for Adapted<T> {
    fn handle(&self, dev: &Device<Bound>) -> IrqReturn {
        self.0.handle(dev)
    }
}

impl<T: IrqThread> irq::ThreadedHandler for Adapted<T> {
    fn handle_threaded(&self, dev: &Device<Bound>) -> IrqReturn {
        self.0.handle(dev)
    }
}
