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
//!     // One store and one load, without the kernel.
//!     let ticket = context.initiate(from.at(0)?, to.at(0)?, 1 << 20)?;
//!     context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;
//!     Ok(())
//! }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | open and query a device | [`Device`], [`Query`] |
//! | register memory | [`Buffer`], [`Device::register`], [`Region`] |
//! | register memory that is shared, or may be unmapped | [`Memory`], [`Device::register_memory`] |
//! | query the locked memory and its charge | [`Registered::query`], [`Device::charge`], [`Device::locked_memory`] |
//! | start transfers from user level | [`Device::context`], [`Context`], [`Shadow`] |
//! | choose their method | [`Method`], [`Device::context_with`], [`Context::dma`] |
//! | start many at once, copy scattered memory, execute atomic operations | [`Queue`], [`Context::fetch_add`] |
//! | share memory that transfers touch with other processes | [`SharedLock`] |
//! | start transfers through the kernel | [`Device::dma`], [`Device::dma_wait`] |
//! | export memory to the peer, import the peer's | [`Region::export`], [`Device::import`] |
//! | share memory with the peer | [`Device::create_segment`], [`Device::attach_segment`] |
//! | list the nodes | [`Device::peers`], [`Peer`] |
//! | move a stream of bytes from memory to memory | [`Device::connect`], [`Device::listen`], [`Connection`], [`Chunk`] |
//! | read and write the stream, by copies | [`Connection::into_stream`], [`Stream`] |
//! | connections under the names of the paper | [`pcic`] |
//! | send messages that the devices move, by a technique of choice | [`MessageConnection`], [`MessageListener`] |
//! | send and receive without copies, by page exchange | [`Device::exchangeable`], [`ExchangeBuffer`] |
//! | measure from which size on that pays | [`Device::measure_exchange`], [`MessageOptions::with_measured_exchange`] |
//! | match messages with posted buffers by hand | [`Device::endpoint`], [`Endpoint`], [`Queue::send`] |
//! | exchange messages through the window | [`Channel::connect`], [`ChannelListener`], [`Channel`] |
//! | serve many channels in one thread | [`Selector`] |
//! | get the reason of a failure | [`Error`], [`Error::hint`] |
//!
//! `Documentation/uldma/user-api.rst` describes the kernel's interface to the same functions.
//!
//! # Layers
//!
//! A module uses only modules of its own layer and of those above it in this table, without circles.
//!
//! | layer | modules |
//! | --- | --- |
//! | numbers and time | `uapi`, `ticket`, `ticks`, `size_word`, `adaptive_poll`, `retry`, `spin`, `memlock` |
//! | message rings over any memory | `ring` |
//! | system calls, and how long they wait | `sys`, `deadline`, `wakeup` |
//! | volatile accesses, fences and pointer arithmetic | `mmio` |
//! | the accesses of each method | `method`, `refusal` |
//! | errors and names | `error`, `name` |
//! | memory of the process | `buffer`, `memory`, `shared_lock` |
//! | the open file | `heap`, `device`, `event`, `peer`, `locked_memory` |
//! | entries of the region table | `entry`, `charge`, `region_info`, `blocks`, `chunk` |
//! | regions | `region`, `exchange`, `export`, `shadow` |
//! | transfers | `status`, `descriptor`, `dma`, `context`, `endpoint`, `queue`, `transfer` |
//! | segments and connections | `window`, `connection`, `pcic` |
//! | channels | `link`, `channel`, `selector`, `loopback` |
//! | message connections | `message` |
//! | measurements | `measure` |

#[path = "../../../../drivers/uldma/link/adaptive_poll.rs"]
mod adaptive_poll;
mod blocks;
mod buffer;
mod channel;
mod charge;
mod chunk;
mod connection;
mod context;
mod deadline;
mod descriptor;
mod device;
mod dma;
mod endpoint;
mod entry;
mod error;
mod event;
mod exchange;
mod export;
mod heap;
mod link;
mod locked_memory;
pub mod loopback;
pub mod measure;
mod memlock;
mod memory;
mod message;
mod method;
mod miss;
mod mmio;
mod name;
pub mod pcic;
mod peer;
mod queue;
mod refusal;
mod region;
mod region_info;
mod retry;
pub mod ring;
mod selector;
mod shadow;
mod shared_lock;
mod size_word;
mod spin;
mod status;
mod sys;
mod ticket;
mod ticks;
mod transfer;
pub mod uapi;
mod wakeup;
mod window;

pub use blocks::{Block, Blocks};
pub use buffer::Buffer;
pub use channel::{Channel, ChannelListener};
pub use charge::Charge;
pub use chunk::Chunk;
pub use connection::{
    ConnectOptions, Connection, ConnectionInfo, ConnectionKind, ConnectionState, Listener, Offer,
    PrivateData, Ready, Receiving, Rejected, Sending, Stream, StreamOptions, Wait,
};
pub use context::{Context, ContextOptions, ContextStats, Initiated};
pub use descriptor::Order;
pub use device::{Backend, Device, Query, UserShares};
pub use endpoint::{Endpoint, EndpointName, Reception};
pub use entry::Access;
pub use error::{Error, Result};
pub use event::Event;
pub use exchange::ExchangeBuffer;
pub use export::{Export, Import};
pub use link::{Link, Pollable, WindowLink};
pub use locked_memory::LockedMemory;
pub use memlock::Memlock;
pub use memory::{Kind, Memory};
pub use message::{
    BufferedReceiver, BufferedSender, Copied, ExchangeStats, Fallbacks, MessageConnection,
    MessageListener, MessageOptions, Put, PutArea, ReceiveTechnique, Redirections, SendTechnique,
    Sent, SentBuffer,
};
pub use method::repeated::Disturbances;
pub use method::{Method, Methods, UnknownMethod};
pub use miss::Miss;
pub use name::{BadName, Name};
pub use peer::{Peer, PeerInfo};
pub use queue::{Batch, Queue};
pub use refusal::Refusal;
pub use region::{Borrowed, Region, Registered};
pub use region_info::RegionInfo;
pub use selector::Selector;
pub use shadow::{Shadow, ShadowAddress};
pub use shared_lock::{SharedGuard, SharedLock};
pub use size_word::MAX_TRANSFER;
pub use spin::Spin;
pub use status::Completion;
pub use sys::{calls, count_call};
pub use ticket::{KernelTicket, Ticket};
pub use transfer::{Start, Started};
pub use window::{InboundSegment, OutboundSegment};
