// SPDX-License-Identifier: GPL-2.0

//! Items of the `kernel` crate that differ between kernel series.
//!
//! Each supported series has a module below with the same items, and the driver's Makefile selects
//! one by the version of the kernel that the driver is built for. The newest is also for series that
//! are newer still. The items have the shape of the newest series as far as the older ones can have it,
//! so that a series is dropped by removing its module.
//!
//! | item | what differs |
//! | --- | --- |
//! | [`DevresBar`] | the type that `pci::Bar::into_devres()` returns |
//! | [`IdInfo`], [`pci_device_table`] | how a driver gets the information of a device ID, and the table's arguments |
//! | [`IrqVectors`], [`IrqHandler`], [`IrqThread`] | which object frees the vectors, and what handlers are passed |
//! | [`dma_address`], [`dma_write`] | names of the calls on coherent memory |
//! | [`faux_device`] | which device a registration of the faux bus hands out |
//! | [`PollCondVarBox`] | whether the crate has a condition variable for `poll()` that is freed by RCU |
//! | [`parameter`] | whether a module parameter is returned by value |
//! | [`smp_rmb`] | the name of the barrier |
//! | [`this_module`] | where the module's own `struct module` is found |

#[cfg(uldma_series = "7.2")]
#[path = "compat/series_7_2.rs"]
mod series;

#[cfg(uldma_series = "7.3")]
#[path = "compat/series_7_3.rs"]
mod series;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    irq::IrqReturn, //
};

pub(crate) use series::{
    dma_address,
    dma_read,
    dma_write,
    faux_device,
    parameter,
    pci_device_table,
    smp_rmb,
    this_module,
    DevresBar,
    IdInfo,
    IrqRegistration,
    IrqThreadRegistration,
    IrqVectors,
    PollCondVarBox, //
};

/// Handles an interrupt in interrupt context.
pub(crate) trait IrqHandler: Send + Sync + 'static {
    /// Handles one interrupt of `dev`; must not sleep.
    fn handle(&self, dev: &Device<Bound>) -> IrqReturn;
}

/// Handles an interrupt in a thread of its own.
pub(crate) trait IrqThread: Send + Sync + 'static {
    /// Handles one interrupt of `dev`; may sleep.
    fn handle(&self, dev: &Device<Bound>) -> IrqReturn;
}
