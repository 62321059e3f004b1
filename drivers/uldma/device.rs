// SPDX-License-Identifier: GPL-2.0

//! A device: its parts, and its lifetime.
//!
//! There are three lifetimes: [`Binding`] lives while the driver is bound, [`Shared`] as long as
//! any file is open, and each file has an [`OpenFile`](crate::user::open_file::OpenFile).
//!
//! Locks are taken in this order:
//!
//! 1. `Members::door`
//! 2. an open file's `objects`
//! 3. `mmap_lock`
//! 4. `Space::state`
//! 5. the gate
//! 6. `ProgressWorker::running`
//! 7. `ProgressWorker::pace`
//! 8. `Link::turn`
//! 9. those of connections, in the order of [`connection`](crate::connection)
//! 10. `Segments::state`
//! 11. `Peer::state`
//! 12. `Requests::state`
//! 13. `SchedNotify::state`
//! 14. `Contexts::state`
//! 15. `VirtualContext::past`
//! 16. `Engine::state`
//! 17. `Queues::marks`
//! 18. `Endpoints::state`
//! 19. `Events::state`
//! 20. the locks of `Tpt` and of the hardware
//!
//! Exceptions:
//!
//! * `Attachment::state` is taken alone, except to query what it holds.
//! * `MmapOffsets::ranges` is taken by faults, under `mmap_lock`, so nothing that takes `mmap_lock` is
//!   called under it; they enter the gate under it, which waits for nothing.
//! * `Lmm::spaces`, `SpaceIds::pool`, `Ledger::accounts`, `Shared::retained`, the lock of the exports and
//!   `Queue::state`, under which nothing sleeps, are innermost, and so are `Shared::open_files`, except
//!   that `Events::state` is taken under it, and `WindowAllocator::ranges`, except that `Peer::state` is.
//! * A thread that looks for memory takes `Reclaimable::space` and `Space::state` if they are free, and then
//!   the gate and what an invalidation takes. Holders of these allocate no memory, or without I/O.
//! * Notifications of the memory manager take `Subscription::invalidations`, `DeferredWork::space` and
//!   `SpaceEnd::open_file`, one after the other; or `Area::entries`, and then what an invalidation takes, with
//!   a gate of their own, which unbinding closes once the device does no DMA. Context switches take no lock.
//! * `Area::held` is taken by work that enters pages, and under it memory is allocated; `Area::entries` and the
//!   lock of the tables are taken under it.
//! * `Optimistic::requests` is taken by the thread of the interrupts, and then `Optimistic::areas`, which is
//!   innermost but for `Filler::misses`.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    connection::{
        self,
        Connections,
        Queues, //
    },
    dma::{
        context::Contexts,
        endpoint::Endpoints,
        engine::Engine,
        sched_notify::SchedNotify, //
    },
    hw::{
        gate::Gate,
        layout::EventCauses,
        Consumer,
        Doorbells,
        Hardware,
        Hw,
        KernelDoorbell, //
    },
    kernel_ext::{
        errno::{
            eproto,
            eremoteio, //
        },
        net::net_device::NetDevice,
        ratelimit::dev_err_ratelimited, //
    },
    link::{
        export::Exports,
        message::{
            self,
            Answer,
            Query, //
        },
        progress_worker::ProgressWorker,
        quarantine::Quarantine,
        segment::{
            SegmentCtx, //
            Segments,
        },
        window_alloc::WindowAllocator,
        Handler,
        Link, //
    },
    mem::{
        exchange::Exchange,
        lmm::{
            device_access::DeviceAccess,
            space::{
                DeviceOps,
                Space, //
            },
            Lmm, //
        },
        optimistic::Optimistic,
        tpt::{
            Invalidator,
            Tpt, //
        }, //
    },
    net::Interface,
    user_abi::{
        events::{
            Arm,
            Events, //
        },
        ledger::Ledger,
        mmap_offset::MmapOffsets,
        status_page::StatusPage, //
    }, //
};

mod ask;
mod binding;
mod limits;
mod progress;

pub(crate) use binding::{
    Binding,
    Working, //
};

/// The parts of an open file that the device reaches.
struct FileParts {
    events: Arc<Events>,
    exchange: Arc<Exchange>,
}

/// The parts of a device that all open files share; outlives the binding.
#[pin_data]
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    pub(crate) hw: Arc<dyn Hardware>,
    pub(crate) ledger: Arc<Ledger>,
    #[pin]
    pub(crate) tpt: Tpt,
    #[pin]
    pub(crate) optimistic: Optimistic,
    #[pin]
    pub(crate) lmm: Lmm,
    #[pin]
    pub(crate) mmap_offsets: MmapOffsets,
    #[pin]
    pub(crate) contexts: Contexts,
    #[pin]
    pub(crate) endpoints: Endpoints,
    #[pin]
    pub(crate) sched_notify: SchedNotify,
    #[pin]
    pub(crate) engine: Engine,
    /// The kernel's queues of descriptors, if the device supports them.
    pub(crate) queues: Option<Arc<Queues>>,
    #[pin]
    pub(crate) link: Link,
    #[pin]
    pub(crate) window_alloc: WindowAllocator,
    #[pin]
    pub(crate) connections: Connections,
    pub(crate) worker: Arc<ProgressWorker>,
    /// The network interface, if there is one.
    pub(crate) network: Option<Arc<NetDevice<Interface>>>,
    #[pin]
    pub(crate) exports: Exports,
    #[pin]
    pub(crate) segments: Segments,
    #[pin]
    open_files: Mutex<RBTree<u64, FileParts>>,
    next_file: Atomic<u64>,
    /// Spaces with memory that the device may still access.
    #[pin]
    retained: Mutex<RetainedSpaces>,
}

/// Spaces with memory that the device may still access, which so stays pinned.
enum RetainedSpaces {
    /// The last one, which retains the one before.
    Last(Option<Arc<Space>>),
    /// None, since the device is unbound.
    Unbound,
}

impl DeviceOps for Shared {
    fn access(&self) -> DeviceAccess<'_> {
        DeviceAccess {
            gate: &self.gate,
            tpt: &self.tpt,
            optimistic: &self.optimistic,
        }
    }

    fn keep(&self, space: Arc<Space>) -> Option<Arc<Space>> {
        match &mut *self.retained.lock() {
            RetainedSpaces::Last(last) => last.replace(space),
            RetainedSpaces::Unbound => None,
        }
    }
}

impl Shared {
    fn new(dev: &Device<Bound>, hw: Arc<dyn Hardware>) -> Result<Arc<Self>> {
        let gate = Arc::pin_init(Gate::new(dev, hw.clone()), GFP_KERNEL)?;
        let geometry = *hw.geometry();
        let (capacity, limits) = limits::of(&geometry)?;
        let page = Arc::new(StatusPage::new()?, GFP_KERNEL)?;
        let kernel_page = page.clone();
        let sched_notify = SchedNotify::new(gate.clone(), geometry.cpus)?;
        let queues = match hw.kernel_queues() {
            Some(contexts) => Some(Arc::pin_init(Queues::new(contexts)?, GFP_KERNEL)?),
            None => None,
        };
        let invalidator = queues
            .clone()
            .map(|queues| -> Arc<dyn Invalidator> { queues });
        let worker = ProgressWorker::new()?;
        let network = Interface::new(hw.clone(), worker.clone())?;
        let behind = hw.clone();
        let shared = Arc::pin_init(
            try_pin_init!(Self {
                gate,
                hw,
                ledger: Ledger::new(capacity, limits)?,
                tpt <- Tpt::new(dev, &geometry, invalidator),
                optimistic <- Optimistic::new(dev, behind),
                lmm <- Lmm::new(limits::lmm()),
                mmap_offsets <- MmapOffsets::new()?,
                contexts <- Contexts::new(geometry.contexts)?,
                endpoints <- Endpoints::new(dev, &geometry),
                sched_notify <- sched_notify,
                engine <- Engine::new(page),
                queues,
                link <- Link::new(geometry.node, geometry.nodes)?,
                window_alloc <- WindowAllocator::new(&geometry),
                connections <- Connections::new(),
                worker,
                network,
                exports <- Exports::new(),
                segments <- Segments::new(),
                open_files <- new_mutex!(RBTree::new(), "uldma::Shared::open_files"),
                next_file: Atomic::new(1),
                retained <- new_mutex!(RetainedSpaces::Last(None), "uldma::Shared::retained"),
            }),
            GFP_KERNEL,
        )?;
        let taken = shared
            .contexts
            .take_kernel(Hw::new(dev, &*shared.hw), kernel_page);
        if taken == Err(eremoteio()) {
            dev_err!(
                dev,
                "DMA would be bounced, so memory cannot be registered; boot without swiotlb=force\n"
            );
        }
        taken?;
        Ok(shared)
    }

    /// Returns the parts that segments use.
    pub(crate) fn segment_ctx(&self) -> SegmentCtx<'_> {
        SegmentCtx {
            gate: &self.gate,
            hw: &*self.hw,
            mmap_offsets: &self.mmap_offsets,
            window_alloc: &self.window_alloc,
            link: &self.link,
            segments: &self.segments,
        }
    }

    /// Returns the parts that connections use.
    pub(crate) fn conn_ctx(&self) -> connection::ConnCtx<'_> {
        connection::ConnCtx {
            gate: &self.gate,
            hw: &*self.hw,
            tpt: &self.tpt,
            queues: self.queues.as_deref(),
            link: &self.link,
            window_alloc: &self.window_alloc,
            segments: &self.segments,
            mmap_offsets: &self.mmap_offsets,
            connections: &self.connections,
            ledger: &self.ledger,
            worker: &self.worker,
        }
    }

    /// Returns what each peer holds of this node although its use has ended.
    pub(crate) fn quarantine(&self) -> Quarantine {
        let mut held = Quarantine::default();
        self.window_alloc.add_to(&mut held);
        self.connections.add_to(&mut held);
        held
    }

    /// Adds an open file. Returns its number.
    pub(crate) fn add_file(&self, events: Arc<Events>, exchange: Arc<Exchange>) -> Result<u64> {
        let number = self.next_file.fetch_add(1, Relaxed);
        let parts = FileParts { events, exchange };
        let node = RBTreeNode::new(number, parts, GFP_KERNEL)?;
        self.open_files.lock().insert(node);
        Ok(number)
    }

    /// Removes an open file.
    pub(crate) fn remove_file(&self, number: u64) {
        let removed = self.open_files.lock().remove(&number);
        drop(removed);
    }

    /// Returns the number of open files.
    pub(crate) fn open_files(&self) -> usize {
        self.open_files.lock().keys().count()
    }

    fn for_each_file(&self, update: impl Fn(&Events)) {
        for parts in self.open_files.lock().values() {
            update(&parts.events);
        }
    }

    /// Ends the exchangeable memory of all open files, of which no new one is made.
    fn end_exchange(&self) {
        let mut from = 0;
        let next = |from: &u64| {
            let open_files = self.open_files.lock();
            let found = open_files.cursor_lower_bound(from)?;
            let (number, parts) = found.current();
            Some((*number, parts.exchange.clone()))
        };
        // Without the lock, since the end of a memory zaps its mappings.
        while let Some((number, exchange)) = next(&from) {
            exchange.remove_all(&self.mmap_offsets);
            from = number + 1;
        }
    }

    /// Checks if a sick device has recovered, or if the device was reset without the driver.
    fn ask_after(&self, hw: Hw<'_>) {
        if !hw.is_enabled().unwrap_or(true) {
            hw.health().was_reset(hw.dev());
        }
        if hw.health().is_sick() && self.is_well(hw).unwrap_or(false) {
            hw.health().recovered(hw.dev());
            // If it did not answer accesses, it has lost masks and requests for interrupts. The only
            // error is that it does not answer again.
            let masked = hw.mask_segments();
            let unmasked = masked.and_then(|()| hw.unmask(Consumer::Segments));
            let _ = unmasked.and_then(|()| self.handle_completions(hw));
            let _ = self.handle_events(hw.dev());
        }
    }

    /// Returns true if the device has ended what the driver waits for.
    fn is_well(&self, hw: Hw<'_>) -> Result<bool> {
        let queues = self.queues.as_ref();
        Ok(!self.tpt.is_off()
            && hw.has_caught_up()?
            && queues.map_or(Ok(true), |queues| queues.is_well(hw))?)
    }

    /// Notifies those that wait for transfers, which may have ended. They request interrupts anew.
    fn handle_completions(&self, hw: Hw<'_>) -> Result {
        self.engine.poll();
        self.contexts.progress(hw)?;
        self.endpoints.progress();
        if let Some(queues) = &self.queues {
            queues.interrupted();
        }
        Ok(())
    }

    /// Handles an interrupt of the event vector.
    pub(crate) fn handle_events(&self, dev: &Device<Bound>) -> Result {
        let hw = Hw::new(dev, &*self.hw);
        let events = hw.take_events()?;
        if events.contains(EventCauses::COMPLETION) {
            self.handle_completions(hw)?;
        }
        let done = self.queues.as_ref().is_some_and(|it| it.has_ended());
        if events.contains(EventCauses::LINK) {
            self.worker.link_changed();
        } else if done {
            self.worker.interrupt();
        }
        if events.contains(EventCauses::DOORBELL) {
            // Those of kernels have vectors of their own. Later ones of segments wait for the next pass.
            hw.mask_segments()?;
            let rung = hw.take_doorbells()?;
            self.worker.segments_rung(rung.segments());
        }
        if events.contains(EventCauses::PAGE) {
            self.optimistic.handle_requests(&self.tpt, hw);
        }
        if events.contains(EventCauses::KEY) {
            self.contexts.report_bad_keys(hw)?;
        }
        if events.contains(EventCauses::ERROR) {
            dev_err_ratelimited!(
                BusAddress,
                dev,
                "adapter reports a failed DMA access to a bus address\n"
            );
        }
        Ok(())
    }

    /// Handles doorbells as far as they may be for the network interface. Does not sleep.
    pub(crate) fn handle_network_doorbell(&self, dev: &Device<Bound>, rung: Doorbells) {
        if let Some(network) = &self.network {
            let hw = Hw::new(dev, &*self.hw);
            network.driver().interrupt(hw, network, rung);
        }
    }

    /// Handles the doorbell interrupt of hardware whose doorbells can be read without sleeping.
    pub(crate) fn handle_doorbell(&self, dev: &Device<Bound>) -> Result {
        let hw = Hw::new(dev, &*self.hw);
        let rung = hw.take_doorbells()?;
        self.handle_network_doorbell(dev, rung);
        self.handle_other_doorbells(rung);
        Ok(())
    }

    /// Handles doorbells of the control channel and of segments. Does not sleep.
    pub(crate) fn handle_other_doorbells(&self, rung: Doorbells) {
        if rung.has(KernelDoorbell::Link) {
            self.worker.rung();
        }
        if !rung.segments().is_empty() {
            self.worker.segments_rung(rung.segments());
        }
    }
}

impl Arm for Shared {
    fn arm(&self, context: u32, completed: u64) {
        if let Some(guard) = self.gate.enter() {
            // The only error is a device that has left the bus; its removal wakes waiters.
            let _ = guard.hw().arm_context(context, completed);
        }
    }
}

impl Handler for Shared {
    fn query(&self, peer: u32, query: Query) -> Answer {
        let answer = match query {
            Query::Region(name) => self.exports.find(peer, name).map(Answer::Region),
            Query::Segment(name) => self.segments.offer(peer, name).map(Answer::Segment),
        };
        answer.unwrap_or(Answer::Refused)
    }

    fn segment_gone(&self, peer: u32, offset: u64) {
        self.segments.gone(&self.segment_ctx(), peer, offset);
    }

    fn segment_left(&self, peer: u32, offset: u64, count: u32) {
        self.segments.left(&self.segment_ctx(), peer, offset, count);
    }

    fn unwanted(&self, peer: u32, answer: Answer, ours: bool) {
        match (ours, answer) {
            (true, Answer::Segment(segment)) => {
                self.segments
                    .left(&self.segment_ctx(), peer, segment.offset, 1);
            }
            (true, _) => (),
            (false, answer) => self.decline(peer, answer, self.segments.epoch(peer)),
        }
    }

    fn connection(&self, peer: u32, msg: &message::Connection) {
        self.connections.handle_msg(&self.conn_ctx(), peer, msg);
    }

    fn network(&self, peer: u32, msg: &message::Network) -> Result {
        let network = self.network.as_ref().ok_or_else(eproto)?;
        network.driver().announced(peer, msg)
    }

    fn network_endpoint(&self, peer: u32, msg: &message::NetworkEndpoint) -> Result {
        let network = self.network.as_ref().ok_or_else(eproto)?;
        network.driver().endpoint_announced(peer, msg)
    }

    fn link_up(&self, peer: u32) {
        // First, so that no segment ends with an offer of the last session after that.
        self.segments.peer_began(peer);
        self.window_alloc.peer_began(peer);
        if let (Some(network), Ok(link)) = (&self.network, self.link.peer(peer)) {
            let terms = link.describe().terms;
            let (has_network, has_engine) = (terms.has_network(), terms.has_network_engine());
            network.driver().link_up(peer, has_network, has_engine);
        }
        self.for_each_file(|open_file| open_file.link_changed(self.link.is_up()));
    }

    fn link_down(&self, peer: u32) {
        if let Some(network) = &self.network {
            network.driver().link_down(network, peer);
        }
        // In this order: a call that maps a ring meanwhile sees the end, or revoke() finds its segment.
        self.connections.cut(peer);
        self.segments.revoke(&self.segment_ctx(), peer);
        self.worker.release();
        self.for_each_file(|open_file| open_file.link_changed(self.link.is_up()));
    }
}
