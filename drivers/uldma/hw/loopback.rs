// SPDX-License-Identifier: GPL-2.0

//! Loopback: nodes on one machine, joined by its memory, without any hardware.
//!
//! Work items and CPUs do the work of the hardware, but never in the context of the caller: a
//! doorbell runs a work item, as it would raise an interrupt.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    impl_has_work,
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    geometry::{
        lanes_of,
        least_section, //
    },
    health::Health,
    layout::{
        self,
        Lanes,
        REGION_SLOTS, //
    },
    Backend,
    CpuCopy,
    DevicePage,
    Doorbells,
    Geometry,
    Hardware,
    KernelDoorbell,
    LinkState,
    SegmentDoorbells, //
};
use crate::kernel_ext::{
    bh_lock::{
        new_bh_lock,
        BhLock, //
    },
    nospec,
    page_list::PageList,
    window::Window,
    workqueue, //
};

/// Page entries of the tables, which no device reads.
const PAGE_CAPACITY: u32 = 1 << 18;

/// The handler of a node's doorbell.
pub(crate) trait OnDoorbell: Send + Sync {
    /// Handles a doorbell that rang since the last call. May sleep.
    fn rung(&self);
}

/// The doorbell of a node.
#[pin_data]
struct Bell {
    #[pin]
    state: BhLock<BellState>,
    #[pin]
    work: Work<Bell>,
}

/// Without a handler a doorbell is only recorded.
struct BellState {
    bits: u32,
    answer: Option<Arc<dyn OnDoorbell>>,
}

impl_has_work! {
    impl HasWork<Self> for Bell { self.work }
}

impl WorkItem for Bell {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let answer = this.state.lock().answer.clone();
        if let Some(answer) = answer {
            answer.rung();
        }
    }
}

impl Bell {
    fn new() -> Result<Arc<Self>> {
        let state = BellState {
            bits: 0,
            answer: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                state <- new_bh_lock!(state, "uldma::Bell::state"),
                work <- new_work!("uldma::Bell::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn ring(self: &Arc<Self>, bits: u32) {
        let mut state = self.state.lock();
        state.bits |= bits;
        if state.answer.is_some() {
            // If it is queued already, it has not begun yet.
            let _ = workqueue::system_default().enqueue(self.clone());
        }
    }
}

/// The registration of a doorbell's handler, until it is dropped.
pub(crate) struct DoorbellRegistration(Arc<Bell>);

impl Drop for DoorbellRegistration {
    fn drop(&mut self) {
        let answer = self.0.state.lock().answer.take();
        // It is not queued any more.
        workqueue::flush(&self.0.work);
        drop(answer);
    }
}

/// Pages that a node exported to the others.
#[pin_data]
struct ExportedPages {
    node: u32,
    /// Locked while they are accessed; none once the export has ended.
    #[pin]
    pages: Mutex<Option<Arc<PageList>>>,
}

/// All exports.
struct Exports {
    by_token: RBTree<u64, Arc<ExportedPages>>,
    last_token: u64,
}

/// The memory that connects the nodes.
#[pin_data]
pub(crate) struct Wire {
    window: Window,
    bells: KVec<Arc<Bell>>,
    lanes: Lanes,
    #[pin]
    exports: Mutex<Exports>,
}

impl Wire {
    /// Joins `nodes` nodes by a window of `bytes` bytes.
    pub(crate) fn new(nodes: u32, bytes: usize) -> Result<Arc<Self>> {
        let lanes = lanes_of(bytes, nodes).inspect_err(|_| {
            pr_err!(
                "loopback={nodes} and loopback_bytes={bytes}: 2 to {} nodes need {} bytes each\n",
                layout::MAX_NODES,
                least_section(nodes)
            );
        })?;
        let mut bells = KVec::new();
        for _ in 0..nodes {
            bells.push(Bell::new()?, GFP_KERNEL)?;
        }
        let exports = Exports {
            by_token: RBTree::new(),
            last_token: 0,
        };
        let window = Window::of_memory(usize::try_from(lanes.section())? * bells.len())?;
        Arc::pin_init(
            pin_init!(Self {
                window,
                bells,
                lanes,
                exports <- new_mutex!(exports, "uldma::Wire::exports"),
            }),
            GFP_KERNEL,
        )
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> u32 {
        // There are no more than `MAX_NODES`.
        self.bells.len() as u32
    }

    /// The bell of `node`.
    fn bell(&self, node: u32) -> Result<&Arc<Bell>> {
        nospec::get(&self.bells, usize::try_from(node)?).ok_or(EINVAL)
    }

    /// Registers `answer` as the handler of the doorbell of `node`, until the result is dropped.
    pub(crate) fn answer(
        &self,
        node: u32,
        answer: Arc<dyn OnDoorbell>,
    ) -> Result<DoorbellRegistration> {
        let bell = self.bell(node)?;
        let mut state = bell.state.lock();
        if state.answer.is_some() {
            return Err(EBUSY);
        }
        state.answer = Some(answer);
        Ok(DoorbellRegistration(bell.clone()))
    }
}

/// A node of a wire.
pub(crate) struct Loopback {
    wire: Arc<Wire>,
    geometry: Geometry,
    health: Health,
}

impl Loopback {
    /// Node `node` of `wire`.
    pub(crate) fn new(wire: Arc<Wire>, node: u32) -> Result<Self> {
        wire.bell(node)?;
        let geometry = Geometry {
            backend: Backend::Loopback,
            node,
            nodes: wire.nodes(),
            contexts: 1,
            methods: 0,
            cpus: 0,
            shadow_shift: PAGE_CAPACITY.ilog2() + u32::try_from(PAGE_SHIFT)?,
            page_capacity: PAGE_CAPACITY,
            region_capacity: REGION_SLOTS,
            endpoint_capacity: 0,
            has_streams: false,
            lanes: wire.lanes,
            window_cached: true,
            is_optimistic: false,
            window_regions: false,
        };
        Ok(Self {
            wire,
            geometry,
            health: Health::new(),
        })
    }

    fn ring_bits(&self, peer: u32, bits: u32) -> Result {
        self.geometry.check_peer(peer)?;
        self.wire.bell(peer)?.ring(bits);
        Ok(())
    }
}

impl Hardware for Loopback {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn window<'a>(&'a self, _dev: &'a Device<Bound>) -> Result<&'a Window> {
        Ok(&self.wire.window)
    }

    fn frame(&self, page: DevicePage) -> Option<usize> {
        let DevicePage::Window(node, offset) = page else {
            return None;
        };
        let offset = self.in_section(node, offset).ok()?;
        self.wire.window.frame(offset).ok()
    }

    fn link(&self, _dev: &Device<Bound>, peer: u32) -> Result<LinkState> {
        self.geometry.check_peer(peer)?;
        Ok(LinkState::ALWAYS_UP)
    }

    fn ring(&self, _dev: &Device<Bound>, peer: u32, doorbell: KernelDoorbell) -> Result {
        self.ring_bits(peer, doorbell.bit())
    }

    fn ring_segment(
        &self,
        _dev: &Device<Bound>,
        peer: u32,
        doorbell: SegmentDoorbells,
        _has_vector: bool,
    ) -> Result {
        self.ring_bits(peer, doorbell.bits())
    }

    fn network_doorbell(&self) -> KernelDoorbell {
        KernelDoorbell::Network
    }

    fn take_doorbells(&self, _dev: &Device<Bound>) -> Result<Doorbells> {
        let bell = self.wire.bell(self.geometry.node)?;
        let bits = core::mem::take(&mut bell.state.lock().bits);
        Ok(Doorbells::of_bits(bits))
    }

    fn export_pages(&self, pages: Arc<PageList>) -> Result<u64> {
        let exported = Arc::pin_init(
            pin_init!(ExportedPages {
                node: self.geometry.node,
                pages <- new_mutex!(Some(pages), "uldma::ExportedPages::pages"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut exports = self.wire.exports.lock();
        exports.last_token += 1;
        let token = exports.last_token;
        exports.by_token.insert(reserved.into_node(token, exported));
        Ok(token)
    }

    fn unexport_pages(&self, token: u64) {
        let exported = self.wire.exports.lock().by_token.remove(&token);
        if let Some(exported) = exported {
            // Waits for a copy that has begun; later copies find no pages.
            let pages = exported.pages.lock().take();
            drop(pages);
        }
    }

    fn copy(&self, peer: u32, copy: &CpuCopy<'_>) -> Result {
        let exported = self.wire.exports.lock().by_token.get(&copy.token).cloned();
        let exported = exported
            .filter(|exported| exported.node == peer)
            .ok_or(ENOENT)?;
        let pages = exported.pages.lock();
        let there = pages.as_ref().ok_or(ENOENT)?;
        if copy.push {
            copy.here.copy_to(copy.from, there, copy.at, copy.length)
        } else {
            there.copy_to(copy.at, copy.here, copy.from, copy.length)
        }
    }
}
