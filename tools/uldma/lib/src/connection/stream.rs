// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection that is read and written like a file, by copies to and from its own memory.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::pool::{ReceiveBuffers, SendBuffers};
use super::ring::{self, RingReceiver, RingSender};
use super::{Connection, ConnectionKind, Offer};
use crate::connection::link::{Link, WindowLink};
use crate::error::{Error, Result};
use crate::region::chunk::Chunk;
use crate::ring::{layout, Geometry};
use crate::wait::spin::{Poller, Spin};

/// Sizes of a stream's buffers, see [`Connection::into_stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Buffers in each direction.
    pub buffers: usize,
    /// Bytes of each buffer.
    pub bytes: usize,
    /// Let the devices move the data, if the program at the other side asks for this, too
    /// ([`Connection::match_streams`]); otherwise, and where they cannot, it goes by system calls.
    ///
    /// For programs of which a thread always reads: bytes that were written before the other side
    /// has decided are only sent by later calls. Programs that pass the connection to poll()
    /// cannot use this, since the file descriptor reports nothing but the end.
    pub matched: bool,
    /// Have the two programs copy the data through rings in the window, if the program at the other
    /// side asks for this, too; otherwise, and where the window of a side has no room, it goes by system
    /// calls. Both sides say so when the connection is opened, by [`StreamOptions::offer`].
    ///
    /// For devices that cannot match streams: with [`StreamOptions::matched`] on both sides, rings are
    /// used where neither device can. Each side has one ring in its window, with the bytes of all buffers
    /// of a direction, rounded up to a power of two.
    /// Programs that pass the connection to poll() cannot use this, since the file descriptor does
    /// not report data. When the driver is unbound, the stream's accesses raise SIGBUS.
    pub ring: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            buffers: 8,
            bytes: 128 * 1024,
            matched: false,
            ring: false,
        }
    }
}

impl StreamOptions {
    fn area(self) -> Result<usize> {
        let all = self.buffers.checked_mul(self.bytes);
        all.ok_or_else(|| Error::connection("make buffers", Errno::EOVERFLOW))
    }

    /// Returns the offer of a connection that becomes such a stream: of kind
    /// [`ConnectionKind::BYTES`] and version 0. With [`StreamOptions::ring`] it has a ring, of which the
    /// private data are the bytes that the stream uses, a number of eight bytes, the lowest one first. An
    /// offer of another kind, or with more data behind these, does as well.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EOVERFLOW for buffers that are too large.
    pub fn offer(self) -> Result<Offer> {
        Ok(match self.ring {
            true => Offer::of_ring(ConnectionKind::BYTES, 0, self.geometry()?),
            false => Offer::default(),
        })
    }

    /// The ring of each direction.
    fn geometry(self) -> Result<Geometry> {
        let area = (self.area()? as u64).max(layout::MIN_CAPACITY);
        let ring = area.checked_next_power_of_two().and_then(Geometry::of);
        ring.ok_or_else(|| Error::connection("make rings", Errno::EOVERFLOW))
    }
}

/// A connection as a file: [`Read`] and [`Write`], with its own memory in both directions.
///
/// Each byte is copied once more on each side, into and out of this memory; programs that need to
/// avoid the copy use [`Connection`] itself. With [`StreamOptions::ring`] nothing else copies them, if
/// they are read by as many as they were written, or more. Written bytes are sent at once, and have reached the
/// peer's memory after [`Write::flush`]; dropping a stream earlier may lose them. With
/// [`StreamOptions::matched`] they may wait for the next call.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::io::{Read, Write};
/// use uldma::{ConnectOptions, Device, Peer, Stream, StreamOptions};
///
/// let options = StreamOptions {
///     ring: true,
///     ..StreamOptions::default()
/// };
/// let connect = ConnectOptions {
///     offer: options.offer()?,
///     ..ConnectOptions::default()
/// };
/// let connection = Device::open(0)?.connect(Peer::OTHER, 7, connect)?;
/// let mut stream: Stream = connection.into_stream(options)?;
/// let mut answer = String::new();
/// let read = stream.write_all(b"date").and_then(|()| stream.read_to_string(&mut answer));
/// println!("{read:?}: {answer}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    receiving: Receiving,
    sending: Sending,
}

/// The half of a [`Stream`] that receives.
#[derive(Debug)]
pub struct Receiving {
    source: Source,
    connection: Arc<Connection>,
    timeout: Duration,
}

/// Where received bytes are.
#[derive(Debug)]
enum Source {
    Buffers(ReceiveBuffers<Connection>),
    Ring(RingReceiver<WindowLink>),
}

/// The half of a [`Stream`] that sends.
#[derive(Debug)]
pub struct Sending {
    target: Target,
    connection: Arc<Connection>,
    timeout: Duration,
}

/// Where bytes to send go.
#[derive(Debug)]
enum Target {
    Buffers(SendBuffers<Connection>),
    Ring(RingSender<WindowLink>),
}

impl Connection {
    /// Turns the connection into a stream that is read and written by copies.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the memory may not be pinned, ENOTCONN, EOVERFLOW for buffers that
    /// are too large, EINVAL when the options ask for a ring and this side has not offered one
    /// ([`StreamOptions::offer`]); [`Error::Violation`] when the other side names a ring that cannot be.
    pub fn into_stream(self, options: StreamOptions) -> Result<Stream> {
        if options.ring && self.offer.capacity().is_none() {
            return Err(Error::System {
                action: "make a stream of rings, of which this side has not offered one".into(),
                errno: Errno::EINVAL,
                hint: Some("listen, or connect, with the offer of the stream options".into()),
            });
        }
        let mut is_matched = false;
        if options.matched {
            match self.match_streams() {
                Ok(can) => is_matched = can,
                // The end is reported by reading, after what came before.
                Err(error) if is_end(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Where both sides have offered rings, neither uses calls.
        if !is_matched {
            match WindowLink::of_connection(&self) {
                Ok(Some((link, rings))) => return self.into_ring_stream(link, rings),
                Ok(None) => {}
                Err(error) if is_end(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let connection = Arc::new(self);
        let area = options.area()?;
        let memory = || match Chunk::pinned(connection.device(), area) {
            // Only connections could use a region with this backend.
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Chunk::new(area),
            other => other,
        };
        let inbox = ReceiveBuffers::new(Arc::clone(&connection), memory()?, options.bytes)?;
        let outbox = SendBuffers::new(Arc::clone(&connection), memory()?, options.bytes);
        let ends = (Source::Buffers(inbox), Target::Buffers(outbox));
        Ok(Stream::new(connection, ends))
    }

    /// Turns the connection into a stream through its rings.
    fn into_ring_stream(self, link: WindowLink, rings: (Geometry, Geometry)) -> Result<Stream> {
        let poller = Poller::new(Spin::Adaptive, link.wakeup());
        let (receiver, sender) = ring::halves(link, rings, poller);
        self.rings.get_or_init(|| Arc::downgrade(sender.rings()));
        let ends = (Source::Ring(receiver), Target::Ring(sender));
        Ok(Stream::new(Arc::new(self), ends))
    }
}

impl Stream {
    fn new(connection: Arc<Connection>, (source, target): (Source, Target)) -> Self {
        Self {
            receiving: Receiving {
                source,
                connection: Arc::clone(&connection),
                timeout: Duration::MAX,
            },
            sending: Sending {
                target,
                connection,
                timeout: Duration::MAX,
            },
        }
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.receiving.connection
    }

    /// Sets the time after which calls fail with `TimedOut`; unlimited at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.receiving.set_timeout(timeout);
        self.sending.set_timeout(timeout);
    }

    /// Splits the stream into two halves, for two threads. The connection lives as long as one of
    /// them.
    pub fn split(self) -> (Receiving, Sending) {
        (self.receiving, self.sending)
    }
}

impl Receiving {
    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sets the time after which calls fail with `TimedOut`; unlimited at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Sending {
    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sets the time after which calls fail with `TimedOut`; unlimited at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Read for Receiving {
    /// Waits for data, and copies it to `target`. Returns zero at the end of the stream.
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        Ok(match &mut self.source {
            Source::Buffers(inbox) => inbox.read(target, self.timeout)?,
            Source::Ring(ring) => ring.read(target, self.timeout)?,
        })
    }
}

impl Write for Sending {
    /// Waits for a free buffer, fills and sends it.
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        Ok(match &mut self.target {
            Target::Buffers(outbox) => outbox.write(source, self.timeout)?,
            Target::Ring(ring) => ring.write(source, self.timeout)?,
        })
    }

    /// Waits until all written bytes are in the peer's memory, which requires that the peer
    /// receives them; those in a ring are there.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Buffers(outbox) => outbox.flush(self.timeout)?,
            Target::Ring(ring) => ring.flush()?,
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.receiving.read(target)
    }
}

impl Write for Stream {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        self.sending.write(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sending.flush()
    }
}

/// Returns true for the errors of a connection whose other side has ended.
fn is_end(error: &Error) -> bool {
    let ends = [
        Errno::EPIPE,
        Errno::ENOTCONN,
        Errno::ECONNRESET,
        Errno::ESTALE,
    ];
    matches!(error, Error::Closed) || error.errno().is_some_and(|errno| ends.contains(&errno))
}
