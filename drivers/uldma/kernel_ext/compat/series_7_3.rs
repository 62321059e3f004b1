// SPDX-License-Identifier: GPL-2.0

//! Linux 7.3, and newer series that no module here is for.

use core::mem;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres::{
        self,
        Devres, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    faux,
    irq::{
        self,
        Flags,
        IrqRequest,
        IrqReturn,
        ThreadedIrqReturn, //
    },
    module_param::ModuleParamAccess,
    pci,
    prelude::*,
    ptr::KnownSize,
    sync::{
        barrier,
        Arc, //
    }, //
};

use super::{
    IrqHandler,
    IrqThread, //
};
use crate::kernel_ext::irq_mask::{
    Handled,
    IrqMask, //
};

/// A PCI BAR that is unmapped when its device is unbound.
pub(crate) use kernel::pci::DevresBar;

/// The information about the matching device ID that `probe()` gets.
pub(crate) type IdInfo<'a, T> = Option<&'a T>;

/// Makes the table of PCI device IDs `$table` of a driver that has no information about each.
macro_rules! pci_device_table {
    ($table:ident, [$($id:expr),+ $(,)?]) => {
        ::kernel::pci_device_table!($table, (), [$(($id, ())),+]);
    };
}
pub(crate) use pci_device_table;

/// The module's own `struct module`.
macro_rules! this_module {
    () => {
        ::kernel::module::this_module::<crate::LocalModule>()
    };
}
pub(crate) use this_module;

pub(crate) use kernel::io::{
    io_read as dma_read,
    io_write as dma_write, //
};

/// A condition variable for `poll()`, which is freed after a grace period of RCU without waiting for it.
pub(crate) use kernel::sync::poll::PollCondVarBox;

/// Bus address of coherent memory.
pub(crate) fn dma_address<T: KnownSize + ?Sized>(memory: &Coherent<T>) -> DmaAddress {
    memory.dma_address()
}

/// The value of a module parameter.
pub(crate) fn parameter<T: Copy>(parameter: &ModuleParamAccess<T>) -> T {
    parameter.value()
}

/// Orders loads before it and loads after it, as other CPUs see them.
pub(crate) fn smp_rmb() {
    barrier::smp_mb(barrier::Read);
}

/// The device that a registration of the faux bus keeps bound.
pub(crate) fn faux_device(registration: &faux::Registration) -> &Device<Bound> {
    registration.as_ref().as_ref()
}

/// The MSI-X vectors of a PCI device, which are freed when it is unbound.
pub(crate) struct IrqVectors<'bound> {
    dev: &'bound Device<Bound>,
    /// `'static` stands for as long as the device is bound.
    requests: KVec<Option<IrqRequest<'static>>>,
}

impl<'bound> IrqVectors<'bound> {
    /// Maximum number of vectors.
    pub(crate) const MOST: u32 = u32::MAX;

    /// Allocates `count` vectors.
    pub(crate) fn new(pdev: &'bound pci::Device<Bound>, count: u32) -> Result<Self> {
        let types = pci::IrqTypes::default().with(pci::IrqType::MsiX);
        let vectors = pdev.alloc_irq_vectors(count, count, types)?;
        let mut requests = KVec::new();
        for index in 0..vectors.len() {
            let request: IrqRequest<'_> = vectors.index(index)?.into();
            // SAFETY: The type differs in its lifetime only. Devres keeps the vectors from below until
            // the device is unbound, and so it does every registration made of the request, which
            // it releases before the vectors.
            let request = unsafe { mem::transmute::<IrqRequest<'_>, IrqRequest<'static>>(request) };
            requests.push(Some(request), GFP_KERNEL)?;
        }
        // SAFETY: The type differs in its lifetime only. Devres drops the vectors while the device
        // that they borrow is still there.
        let vectors = unsafe {
            mem::transmute::<pci::IrqVectorRegistration<'_>, pci::IrqVectorRegistration<'static>>(
                vectors,
            )
        };
        devres::register(pdev.as_ref(), vectors, GFP_KERNEL)?;
        Ok(Self {
            dev: pdev.as_ref(),
            requests,
        })
    }

    /// Takes the request of vector `index`, which can be used once.
    fn take(&mut self, index: usize) -> Result<IrqRequest<'static>> {
        self.requests
            .get_mut(index)
            .and_then(Option::take)
            .ok_or(EINVAL)
    }

    fn adapt<T>(&self, mask: Arc<IrqMask>, handler: T) -> Adapted<T> {
        // SAFETY: The type differs in its lifetime only, and the handler is called as long as its
        // registration lives, which devres ends before the device is unbound.
        let dev = unsafe { mem::transmute::<&Device<Bound>, &'static Device<Bound>>(self.dev) };
        Adapted { dev, mask, handler }
    }

    /// Has `handler` handle vector `index`, which `mask` masks when it interrupts, until the registration
    /// is dropped.
    pub(crate) fn request<T: IrqHandler>(
        &mut self,
        index: usize,
        name: &'static CStr,
        mask: Arc<IrqMask>,
        handler: T,
    ) -> Result<IrqRegistration<T>> {
        let request = self.take(index)?;
        let handled = Handled::new(mask.clone(), request.irq());
        let handler = Ok::<_, Error>(self.adapt(mask, handler));
        // SAFETY: `Devres` drops the registration when the device is unbound, if not before.
        let registration =
            unsafe { irq::Registration::new(request, Flags::TRIGGER_NONE, name, handler) };
        Ok(IrqRegistration {
            _handled: handled,
            _registration: Devres::new(self.dev, registration)?,
        })
    }

    /// Has `handler` handle vector `index` in a thread until the registration is dropped. The vector is
    /// masked from its interrupt until the handler returns.
    pub(crate) fn request_threaded<T: IrqThread>(
        &mut self,
        index: usize,
        name: &'static CStr,
        handler: T,
    ) -> Result<IrqThreadRegistration<T>> {
        let (request, mask) = (self.take(index)?, IrqMask::new()?);
        let handled = Handled::new(mask.clone(), request.irq());
        let handler = Ok::<_, Error>(self.adapt(mask, handler));
        // SAFETY: `Devres` drops the registration when the device is unbound, if not before.
        let registration =
            unsafe { irq::ThreadedRegistration::new(request, Flags::TRIGGER_NONE, name, handler) };
        Ok(IrqThreadRegistration {
            _handled: handled,
            _registration: Devres::new(self.dev, registration)?,
        })
    }
}

/// A handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqRegistration<T: IrqHandler> {
    _handled: Handled,
    _registration: Devres<irq::Registration<'static, Adapted<T>>>,
}

/// A threaded handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqThreadRegistration<T: IrqThread> {
    _handled: Handled,
    _registration: Devres<irq::ThreadedRegistration<'static, Adapted<T>>>,
}

/// A handler as the `kernel` crate calls it.
struct Adapted<T> {
    /// `'static` stands for as long as the handler is registered.
    dev: &'static Device<Bound>,
    mask: Arc<IrqMask>,
    handler: T,
}

impl<T: IrqHandler> irq::Handler for Adapted<T> {
    fn handle(&self) -> IrqReturn {
        self.mask.mask();
        self.handler.handle(self.dev)
    }
}

impl<T: IrqThread> irq::ThreadedHandler for Adapted<T> {
    fn handle(&self) -> ThreadedIrqReturn {
        self.mask.mask();
        ThreadedIrqReturn::WakeThread
    }

    fn handle_threaded(&self) -> IrqReturn {
        let handled = self.handler.handle(self.dev);
        self.mask.unmask();
        handled
    }
}
