// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections: byte streams between memory of this node and memory of a peer. With an engine, the
//! processor copies no data.

mod connect;
mod info;
pub(crate) mod link;
mod listener;
pub mod loopback;
mod matched;
mod offer;
mod pool;
mod reap;
mod receipt;
mod ring;
mod stream;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};

use self::matched::{Agreement, Awaited, ReceiveRing, SendQueue};
use self::receipt::Receipts;
use self::ring::Rings;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::region::chunk::{Chunk, Chunks};
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::{poll_timeout, Deadline};
use crate::wait::wakeup::LONGEST_SLEEP;

pub use connect::ConnectOptions;
pub use info::{ConnectionInfo, ConnectionState};
pub use link::{Link, Pollable, WindowLink};
pub use listener::Listener;
pub use offer::{ConnectionKind, Offer, PrivateData};
pub use stream::{Receiving, Sending, Stream, StreamOptions};

/// The condition that [`Connection::wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Received memory, or the end of the stream.
    Receive,
    /// Sent memory can be reaped, or the connection has ended.
    Recycle,
    /// Any of the two.
    Either,
}

/// The operations for which a connection is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// [`Connection::try_recv`] has an answer, which may be the end of the stream.
    pub receive: bool,
    /// [`Connection::try_recycle`] has an answer, or the connection has just been made.
    pub recycle: bool,
    /// Nothing can be sent any more, and nothing can be received beyond what has arrived already.
    pub closed: bool,
    /// The connection was reset.
    pub reset: bool,
}

impl Ready {
    fn new(flags: PollFlags) -> Self {
        Self {
            receive: flags.contains(PollFlags::POLLIN),
            recycle: flags.contains(PollFlags::POLLOUT),
            closed: flags.contains(PollFlags::POLLHUP),
            reset: flags.contains(PollFlags::POLLERR),
        }
    }
}

/// A chunk that could not be posted, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The reason.
    pub error: Error,
    /// The chunk.
    pub memory: Chunk,
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Self {
        rejected.error
    }
}

/// A connection to a process at a peer: one open file, with a byte stream in each direction.
///
/// Data is moved from memory to memory. The receiver posts receive memory ([`Connection::prepost`])
/// and reaps it when it is filled ([`Connection::recv`]); the sender posts memory to send
/// ([`Connection::send`]) and reaps it for reuse ([`Connection::recycle`]), both in the order of
/// posting. Message boundaries are not kept. Posted memory belongs to the connection: the program
/// keeps no reference to it, and it comes back as [`Chunk`]s, at the latest by
/// [`Connection::disconnect`]. For copies to and from memory of the program's choice, see
/// [`Connection::into_stream`].
///
/// Threads may share a connection. Dropping it disconnects, and waits until nothing is in flight,
/// or until the peer's time to release it is over (`link_timeout_ms`, at most twice).
#[derive(Debug)]
pub struct Connection {
    device: Device,
    /// What this side has said.
    offer: Offer,
    // Taken in this order where both are.
    posted: Mutex<Posted>,
    unsent: Mutex<Unsent>,
    agreement: Agreement,
    ended: AtomicBool,
    /// The rings that carry the data, if any do.
    rings: OnceLock<Weak<Rings<WindowLink>>>,
    /// What the other side's program has taken, if both sides say it.
    receipts: OnceLock<Receipts>,
}

/// Memory that was given to receive into.
#[derive(Debug, Default)]
struct Posted {
    // Ends before the memory is freed.
    ring: Option<ReceiveRing>,
    chunks: Chunks,
}

/// Memory that was given to send.
#[derive(Debug, Default)]
struct Unsent {
    // Ends before the memory is freed.
    queue: Option<SendQueue>,
    chunks: Chunks,
}

impl Device {
    /// Listens at a port for one connection, which the result becomes: see
    /// [`Connection::wait_connected`]. A side that connects is told the offer, and has to fit to it.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EADDRINUSE when a process listens at the port already, EINVAL for an
    /// invalid port, EDQUOT when this user has as many listeners as it may; [`Error::NoDevice`], [`Error::Permission`].
    pub fn listen_once(&self, port: u32, offer: Offer) -> Result<Connection> {
        let connection = Connection::new(self.reopen()?, offer);
        let argument = uapi::uldma_conn_listen {
            flags: uapi::ULDMA_LISTEN_ONCE,
            port,
            offer: offer.into(),
            ..Default::default()
        };
        sys::conn_listen(connection.as_fd(), argument)
            .map_err(|errno| Error::connection(format!("listen at port {port}"), errno))?;
        Ok(connection)
    }
}

impl Connection {
    /// Wraps an open file that has, or is about to have, a connection.
    fn new(device: Device, offer: Offer) -> Self {
        device.events().set_connected();
        Self {
            device,
            offer,
            posted: Mutex::default(),
            unsent: Mutex::default(),
            agreement: Agreement::default(),
            ended: AtomicBool::new(false),
            rings: OnceLock::new(),
            receipts: OnceLock::new(),
        }
    }

    /// Returns what this side has said.
    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Returns the open file of the connection.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Posts memory to receive into. Never waits.
    ///
    /// # Errors
    ///
    /// [`Rejected`], with the memory: [`Error::System`] ENOSPC when the connection has as many
    /// buffers as it can, ENOMEM when memory may not be pinned, ENOTCONN, EPIPE, ECONNRESET.
    pub fn prepost(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
        let mut posted = lock(&self.posted);
        let Posted { ring, chunks } = &mut *posted;
        let Some(ring) = ring.as_mut().filter(|_| !self.agreement.is_ended()) else {
            return post(chunks, memory, "receive into", |argument| {
                sys::conn_prepost(self.as_fd(), argument)
            });
        };
        match ring.post(&self.device, &memory) {
            Ok(asleep) => {
                chunks.push(memory);
                if asleep {
                    // Only a device that is gone does not wake; waits report that.
                    let _ = self.wake_device();
                }
                Ok(())
            }
            Err(error) => Err(Rejected { error, memory }),
        }
    }

    /// Makes the device look for posted memory.
    fn wake_device(&self) -> std::result::Result<(), Errno> {
        let now = Awaited::default();
        self.agreement
            .wait(self.as_fd(), now, Duration::ZERO)
            .map(drop)
    }

    /// Posts memory to send. Never waits.
    ///
    /// # Errors
    ///
    /// [`Rejected`], with the memory: [`Error::System`] ENOSPC when the connection has as many
    /// buffers as it can, ENOMEM when memory may not be pinned, ENOTCONN, EPIPE, ECONNRESET.
    pub fn send(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
        let mut unsent = lock(&self.unsent);
        let Unsent { queue, chunks } = &mut *unsent;
        let Some(queue) = queue.as_mut().filter(|_| !self.agreement.is_ended()) else {
            return post(chunks, memory, "send", |argument| {
                sys::conn_send(self.as_fd(), argument)
            });
        };
        match queue.post(&self.device, &memory, self.agreement.is_matched()) {
            Ok(()) => {
                chunks.push(memory);
                Ok(())
            }
            Err(error) => Err(Rejected { error, memory }),
        }
    }

    /// Reaps at most `most` bytes of filled memory, without waiting; fewer where the memory is not
    /// contiguous or less has arrived. None at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNRESET after all that was received before the reset, ENOTCONN.
    pub fn try_recv(&self, most: usize) -> Result<Poll<Option<Chunk>>> {
        self.receive(most, 0)
    }

    /// Reaps at most `most` bytes of sent memory, without waiting. None when the connection has
    /// ended.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNRESET after all that was sent before the reset, ENOTCONN.
    pub fn try_recycle(&self, most: usize) -> Result<Poll<Option<Chunk>>> {
        self.reclaim(most, 0)
    }

    /// Reaps filled memory as [`Connection::try_recv`] does, but waits for it; without limit for
    /// [`Duration::MAX`].
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::System`]: ECONNRESET after all that was received before the
    /// reset, ENOTCONN.
    pub fn recv(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
        self.blocking(Wait::Receive, timeout, "data from the peer", || {
            self.receive(most, uapi::ULDMA_RANGE_SPIN)
        })
    }

    /// Reaps sent memory as [`Connection::try_recycle`] does, but waits for it; without limit for
    /// [`Duration::MAX`].
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::System`]: ECONNRESET after all that was sent before the reset,
    /// ENOTCONN.
    pub fn recycle(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
        self.blocking(Wait::Recycle, timeout, "memory that was sent", || {
            self.reclaim(most, uapi::ULDMA_RANGE_SPIN)
        })
    }

    fn blocking<T>(
        &self,
        wait: Wait,
        timeout: Duration,
        what: &str,
        mut attempt: impl FnMut() -> Result<Poll<T>>,
    ) -> Result<T> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Poll::Ready(done) = attempt()? {
                return Ok(done);
            }
            if self.poll(wait, deadline)?.is_empty() {
                return Err(deadline.missed(what));
            }
        }
    }

    /// Sleeps until the condition holds, the connection ends, or the time is over; without limit
    /// for [`Duration::MAX`]. Returns the operations that are ready then.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait(&self, wait: Wait, timeout: Duration) -> Result<Ready> {
        self.poll(wait, Deadline::after(timeout)).map(Ready::new)
    }

    fn poll(&self, wait: Wait, deadline: Deadline) -> Result<PollFlags> {
        let flags = match wait {
            Wait::Receive => PollFlags::POLLIN,
            Wait::Recycle => PollFlags::POLLOUT,
            Wait::Either => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        // Another thread may disconnect; poll() reports nothing for an open file without a
        // connection.
        while !self.ended.load(Ordering::Acquire) {
            let until = deadline.within(LONGEST_SLEEP);
            let found = match self.poll_matched(flags, until)? {
                Some(found) => found,
                None => poll_until(self.as_fd(), flags, until.into())?,
            };
            if !found.is_empty() || deadline.is_over() {
                return Ok(found);
            }
        }
        Ok(PollFlags::POLLHUP)
    }

    /// Sleeps as poll() does, if data goes from endpoint to endpoint.
    fn poll_matched(&self, flags: PollFlags, until: Instant) -> Result<Option<PollFlags>> {
        let mut slept = false;
        loop {
            let mut awaited = Awaited::default();
            let mut found = PollFlags::empty();
            if flags.contains(PollFlags::POLLIN) {
                let posted = lock(&self.posted);
                let Some(ring) = &posted.ring else {
                    return Ok(None);
                };
                found.set(PollFlags::POLLIN, ring.is_ready());
                awaited.received = Some(ring.awaited());
            }
            if flags.contains(PollFlags::POLLOUT) {
                let mut unsent = lock(&self.unsent);
                let Some(queue) = &mut unsent.queue else {
                    return Ok(None);
                };
                queue.push(self.agreement.is_matched());
                found.set(PollFlags::POLLOUT, queue.is_ready());
                awaited.ticket = queue.awaited();
            }
            if self.agreement.is_ended() {
                found |= poll_until(self.as_fd(), flags, Instant::now().into())?;
            }
            if !found.is_empty() || slept {
                return Ok(Some(found));
            }
            self.sleep(awaited, until)?;
            slept = true;
        }
    }

    /// Waits until a peer has connected to [`Device::listen_once`].
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::System`] ECONNRESET when it was reset before.
    pub fn wait_connected(&self, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let flags = poll_until(self.as_fd(), PollFlags::POLLOUT, deadline)?;
        if flags.is_empty() {
            return Err(deadline.missed("connection from a peer"));
        }
        if flags.contains(PollFlags::POLLERR) {
            return Err(Error::connection("wait for a peer", Errno::ECONNRESET));
        }
        Ok(())
    }

    /// Queries the state and the counters of the connection.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn query(&self) -> Result<ConnectionInfo> {
        let mut info = ConnectionInfo::query(&self.device)?;
        if let Some(ring) = &lock(&self.posted).ring {
            (info.received, info.posted) = ring.counts();
        }
        if let Some(queue) = &lock(&self.unsent).queue {
            (info.sent, info.unsent) = queue.counts();
            // The device of the sender has moved them.
            info.copied = info.sent;
        }
        if let Some(rings) = self.rings.get().and_then(Weak::upgrade) {
            info.ring = true;
            (info.sent, info.received) = rings.counts();
            // Into the ring, and out of the other one.
            info.copied = info.sent + info.received;
        }
        Ok(info)
    }

    /// Ends the connection, waits until nothing is in flight, and returns the memory that the
    /// connection still owned: receive memory first, then send memory.
    ///
    /// Memory that was not reaped by [`Connection::recycle`] may or may not have been sent. Data
    /// that was received and not reaped is lost. If the peer does not release the connection in
    /// time, the connection is reset, and the peer keeps no access to the memory.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the kernel could not end it; the memory is then never used again.
    pub fn disconnect(&self) -> Result<Vec<Chunk>> {
        self.end()
            .map_err(|errno| Error::connection("disconnect", errno))?;
        let mut memory = lock(&self.posted).chunks.drain();
        memory.extend(lock(&self.unsent).chunks.drain());
        Ok(memory)
    }

    fn end(&self) -> std::result::Result<(), Errno> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        // First, so that nothing is moved after the end.
        self.end_streams();
        if let Some(rings) = self.rings.get().and_then(Weak::upgrade) {
            rings.disconnect();
        }
        // Disconnecting waits, so the file must be blocking; it belongs to this connection alone.
        sys::set_nonblocking(self.as_fd(), false)?;
        loop {
            match sys::conn_disconnect(self.as_fd(), sys::handle(0)) {
                // The kernel limits the time of the peer, even if a signal interrupts this call.
                Ok(_) | Err(Errno::ENODEV | Errno::ETIMEDOUT) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => match sys::conn_query(self.as_fd(), Default::default()) {
                    // There was nothing to end.
                    Ok(answer) if answer.out_state == uapi::ULDMA_CONN_NONE => break,
                    _ => return Err(errno),
                },
            }
        }
        self.ended.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.end().is_err() {
            // The kernel may still access this memory, so it must never be reused.
            std::mem::forget(lock(&self.posted).chunks.drain());
            std::mem::forget(lock(&self.unsent).chunks.drain());
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Posts memory to the kernel. The caller's lock keeps the library's order equal to the kernel's.
fn post(
    queue: &mut Chunks,
    memory: Chunk,
    what: &str,
    call: impl FnOnce(uapi::uldma_conn_buffer) -> std::result::Result<uapi::uldma_conn_buffer, Errno>,
) -> std::result::Result<(), Rejected> {
    let argument = uapi::uldma_conn_buffer {
        addr: memory.address(),
        length: memory.len() as u64,
        ..Default::default()
    };
    match call(argument) {
        Ok(_) => {
            queue.push(memory);
            Ok(())
        }
        Err(errno) => {
            let action = format!("give {} bytes to {what}", memory.len());
            let error = Error::connection(action, errno);
            Err(Rejected { error, memory })
        }
    }
}

fn lock<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics between a system call and the update of the queue.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps in poll() until one of the flags is set, or POLLHUP or POLLERR; none when the deadline is
/// reached first.
fn poll_until(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Deadline) -> Result<PollFlags> {
    loop {
        let left = deadline.left();
        let mut fds = [PollFd::new(fd, flags)];
        sys::count_call();
        match poll(&mut fds, poll_timeout(left)) {
            Ok(0) if !left.is_zero() => {}
            Err(Errno::EINTR) => {}
            Ok(_) => return Ok(fds[0].revents().unwrap_or(PollFlags::empty())),
            Err(errno) => return Err(Error::system("wait", errno)),
        }
    }
}
