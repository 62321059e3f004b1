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
        Delta,
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

/// The owner of a context.
///
/// Nothing waits under `Contexts::state`, so a context on its way from one owner to the next one has
/// states of its own.
pub(super) enum Owner {
    /// The driver, until the device is unbound.
    Kernel,
    /// A virtual context, which uses it.
    Attached(Arc<VirtualContext>),
    /// A virtual context that seems to be idle. A thread is removing its mappings, and attaches it again if
    /// it was not idle after all.
    Detaching(Arc<VirtualContext>),
    /// A virtual context that uses it no more. A thread is waiting for the device to stop.
    Leaving(Arc<VirtualContext>),
    /// None, but the device has not stopped, so the context is in use until the device is unbound.
    Kept,
}

/// A context in use, which is counted until this is dropped.
struct Counted(Arc<Atomic<u32>>);

impl Counted {
    fn new(used: &Arc<Atomic<u32>>) -> Self {
        used.fetch_add(1, Relaxed);
        Self(used.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What the user pays for a context.
pub(super) struct Payment {
    _shares: Shares,
    _counted: Counted,
}

impl Payment {
    /// Counts a context that is paid by `shares`.
    pub(super) fn new(shares: Shares, used: &Arc<Atomic<u32>>) -> Self {
        Self {
            _shares: shares,
            _counted: Counted::new(used),
        }
    }
}

/// A context in use.
pub(super) struct Slot {
    _page: Arc<StatusPage>,
    address: DmaAddress,
    /// The page of descriptors and its bus address.
    queue: Option<(Arc<SharedPage>, DmaAddress)>,
    pub(super) owner: Owner,
    since: Instant<Monotonic>,
    /// Number of wrong keys that were reported.
    pub(super) bad_keys: u32,
    /// None for the kernel's context.
    _payment: Option<Payment>,
}

impl Slot {
    /// Enables context `number` with `setup` and the given pages.
    pub(super) fn enable(
        hw: Hw<'_>,
        number: u32,
        setup: ContextSetup,
        page: Arc<StatusPage>,
        queue: Option<Arc<SharedPage>>,
        owner: Owner,
    ) -> Result<Self> {
        let mut slot = Self {
            address: page.map(hw.dev())?,
            _page: page,
            queue: None,
            owner,
            since: Instant::now(),
            bad_keys: 0,
            _payment: None,
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

    /// Keeps what was paid for the context until the context is free.
    pub(super) fn paid(self, payment: Payment) -> Self {
        Self {
            _payment: Some(payment),
            ..self
        }
    }

    /// Returns the virtual context that is attached, even if it is being detached.
    pub(super) fn attached(&self) -> Option<&Arc<VirtualContext>> {
        match &self.owner {
            Owner::Attached(vctx) | Owner::Detaching(vctx) => Some(vctx),
            Owner::Kernel | Owner::Leaving(_) | Owner::Kept => None,
        }
    }

    /// Returns the virtual context that is attached, if it can be detached without its process
    /// noticing, and the time since it was attached.
    pub(super) fn movable(&self) -> Option<(Delta, &Arc<VirtualContext>)> {
        match &self.owner {
            Owner::Attached(vctx) if vctx.is_movable() => Some((self.since.elapsed(), vctx)),
            _ => None,
        }
    }

    /// Returns true if a thread is removing the mappings of `vctx`, which has not ended meanwhile.
    pub(super) fn is_detaching(&self, vctx: &Arc<VirtualContext>) -> bool {
        matches!(&self.owner, Owner::Detaching(it) if Arc::ptr_eq(it, vctx))
    }

    /// Unmaps the pages, which the device does not use any more.
    pub(super) fn unmap(self, dev: &Device<Bound>) {
        dma::unmap(dev, self.address);
        if let Some((_, address)) = self.queue {
            dma::unmap(dev, address);
        }
    }
}
