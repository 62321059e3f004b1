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
//! | query the locked memory and its charge | [`Registered::query`](region::Registered::query), [`Device::charge`], [`Device::locked_memory`] |
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
//! | connections under the names of the paper | [`measure::pcic`] |
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
//! # Floors
//!
//! A floor uses only floors below it, and its files import each other and no re-export of this one;
//! `scripts/lint floors` checks both.
//!
//! | floor | what it has |
//! | --- | --- |
//! | `machine_code` | a test of what the compiler makes of the accesses of the methods |
//! | `measure` | measurements, and the calls of the papers |
//! | `message` | message connections |
//! | `channel` | channels, and the selector that waits for many |
//! | `connection` | connections and streams; links, over which channels and streams go |
//! | `window` | segments: memory that a peer writes |
//! | `transfer` | contexts, queues and endpoints; transfers and their records |
//! | `region` | registered memory, imports and exports |
//! | `device` | the open file: its heap, its events, its peers |
//! | `memory` | memory of the process |
//! | `wait` | polling, the cost of sleeping, deadlines, retries |
//! | `error` | errors, names and numbers of peers |
//! | `method` | the accesses of each initiation method, and how it is refused |
//! | `ring` | message rings over any memory |
//! | `mmio` | volatile accesses, fences and pointer arithmetic |
//! | `sys` | system calls, and the structures of the user interface |

mod channel;
pub mod connection;
pub mod device;
pub mod error;
#[cfg(test)]
mod machine_code;
pub mod measure;
pub mod memory;
pub mod message;
pub mod method;
mod mmio;
pub mod region;
pub mod ring;
mod sys;
pub mod transfer;
mod wait;
mod window;

pub use channel::selector::Selector;
pub use channel::{Channel, ChannelListener};
pub use connection::{
    ConnectOptions, Connection, ConnectionKind, Listener, Offer, PrivateData, Receiving, Sending,
    Stream, StreamOptions,
};
pub use device::{Device, Query};
pub use error::name::Name;
pub use error::peer::Peer;
pub use error::{Error, Result};
pub use memory::buffer::Buffer;
pub use memory::shared_lock::SharedLock;
pub use memory::Memory;
pub use message::{
    MessageConnection, MessageListener, MessageOptions, ReceiveTechnique, SendTechnique,
};
pub use method::Method;
pub use region::chunk::Chunk;
pub use region::entry::Access;
pub use region::exchange::ExchangeBuffer;
pub use region::export::{Export, Import};
pub use region::shadow::Shadow;
pub use region::Region;
pub use sys::uapi;
pub use transfer::context::{Context, ContextOptions};
pub use transfer::endpoint::Endpoint;
pub use transfer::queue::Queue;
pub use transfer::status::Completion;
pub use transfer::ticket::Ticket;
pub use wait::spin::Spin;
pub use window::{InboundSegment, OutboundSegment};
