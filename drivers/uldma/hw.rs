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
    page::PAGE_MASK,
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
pub(crate) mod health;
pub(crate) mod ivshmem;
#[allow(dead_code, unreachable_pub, reason = "the device model uses the rest")]
pub(crate) mod layout;
pub(crate) mod loopback;
pub(crate) mod table;

use health::Health;

pub(crate) use command::{
    Command,
    CpuCopy,
    PeerRegionOffset, //
};

/// Doorbell bit that asks a peer to poll its control ring.
pub(crate) const LINK_DOORBELL: u32 = 1 << 0;

/// Bytes of the least section: the control channel, and as much to give out.
const MIN_SECTION: usize = 128 << 10;

/// Facts about a device that do not change while it is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// What joins the nodes.
    pub(crate) backend: Backend,
    /// Number of this node on its link.
    pub(crate) node: u32,
    /// Nodes of the link, with this one.
    pub(crate) nodes: u32,
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
    /// Bytes of each node's section of the window.
    pub(crate) window_size: usize,
    /// Whether processes map the window like other memory, rather than write-combining.
    pub(crate) window_cached: bool,
}

impl Geometry {
    /// Checks that `peer` is another node of the link.
    fn check_peer(&self, peer: u32) -> Result {
        if peer >= self.nodes || peer == self.node {
            return Err(EINVAL);
        }
        Ok(())
    }
}

/// Bytes of a section where `nodes` nodes share `bytes` bytes.
///
/// # Errors
///
/// `EINVAL` when there are too many nodes or too few bytes.
fn section_size(bytes: usize, nodes: u32) -> Result<usize> {
    let nodes = usize::try_from(nodes)?;
    if !(2..=layout::MAX_NODES).contains(&nodes) {
        return Err(EINVAL);
    }
    let size = bytes / nodes.next_power_of_two() & PAGE_MASK;
    if size < MIN_SECTION {
        return Err(EINVAL);
    }
    Ok(size)
}

/// What joins the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The uldma adapter, which has an engine.
    Adapter,
    /// ivshmem-doorbell: window and doorbells only.
    Ivshmem,
    /// Memory of this machine.
    Loopback,
}

/// State of the link to a peer, as far as the hardware knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    /// Whether the peer can be reached.
    pub(crate) up: bool,
    /// Counts how often the link came up.
    pub(crate) generation: u32,
}

impl LinkState {
    /// What is said of peers where the hardware does not know.
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
    /// Whether the context is the kernel's, which may name every region.
    pub(crate) privileged: bool,
}

/// Contexts whose queues of descriptors are the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelQueues {
    /// Of copies between the nodes.
    pub(crate) copies: u32,
    /// Of invalidations, which do not wait for these.
    pub(crate) invalidations: u32,
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

/// What joins this node with others.
///
/// The seven methods without a body are all that a backend needs for connections through the window.
/// The others are for an engine that initiates DMA; without one, nothing that is refused here can be
/// in flight, so what ends things has nothing to do.
#[allow(
    unused_variables,
    reason = "defaults do nothing with what they are given"
)]
pub(crate) trait Hardware: Send + Sync {
    /// The facts that do not change.
    fn geometry(&self) -> &Geometry;

    /// Whether it answers in time.
    fn health(&self) -> &Health;

    /// Whether it still has what [`Hardware::enable`] told it, which a reset by others ends.
    fn is_enabled(&self, dev: &Device<Bound>) -> Result<bool> {
        Ok(true)
    }

    /// Whether it has no more to do with anything whose end was waited for by registers.
    fn has_caught_up(&self, dev: &Device<Bound>) -> Result<bool> {
        Ok(true)
    }

    /// The window, all sections.
    fn window<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a Window>;

    /// Frame number of a page that a process can map.
    fn frame(&self, page: DevicePage) -> Option<usize>;

    /// State of the link to node `peer`; always up where the hardware does not know.
    fn link(&self, dev: &Device<Bound>, peer: u32) -> Result<LinkState>;

    /// Sets doorbell bits of node `peer`.
    fn ring(&self, dev: &Device<Bound>, peer: u32, bits: u32) -> Result;

    /// Reads and acknowledges doorbell bits that peers have set; all of them where the hardware
    /// cannot tell.
    fn take_doorbells(&self, dev: &Device<Bound>) -> Result<u32>;

    /// Has doorbell `bits` not interrupt while they are masked, where the hardware can do that. What
    /// has rung meanwhile interrupts when they are no longer.
    fn mask_doorbells(&self, dev: &Device<Bound>, bits: u32, masked: bool) -> Result {
        Ok(())
    }

    /// Offset in the window of byte `offset` of the section of `node`.
    fn in_section(&self, node: u32, offset: usize) -> Result<usize> {
        let geometry = self.geometry();
        if node >= geometry.nodes || offset >= geometry.window_size {
            return Err(EINVAL);
        }
        Ok(usize::try_from(node)? * geometry.window_size + offset)
    }

    /// Reads an aligned u64 of the own section, before all that is read from it after.
    fn read_window(&self, dev: &Device<Bound>, offset: usize) -> Result<u64> {
        let offset = self.in_section(self.geometry().node, offset)?;
        self.window(dev)?.acquire64(offset)
    }

    /// Writes an aligned u64 of the section of `peer`.
    fn write_window(&self, dev: &Device<Bound>, peer: u32, offset: usize, value: u64) -> Result {
        let offset = self.in_section(peer, offset)?;
        self.window(dev)?.write64(offset, value)
    }

    /// As [`Hardware::write_window`], after all that was written to the window before.
    fn publish_window(&self, dev: &Device<Bound>, peer: u32, offset: usize, value: u64) -> Result {
        let offset = self.in_section(peer, offset)?;
        self.window(dev)?.publish64(offset, value)
    }

    /// Zeroes a part of the own section.
    fn zero_window(&self, dev: &Device<Bound>, offset: usize, length: usize) -> Result {
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        if end > self.geometry().window_size {
            return Err(EINVAL);
        }
        let start = self.in_section(self.geometry().node, offset)?;
        self.window(dev)?.zero(start, length)
    }

    /// Gives the device its tables and lets engine and link run.
    fn enable(&self, dev: &Device<Bound>, tables: &TableSetup) -> Result {
        Ok(())
    }

    /// Stops everything and brings all registers back to their reset values; bounded.
    fn reset(&self, dev: &Device<Bound>) -> Result {
        Ok(())
    }

    /// Makes sure that the device does no DMA from here on, whatever came of its reset.
    fn quiesce(&self, dev: &Device<Bound>) {}

    /// Reads and acknowledges pending [`layout::event`] bits.
    fn take_events(&self, dev: &Device<Bound>) -> Result<u32> {
        Ok(0)
    }

    /// Makes the device forget a region and end what uses it; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when it does not answer; the memory must stay pinned then.
    fn invalidate_region(&self, dev: &Device<Bound>, region: u32) -> Result {
        Ok(())
    }

    /// The same for all regions of a space at once.
    fn invalidate_space(&self, dev: &Device<Bound>, space: u32) -> Result {
        Ok(())
    }

    /// Starts a transfer of the kernel's context; returns its ticket.
    ///
    /// # Errors
    ///
    /// The refusal, as errno: `EBUSY`, `EACCES`, `EINVAL`, `ENOTCONN`, `EIO`; `EOPNOTSUPP` without an
    /// engine.
    fn start(
        &self,
        dev: &Device<Bound>,
        src: RegionOffset,
        dst: RegionOffset,
        length: u64,
    ) -> Result<u64> {
        Err(eopnotsupp())
    }

    /// The contexts whose queues of descriptors are the kernel's, if the device can have such.
    fn kernel_queues(&self) -> Option<KernelQueues> {
        None
    }

    /// Lets a context take initiations, with counters from zero; tickets go on from what the status
    /// page says.
    fn enable_context(&self, dev: &Device<Bound>, context: u32, setup: &ContextSetup) -> Result {
        Ok(())
    }

    /// Stops a context and waits until nothing of it is in flight; bounded.
    fn disable_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        Ok(())
    }

    /// Ends the sleep of a context's queue of descriptors.
    fn wake_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        Ok(())
    }

    /// Tells the device that `context`, or none, runs on `cpu` from now on.
    ///
    /// Does not sleep: context switches call it.
    fn sched_notify(&self, dev: &Device<Bound>, cpu: u32, context: Option<u32>) -> Result {
        Ok(())
    }

    /// How many wrong keys were passed through a context's shadow pages.
    fn bad_keys(&self, dev: &Device<Bound>, context: u32) -> Result<u32> {
        Ok(0)
    }

    /// Asks for an interrupt once a ticket beyond `completed` has ended.
    fn arm_context(&self, dev: &Device<Bound>, context: u32, completed: u64) -> Result {
        Ok(())
    }

    /// The last ticket that a context has given out.
    fn last_ticket(&self, dev: &Device<Bound>, context: u32) -> Result<u64> {
        Ok(0)
    }

    /// Reads a context's counters.
    fn context_counters(&self, dev: &Device<Bound>, context: u32) -> Result<ContextCounters> {
        Ok(ContextCounters::default())
    }

    /// Lends pages to the peers, under the token that this returns, until [`Hardware::unexport_pages`].
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, also by [`Hardware::copy`], where peers' memory is out of a CPU's reach.
    fn export_pages(&self, pages: Arc<PageList>) -> Result<u64> {
        Err(eopnotsupp())
    }

    /// Ends a lending; nobody touches the pages any more when this returns.
    fn unexport_pages(&self, token: u64) {}

    /// Copies bytes between pages of this node and pages that `peer` lent.
    fn copy(&self, peer: u32, copy: &CpuCopy<'_>) -> Result {
        Err(eopnotsupp())
    }
}
