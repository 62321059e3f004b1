// SPDX-License-Identifier: GPL-2.0

//! Contexts in use: what the device accesses for them, and the virtual context that has each.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

use super::{
    virtual_context::Shares,
    VirtualContext, //
};
use crate::{
    hw::{
        ContextSetup,
        Hw, //
    },
    kernel_ext::dma::{
        self,
        SharedPage, //
    },
    user_abi::status_page::StatusPage, //
};

/// A context in use.
pub(super) struct Slot {
    pub(super) page: Arc<StatusPage>,
    pub(super) address: DmaAddress,
    /// The page of descriptors and its bus address.
    pub(super) queue: Option<(Arc<SharedPage>, DmaAddress)>,
    /// None for the kernel's context.
    pub(super) vctx: Option<Arc<VirtualContext>>,
    pub(super) since: Instant<Monotonic>,
    /// Number of wrong keys that were reported.
    pub(super) bad_keys: u32,
    /// None for the kernel's context.
    pub(super) _shares: Option<Shares>,
    /// None for the kernel's context.
    pub(super) _counted: Option<Counted>,
}

/// A context in use, which is counted until this is dropped.
pub(super) struct Counted(Arc<Atomic<u32>>);

impl Counted {
    pub(super) fn new(used: &Arc<Atomic<u32>>) -> Self {
        used.fetch_add(1, Relaxed);
        Self(used.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Slot {
    /// Enables context `number` with `setup` and the given pages.
    pub(super) fn enable(
        hw: Hw<'_>,
        number: u32,
        setup: ContextSetup,
        page: Arc<StatusPage>,
        queue: Option<Arc<SharedPage>>,
        vctx: Option<Arc<VirtualContext>>,
    ) -> Result<Self> {
        let mut slot = Self {
            address: page.map(hw.dev())?,
            page,
            queue: None,
            vctx,
            since: Instant::now(),
            bad_keys: 0,
            _shares: None,
            _counted: None,
        };
        let result = (|| {
            if let Some(queue) = queue {
                let address = queue.map(hw.dev())?;
                slot.queue = Some((queue, address));
            }
            let setup = ContextSetup {
                status_page: slot.address,
                queue: slot.queue.as_ref().map_or(0, |(_, address)| *address),
                ..setup
            };
            hw.enable_context(number, &setup)
        })();
        match result {
            Ok(()) => Ok(slot),
            Err(err) => {
                slot.unmap(hw.dev());
                Err(err)
            }
        }
    }

    /// Unmaps the pages, which the device does not use any more.
    pub(super) fn unmap(self, dev: &Device<Bound>) {
        dma::unmap(dev, self.address);
        if let Some((_, address)) = self.queue {
            dma::unmap(dev, address);
        }
    }
}
