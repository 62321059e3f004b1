// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection that is read and written like a file, by copies to and from its own memory.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use super::kind::StreamMark;
use super::pool::{ReceiveBuffers, SendBuffers};
use super::Connection;
use crate::{Chunk, Error, Result};

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
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            buffers: 8,
            bytes: 128 * 1024,
            matched: false,
        }
    }
}

impl StreamOptions {
    fn area(self) -> Result<usize> {
        let all = self.buffers.checked_mul(self.bytes);
        all.ok_or_else(|| Error::connection("make buffers", Errno::EOVERFLOW))
    }
}

/// A connection as a file: [`Read`] and [`Write`], with its own memory in both directions.
///
/// Each byte is copied once more on each side, into and out of this memory; programs that need to
/// avoid the copy use [`Connection`] itself. Written bytes are sent at once, and have reached the
/// peer's memory after [`Write::flush`]; dropping a stream earlier may lose them. With
/// [`StreamOptions::matched`] they may wait for the next call.
#[derive(Debug)]
pub struct Stream {
    receiving: Receiving,
    sending: Sending,
}

/// The half of a [`Stream`] that receives.
#[derive(Debug)]
pub struct Receiving {
    // Dropped before the connection.
    mark: Option<Arc<StreamMark>>,
    connection: Arc<Connection>,
    inbox: ReceiveBuffers<Connection>,
    timeout: Duration,
}

/// The half of a [`Stream`] that sends.
#[derive(Debug)]
pub struct Sending {
    mark: Option<Arc<StreamMark>>,
    connection: Arc<Connection>,
    outbox: SendBuffers<Connection>,
    timeout: Duration,
}

impl Connection {
    /// Turns the connection into a stream that is read and written by copies. If the other side
    /// wanted a ring ([`Channel::connect`](crate::Channel::connect)), reading and writing fail with
    /// [`Error::OtherKind`].
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when the memory may not be pinned, ENOTCONN.
    pub fn into_stream(self, options: StreamOptions) -> Result<Stream> {
        if options.matched {
            match self.match_streams() {
                // The end is reported by reading, after what came before.
                Err(error) if !is_end(&error) => return Err(error),
                _ => {}
            }
        }
        let connection = Arc::new(self);
        let mark = StreamMark::make(&connection).map(Arc::new);
        let area = options.area()?;
        let memory = || match Chunk::pinned(connection.device(), area) {
            // Only connections could use a region with this backend.
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Chunk::new(area),
            other => other,
        };
        let inbox = ReceiveBuffers::new(Arc::clone(&connection), memory()?, options.bytes)?;
        let outbox = SendBuffers::new(Arc::clone(&connection), memory()?, options.bytes);
        Ok(Stream {
            receiving: Receiving {
                mark: mark.clone(),
                connection: Arc::clone(&connection),
                inbox,
                timeout: Duration::MAX,
            },
            sending: Sending {
                mark,
                connection,
                outbox,
                timeout: Duration::MAX,
            },
        })
    }
}

/// Returns true for the error of a connection that has ended.
fn is_end(error: &Error) -> bool {
    let ends = [Errno::EPIPE, Errno::ENOTCONN, Errno::ECONNRESET];
    error.errno().is_some_and(|errno| ends.contains(&errno))
}

impl Stream {
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
    /// Returns the error to report for a failed write.
    fn cause(&self, error: Error) -> Error {
        let fault = self.mark.as_ref().and_then(|mark| mark.fault());
        fault.unwrap_or(error)
    }

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
        let read = self.inbox.read(target, self.timeout);
        let is_end = !target.is_empty() && matches!(read, Ok(0) | Err(_));
        match self.mark.as_ref().and_then(|mark| mark.fault()) {
            Some(fault) if is_end => Err(fault.into()),
            _ => Ok(read?),
        }
    }
}

impl Write for Sending {
    /// Waits for a free buffer, fills and sends it.
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        let written = self.outbox.write(source, self.timeout);
        Ok(written.map_err(|error| self.cause(error))?)
    }

    /// Waits until all written bytes are in the peer's memory, which requires that the peer
    /// receives them.
    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.outbox.flush(self.timeout);
        Ok(flushed.map_err(|error| self.cause(error))?)
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
