// SPDX-License-Identifier: MIT OR Apache-2.0

//! User-level DMA: memory registration, transfers without system calls, and messages between two
//! nodes that share a PCI window.
//!
//! ```no_run
//! use std::time::Duration;
//! use uldma::{Access, Buffer, Device, Spin};
//!
//! fn main() -> uldma::Result<()> {
//!     let device = Device::open(0)?;
//!     let mut buffer = Buffer::new(1 << 20)?;
//!     buffer.fill(42);
//!     let source = device.register(buffer, Access::Read)?;
//!     let destination = device.register(Buffer::new(1 << 20)?, Access::Write)?;
//!
//!     let context = device.context()?;
//!     let (from, to) = (context.shadow(&source)?, context.shadow(&destination)?);
//!     // One store and one load; the kernel knows nothing of it.
//!     let ticket = context.initiate(from.at(0)?, to.at(0)?, 1 << 20)?;
//!     context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;
//!     Ok(())
//! }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | open a device, ask what it has | [`Device`], [`Query`] |
//! | make memory known to it | [`Buffer`], [`Device::register`], [`Region`] |
//! | register memory that is shared, or may go | [`Memory`], [`Device::register_memory`] |
//! | know what is locked, and what it costs | [`Registered::query`], [`Device::charge`], [`Device::locked_memory`] |
//! | start transfers from user level | [`Device::context`], [`Context`], [`Shadow`] |
//! | choose how they are started | [`Method`], [`Device::context_with`], [`Context::dma`] |
//! | start many at once, copy scattered memory, do atomic operations | [`Queue`], [`Context::fetch_add`] |
//! | share memory that transfers touch with other processes | [`SharedLock`] |
//! | start transfers through the kernel | [`Device::dma`], [`Device::dma_wait`] |
//! | offer memory to the peer, use the peer's | [`Region::export`], [`Device::import`] |
//! | share memory with the peer | [`Device::create_segment`], [`Device::attach_segment`] |
//! | know what nodes there are | [`Device::peers`], [`Peer`] |
//! | move a stream of bytes from memory to memory | [`Device::connect`], [`Device::listen`], [`Connection`], [`Chunk`] |
//! | read and write it, by copies | [`Connection::into_stream`], [`Stream`] |
//! | the same by the names of the paper | [`pcic`] |
//! | exchange messages | [`Device::channel`], [`Channel::connect`], [`ChannelListener`], [`Channel`] |
//! | serve many channels in turns | [`Selector`] |
//! | lock memory by the names of the paper, or by its other modes | [`lmm`], [`registrar`] |
//! | know why it failed | [`Error`], [`Error::hint`] |
//!
//! `Documentation/uldma/user-api.rst` has the same from the kernel's side. Volatile accesses,
//! fences and pointer arithmetic are all in `mmio.rs` and below it, system calls in `sys.rs`.

#[path = "../../../../drivers/uldma/link/adaptive_poll.rs"]
mod adaptive_poll;
mod blocks;
mod buffer;
mod calibration;
mod channel;
mod charge;
mod chunk;
mod connection;
mod context;
mod device;
mod dma;
mod error;
mod event;
mod export;
mod handshake;
mod link;
pub mod lmm;
mod locked_memory;
pub mod loopback;
pub mod measure;
mod memlock;
mod memory;
mod method;
mod mmio;
mod name;
pub mod pcic;
mod peer;
mod queue;
mod region;
mod region_info;
pub mod registrar;
mod retry;
pub mod ring;
mod selector;
mod shadow;
mod shared_lock;
mod size_word;
mod spin;
mod status;
mod sys;
mod ticks;
mod transfer;
pub mod uapi;
mod wakeup;
mod window;

pub use blocks::{Block, Blocks};
pub use buffer::Buffer;
pub use channel::Channel;
pub use charge::Charge;
pub use chunk::Chunk;
pub use connection::{
    ChannelListener, ConnectOptions, Connection, ConnectionInfo, ConnectionState, Listener, Ready,
    Receiving, Rejected, Sending, Stream, StreamOptions, Wait,
};
pub use context::{Context, ContextOptions, ContextStats, Initiated, Ticket};
pub use device::{Backend, Device, Query, UserShares};
pub use dma::KernelTicket;
pub use error::{Error, Refusal, Result};
pub use event::Event;
pub use export::{Export, Import};
pub use link::{Link, Pollable, WindowLink};
pub use locked_memory::LockedMemory;
pub use memlock::Memlock;
pub use memory::{Kind, Memory};
pub use method::repeated::Disturbances;
pub use method::{Method, Methods, UnknownMethod};
pub use name::{BadName, Name};
pub use peer::{Peer, PeerInfo};
pub use queue::{Batch, Order, Queue};
pub use region::{Access, Borrowed, Region, Registered};
pub use region_info::RegionInfo;
pub use registrar::Registrar;
pub use selector::Selector;
pub use shadow::{Shadow, ShadowAddress};
pub use shared_lock::{SharedGuard, SharedLock};
pub use size_word::MAX_TRANSFER;
pub use spin::Spin;
pub use status::Completion;
pub use sys::calls;
pub use transfer::{Start, Started};
pub use window::{InboundSegment, OutboundSegment};
