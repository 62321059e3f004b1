// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Registers and tables that driver and device share: position, width, access and bits of each.
//!
//! This file and its submodules are compiled into the kernel module and into the device model
//! (`tools/uldma/device`), so they use nothing but `core`. `Documentation/uldma/device.rst` is their
//! prose twin; a test of the model compares both. All registers and table fields are little-endian.

#[macro_use]
#[path = "layout/register.rs"]
mod register;

pub use register::*;

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

/// Bytes of BAR0.
pub const BAR_CONTROL_SIZE: usize = 0x1_0000;
/// MSI-X table, in BAR0.
pub const MSIX_TABLE_OFFSET: usize = 0x8000;
/// MSI-X pending bits, in BAR0.
pub const MSIX_PBA_OFFSET: usize = 0xc000;
/// MSI-X vectors.
pub const MSIX_VECTORS: u16 = 2;
/// Vector for completions, link changes, device errors and most doorbells.
pub const VECTOR_EVENT: u16 = 0;
/// Vector for doorbell bit 0, by which drivers ring each other: nothing has to be read to know that.
pub const VECTOR_CONTROL: u16 = 1;

registers! {
    /// Control registers in BAR0.
    pub mod reg;
    /// A control register, as the device decodes it.
    pub enum ControlRegister in CONTEXT_BLOCKS.offset();

    /// [`ID_MAGIC`].
    ID: u32 = 0x000, ro;
    /// Version of the register layout: major in the upper half, minor in the lower half.
    VERSION: u32 = 0x004, ro;
    /// Number of register contexts, at most [`MAX_CONTEXTS`].
    CONTEXTS: u32 = 0x008, ro;
    /// Number of this node on its link.
    NODE: u32 = 0x00c, ro;
    /// log2 of the bytes of the page that a page entry, a shadow page and a context page stand for.
    /// Resets to 12; takes 12 to 16 while the device is disabled, and ignores other values.
    PAGE_SHIFT: u32 = 0x010, rw;
    /// log2 of the bytes of shadow space per context.
    SHADOW_SHIFT: u32 = 0x014, ro;
    /// See [`control`].
    CONTROL: u32 = 0x018, rw;
    /// See [`status`].
    STATUS: u32 = 0x01c, ro;
    /// Number of nodes that the link joins, including this one: 2 to [`MAX_NODES`].
    NODES: u32 = 0x020, ro;
    /// Pending causes of [`VECTOR_EVENT`], see [`event`].
    EVENT: u32 = 0x024, w1c;
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
    /// Starts an invalidation, see [`invalidate`].
    INVALIDATE: u64 = 0x058, wo;
    /// Number of invalidations that have not ended; 0 when idle.
    INVALIDATE_PENDING: u32 = 0x060, ro;

    /// Source of a kernel-initiated transfer, see [`kernel_address`].
    DMA_SOURCE: u64 = 0x080, rw;
    /// Destination of a kernel-initiated transfer.
    DMA_DESTINATION: u64 = 0x088, rw;
    /// Number of bytes of a kernel-initiated transfer; the write starts it.
    DMA_SIZE: u64 = 0x090, wo;
    /// Ticket of the last start, which is greater than 0, or its negated status.
    DMA_STATUS: i64 = 0x098, ro;

    /// The context that runs on a CPU from now on: the CPU in bits 63..32, the context or 0 in bits
    /// 31..0. Discards the arguments that were passed on that CPU by the method that context switches
    /// abort.
    RUNNING: u64 = 0x0a0, wo;

    /// Bytes of each node's section of the window; the section of node `n` starts at `n` times
    /// this. The owner of a section reads it, the other nodes write it.
    WINDOW_SIZE: u64 = 0x0c0, ro;

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

/// Value of [`reg::ID`]: "UDMA".
pub const ID_MAGIC: u32 = 0x414d_4455;
/// Value of [`reg::VERSION`].
pub const VERSION: u32 = 0x0002_0000;
/// Nodes that a link can join.
pub const MAX_NODES: usize = 8;
/// Scratchpads of each node.
pub const SCRATCHPADS: usize = 8;
/// Most contexts that a device can have; context 0 is the kernel's.
pub const MAX_CONTEXTS: u32 = 256;
/// Default number of contexts: the kernel's, six for programs, and the last two, which a driver can
/// use for queues of its own.
pub const DEFAULT_CONTEXTS: u32 = 9;

/// Bits of [`reg::CONTROL`].
pub mod control {
    /// The driver is there: the engine may run and the link may come up.
    pub const ENABLE: u32 = 1 << 0;
    /// Write 1: stop all transfers and return all registers to their reset values; reads 0.
    pub const RESET: u32 = 1 << 1;
}

/// Bits of [`reg::STATUS`].
pub mod status {
    /// The device is out of reset and takes commands.
    pub const READY: u32 = 1 << 0;
    /// Some other node can be reached.
    pub const LINK_UP: u32 = 1 << 1;
}

/// Bits of [`reg::EVENT`].
pub mod event {
    /// A context's transfer has ended.
    pub const COMPLETION: u32 = 1 << 0;
    /// The link to some node went up or down.
    pub const LINK: u32 = 1 << 1;
    /// A bus address did not answer: of a table, a status page or data.
    pub const ERROR: u32 = 1 << 2;
    /// A context has passed a wrong key, see [`super::ctx::BAD_KEYS`].
    pub const KEY: u32 = 1 << 3;
    /// A peer rang another bit than bit 0 of [`super::reg::DOORBELL`].
    pub const DOORBELL: u32 = 1 << 4;
}

registers! {
    /// Registers of a context block.
    pub mod ctx;
    /// A register of a context block, as the device decodes it.
    pub enum ContextRegister in CONTEXT_STRIDE;

    /// See [`context_control`].
    CONTROL: u32 = 0x00, rw;
    /// Space whose pages and regions the context may name.
    SPACE: u32 = 0x04, rw;
    /// Bus address of the status page (`struct uldma_status_page`).
    STATUS_PAGE: u64 = 0x08, rw;
    /// The context's key, for methods that need one: 60 secret bits, not all of them 0, above the
    /// context's number in bits 3..0. Takes effect when the context is enabled.
    KEY: u64 = 0x10, wo;
    /// Mask of the allowed initiation methods, by `enum uldma_method`; one bit.
    METHODS: u32 = 0x18, rw;
    /// Number of wrong keys that were passed through the context's shadow pages since it was
    /// enabled; from [`MAX_BAD_KEYS`] on the device takes no key through them.
    BAD_KEYS: u32 = 0x1c, ro;
    /// Raises [`event::COMPLETION`] once the completed ticket exceeds this value (at once if it does
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

/// Wrong keys that a context is forgiven.
pub const MAX_BAD_KEYS: u32 = 16;
/// Contexts that a key can name, with context 0, which has none.
pub const KEY_CONTEXTS: u32 = 16;

/// Bits of [`ctx::CONTROL`].
pub mod context_control {
    /// The context takes initiations. Setting it goes on with tickets and counts from what the status
    /// page says. Clearing it drops half-passed arguments, aborts what is queued, and reads back as
    /// 0 once nothing of this context is in flight.
    pub const ENABLE: u32 = 1 << 0;
    /// Raise an interrupt at every completion, whether armed or not.
    pub const INTERRUPT_ALWAYS: u32 = 1 << 1;
    /// Read-only: transfers of this context are queued or in flight.
    pub const BUSY: u32 = 1 << 2;
    /// Transfers move nothing and end well at once, with no bytes moved.
    pub const NO_DATA: u32 = 1 << 3;
    /// The context is the driver's: its descriptors may name every region, and use [`super::queue`].
    pub const PRIVILEGED: u32 = 1 << 4;
}

/// What descriptors (`struct uldma_descriptor`) of a privileged context can have besides what those
/// of programs can.
pub mod queue {
    /// Operation: end what uses region `src`, as [`super::invalidate::REGION`] does; the descriptor
    /// ends when that has ended.
    pub const OP_INVALIDATE: u32 = 0x100;
    /// Flag of a copy: `src` is the index of a peer's region. `operand` is its generation and `compare`
    /// the node in bits 63..32 and the generation of the link to it in bits 31..0. Not together with
    /// [`DST_OF_PEER`].
    pub const SRC_OF_PEER: u32 = 1 << 8;
    /// Flag of a copy: the same for `dst`.
    pub const DST_OF_PEER: u32 = 1 << 9;
}

registers! {
    /// Registers of a context page in BAR1, for the process that owns the context.
    ///
    /// A store anywhere in the page passes the size word of the key-based method, or wakes the
    /// device to poll the queue.
    pub mod context_page;
    /// A register of a context page, as the device decodes it.
    pub enum PageRegister in 1 << 12;

    /// Bytes that the last transfer has left, or a negated status. With the key-based method a load
    /// starts the transfer whose arguments were passed.
    REMAINING: i64 = 0x00, ro;
    /// The last ticket that the device returned.
    TICKET: u64 = 0x08, ro;
}

/// [`reg::INVALIDATE`]: kind in bits 63..56, index in bits 31..0.
///
/// An invalidation ends when no transfer reads or writes through what it names any more and
/// nothing that was cached of it is left; transfers that named it end as aborted.
pub mod invalidate {
    /// Position of the kind.
    pub const KIND_SHIFT: u32 = 56;
    /// One region, and every import of it at other nodes.
    pub const REGION: u64 = 1;
    /// Every region and page of one space; the index is the space.
    pub const SPACE: u64 = 2;
    /// Everything.
    pub const ALL: u64 = 3;
}

/// [`reg::DMA_SOURCE`] and [`reg::DMA_DESTINATION`]: region index in bits 63..48, byte offset from
/// the region's start in bits 47..0. The kernel's context may name every region.
pub mod kernel_address {
    /// Position of the region index.
    pub const REGION_SHIFT: u32 = 48;
    /// Mask of the offset.
    pub const OFFSET_MASK: u64 = (1 << REGION_SHIFT) - 1;
}

/// The size word of a user-level initiation; the same as `ULDMA_SIZE_WORD_*` of the user interface.
pub mod size_word {
    /// Bits 29..0: bytes to move.
    pub const BYTES_MASK: u64 = 0x3fff_ffff;
    /// Bits 32..30: source address modulo 8.
    pub const SRC_LOW_SHIFT: u32 = 30;
    /// Bits 35..33: destination address modulo 8.
    pub const DST_LOW_SHIFT: u32 = 33;
    /// Mask of each of these two fields.
    pub const LOW_MASK: u64 = 0x7;
    /// Bits 49..36: source region, or 0.
    pub const SRC_REGION_SHIFT: u32 = 36;
    /// Bits 63..50: destination region, or 0.
    pub const DST_REGION_SHIFT: u32 = 50;
    /// Mask of each of these two fields.
    pub const REGION_MASK: u64 = 0x3fff;
}

/// Both tables are reached through a directory: an array of u64 bus addresses of blocks of
/// [`TABLE_BLOCK_SIZE`] bytes, or 0 where there is no block (its entries are not valid).
pub const TABLE_BLOCK_SIZE: usize = 4096;

/// Transfers that a context can have queued; the same as `ULDMA_STATUS_RECORDS`.
pub const QUEUE_DEPTH: usize = 64;

/// One page of one address space, or one page of an imported region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PageEntry {
    /// Bus address of the page (for an import: byte offset in the peer's region), with
    /// [`page_flags`] in the bits below 12.
    pub word: u64,
    /// Space that owns the page.
    pub space: u32,
    /// For an import: index of the local region entry that stands for it. For a page of this node: the
    /// page entry that it is mapped out to, plus one, or 0.
    pub region: u32,
}

/// Bits of [`PageEntry::word`].
pub mod page_flags {
    /// The entry means something.
    pub const VALID: u64 = 1 << 0;
    /// The device may read the page.
    pub const READ: u64 = 1 << 1;
    /// The device may write the page.
    pub const WRITE: u64 = 1 << 2;
    /// The page is the peer's.
    pub const REMOTE: u64 = 1 << 3;
    /// Mask of the address.
    pub const ADDRESS_MASK: u64 = !0xfff;
}

/// One registration, or one import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RegionEntry {
    /// See [`region_flags`]; written last when an entry is made, first when it is taken back.
    pub flags: u32,
    /// Space that owns the region.
    pub space: u32,
    /// Bytes from the start of the first page to the region's first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Changes whenever the slot is used anew; an import must name it.
    pub generation: u64,
    /// Runs of page entries; one: `first_page` is its first entry; more: see `runs`.
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

/// Bits of [`RegionEntry::flags`].
pub mod region_flags {
    /// The entry means something.
    pub const VALID: u32 = 1 << 0;
    /// May be a source.
    pub const READ: u32 = 1 << 1;
    /// May be a destination.
    pub const WRITE: u32 = 1 << 2;
    /// The region is an import.
    pub const REMOTE: u32 = 1 << 3;
    /// The peer may read.
    pub const EXPORT_READ: u32 = 1 << 4;
    /// The peer may write.
    pub const EXPORT_WRITE: u32 = 1 << 5;
    /// Position of the number of the node whose region an import stands for, in bits 31..24.
    pub const NODE_SHIFT: u32 = 24;
}

/// A run of page entries that stand for consecutive pages of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// Number of the run's first page in the region.
    pub page: u32,
    /// Index of its page entry.
    pub first: u32,
    /// Pages.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(core::mem::size_of::<PageEntry>() == 16);
const _: () = assert!(core::mem::size_of::<RegionEntry>() == 64);
const _: () = assert!(core::mem::size_of::<Run>() == 16);
const _: () = assert!(CONTEXT_BLOCKS.end() <= MSIX_TABLE_OFFSET);
