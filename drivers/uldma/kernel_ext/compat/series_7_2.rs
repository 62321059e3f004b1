// SPDX-License-Identifier: GPL-2.0

//! Linux 7.2.

use core::{
    mem::ManuallyDrop,
    ops::{
        Deref,
        RangeInclusive, //
    }, //
};

use kernel::{
    alloc::AllocError,
    bindings,
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
        IrqReturn,
        ThreadedIrqReturn, //
    },
    module_param::ModuleParamAccess,
    pci,
    prelude::*,
    ptr::KnownSize,
    sync::{
        barrier,
        poll::PollCondVar,
        Arc,
        CondVar,
        LockClassKey, //
    },
    types::Opaque, //
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

pub(crate) use kernel::{
    dma_read,
    dma_write, //
};

/// A condition variable for `poll()`, which is freed after a grace period of RCU without waiting for it.
pub(crate) struct PollCondVarBox(ManuallyDrop<Pin<KBox<FreedByRcu>>>);

#[pin_data]
#[repr(C)]
struct FreedByRcu {
    #[pin]
    condvar: PollCondVar,
    rcu: Opaque<bindings::callback_head>,
}

// SAFETY: The condition variable is `Send`, and only `drop` uses the head.
unsafe impl Send for FreedByRcu {}
// SAFETY: As above, for `Sync`.
unsafe impl Sync for FreedByRcu {}

// Then the queue is the whole of it.
const _: () = assert!(size_of::<CondVar>() == size_of::<bindings::wait_queue_head>());

impl PollCondVarBox {
    /// Creates a condition variable without waiters.
    pub(crate) fn new(
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
    ) -> Result<Self, AllocError> {
        let condvar = pin_init!(FreedByRcu {
            condvar <- PollCondVar::new(name, key),
            rcu: Opaque::uninit(),
        });
        let condvar = KBox::pin_init(condvar, GFP_KERNEL).map_err(|_| AllocError)?;
        Ok(Self(ManuallyDrop::new(condvar)))
    }
}

impl Deref for PollCondVarBox {
    type Target = PollCondVar;

    fn deref(&self) -> &PollCondVar {
        &self.0.condvar
    }
}

impl Drop for PollCondVarBox {
    fn drop(&mut self) {
        let condvar: &CondVar = self;
        let queue: *mut bindings::wait_queue_head = core::ptr::from_ref(condvar).cast_mut().cast();
        // SAFETY: The queue is all that a `CondVar` has, as asserted above, and is initialised.
        unsafe { bindings::__wake_up_pollfree(queue) };
        // SAFETY: It is not used after this.
        let condvar = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: It stays where it is until it is freed.
        let all = KBox::into_raw(unsafe { Pin::into_inner_unchecked(condvar) });
        // SAFETY: `all` was allocated by `kmalloc()`, and the head is a part of it. Waiters have left the
        // queue, and access it for a grace period only; nothing else has to be dropped.
        unsafe { bindings::kvfree_call_rcu((*all).rcu.get(), all.cast()) };
    }
}

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

    /// Has `handler` handle vector `index`, which `mask` masks when it interrupts, until the registration
    /// is dropped.
    pub(crate) fn request<T: IrqHandler>(
        &mut self,
        index: usize,
        name: &'static CStr,
        mask: Arc<IrqMask>,
        handler: T,
    ) -> Result<IrqRegistration<T>> {
        let request = self.vector(index)?;
        let handled = Handled::new(mask.clone(), request.irq());
        let handler = Ok::<_, Error>(Adapted { mask, handler });
        let registration = irq::Registration::new(request, Flags::TRIGGER_NONE, name, handler);
        Ok(IrqRegistration {
            _handled: handled,
            _registration: KBox::pin_init(registration, GFP_KERNEL)?,
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
        let (request, mask) = (self.vector(index)?, IrqMask::new()?);
        let handled = Handled::new(mask.clone(), request.irq());
        let handler = Ok::<_, Error>(Adapted { mask, handler });
        let registration =
            irq::ThreadedRegistration::new(request, Flags::TRIGGER_NONE, name, handler);
        Ok(IrqThreadRegistration {
            _handled: handled,
            _registration: KBox::pin_init(registration, GFP_KERNEL)?,
        })
    }
}

/// A handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqRegistration<T: IrqHandler> {
    _handled: Handled,
    _registration: Pin<KBox<irq::Registration<Adapted<T>>>>,
}

/// A threaded handler of a vector; the vector is released when this is dropped.
pub(crate) struct IrqThreadRegistration<T: IrqThread> {
    _handled: Handled,
    _registration: Pin<KBox<irq::ThreadedRegistration<Adapted<T>>>>,
}

/// A handler as the `kernel` crate calls it.
struct Adapted<T> {
    mask: Arc<IrqMask>,
    handler: T,
}

impl<T: IrqHandler> irq::Handler for Adapted<T> {
    fn handle(&self, dev: &Device<Bound>) -> IrqReturn {
        self.mask.mask();
        self.handler.handle(dev)
    }
}

impl<T: IrqThread> irq::ThreadedHandler for Adapted<T> {
    fn handle(&self, _dev: &Device<Bound>) -> ThreadedIrqReturn {
        self.mask.mask();
        ThreadedIrqReturn::WakeThread
    }

    fn handle_threaded(&self, dev: &Device<Bound>) -> IrqReturn {
        let handled = self.handler.handle(dev);
        self.mask.unmask();
        handled
    }
}
