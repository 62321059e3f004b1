// SPDX-License-Identifier: GPL-2.0

//! The hardware floor: the trait [`Hardware`], and a backend for each kind of hardware.
//!
//! Only backends access BARs. A method that accesses the device takes a reference to the bound
//! device as proof, and may sleep unless it says otherwise. The floors above pass both on as one
//! [`Hw`], which a caller inside the device's gate makes.

use core::ops::Add;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*,
    sync::Arc, //
};

use crate::kernel_ext::{
    errno::eopnotsupp,
    page_list::PageList,
    window::Window, //
};

pub(crate) mod adapter;
mod command;
mod doorbell;
pub(crate) mod gate;
mod geometry;
pub(crate) mod health;
pub(crate) mod ivshmem;
#[allow(dead_code, unreachable_pub, reason = "the device model uses the rest")]
pub(crate) mod layout;
pub(crate) mod le;
pub(crate) mod lists;
pub(crate) mod loopback;
pub(crate) mod page_requests;
mod registers;
pub(crate) mod table;
pub(crate) mod touch;
pub(crate) mod wait;

use health::Health;
use layout::{
    EventCauses,
    Key,
    Word, //
};
use le::Le;

pub(crate) use command::{
    Command,
    CpuCopy,
    PeerRegionOffset, //
};
pub(crate) use doorbell::{
    Consumer,
    Doorbells,
    KernelDoorbell,
    SegmentDoorbells, //
};
pub(crate) use geometry::Geometry;

/// The kind of hardware that connects the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The uldma adapter, which has an engine.
    Adapter,
    /// ivshmem-doorbell: window and doorbells only.
    Ivshmem,
    /// Memory of this machine.
    Loopback,
}

/// State of the link to a peer as the hardware reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// True if the peer can be reached.
    pub(crate) up: bool,
    /// Number of times that the link came up.
    pub(crate) generation: u32,
}

impl LinkState {
    /// The state of hardware that does not detect peers.
    const ALWAYS_UP: Self = Self {
        up: true,
        generation: 1,
    };
}

/// A page of device memory that a process can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DevicePage {
    /// Shadow page of a page entry, as seen by a context.
    Shadow {
        /// The context.
        context: u32,
        /// The page entry's index.
        entry: u32,
    },
    /// Registers of a context.
    Context(u32),
    /// A byte offset in a node's section of the window.
    Window(u32, usize),
}

/// Bus addresses and sizes of the tables.
#[derive(Default)]
pub(crate) struct TableSetup {
    /// Directory of the page table.
    pub(crate) pages: DmaAddress,
    /// Entries that it can name.
    pub(crate) page_capacity: u32,
    /// Directory of the region table.
    pub(crate) regions: DmaAddress,
    /// Entries that it can name.
    pub(crate) region_capacity: u32,
    /// Directory of the endpoint table, or 0.
    pub(crate) endpoints: DmaAddress,
    /// Entries that it can name.
    pub(crate) endpoint_capacity: u32,
    /// The touch page, or 0.
    pub(crate) touch_page: DmaAddress,
    /// The page where the device requests pages, or 0.
    pub(crate) page_requests: DmaAddress,
}

/// Configuration of a context.
#[derive(Default)]
pub(crate) struct ContextSetup {
    /// Space whose pages it may name.
    pub(crate) space: u32,
    /// Bus address of its status page.
    pub(crate) status_page: DmaAddress,
    /// Bit mask of initiation methods.
    pub(crate) methods: u32,
    /// The key of each initiation, if the method needs one.
    pub(crate) key: Key,
    /// Bus address of the page of descriptors, if the method needs one.
    pub(crate) queue: DmaAddress,
    /// True if transfers move nothing.
    pub(crate) no_data: bool,
    /// True if each completion interrupts.
    pub(crate) interrupt_always: bool,
    /// True if the context is the kernel's, which may name every region.
    pub(crate) privileged: bool,
}

/// Contexts that serve the kernel's queues of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelQueues {
    /// Context of the queue for copies between nodes.
    pub(crate) copies: u32,
    /// Context of the queue for invalidations, which do not wait for copies.
    pub(crate) invalidations: u32,
    /// Context of the queue for packets of the network interface, if the device takes memory that is
    /// given by lists.
    pub(crate) packets: Option<u32>,
}

/// A place in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionOffset {
    /// The region's index.
    pub(crate) region: u32,
    /// Byte offset from its start.
    pub(crate) offset: u64,
}

/// The device's counters of one context.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContextCounters {
    pub(crate) shadow_stores: u64,
    pub(crate) shadow_loads: u64,
    pub(crate) page_stores: u64,
    pub(crate) page_loads: u64,
    pub(crate) initiations: u64,
    pub(crate) refused: u64,
    pub(crate) bytes: u64,
    pub(crate) bad_keys: u32,
}

impl Add for ContextCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            shadow_stores: self.shadow_stores.wrapping_add(other.shadow_stores),
            shadow_loads: self.shadow_loads.wrapping_add(other.shadow_loads),
            page_stores: self.page_stores.wrapping_add(other.page_stores),
            page_loads: self.page_loads.wrapping_add(other.page_loads),
            initiations: self.initiations.wrapping_add(other.initiations),
            refused: self.refused.wrapping_add(other.refused),
            bytes: self.bytes.wrapping_add(other.bytes),
            bad_keys: self.bad_keys.wrapping_add(other.bad_keys),
        }
    }
}

/// The operations of a backend.
///
/// A backend implements at least the methods without a body, which suffice for connections through
/// the window. The other methods are for a DMA engine. By default they refuse to start anything, so
/// the methods that stop something have nothing to do.
#[allow(
    unused_variables,
    reason = "defaults do nothing with what they are given"
)]
pub(crate) trait Hardware: Send + Sync {
    /// Returns the facts that do not change while the device is bound.
    fn geometry(&self) -> &Geometry;

    /// Returns the health of the device.
    fn health(&self) -> &Health;

    /// Checks that the device answers accesses to its registers, and to the window.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if it does not, now.
    fn check_answers(&self, dev: &Device<Bound>) -> Result {
        Ok(())
    }

    /// Returns true unless the device has lost its configuration since [`Hardware::enable`], by a
    /// reset without the driver.
    fn is_enabled(&self, dev: &Device<Bound>) -> Result<bool> {
        Ok(true)
    }

    /// Returns true if the device has completed all requests that were made by registers.
    fn has_caught_up(&self, dev: &Device<Bound>) -> Result<bool> {
        Ok(true)
    }

    /// Returns a number that changes when the device has moved bytes, for any context of this node, or
    /// has read descriptors of the kernel's queues.
    fn progress(&self, dev: &Device<Bound>) -> Result<u64> {
        Ok(0)
    }

    /// Returns the window with all sections.
    fn window<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a Window>;

    /// Returns the frame number of a page that a process can map.
    fn frame(&self, page: DevicePage) -> Option<usize>;

    /// Returns the state of the link to node `peer`; always up if the hardware does not detect
    /// peers.
    fn link(&self, dev: &Device<Bound>, peer: u32) -> Result<LinkState>;

    /// Rings node `peer` for its kernel. For the network interface `doorbell` is what the peer has
    /// announced.
    fn ring(&self, dev: &Device<Bound>, peer: u32, doorbell: KernelDoorbell) -> Result;

    /// Rings node `peer` for a program that has a segment with this doorbell: by an interrupt of
    /// segments alone where both nodes have that, as their session says by `has_vector`.
    fn ring_segment(
        &self,
        dev: &Device<Bound>,
        peer: u32,
        doorbell: SegmentDoorbells,
        has_vector: bool,
    ) -> Result;

    /// Returns true if this node offers peers an interrupt of segments alone, which does not change
    /// during a session.
    fn has_segment_vector(&self) -> bool {
        false
    }

    /// Returns the doorbell by which peers ring this node for the network interface:
    /// [`KernelDoorbell::Link`] if that of the network has no interrupt of its own.
    fn network_doorbell(&self) -> KernelDoorbell {
        KernelDoorbell::Link
    }

    /// Returns the MSI-X vector by which peers ring this node for the network interface; none if
    /// doorbells are no interrupts.
    fn network_vector(&self) -> Option<u32> {
        None
    }

    /// Reads and acknowledges doorbell bits that peers have set. Returns all bits if the hardware
    /// has only one doorbell.
    fn take_doorbells(&self, dev: &Device<Bound>) -> Result<Doorbells>;

    /// Has the doorbells of `consumer` interrupt again, which are masked since they did. Those that rang
    /// meanwhile interrupt now.
    ///
    /// A consumer calls this at the end of each pass that follows an interrupt, before it looks for work
    /// once more and sleeps. Does not sleep, unless for [`Consumer::Segments`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has left the bus.
    fn unmask(&self, dev: &Device<Bound>, consumer: Consumer) -> Result {
        Ok(())
    }

    /// Masks the doorbells of segments, on hardware that rings for them by the vector of other events.
    ///
    /// # Errors
    ///
    /// As [`Hardware::unmask`].
    fn mask_segments(&self, dev: &Device<Bound>) -> Result {
        Ok(())
    }

    /// Returns the offset in the window of byte `offset` of the section of `node`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what this node cannot reach: of the section of another, all but its own lane.
    fn in_section(&self, node: u32, offset: usize) -> Result<usize> {
        let geometry = self.geometry();
        let size = geometry.section_size()?;
        let reached = match node == geometry.node {
            true => 0..size,
            false => geometry.outbound(node)?,
        };
        if !reached.contains(&offset) {
            return Err(EINVAL);
        }
        Ok(usize::try_from(node)? * size + offset)
    }

    /// Configures the tables of the device and enables engine and link.
    fn enable(&self, dev: &Device<Bound>, tables: &TableSetup) -> Result {
        Ok(())
    }

    /// Stops the device and resets all registers; bounded.
    fn reset(&self, dev: &Device<Bound>) -> Result {
        Ok(())
    }

    /// Makes sure that the device does no DMA from here on, even if its reset failed.
    fn quiesce(&self, dev: &Device<Bound>) {}

    /// Reads and acknowledges pending events.
    fn take_events(&self, dev: &Device<Bound>) -> Result<EventCauses> {
        Ok(EventCauses::NONE)
    }

    /// Invalidates a region and aborts all transfers that use it; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; the memory must stay pinned then.
    fn invalidate_region(&self, dev: &Device<Bound>, region: u32) -> Result {
        Ok(())
    }

    /// Invalidates all regions of a space and aborts all transfers that use them; bounded.
    fn invalidate_space(&self, dev: &Device<Bound>, space: u32) -> Result {
        Ok(())
    }

    /// Invalidates an endpoint: aborts the messages that it sends and those that are sent to it;
    /// bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; its pages must stay allocated then.
    fn invalidate_endpoint(&self, dev: &Device<Bound>, endpoint: u32) -> Result {
        Ok(())
    }

    /// Starts a transfer of the kernel's context; returns its ticket.
    ///
    /// # Errors
    ///
    /// `EBUSY`, `EACCES`, `EINVAL`, `ENOENT`, `ENOTCONN`, `ENODEV` or `EIO` if the device refuses
    /// the transfer; `EOPNOTSUPP` without an engine.
    fn start(
        &self,
        dev: &Device<Bound>,
        src: RegionOffset,
        dst: RegionOffset,
        length: u64,
    ) -> Result<u64> {
        Err(eopnotsupp())
    }

    /// Returns the contexts that serve the kernel's queues, if the device supports them.
    fn kernel_queues(&self) -> Option<KernelQueues> {
        None
    }

    /// Enables a context and zeroes its counters. Its tickets continue from the one in the status
    /// page.
    fn enable_context(&self, dev: &Device<Bound>, context: u32, setup: &ContextSetup) -> Result {
        Ok(())
    }

    /// Disables a context and waits until none of its transfers is in flight; bounded.
    fn disable_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        Ok(())
    }

    /// Wakes the device if it sleeps on the queue of descriptors of a context.
    fn wake_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        Ok(())
    }

    /// Notifies the device that `context`, or none, runs on `cpu` from now on.
    ///
    /// Does not sleep, since context switches call it.
    fn sched_notify(&self, dev: &Device<Bound>, cpu: u32, context: Option<u32>) -> Result {
        Ok(())
    }

    /// Returns the number of wrong keys that were passed through a context's shadow pages.
    fn bad_keys(&self, dev: &Device<Bound>, context: u32) -> Result<u32> {
        Ok(0)
    }

    /// Requests an interrupt for the completion of a ticket beyond `completed`.
    fn arm_context(&self, dev: &Device<Bound>, context: u32, completed: u64) -> Result {
        Ok(())
    }

    /// Returns the last ticket that a context has issued.
    fn last_ticket(&self, dev: &Device<Bound>, context: u32) -> Result<u64> {
        Ok(0)
    }

    /// Reads a context's counters.
    fn context_counters(&self, dev: &Device<Bound>, context: u32) -> Result<ContextCounters> {
        Ok(ContextCounters::default())
    }

    /// Exports pages to the peers until [`Hardware::unexport_pages`]. Returns the token of the
    /// export.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if CPUs cannot access the memory of peers.
    fn export_pages(&self, pages: Arc<PageList>) -> Result<u64> {
        Err(eopnotsupp())
    }

    /// Ends an export. When this returns, no peer accesses the pages any more.
    fn unexport_pages(&self, token: u64) {}

    /// Copies bytes between pages of this node and pages that `peer` exported.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if CPUs cannot access the memory of peers, `ENOENT` if there is no such export.
    fn copy(&self, peer: u32, copy: &CpuCopy<'_>) -> Result {
        Err(eopnotsupp())
    }
}

/// Makes a method of each operation that takes the device.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(
            #[doc = concat!("[`Hardware::", stringify!($name), "`].")]
            pub(crate) fn $name(self $(, $arg: $ty)*) $(-> $ret)? {
                self.ops.$name(self.dev $(, $arg)*)
            }
        )*
    };
}

/// The right to use the hardware: the operations of its backend, and the bound device as proof that
/// it is there.
///
/// It borrows from the guard of a caller that has entered the gate, see
/// [`GateGuard::hw`](gate::GateGuard).
#[derive(Clone, Copy)]
pub(crate) struct Hw<'a> {
    dev: &'a Device<Bound>,
    ops: &'a dyn Hardware,
}

impl<'a> Hw<'a> {
    /// Joins the device that a backend drives, and its operations.
    pub(crate) fn new(dev: &'a Device<Bound>, ops: &'a dyn Hardware) -> Self {
        Self { dev, ops }
    }

    /// Returns the bound device, for DMA mappings and messages.
    pub(crate) fn dev(self) -> &'a Device<Bound> {
        self.dev
    }

    /// [`Hardware::geometry`].
    pub(crate) fn geometry(self) -> &'a Geometry {
        self.ops.geometry()
    }

    /// [`Hardware::health`].
    pub(crate) fn health(self) -> &'a Health {
        self.ops.health()
    }

    /// [`Hardware::network_doorbell`].
    pub(crate) fn network_doorbell(self) -> KernelDoorbell {
        self.ops.network_doorbell()
    }

    /// [`Hardware::has_segment_vector`].
    pub(crate) fn has_segment_vector(self) -> bool {
        self.ops.has_segment_vector()
    }

    /// [`Hardware::kernel_queues`].
    pub(crate) fn kernel_queues(self) -> Option<KernelQueues> {
        self.ops.kernel_queues()
    }

    /// [`Hardware::in_section`].
    pub(crate) fn in_section(self, node: u32, offset: usize) -> Result<usize> {
        self.ops.in_section(node, offset)
    }

    /// [`Hardware::window`].
    pub(crate) fn window(self) -> Result<&'a Window> {
        self.ops.window(self.dev)
    }

    operations! {
        fn check_answers() -> Result;
        fn is_enabled() -> Result<bool>;
        fn has_caught_up() -> Result<bool>;
        fn progress() -> Result<u64>;
        fn link(peer: u32) -> Result<LinkState>;
        fn ring(peer: u32, doorbell: KernelDoorbell) -> Result;
        fn ring_segment(peer: u32, doorbell: SegmentDoorbells, has_vector: bool) -> Result;
        fn take_doorbells() -> Result<Doorbells>;
        fn unmask(consumer: Consumer) -> Result;
        fn mask_segments() -> Result;
        fn enable(tables: &TableSetup) -> Result;
        fn reset() -> Result;
        fn quiesce();
        fn take_events() -> Result<EventCauses>;
        fn invalidate_region(region: u32) -> Result;
        fn invalidate_space(space: u32) -> Result;
        fn invalidate_endpoint(endpoint: u32) -> Result;
        fn start(src: RegionOffset, dst: RegionOffset, length: u64) -> Result<u64>;
        fn enable_context(context: u32, setup: &ContextSetup) -> Result;
        fn disable_context(context: u32) -> Result;
        fn wake_context(context: u32) -> Result;
        fn sched_notify(cpu: u32, context: Option<u32>) -> Result;
        fn bad_keys(context: u32) -> Result<u32>;
        fn arm_context(context: u32, completed: u64) -> Result;
        fn last_ticket(context: u32) -> Result<u64>;
        fn context_counters(context: u32) -> Result<ContextCounters>;
    }

    /// Reads an aligned word of the own section, with acquire ordering.
    pub(crate) fn read_window<W: Word>(self, offset: usize) -> Result<Le<W>> {
        let offset = self.in_section(self.geometry().node, offset)?;
        Ok(Le::from_memory(self.window()?.acquire64(offset)?))
    }

    /// Writes an aligned word to the section of `peer`.
    pub(crate) fn write_window<W>(self, peer: u32, offset: usize, word: Le<W>) -> Result {
        let offset = self.in_section(peer, offset)?;
        self.window()?.write64(offset, word.in_memory())
    }

    /// Writes an aligned word to the section of `peer`, after all earlier writes to the window.
    pub(crate) fn publish_window<W>(self, peer: u32, offset: usize, word: Le<W>) -> Result {
        let offset = self.in_section(peer, offset)?;
        self.window()?.publish64(offset, word.in_memory())
    }

    /// Zeroes a range of the own section.
    pub(crate) fn zero_window(self, offset: usize, length: usize) -> Result {
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if end > self.geometry().section_size()? {
            return Err(EINVAL);
        }
        let start = self.in_section(self.geometry().node, offset)?;
        self.window()?.zero(start, length)
    }
}
