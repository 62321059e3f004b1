// SPDX-License-Identifier: GPL-2.0

//! The drivers, one per kind of hardware, and their common parts.

use kernel::{
    device::{
        Bound,
        Core,
        Device, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    driver::Registration,
    pci,
    prelude::*,
    InPlaceModule,
    ModuleMetadata, //
};

use crate::{
    device::{
        Binding,
        Shared,
        Working, //
    },
    kernel_ext::{
        chardev,
        net::net_device,
        sleep,
        wakeup,
        workqueue::ModuleQueues, //
    },
    mem::lmm,
    net::Interface,
    params,
    user::{
        debugfs,
        open_file::OpenFile, //
    }, //
};

mod adapter;
mod ivshmem;
mod loopback;

/// All drivers of the module.
#[pin_data]
pub(crate) struct Drivers {
    #[pin]
    adapter: Registration<pci::Adapter<adapter::Driver>>,
    #[pin]
    ivshmem: Registration<pci::Adapter<ivshmem::Driver>>,
    loopback: loopback::Devices,
    /// Dropped after all devices.
    _sleep: sleep::ModuleSleep,
    _lmm: lmm::ModuleState,
    /// Created first and dropped last, so that no work outlives them.
    _queues: ModuleQueues,
}

impl InPlaceModule for Drivers {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _queues: {
                let queues = ModuleQueues::new()?;
                wakeup::set(params::wakeup())?;
                queues
            },
            _lmm: lmm::ModuleState::new()?,
            _sleep: sleep::ModuleSleep::new()?,
            adapter <- Registration::new(Self::NAME, module),
            ivshmem <- Registration::new(c"uldma-ivshmem", module),
            loopback: loopback::Devices::new()?,
        })
    }
}

/// The private data of a bound device, whose interrupts `I` handles. Fields are dropped in this
/// order.
#[pin_data]
struct Node<'bound, I> {
    /// The system's sleep does not unbind the driver from here on. Memory of this machine loses
    /// nothing by it.
    _sleep: Option<sleep::Registration>,
    #[pin]
    debugfs: debugfs::Files,
    /// No packet is sent or received from here on.
    network: Option<net_device::Registration<'bound, Interface>>,
    /// The device cannot be opened from here on.
    chardev: chardev::Registration<'bound, OpenFile>,
    /// Ends all calls, mappings and DMA.
    binding: Binding<'bound>,
    /// No handler queues work from here on.
    interrupts: I,
    /// Ends that work.
    working: Working,
}

impl<'bound, I: 'bound> Node<'bound, I> {
    /// Enables `dev`, whose `interrupts` are handled already, and creates its device file.
    fn new(
        dev: &'bound Device<Bound>,
        binding: Binding<'bound>,
        interrupts: I,
        sleep: Option<sleep::Registration>,
    ) -> impl PinInit<Self, Error> + 'bound {
        let shared = binding.shared().clone();
        try_pin_init!(Self {
            interrupts,
            binding,
            _sleep: sleep,
            working: binding.enable()?,
            chardev: chardev::Registration::new(dev, c"uldma", shared.clone())?,
            network: register_network(dev, &shared, chardev.number())?,
            debugfs <- debugfs::Files::new(chardev.number(), shared),
        }? Error)
    }
}

/// Makes the network interface of device `number` visible, if it has one.
fn register_network<'bound>(
    dev: &'bound Device<Bound>,
    shared: &Shared,
    number: u32,
) -> Result<Option<net_device::Registration<'bound, Interface>>> {
    let Some(network) = &shared.network else {
        return Ok(None);
    };
    let address = network.driver().address(number);
    net_device::Registration::new(network.clone(), dev, number, address).map(Some)
}

/// Enables memory access, bus mastering and 64-bit DMA of a PCI device, until the system sleeps.
///
/// # Errors
///
/// Those of [`sleep::Registration::new`], and of a device that cannot be enabled.
fn enable(pdev: &pci::Device<Core<'_>>) -> Result<sleep::Registration> {
    let sleep = sleep::Registration::new(pdev.as_ref())?;
    pdev.enable_device_mem()?;
    pdev.set_master();
    // SAFETY: No DMA address of this device is in use yet.
    unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>())? };
    Ok(sleep)
}
