// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Registers and tables that driver and device share: position, width, access and bits of each.
//!
//! This file and its submodules are compiled into the kernel module and into the device model
//! (`tools/uldma/device`), so they use nothing but `core`. `Documentation/uldma/device.rst` is their
//! prose twin; a test of the model compares both. All registers and table fields are little-endian.

use core::num::TryFromIntError;

#[path = "layout/lane.rs"]
pub mod lane;
#[path = "layout/operation.rs"]
pub mod operation;
#[path = "layout/register.rs"]
pub mod register;
#[path = "layout/word.rs"]
pub mod word;

pub use lane::*;
pub use operation::*;
pub use register::*;
pub use word::*;
pub(crate) use {
    register::registers,
    word::word, //
};

/// PCI vendor ID; 0x1b36 is Red Hat's, whose 0x00xx device IDs are for virtual devices.
pub const VENDOR_ID: u16 = 0x1b36;
/// PCI device ID of the device model, from the unassigned part of the range.
pub const DEVICE_ID: u16 = 0x00f7;

/// BAR0: control registers and MSI-X tables; for the kernel only.
pub const BAR_CONTROL: u32 = 0;
/// BAR1: one page of registers per context.
pub const BAR_CONTEXT: u32 = 1;
/// BAR2 (64-bit, BAR3 is its upper half): the shadow space.
pub const BAR_SHADOW: u32 = 2;
/// BAR4 (64-bit, BAR5 is its upper half): the window, one section per node.
pub const BAR_WINDOW: u32 = 4;

/// Size of BAR0 in bytes.
pub const BAR_CONTROL_SIZE: usize = 0x1_0000;
/// Offset of the MSI-X table in BAR0.
pub const MSIX_TABLE_OFFSET: usize = 0x8000;
/// Offset of the MSI-X pending bits in BAR0.
pub const MSIX_PBA_OFFSET: usize = 0xc000;
/// Number of MSI-X vectors.
pub const MSIX_VECTORS: u16 = 3;
/// Vector for completions, link changes, device errors and most doorbells.
pub const VECTOR_EVENT: u16 = 0;
/// Vector for doorbell bit 0 alone, so that its handler reads no register.
pub const VECTOR_CONTROL: u16 = 1;
/// Vector for doorbell bit 31 alone.
pub const VECTOR_NETWORK: u16 = 2;

registers! {
    /// Control registers in BAR0.
    pub mod reg;
    /// A control register, as the device decodes it.
    enum ControlRegister in CONTEXT_BLOCKS.offset();

    /// [`ID_MAGIC`].
    ID: u32 = 0x000, ro;
    /// Version of the register layout: [`VERSION`](super::VERSION).
    VERSION: Version = 0x004, ro;
    /// Number of register contexts, at most [`MAX_CONTEXTS`].
    CONTEXTS: u32 = 0x008, ro;
    /// Number of this node on its link.
    NODE: u32 = 0x00c, ro;
    /// log2 of the bytes of the page that a page entry, a shadow page and a context page stand for.
    /// Resets to 12; takes 12 to 16 while the device is disabled, and ignores other values.
    PAGE_SHIFT: u32 = 0x010, rw;
    /// log2 of the bytes of shadow space per context.
    SHADOW_SHIFT: u32 = 0x014, ro;
    /// Enables and resets the device.
    CONTROL: Control = 0x018, rw;
    /// Condition of the device and its link.
    STATUS: DeviceStatus = 0x01c, ro;
    /// Number of nodes that the link joins, including this one: 2 to [`MAX_NODES`].
    NODES: u32 = 0x020, ro;
    /// Pending causes of [`VECTOR_EVENT`].
    EVENT: EventCauses = 0x024, w1c;
    /// Mask of the initiation methods that the device has, by `enum uldma_method`.
    METHODS: u32 = 0x028, ro;
    /// Number of CPUs that [`RUNNING`] can name.
    CPUS: u32 = 0x02c, ro;
    /// Mask of the nodes that can be reached, without this one.
    LINKS: u32 = 0x030, ro;

    /// Bus address of the page table's directory.
    PAGE_DIRECTORY: u64 = 0x040, rw;
    /// Bus address of the region table's directory.
    REGION_DIRECTORY: u64 = 0x048, rw;
    /// Number of page entries that the directory can name.
    PAGE_CAPACITY: u32 = 0x050, rw;
    /// Number of region entries that the directory can name.
    REGION_CAPACITY: u32 = 0x054, rw;
    /// Starts an invalidation.
    INVALIDATE: Invalidation = 0x058, wo;
    /// Number of invalidations that have not ended; 0 when idle.
    INVALIDATE_PENDING: u32 = 0x060, ro;
    /// Bus address of the endpoint table's directory.
    ENDPOINT_DIRECTORY: u64 = 0x068, rw;
    /// Number of endpoint entries that the directory can name, at most [`MAX_ENDPOINTS`].
    ENDPOINT_CAPACITY: u32 = 0x070, rw;

    /// Source of a kernel-initiated transfer.
    DMA_SOURCE: KernelAddress = 0x080, rw;
    /// Destination of a kernel-initiated transfer.
    DMA_DESTINATION: KernelAddress = 0x088, rw;
    /// Number of bytes of a kernel-initiated transfer; the write starts it.
    DMA_SIZE: u64 = 0x090, wo;
    /// Ticket of the last start, which is greater than 0, or its negated status.
    DMA_STATUS: i64 = 0x098, ro;

    /// The context that runs on a CPU from now on. Discards the arguments that were passed on that CPU
    /// by the method that context switches abort.
    RUNNING: Running = 0x0a0, wo;

    /// Bytes of each node's section of the window; the section of node `n` starts at `n` times
    /// this. The owner of a section reads it, the other nodes write it.
    WINDOW_SIZE: u64 = 0x0c0, ro;
    /// Bus address of the page to which the device writes [`TOUCH_BEGUN`] and [`TOUCH_OLDEST`], or 0. Until
    /// the end of a reset the device writes to the page that it had before.
    TOUCH_PAGE: u64 = 0x0c8, rw;
    /// Bus address of the page of [`PAGE_REQUEST_SLOTS`] [`PageRequest`], or 0: then the device requests no
    /// pages. A store makes all slots unused.
    PAGE_REQUESTS: u64 = 0x0d0, rw;

    /// Doorbell bits that peers have set.
    DOORBELL: u32 = 0x104, w1c;
    /// Doorbell bits that do not interrupt.
    DOORBELL_MASK: u32 = 0x108, rw;
    /// Scratchpads that this node writes and its peers read.
    SCRATCHPAD[SCRATCHPADS]: u32 = 0x140, rw;
    /// For each node, bits to set in its [`DOORBELL`]; ignored while the node cannot be reached.
    PEER_DOORBELL[MAX_NODES]: u32 = 0x180, wo;
    /// For each node, the number of times that the link to it came up.
    LINK_GENERATION[MAX_NODES]: u32 = 0x1a0, ro;
    /// For each node, its [`SCRATCHPADS`] scratchpads; all ones while the node cannot be reached.
    PEER_SCRATCHPAD[MAX_NODES * SCRATCHPADS]: u32 = 0x200, ro;
}

/// The context blocks in BAR0, for the kernel only.
pub const CONTEXT_BLOCKS: Blocks<
    ControlRegister,
    ContextRegister,
    CONTEXT_STRIDE,
    { MAX_CONTEXTS as usize },
> = Blocks::new(0x1000);
/// Bytes from one context block to the next.
pub const CONTEXT_STRIDE: usize = 0x70;

/// Offset in the [touch page](reg::TOUCH_PAGE) of the number of the last bracket that began. A bracket is a
/// time in which the device may use what it has looked up in the tables of the node; they are numbered
/// from 1 on.
pub const TOUCH_BEGUN: u64 = 0;
/// The same of the oldest bracket that has not ended, or of the next one.
pub const TOUCH_OLDEST: u64 = 64;

/// Value of [`reg::ID`]: "UDMA".
pub const ID_MAGIC: u32 = 0x414d_4455;
/// Value of [`reg::VERSION`].
pub const VERSION: Version = Version::from_bits(0x0003_0000);
/// Number of nodes that a link can join.
pub const MAX_NODES: usize = 8;
/// Number of scratchpads of each node.
pub const SCRATCHPADS: usize = 8;
/// Maximum number of contexts of a device; context 0 is the kernel's.
pub const MAX_CONTEXTS: u32 = 256;
/// Default number of contexts: the kernel's, six for programs, and the last three, which a driver can
/// use for its queues.
pub const DEFAULT_CONTEXTS: u32 = 10;

word! {
    /// Value of [`reg::VERSION`].
    pub struct Version(u32);

    fields {
        /// Major version; a driver supports one.
        MAJOR: u16 = 31, 16;
        /// Minor version; a driver supports all.
        MINOR: u16 = 15, 0;
    }
}

word! {
    /// Value of [`reg::CONTROL`].
    pub struct Control(u32);

    flags {
        /// The driver is present: the engine may run and the link may come up.
        ENABLE = 0;
        /// Stops all transfers and returns all registers to their reset values; reads 0.
        RESET = 1;
    }
}

word! {
    /// Value of [`reg::STATUS`].
    pub struct DeviceStatus(u32);

    flags {
        /// The device is out of reset and takes commands.
        READY = 0;
        /// Another node can be reached.
        LINK_UP = 1;
    }
}

word! {
    /// Value of [`reg::EVENT`].
    pub struct EventCauses(u32);

    flags {
        /// A transfer of a context has ended.
        COMPLETION = 0;
        /// The link to a node went up or down.
        LINK = 1;
        /// An access to a bus address failed: of a table, a status page or data.
        ERROR = 2;
        /// A context has passed a wrong key, see [`ctx::BAD_KEYS`].
        KEY = 3;
        /// A peer set a bit of [`reg::DOORBELL`] other than bit 0.
        DOORBELL = 4;
        /// The device stored a [`PageRequest`].
        PAGE = 5;
    }
}

word! {
    /// Value of [`reg::INVALIDATE`].
    ///
    /// An invalidation ends when no transfer reads or writes through what it names any more and
    /// the device caches nothing of it; transfers that named it end as aborted.
    pub struct Invalidation(u64);

    fields {
        /// The kind of what is invalidated.
        KIND: u8 = 63, 56;
        /// The region, the space or the endpoint.
        INDEX: u32 = 31, 0;
    }
}

impl Invalidation {
    /// Kind: one region, and every import of it at other nodes.
    pub const REGION: u8 = 1;
    /// Kind: every region and page of one space.
    pub const SPACE: u8 = 2;
    /// Kind: everything.
    pub const ALL: u8 = 3;
    /// Kind: one endpoint: what is sent from it and what is delivered to it.
    pub const ENDPOINT: u8 = 4;

    /// Returns the invalidation of this kind.
    #[inline(always)]
    pub fn new(kind: u8, index: u32) -> Self {
        Self::NONE.with(Self::KIND, kind).with(Self::INDEX, index)
    }
}

word! {
    /// Value of [`reg::DMA_SOURCE`] and [`reg::DMA_DESTINATION`]. The kernel's context may name every
    /// region.
    pub struct KernelAddress(u64);

    fields {
        /// Index of the region.
        REGION: u32 = 63, 48;
        /// Byte offset from the start of the region.
        OFFSET: u64 = 47, 0;
    }
}

word! {
    /// Value of [`reg::RUNNING`].
    pub struct Running(u64);

    fields {
        /// The CPU.
        CPU: u32 = 63, 32;
        /// The context that runs on the CPU, or 0.
        CONTEXT: u32 = 31, 0;
    }
}

registers! {
    /// Registers of a context block.
    pub mod ctx;
    /// A register of a context block, as the device decodes it.
    enum ContextRegister in CONTEXT_STRIDE;

    /// Enables the context.
    CONTROL: ContextControl = 0x00, rw;
    /// Space whose pages and regions the context may name.
    SPACE: u32 = 0x04, rw;
    /// Bus address of the status page (`struct uldma_status_page`).
    STATUS_PAGE: u64 = 0x08, rw;
    /// The context's key, for methods that need one. Takes effect when the context is enabled.
    KEY: Key = 0x10, wo;
    /// Mask of the allowed initiation methods, by `enum uldma_method`; one bit.
    METHODS: u32 = 0x18, rw;
    /// Number of wrong keys that were passed through the context's shadow pages since it was
    /// enabled; from [`MAX_BAD_KEYS`] on the device takes no key through them.
    BAD_KEYS: u32 = 0x1c, ro;
    /// Raises [`EventCauses::COMPLETION`] once the completed ticket exceeds this value (at once if it does
    /// already), then disarms.
    ARM: u64 = 0x20, wo;
    /// Stores to the shadow pages since the context was enabled.
    SHADOW_STORES: u64 = 0x28, ro;
    /// Loads from the shadow pages since the context was enabled.
    SHADOW_LOADS: u64 = 0x30, ro;
    /// Stores to the context page since the context was enabled.
    PAGE_STORES: u64 = 0x38, ro;
    /// Loads from the context page since the context was enabled.
    PAGE_LOADS: u64 = 0x40, ro;
    /// Transfers started since the context was enabled.
    INITIATIONS: u64 = 0x48, ro;
    /// Initiations refused since the context was enabled.
    REFUSED: u64 = 0x50, ro;
    /// Bytes moved since the context was enabled.
    BYTES: u64 = 0x58, ro;
    /// The last ticket that the device returned.
    TICKET: u64 = 0x60, ro;
    /// Bus address of the page of descriptors (`struct uldma_descriptor`).
    QUEUE: u64 = 0x68, rw;
}

/// Maximum number of endpoints of a node; a higher capacity counts as this.
pub const MAX_ENDPOINTS: u32 = 4096;

/// Number of wrong keys from which on the device refuses all keys of a context.
pub const MAX_BAD_KEYS: u32 = 16;
/// Number of contexts that a key can name, including context 0, which has no key.
pub const KEY_CONTEXTS: u32 = 16;

word! {
    /// Value of [`ctx::CONTROL`].
    pub struct ContextControl(u32);

    flags {
        /// The context takes initiations. When it is set, tickets and counts continue from those in the
        /// status page. When it is cleared, the device discards arguments that are passed in part,
        /// aborts what is queued, and clears [`BUSY`](Self::BUSY) once nothing of the context
        /// is in flight.
        ENABLE = 0;
        /// Raises an interrupt at every completion, whether the context is armed or not.
        INTERRUPT_ALWAYS = 1;
        /// Read-only: transfers of this context are queued or in flight.
        BUSY = 2;
        /// Transfers move nothing and complete without an error at once, with no bytes moved.
        NO_DATA = 3;
        /// The context is the driver's: its descriptors may name every region, and use
        /// [`DescriptorFlags`] and [`OP_INVALIDATE`].
        PRIVILEGED = 4;
    }
}

word! {
    /// Value of [`ctx::KEY`], and the word that a process stores to prove that it owns a context.
    pub struct Key(u64);

    fields {
        /// Random bits, not all of them 0.
        SECRET: u64 = 63, 4;
        /// Number of the context.
        CONTEXT: u32 = 3, 0;
    }
}

const _: () = assert!(Key::CONTEXT.max() + 1 == KEY_CONTEXTS as u64);

registers! {
    /// Registers of a context page in BAR1, for the process that owns the context.
    ///
    /// A store anywhere in the page passes the size word of the key-based method, or wakes the
    /// device to poll the queue.
    pub mod context_page;
    /// A register of a context page, as the device decodes it.
    enum PageRegister in 1 << 12;

    /// Bytes that the last transfer has left, or a negated status. With the key-based method a load
    /// starts the transfer whose arguments were passed.
    REMAINING: i64 = 0x00, ro;
    /// The last ticket that the device returned.
    TICKET: u64 = 0x08, ro;
}

/// Bytes of a block of a table. A table is reached through a directory: an array of u64 bus addresses
/// of blocks, or 0 for a block whose entries are not valid.
pub const TABLE_BLOCK_SIZE: usize = 4096;

/// Number of transfers that a context can have queued; the same as `ULDMA_STATUS_RECORDS`.
pub const QUEUE_DEPTH: usize = 64;

word! {
    /// Flags of a page entry in bits 11..0, below the address of the page.
    pub struct PageWord(u64);

    flags {
        /// The entry is valid.
        VALID = 0;
        /// The device may read the page.
        READ = 1;
        /// The device may write the page.
        WRITE = 2;
        /// The page is the peer's.
        REMOTE = 3;
        /// The page is not pinned, so there are times without it: then the entry is not [`VALID`](Self::VALID),
        /// but still has its space and rights.
        OPTIMISTIC = 4;
        /// An optimistic page that the device may read now, but not write, whatever the rights say.
        READ_ONLY = 5;
    }

    fields {
        /// Upper bits of the address: see [`address`](Self::address).
        FRAME: u64 = 63, 12;
    }
}

impl PageWord {
    /// Returns the word without flags of the page at `address`; bits 11..0 of the address are ignored.
    #[inline(always)]
    pub const fn of_address(address: u64) -> Self {
        Self(address & Self::FRAME.mask())
    }

    /// Returns the bus address of the page, or for an import its byte offset in the peer's region.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.0 & Self::FRAME.mask()
    }

    /// Returns the flags of this word with another address.
    #[inline(always)]
    pub const fn with_address(self, address: u64) -> Self {
        Self(self.0 & !Self::FRAME.mask()).union(Self::of_address(address))
    }
}

/// One page of one address space, or one page of an imported region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PageEntry {
    /// Address and flags.
    pub word: PageWord,
    /// Space that owns the page.
    pub space: u16,
    /// 1 once the device has accessed an optimistic page. The driver sets it to 0.
    pub accessed: u8,
    /// The same for writes.
    pub dirty: u8,
    /// For an import: index of the local region entry that stands for it. For a page of this node: the
    /// page entry that it is mapped out to, plus one, or 0.
    pub region: u32,
}

impl PageEntry {
    /// Returns the entry of a page that was not accessed.
    ///
    /// # Errors
    ///
    /// For a space that has no number in entries.
    pub fn new(word: PageWord, space: u32, region: u32) -> Result<Self, TryFromIntError> {
        Ok(Self {
            word,
            space: space.try_into()?,
            region,
            ..Self::default()
        })
    }
}

/// Number of slots for page requests.
pub const PAGE_REQUEST_SLOTS: usize = 128;

/// Pages of a node that a transfer lacked: a slot of the page at [`reg::PAGE_REQUESTS`]. The device stores
/// the fields up to `context`, the driver the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PageRequest {
    /// Number of the request, not 0; it rises with each of the node. The device stores it last.
    pub number: u64,
    /// Page entry of the first page.
    pub index: u32,
    /// Number of pages, in consecutive entries of one block of the table: 1 to [`MOST_PAGES`](Self::MOST_PAGES).
    pub count: u16,
    /// What the transfer does with the pages: [`READ`](Self::READ), [`WRITE`](Self::WRITE).
    pub need: u8,
    /// [`HINT`](Self::HINT) or [`WAIT`](Self::WAIT).
    pub kind: u8,
    /// Node of the context whose transfer it was.
    pub node: u16,
    /// Number of the context.
    pub context: u16,
    /// Number of pages that the driver entered.
    pub filled: u16,
    /// 0, or the `enum uldma_dma_status` that is the reason for which the first page cannot be entered.
    pub status: u16,
    /// [`number`](Self::number), once the driver does not need the slot any more. The driver stores it last.
    pub answered: u64,
}

impl PageRequest {
    /// The pages are read.
    pub const READ: u8 = 1 << 0;
    /// The pages are written.
    pub const WRITE: u8 = 1 << 1;
    /// Kind: the transfer has ended, and another one is likely to need the pages.
    pub const HINT: u8 = 0;
    /// Kind: the transfer waits until the driver has answered and submits [`OP_PAGED`].
    pub const WAIT: u8 = 1;
    /// Maximum of [`count`](Self::count).
    pub const MOST_PAGES: u16 = 16;
}

word! {
    /// Flags of a region entry.
    pub struct RegionFlags(u32);

    flags {
        /// The entry is valid.
        VALID = 0;
        /// The region may be a source.
        READ = 1;
        /// The region may be a destination.
        WRITE = 2;
        /// The region is an import.
        REMOTE = 3;
        /// The peer may read.
        EXPORT_READ = 4;
        /// The peer may write.
        EXPORT_WRITE = 5;
        /// The region is a part of the node's own section of the window.
        WINDOW = 6;
        /// A transfer that lacks an optimistic page of the region waits for the driver's answer, for
        /// [`LIMIT`](Self::LIMIT) at most. Not for an import: the owner's entry decides.
        WAIT = 8;
    }

    fields {
        /// For an import: number of the node that owns the region.
        NODE: u32 = 31, 24;
    }
}

impl RegionFlags {
    /// With [`WAIT`](Self::WAIT): log2 of the microseconds for which a transfer waits; 0: it does not.
    pub const LIMIT: Field<Self, u32, 31, 24> = Self::NODE;
}

/// One registration, or one import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionEntry {
    /// The driver writes the flags last when it makes an entry, and first when it retracts one.
    pub flags: RegionFlags,
    /// Space that owns the region.
    pub space: u32,
    /// Bytes from the start of the first page to the first byte of the region; with
    /// [`RegionFlags::WINDOW`], from the start of the section.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Changes whenever the slot is reused; an import must name it.
    pub generation: u64,
    /// Number of runs of page entries. With one run, `first_page` is its first entry; with more, `runs`
    /// has them.
    pub run_count: u32,
    /// First page entry of a single run.
    pub first_page: u32,
    /// Bus address of an array of [`Run`], sorted, without gaps; 0 for a single run.
    pub runs: u64,
    /// Import: the peer's region index.
    pub peer_region: u32,
    /// Import: generation of the link to that node under which the import was made.
    pub link_generation: u32,
    /// Import: [`RegionEntry::generation`] of the peer's region.
    pub peer_generation: u64,
}

word! {
    /// Flags of an endpoint entry.
    pub struct EndpointFlags(u32);

    flags {
        /// The entry is valid.
        VALID = 0;
        /// The peer's endpoint is known; nothing is sent before, and what the peer sends waits.
        CONNECTED = 1;
        /// The endpoint is the driver's: its receive descriptors may have [`DescriptorFlags::LIST`].
        PRIVILEGED = 2;
        /// The endpoint sends and receives a stream of bytes instead of messages; so does the peer's.
        STREAM = 3;
    }

    fields {
        /// Number of the peer's node.
        NODE: u32 = 31, 24;
    }
}

/// One end of a message connection: where it receives, and the endpoint that it is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EndpointEntry {
    /// The driver writes the flags last when it makes an entry, and first when it retracts one.
    pub flags: EndpointFlags,
    /// Space that owns the endpoint and the regions of its receive descriptors.
    pub space: u32,
    /// Changes whenever the slot is reused; the peer's endpoint must name it.
    pub generation: u64,
    /// Bus address of the page of receive descriptors (`struct uldma_descriptor`).
    pub receive_ring: u64,
    /// Bus address of the status page of receptions (`struct uldma_status_page`).
    pub receive_status: u64,
    /// Milliseconds for which a send waits for a receive descriptor; 0: none, all ones: no limit.
    pub timeout_ms: u32,
    /// Index of the peer's endpoint.
    pub peer_endpoint: u32,
    /// [`EndpointEntry::generation`] of the peer's endpoint.
    pub peer_generation: u64,
    /// Generation of the link to the peer's node under which the connection was made.
    pub link_generation: u32,
    /// Zero.
    pub reserved: u32,
    /// Number of bytes of the longest message that may be sent.
    pub most_bytes: u64,
}

/// One piece of memory of a list: consecutive bytes on the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// Bus address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Maximum number of segments of a list.
pub const MAX_SEGMENTS: u32 = 32;

/// A run of page entries that stand for consecutive pages of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// Number of the run's first page in the region.
    pub page: u32,
    /// Index of its page entry.
    pub first: u32,
    /// Number of pages.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<PageEntry>() == 16);
const _: () = assert!(size_of::<PageRequest>() * PAGE_REQUEST_SLOTS == 4096);
const _: () = assert!(size_of::<RegionEntry>() == 64);
const _: () = assert!(size_of::<EndpointEntry>() == 64);
const _: () = assert!(size_of::<Run>() == 16);
const _: () = assert!(size_of::<Segment>() == 16);
const _: () = assert!(CONTEXT_BLOCKS.end() <= MSIX_TABLE_OFFSET);
