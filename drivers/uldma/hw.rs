// SPDX-License-Identifier: GPL-2.0

//! Floor 2: what uldma needs of hardware, and the hardware that it knows.
//!
//! All floors above speak to [`Hardware`]; nothing else touches a BAR. Every method takes the bound
//! device as proof that it is there, and may sleep.

use core::ops::Add;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*, //
};

pub(crate) mod adapter;
#[allow(dead_code, unreachable_pub, reason = "the device model uses the rest")]
pub(crate) mod layout;
pub(crate) mod table;

/// Facts about a device that do not change while it is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Number of this node on its link.
    pub(crate) node: u32,
    /// Register contexts, with context 0, which is the kernel's.
    pub(crate) contexts: u32,
    /// Bit mask of initiation methods.
    pub(crate) methods: u32,
    /// CPUs of which the device can be told who runs there.
    pub(crate) cpus: u32,
    /// log2 of the bytes of shadow space per context.
    pub(crate) shadow_shift: u32,
    /// Page entries that the shadow space of one context can name.
    pub(crate) page_capacity: u32,
    /// Regions that a size word can name, with region 0, which is none.
    pub(crate) region_capacity: u32,
    /// Bytes of the inbound, and of the outbound, half of the window.
    pub(crate) window_size: usize,
}

/// State of the link to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Whether the peer can be reached.
    pub(crate) up: bool,
    /// Counts how often the link came up.
    pub(crate) generation: u32,
}

/// Which half of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The peer writes it, this node reads it.
    Inbound,
    /// This node writes it, the peer reads it.
    Outbound,
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
    /// A byte offset in the window.
    Window(Half, usize),
}

/// Bus addresses and sizes of the tables.
pub(crate) struct TableSetup {
    /// Directory of the page table.
    pub(crate) pages: DmaAddress,
    /// Entries that it can name.
    pub(crate) page_capacity: u32,
    /// Directory of the region table.
    pub(crate) regions: DmaAddress,
    /// Entries that it can name.
    pub(crate) region_capacity: u32,
}

/// What a context is given when it is enabled.
#[derive(Default)]
pub(crate) struct ContextSetup {
    /// Space whose pages it may name.
    pub(crate) space: u32,
    /// Bus address of its status page.
    pub(crate) status_page: DmaAddress,
    /// Bit mask of initiation methods.
    pub(crate) methods: u32,
    /// What initiations have to name, if the method needs a key.
    pub(crate) key: u64,
    /// Bus address of the page of descriptors, if the method needs one.
    pub(crate) queue: DmaAddress,
    /// Whether transfers move nothing.
    pub(crate) no_data: bool,
    /// Whether each completion interrupts.
    pub(crate) interrupt_always: bool,
}

/// A place in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
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

/// A device that initiates DMA for processes and shares a window with a peer.
pub(crate) trait Hardware: Send + Sync {
    /// The facts that do not change.
    fn geometry(&self) -> &Geometry;

    /// Gives the device its tables and lets engine and link run.
    fn enable(&self, dev: &Device<Bound>, tables: &TableSetup) -> Result;

    /// Stops everything and brings all registers back to their reset values; bounded.
    fn reset(&self, dev: &Device<Bound>) -> Result;

    /// State of the link.
    fn link(&self, dev: &Device<Bound>) -> Result<Link>;

    /// Reads and acknowledges pending [`layout::event`] bits.
    fn take_events(&self, dev: &Device<Bound>) -> Result<u32>;

    /// Reads and acknowledges doorbell bits that the peer has set.
    fn take_doorbells(&self, dev: &Device<Bound>) -> Result<u32>;

    /// Sets doorbell bits of the peer.
    fn ring(&self, dev: &Device<Bound>, bits: u32) -> Result;

    /// Writes a scratchpad that the peer can read.
    fn write_scratchpad(&self, dev: &Device<Bound>, index: usize, value: u32) -> Result;

    /// Reads a scratchpad of the peer; all ones when there is none.
    fn read_peer_scratchpad(&self, dev: &Device<Bound>, index: usize) -> Result<u32>;

    /// Makes the device forget a region and end what uses it; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when it does not answer; the memory must stay pinned then.
    fn invalidate_region(&self, dev: &Device<Bound>, region: u32) -> Result;

    /// The same for all regions of a space at once.
    fn invalidate_space(&self, dev: &Device<Bound>, space: u32) -> Result;

    /// Starts a transfer of the kernel's context; returns its ticket.
    ///
    /// # Errors
    ///
    /// The refusal, as errno: `EBUSY`, `EACCES`, `EINVAL`, `ENOTCONN`, `EIO`.
    fn start(&self, dev: &Device<Bound>, src: Place, dst: Place, length: u64) -> Result<u64>;

    /// Lets a context take initiations, with counters from zero; tickets go on from what the status
    /// page says.
    fn enable_context(&self, dev: &Device<Bound>, context: u32, setup: &ContextSetup) -> Result;

    /// Stops a context and waits until nothing of it is in flight; bounded.
    fn disable_context(&self, dev: &Device<Bound>, context: u32) -> Result;

    /// Tells the device that `context`, or none, runs on `cpu` from now on.
    ///
    /// Does not sleep: context switches call it.
    fn announce(&self, dev: &Device<Bound>, cpu: u32, context: Option<u32>) -> Result;

    /// How many wrong keys were passed through a context's shadow pages.
    fn bad_keys(&self, dev: &Device<Bound>, context: u32) -> Result<u32>;

    /// Asks for an interrupt once a ticket beyond `completed` has ended.
    fn arm_context(&self, dev: &Device<Bound>, context: u32, completed: u64) -> Result;

    /// The last ticket that a context has given out.
    fn last_ticket(&self, dev: &Device<Bound>, context: u32) -> Result<u64>;

    /// Reads a context's counters.
    fn context_counters(&self, dev: &Device<Bound>, context: u32) -> Result<ContextCounters>;

    /// Reads an aligned u64 of the window, before all that is read from it after.
    fn read_window(&self, dev: &Device<Bound>, half: Half, offset: usize) -> Result<u64>;

    /// Writes an aligned u64 of the window.
    fn write_window(&self, dev: &Device<Bound>, half: Half, offset: usize, value: u64) -> Result;

    /// As [`Hardware::write_window`], after all that was written to the window before.
    fn publish_window(&self, dev: &Device<Bound>, half: Half, offset: usize, value: u64) -> Result;

    /// Zeroes a part of the inbound half.
    fn zero_inbound(&self, dev: &Device<Bound>, offset: usize, length: usize) -> Result;

    /// Frame number of a page that a process can map.
    fn frame(&self, page: DevicePage) -> Option<usize>;
}
