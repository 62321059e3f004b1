// SPDX-License-Identifier: GPL-2.0

//! The binding of a device: from its setup to the end of all DMA.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

use crate::{
    hw::{
        gate::GateKeeper,
        Hardware,
        Hw,
        TableSetup, //
    },
    user_abi::events::Events, //
};

use super::{
    RetainedSpaces,
    Shared, //
};

/// The workers of an enabled device. It has to be dropped after the device is quiet and its
/// interrupt handlers are removed.
pub(crate) struct Working(Arc<Shared>);

impl Drop for Working {
    fn drop(&mut self) {
        let Self(shared) = self;
        // Work that waits for the device to be quiet can end now.
        shared.worker.stop();
        let retained = core::mem::replace(&mut *shared.retained.lock(), RetainedSpaces::Unbound);
        if let RetainedSpaces::Last(mut last) = retained {
            while let Some(space) = last {
                last = space.take_retained_before();
            }
        }
    }
}

/// The binding of a device. Dropping it leaves plain memory only.
pub(crate) struct Binding<'bound> {
    shared: Arc<Shared>,
    /// Taken out first when dropped.
    keeper: Option<GateKeeper<'bound>>,
    /// The same of the gate that stays open as long as the device does DMA.
    dma_keeper: Option<GateKeeper<'bound>>,
    dev: &'bound Device<Bound>,
}

impl<'bound> Binding<'bound> {
    /// Sets up `dev` without enabling it.
    pub(crate) fn new(dev: &'bound Device<Bound>, hw: Arc<dyn Hardware>) -> Result<Self> {
        let shared = Shared::new(dev, hw)?;
        let keeper = GateKeeper::open(shared.gate.clone(), dev)?;
        let dma_keeper = GateKeeper::open(shared.optimistic.gate.clone(), dev)?;
        Ok(Self {
            shared,
            keeper: Some(keeper),
            dma_keeper: Some(dma_keeper),
            dev,
        })
    }

    /// Returns the parts that open files share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enables the device. Its interrupt handlers have to be registered before.
    pub(crate) fn enable(&self) -> Result<Working> {
        let shared = &self.shared;
        let (endpoints, endpoint_capacity) = shared.endpoints.directory();
        let setup = TableSetup {
            endpoints,
            endpoint_capacity,
            page_requests: shared.optimistic.address(),
            ..shared.tpt.setup()?
        };
        let hw = Hw::new(self.dev, &*shared.hw);
        hw.enable(&setup)?;
        if let Some(queues) = &shared.queues {
            queues.enable(hw)?;
        }
        if let Some(network) = &shared.network {
            network.driver().enable(hw)?;
        }
        shared.worker.start(shared.clone());
        if let Some(queues) = &shared.queues {
            queues.measure_completion(hw);
        }
        Ok(Working(shared.clone()))
    }
}

impl Drop for Binding<'_> {
    fn drop(&mut self) {
        let (dev, shared) = (self.dev, &self.shared);
        let hw = Hw::new(dev, &*shared.hw);
        shared.worker.wind_down();
        // No call is inside the gate from here on.
        self.keeper = None;
        shared.link.end(hw, &**shared);
        shared.for_each_file(Events::gone);
        shared.mmap_offsets.mapping().zap_all();
        if let Err(err) = hw.reset() {
            dev_err!(
                dev,
                "adapter does not complete its reset ({err:?}); its bus mastering is disabled\n"
            );
        }
        // Even if the reset failed, this ends all DMA.
        let proof = shared.tpt.end_dma(hw);
        shared.optimistic.tear_down(dev, &proof);
        self.dma_keeper = None;
        shared.engine.abort();
        if let Some(queues) = &shared.queues {
            queues.tear_down(dev);
        }
        // A grace period, for which no file and no peer has to wait: they have been told.
        shared.sched_notify.tear_down();
        shared.contexts.tear_down(dev);
        let released = shared.endpoints.tear_down(dev);
        if let Some(network) = &shared.network {
            network.driver().tear_down(dev, &released);
        }
        // The tables have the last references to the pages from here on, and their charge.
        shared.end_exchange();
        shared.tpt.tear_down(dev);
    }
}
