// SPDX-License-Identifier: GPL-2.0

//! The parts of a device that its connections use.

use kernel::{
    prelude::*,
    sync::Arc,
    time::Delta, //
};

use super::{
    Connections,
    Queues, //
};
use crate::{
    hw::{
        gate::Gate,
        Hardware, //
    },
    kernel_ext::{
        errno::eopnotsupp,
        wakeup, //
    },
    link::{
        progress_worker::ProgressWorker,
        segment::{
            SegmentCtx,
            Segments, //
        },
        window_alloc::WindowAllocator,
        Link, //
    },
    mem::tpt::Tpt,
    params,
    user_abi::{
        ledger::Ledger,
        mmap_offset::MmapOffsets, //
    }, //
};

/// The parts of a device that its connections use.
pub(crate) struct ConnCtx<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) hw: &'a dyn Hardware,
    pub(crate) tpt: &'a Tpt,
    /// The kernel's queues of descriptors, if the device supports them.
    pub(crate) queues: Option<&'a Queues>,
    pub(crate) link: &'a Link,
    pub(crate) window_alloc: &'a WindowAllocator,
    pub(crate) segments: &'a Segments,
    pub(crate) mmap_offsets: &'a MmapOffsets,
    pub(crate) connections: &'a Connections,
    pub(crate) ledger: &'a Arc<Ledger>,
    pub(crate) worker: &'a Arc<ProgressWorker>,
}

impl ConnCtx<'_> {
    /// Returns the parts that the segments of rings use.
    pub(super) fn segments(&self) -> SegmentCtx<'_> {
        SegmentCtx {
            gate: self.gate,
            hw: self.hw,
            mmap_offsets: self.mmap_offsets,
            window_alloc: self.window_alloc,
            link: self.link,
            segments: self.segments,
        }
    }

    /// Makes progress if the driver polls in place of doorbells.
    pub(crate) fn work_if_polling(&self) {
        if params::link_poll().is_some() {
            self.worker.kick();
        }
    }

    /// Returns the cost of sleeping until a command completes.
    pub(super) fn completion_cost(&self) -> Delta {
        let queues = self.queues;
        queues.map_or_else(wakeup::cost, Queues::completion_cost)
    }

    /// Returns true if `node` was rung and has not sent anything since.
    pub(super) fn has_rung(&self, node: u32) -> bool {
        self.link.peer(node).is_ok_and(|peer| peer.has_rung())
    }

    /// Returns the cost of sleeping until `node` rings and the worker runs.
    ///
    /// The interrupt of a doorbell takes the way of a completion's, so the larger measurement counts.
    fn doorbell_cost(&self, node: u32) -> Delta {
        let peer = self.link.peer(node);
        let doorbell = peer.map_or(Delta::ZERO, |peer| peer.doorbell_cost());
        doorbell.max(self.completion_cost())
    }

    /// Returns the cost of sleeping until `node` rings, the worker runs, and wakes the thread.
    pub(crate) fn wakeup_by_peer(&self, node: u32) -> Delta {
        self.doorbell_cost(node) + wakeup::cost_by_thread()
    }

    /// Invalidates `region`, which was retracted, and waits for that; bounded.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` without a queue, `ETIMEDOUT` if the device does not answer, `EIO` if it was
    /// reset, `ENODEV` if it is unbound.
    pub(super) fn invalidate(&self, region: u32) -> Result {
        let queues = self.queues.ok_or_else(eopnotsupp)?;
        let guard = self.gate.try_enter()?;
        queues.invalidate(guard.hw(), region)
    }
}
