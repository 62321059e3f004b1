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

/// Control registers: byte offsets in BAR0.
pub mod reg {
    /// u32, read-only: [`super::ID_MAGIC`].
    pub const ID: usize = 0x000;
    /// u32, read-only: major version in the upper half, minor in the lower.
    pub const VERSION: usize = 0x004;
    /// u32, read-only: number of register contexts, [`super::MAX_CONTEXTS`] at most.
    pub const CONTEXTS: usize = 0x008;
    /// u32, read-only: number of this node on its link.
    pub const NODE: usize = 0x00c;
    /// u32: log2 of the page that a page entry, a shadow page and a context page stand for.
    /// Resets to 12; 12 to 16 can be written while disabled, other values are ignored.
    pub const PAGE_SHIFT: usize = 0x010;
    /// u32, read-only: log2 of the bytes of shadow space per context.
    pub const SHADOW_SHIFT: usize = 0x014;
    /// u32: see [`super::control`].
    pub const CONTROL: usize = 0x018;
    /// u32, read-only: see [`super::status`].
    pub const STATUS: usize = 0x01c;
    /// u32, read-only: nodes that the link joins, 2 to [`super::MAX_NODES`], with this one.
    pub const NODES: usize = 0x020;
    /// u32: pending causes of [`super::VECTOR_EVENT`], see [`super::event`]; write ones to clear.
    pub const EVENT: usize = 0x024;
    /// u32, read-only: bit mask of the initiation methods that the device has, by
    /// `enum uldma_method`.
    pub const METHODS: usize = 0x028;
    /// u32, read-only: CPUs that [`RUNNING`] can name.
    pub const CPUS: usize = 0x02c;
    /// u32, read-only: mask of the nodes that can be reached, this one not among them.
    pub const LINKS: usize = 0x030;

    /// u64: bus address of the page table's directory.
    pub const PAGE_DIRECTORY: usize = 0x040;
    /// u64: bus address of the region table's directory.
    pub const REGION_DIRECTORY: usize = 0x048;
    /// u32: number of page entries that the directory can name.
    pub const PAGE_CAPACITY: usize = 0x050;
    /// u32: number of region entries that the directory can name.
    pub const REGION_CAPACITY: usize = 0x054;
    /// u64, write: see [`super::invalidate`].
    pub const INVALIDATE: usize = 0x058;
    /// u32, read-only: invalidations that have not ended; 0 when idle.
    pub const INVALIDATE_PENDING: usize = 0x060;

    /// u64: kernel-initiated transfer: source, see [`super::kernel_address`].
    pub const DMA_SOURCE: usize = 0x080;
    /// u64: kernel-initiated transfer: destination.
    pub const DMA_DESTINATION: usize = 0x088;
    /// u64, write: number of bytes; the write starts the transfer.
    pub const DMA_SIZE: usize = 0x090;
    /// i64, read-only: ticket of the last start (greater than 0), or a negated status.
    pub const DMA_STATUS: usize = 0x098;

    /// u64, write: what runs: a CPU in bits 63..32, and in bits 31..0 the context that runs there
    /// from now on, or 0. Forgets the arguments that were passed on that CPU by the method that
    /// context switches abort.
    pub const RUNNING: usize = 0x0a0;

    /// u64, read-only: bytes of each node's section of the window; that of node `n` starts at `n`
    /// times this. Its owner reads it, the others write it.
    pub const WINDOW_SIZE: usize = 0x0c0;

    /// u32: doorbell bits that peers have set; write ones to clear.
    pub const DOORBELL: usize = 0x104;
    /// u32: doorbell bits that do not interrupt.
    pub const DOORBELL_MASK: usize = 0x108;
    /// 8 x u32: scratchpads that this node writes.
    pub const SCRATCHPAD: usize = 0x140;
    /// [`super::MAX_NODES`] x u32, write: bits to set in the [`DOORBELL`] of node `n`; ignored while it
    /// cannot be reached.
    pub const PEER_DOORBELL: usize = 0x180;
    /// [`super::MAX_NODES`] x u32, read-only: how often the link to node `n` came up.
    pub const LINK_GENERATION: usize = 0x1a0;
    /// [`super::MAX_NODES`] x 8 x u32, read-only: the scratchpads of node `n`; all ones while it
    /// cannot be reached.
    pub const PEER_SCRATCHPAD: usize = 0x200;

    /// First context block; see [`super::ctx`].
    pub const CONTEXT_BLOCKS: usize = 0x1000;
}

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

/// Context blocks in BAR0, for the kernel only: offsets in a block.
pub mod ctx {
    /// Bytes from one block to the next.
    pub const STRIDE: usize = 0x70;
    /// u32: see [`super::context_control`].
    pub const CONTROL: usize = 0x00;
    /// u32: space whose pages and regions this context may name.
    pub const SPACE: usize = 0x04;
    /// u64: bus address of the status page (`struct uldma_status_page`).
    pub const STATUS_PAGE: usize = 0x08;
    /// u64, write-only, reads 0: the context's key, for methods that need one: 60 secret bits, not all
    /// of them 0, above the context's number in bits 3..0. Takes effect when the context is enabled.
    pub const KEY: usize = 0x10;
    /// u32: bit mask of allowed initiation methods, by `enum uldma_method`; one bit.
    pub const METHODS: usize = 0x18;
    /// u32, read-only: wrong keys that were passed through this context's shadow pages since it
    /// was enabled; from [`super::MAX_BAD_KEYS`] on no key is taken through them.
    pub const BAD_KEYS: usize = 0x1c;
    /// u64, write: raise [`super::event::COMPLETION`] once the completed ticket exceeds this value
    /// (at once if it does already), then disarm.
    pub const ARM: usize = 0x20;
    /// u64, read-only counters since the context was enabled, each.
    pub const SHADOW_STORES: usize = 0x28;
    /// See [`SHADOW_STORES`].
    pub const SHADOW_LOADS: usize = 0x30;
    /// Stores to the context page.
    pub const PAGE_STORES: usize = 0x38;
    /// Loads from the context page.
    pub const PAGE_LOADS: usize = 0x40;
    /// Transfers started.
    pub const INITIATIONS: usize = 0x48;
    /// Initiations refused.
    pub const REFUSED: usize = 0x50;
    /// Bytes moved.
    pub const BYTES: usize = 0x58;
    /// u64, read-only: last ticket given out.
    pub const TICKET: usize = 0x60;
    /// u64: bus address of the page of descriptors (`struct uldma_descriptor`).
    pub const QUEUE: usize = 0x68;
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
const _: () =
    assert!(reg::CONTEXT_BLOCKS + MAX_CONTEXTS as usize * ctx::STRIDE <= MSIX_TABLE_OFFSET);
