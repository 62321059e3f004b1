// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections: messages between two endpoints, by the technique of the program's choice.
//!
//! The side that connects names its endpoint in the private data of the connection. A channel, which is
//! two rings in the window, carries what the two sides have to know besides: first the answer of the side
//! that accepts, then *credits*, the number of buffers that the receiver has posted so far. It also
//! notifies each side of the other one's end. The devices move the messages (`engine`); without an engine,
//! the processors do, through two more rings in the window (`window`).

mod begun;
mod buffered;
mod control;
mod copied;
mod driver_slots;
mod engine;
mod exchange;
mod handshake;
mod listener;
mod notice;
mod options;
mod put_memory;
mod receiving;
mod sending;
mod side;
mod technique;
mod window;
mod window_slots;

use std::ops::Range;
use std::time::Duration;

pub use self::buffered::{BufferedReceiver, BufferedSender};
pub use self::copied::Copied;
use self::engine::Engine;
pub use self::exchange::{ExchangeStats, Fallbacks};
use self::handshake::Handshake;
pub use self::listener::MessageListener;
pub use self::notice::{Put, PutArea};
pub use self::options::MessageOptions;
pub use self::receiving::Redirections;
pub use self::sending::{Sent, SentBuffer};
use self::side::{offer, Side};
pub use self::technique::{ReceiveTechnique, SendTechnique};
use self::window::Window;
use crate::channel::Channel;
use crate::connection::ConnectOptions;
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::region::{Region, Registered};
use crate::wait::deadline::Deadline;
use crate::wait::spin::Spin;

/// The reason for which a call is refused where messages go through the window.
const NO_ENGINE: &str = "messages go through the window: use send and receive";

/// One side of a message connection: messages with boundaries, in order, to and from one process at
/// a peer. The peer is not trusted: it can end or disturb the connection, and reach nothing but what
/// is posted.
///
/// | to | use |
/// | --- | --- |
/// | send bytes, which may be changed on return | [`MessageConnection::send`] |
/// | send from memory that is registered already (`DIRECT_DMA`) | [`MessageConnection::start`], [`MessageConnection::wait_sent`]; other memory is sent by `COPY_DMA` |
/// | send a buffer, pinned for the message (`V2P_DMA`) | [`MessageConnection::send_buffer`], [`MessageConnection::reclaim`] |
/// | receive into any memory (`PIO`, `COPY_DMA`) | [`MessageConnection::receive`] |
/// | receive into the memory of a call that comes first (`REDIRECT`) | [`MessageConnection::receive`] |
/// | put bytes into the peer's memory, which receives by `DIRECT_DMA` | [`MessageConnection::put`], [`MessageConnection::start_put`] |
/// | let the peer name the place (`DIRECT_DMA`) | [`MessageConnection::receive_put`], [`MessageConnection::inbound`] |
/// | receive into posted buffers (`V2P_DMA`) | [`MessageConnection::post`], [`MessageConnection::receive_buffer`] |
/// | do both by `V2P_DMA`, and copy | [`BufferedSender`], [`BufferedReceiver`] |
/// | send and receive without copies (`PEX_DMA`) | the calls for any memory, with [`Device::exchangeable`] |
///
/// Dropping the connection may cut off messages that were not sent yet: call
/// [`MessageConnection::flush`] before.
#[derive(Debug)]
pub struct MessageConnection {
    path: Path,
}

/// How messages travel.
#[derive(Debug)]
enum Path {
    Engine(Box<Engine>),
    Window(Box<Window>),
}

impl MessageConnection {
    /// Connects to a [`MessageListener`] at that port of a peer, and waits until its program has
    /// accepted. [`ConnectOptions::offer`] is not used.
    ///
    /// # Errors
    ///
    /// [`crate::Error::System`]: ECONNREFUSED when no process listens or the backlog is full, ENOTCONN when
    /// the link is down; [`crate::Error::Timeout`]; [`crate::Error::OtherKind`] when the
    /// process listens for other connections; [`crate::Error::Closed`] when the other side ends;
    /// [`crate::Error::Violation`] when it breaks the rules; [`crate::Error::Technique`] for a technique that
    /// cannot be used, also when the peer has no engine.
    pub fn connect(
        device: &Device,
        node: u32,
        port: u32,
        options: MessageOptions,
        connect: ConnectOptions,
    ) -> Result<Self> {
        options.check()?;
        let deadline = Deadline::after(connect.timeout);
        let side = Side::new(device, node, options)?;
        let offer = offer(device, &options)?.with(&side.handshake().encode())?;
        let connect = ConnectOptions { offer, ..connect };
        let connection = device.connect(Peer::node(node), port, connect)?;
        let mut channel = Channel::by(connection)?;
        let peer = Handshake::receive(&mut channel, deadline)?;
        side.connection(channel, node, peer)
    }

    /// Returns the open file that memory for this connection can be registered with.
    pub fn device(&self) -> &Device {
        match &self.path {
            Path::Engine(engine) => engine.device(),
            Path::Window(window) => window.device(),
        }
    }

    /// Changes the technique of [`MessageConnection::send`].
    ///
    /// # Errors
    ///
    /// [`crate::Error::Technique`] for a technique that cannot be used.
    pub fn set_sending(&mut self, technique: SendTechnique) -> Result<()> {
        match &mut self.path {
            Path::Engine(engine) => engine.set_sending(technique),
            Path::Window(window) => window.set_sending(technique),
        }
    }

    /// Sets how long calls poll before they sleep; [`Spin::Adaptive`] at first.
    pub fn set_spin(&mut self, spin: Spin) {
        match &mut self.path {
            Path::Engine(engine) => engine.set_spin(spin),
            Path::Window(window) => window.set_spin(spin),
        }
    }

    /// Sends a message, whose bytes may be changed when this returns. By `PIO` and `COPY_DMA` this
    /// returns when they are copied, by `PEX_DMA` when they are protected, and a later call reports an error
    /// of the transfer; by `V2P_DMA` when the device has read them.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`] when the peer has posted no buffer in time,
    /// [`crate::Error::Transfer`], [`crate::Error::TooLong`] when the peer receives into posted buffers
    /// and the message is longer than a slot; [`crate::Error::Torn`] after a message that was sent in
    /// part; [`crate::Error::Closed`], [`crate::Error::LinkDown`], [`crate::Error::Technique`] for a
    /// technique that needs memory of another kind, [`crate::Error::System`]: those of registering.
    /// After [`crate::Error::Timeout`] by `V2P_DMA` the device may still read the memory, and send what
    /// is there, until [`MessageConnection::flush`].
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        match &mut self.path {
            Path::Engine(engine) => engine.send(message, timeout),
            Path::Window(window) => window.send(message, timeout),
        }
    }

    /// Sends a part of registered memory by `DIRECT_DMA`, and returns before the device has read it:
    /// what is written there before [`MessageConnection::wait_sent`] may be sent instead.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`] when the peer has posted no buffer in time, [`crate::Error::Range`],
    /// [`crate::Error::Refused`] when the region is not readable, [`crate::Error::Closed`],
    /// [`crate::Error::LinkDown`], [`crate::Error::Torn`]. The device may still read some of the memory
    /// until [`MessageConnection::flush`].
    pub fn start(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        timeout: Duration,
    ) -> Result<Sent> {
        self.sending_engine()?.start(region, part, timeout)
    }

    /// Returns true if the device has read a message, so that its memory may be changed.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Transfer`] when the message failed.
    pub fn is_sent(&mut self, sent: &Sent) -> Result<bool> {
        self.sending_engine()?.is_sent(sent)
    }

    /// Waits until the device has read a message.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`]; [`crate::Error::Transfer`] when the message failed.
    pub fn wait_sent(&mut self, sent: &Sent, timeout: Duration) -> Result<()> {
        self.sending_engine()?.wait_sent(sent, timeout)
    }

    /// Sends a buffer by `V2P_DMA`: pins it, or finds it pinned in the pin cache, and returns before
    /// the device has read it.
    ///
    /// # Errors
    ///
    /// Those of [`Device::register`]; [`crate::Error::Timeout`] when the peer has posted no buffer in
    /// time, [`crate::Error::Closed`], [`crate::Error::LinkDown`]. The buffer is freed, when the device
    /// has read what it was given of it.
    pub fn send_buffer(&mut self, buffer: Buffer, timeout: Duration) -> Result<SentBuffer> {
        self.sending_engine()?.send_buffer(buffer, timeout)
    }

    /// Waits until the device has read a buffer, and returns it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`]; [`crate::Error::Transfer`] when the message failed. The buffer is
    /// freed, when the device has read it.
    pub fn reclaim(&mut self, message: SentBuffer, timeout: Duration) -> Result<Buffer> {
        self.sending_engine()?.reclaim(message, timeout)
    }

    /// Returns the memory that the peer receives into by `DIRECT_DMA`; none if it receives otherwise.
    pub fn outbound(&self) -> Option<PutArea> {
        match &self.path {
            Path::Engine(engine) => engine.outbound(),
            Path::Window(_) => None,
        }
    }

    /// Puts `message` at `offset` of the peer's memory, and lets the peer know
    /// ([`MessageConnection::receive_put`]). Waits while the peer has not asked for as many puts as
    /// it has slots; apart from this, the peer is not asked. The bytes of `message` may be changed
    /// when this returns, as after [`MessageConnection::send`]. After a put that failed, the
    /// connection sends nothing more.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Range`] when the peer's memory has no such part; [`crate::Error::Technique`]
    /// when the peer receives otherwise, and for `DIRECT_DMA`; those of [`MessageConnection::send`].
    pub fn put(&mut self, message: &[u8], offset: u64, timeout: Duration) -> Result<()> {
        self.sending_engine()?.put(message, offset, timeout)
    }

    /// Puts a part of registered memory at `offset` of the peer's memory by `DIRECT_DMA`, and
    /// returns before the device has read it, as [`MessageConnection::start`] does.
    ///
    /// # Errors
    ///
    /// Those of [`MessageConnection::start`]; [`crate::Error::Range`] when the peer's memory has no such
    /// part; [`crate::Error::Technique`] when the peer receives otherwise.
    pub fn start_put(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        offset: u64,
        timeout: Duration,
    ) -> Result<Sent> {
        let engine = self.sending_engine()?;
        engine.start_put(region, part, offset, timeout)
    }

    /// Returns the memory into which the peer puts bytes, by `DIRECT_DMA`; the peer can write it at
    /// any time.
    pub fn inbound(&self) -> Option<&Region> {
        match &self.path {
            Path::Engine(engine) => engine.inbound(),
            Path::Window(_) => None,
        }
    }

    /// Waits until the peer has put bytes into the memory of this side, and returns their place.
    /// With as many slots as places, an honest peer does not write this place again before the next
    /// call.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::Closed`] after the last put, [`crate::Error::LinkDown`];
    /// [`crate::Error::Violation`] when the peer names a place outside of the memory, which ends the
    /// connection; [`crate::Error::Technique`] when messages arrive otherwise.
    pub fn receive_put(&mut self, timeout: Duration) -> Result<Put> {
        self.receiving_engine()?.receive_put(timeout)
    }

    /// Waits until all messages are in the peer's memory.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`]; [`crate::Error::Transfer`] of a message by `COPY_DMA` that failed and was not
    /// reported.
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        match &mut self.path {
            Path::Engine(engine) => engine.flush(timeout),
            // Each message is in the peer's memory when it has been sent.
            Path::Window(_) => Ok(()),
        }
    }

    /// Posts a buffer for one message, by `V2P_DMA`. It is pinned until it is received.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Technique`] when slots receive the messages; [`crate::Error::Refused`] while 64
    /// buffers are posted; those of [`Device::register`]. The buffer is freed.
    pub fn post(&mut self, buffer: Buffer) -> Result<()> {
        self.receiving_engine()?.post(buffer)
    }

    /// Receives the next message into the oldest posted buffer. Returns the buffer, and the length
    /// of the message.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::Transfer`] when the message failed,
    /// [`crate::Error::Closed`] after the last message, [`crate::Error::LinkDown`],
    /// [`crate::Error::Technique`] when slots receive the messages.
    pub fn receive_buffer(&mut self, timeout: Duration) -> Result<(Buffer, usize)> {
        self.receiving_engine()?.receive_buffer(timeout)
    }

    /// Receives the next message into the start of `target`, and returns its length. If the time is
    /// over in the middle of a message, the next call goes on with it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::TooLong`] when `target` is too short (the message is
    /// discarded), [`crate::Error::Transfer`] when the message failed, [`crate::Error::Closed`] after
    /// the last message, [`crate::Error::LinkDown`], [`crate::Error::Technique`] when buffers have to
    /// be posted.
    pub fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        match &mut self.path {
            Path::Engine(engine) => engine.receive(target, timeout),
            Path::Window(window) => window.receive(target, timeout),
        }
    }

    /// Returns what the connection has done by `PEX_DMA` so far.
    pub fn exchange_stats(&self) -> ExchangeStats {
        match &self.path {
            Path::Engine(engine) => engine.exchange_stats(),
            Path::Window(_) => ExchangeStats::default(),
        }
    }

    /// Returns how messages have been received by `REDIRECT` so far.
    pub fn redirections(&self) -> Redirections {
        match &self.path {
            Path::Engine(engine) => engine.redirections(),
            Path::Window(_) => Redirections::default(),
        }
    }

    /// Returns how many bytes of messages were copied so far, of both directions.
    pub fn copied(&self) -> Copied {
        match &self.path {
            Path::Engine(engine) => engine.copied(),
            Path::Window(window) => window.copied(),
        }
    }

    fn sending_engine(&mut self) -> Result<&mut Engine> {
        match &mut self.path {
            Path::Engine(engine) => Ok(engine),
            Path::Window(window) => Err(window.sending().refused(NO_ENGINE)),
        }
    }

    fn receiving_engine(&mut self) -> Result<&mut Engine> {
        match &mut self.path {
            Path::Engine(engine) => Ok(engine),
            Path::Window(window) => Err(window.receiving().refused(NO_ENGINE)),
        }
    }
}
