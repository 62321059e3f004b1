// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections whose data goes from endpoint to endpoint, matched by the device: memory is posted by
//! stores, and reaped by a count that the device writes.
//!
//! Both sides have to ask for it ([`Connection::match_streams`]). Until the peer has answered,
//! memory to send waits here. If the peer refuses, all posted memory is posted again by calls.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::Connection;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::method::Method;
use crate::region::chunk::{Chunk, Chunks};
use crate::region::entry::{Access, Entry};
use crate::sys;
use crate::sys::uapi;
use crate::transfer::context::{Context, ContextOptions};
use crate::transfer::endpoint::Endpoint;
use crate::transfer::status::StatusPage;
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::nanoseconds;
use crate::wait::spin::{repeat, Poller, Spin};

/// Limit of posted buffers of one direction, as of those that are posted by calls.
const MAX_BUFFERS: usize = uapi::ULDMA_CONN_MAX_BUFFERS as usize;

/// What the driver has last said of the two endpoints.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// The handle of the endpoint.
    handle: AtomicU32,
    flags: AtomicU32,
}

/// What a wait is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// Received bytes.
    pub(super) received: Option<u64>,
    /// A send.
    pub(super) ticket: Option<u64>,
}

impl Agreement {
    fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Both endpoints are connected.
    pub(super) fn is_matched(&self) -> bool {
        self.has(uapi::ULDMA_STREAM_MATCHED)
    }

    /// The peer refuses.
    fn is_refused(&self) -> bool {
        self.has(uapi::ULDMA_STREAM_REFUSED)
    }

    /// The connection has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.has(uapi::ULDMA_STREAM_ENDED)
    }

    /// Both endpoints are connected, and the connection has not ended.
    pub(super) fn goes_on(&self) -> bool {
        self.is_matched() && !self.is_ended()
    }

    /// Notes that the connection has ended.
    pub(super) fn note_end(&self) {
        self.flags
            .fetch_or(uapi::ULDMA_STREAM_ENDED, Ordering::AcqRel);
    }

    /// Asks the driver, and waits for what changes. Returns false if the time is over.
    pub(super) fn wait(
        &self,
        fd: BorrowedFd<'_>,
        awaited: Awaited,
        timeout: Duration,
    ) -> std::result::Result<bool, Errno> {
        let argument = uapi::uldma_conn_stream {
            flags: self.flags.load(Ordering::Acquire),
            handle: self.handle.load(Ordering::Acquire),
            received: awaited.received.unwrap_or(0),
            ticket: awaited.ticket.unwrap_or(0),
            timeout_ns: nanoseconds(timeout),
            ..Default::default()
        };
        match sys::conn_stream(fd, argument) {
            Ok(answer) => {
                self.flags.store(answer.out_flags, Ordering::Release);
                Ok(true)
            }
            Err(Errno::ETIMEDOUT | Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

/// A posted buffer: where its bytes end in the stream.
#[derive(Debug)]
struct Posted {
    address: u64,
    length: u64,
    end: u64,
    /// The registration of memory that is not registered by its owner.
    _registration: Option<Entry>,
}

/// Posted buffers of one direction, and the counts of their bytes.
#[derive(Debug, Default)]
struct Buffers {
    posted: VecDeque<Posted>,
    /// Bytes that were posted.
    total: u64,
    /// Bytes that were reaped.
    reaped: u64,
}

impl Buffers {
    /// Finds the region of `memory`, and adds it. Returns the region and the offset.
    fn add(&mut self, device: &Device, memory: &Chunk, access: Access) -> Result<(u32, u64)> {
        let (address, length) = (memory.address(), memory.len() as u64);
        let (place, registration) = match memory.region(device) {
            Some(place) => (place, None),
            None => {
                let entry = Entry::register(device, address, length, access)?;
                ((entry.index, 0), Some(entry))
            }
        };
        self.total += length;
        self.posted.push_back(Posted {
            address,
            length,
            end: self.total,
            _registration: registration,
        });
        Ok(place)
    }

    /// Returns the number of bytes that can be reaped when `moved` bytes were moved.
    fn ready(&self, moved: u64) -> u64 {
        moved.min(self.total).saturating_sub(self.reaped)
    }

    /// Returns the number of buffers that are not done when `moved` bytes were moved.
    fn busy(&self, moved: u64) -> usize {
        let done = self.posted.partition_point(|posted| posted.end <= moved);
        self.posted.len() - done
    }

    /// Reaps at most `most` bytes of `chunks`.
    fn reap(&mut self, chunks: &mut Chunks, most: usize, moved: u64) -> Option<Chunk> {
        let ready = usize::try_from(self.ready(moved)).unwrap_or(usize::MAX);
        if ready == 0 {
            return None;
        }
        let chunk = chunks.pop(most.min(ready))?;
        self.reaped += chunk.len() as u64;
        while self
            .posted
            .front()
            .is_some_and(|posted| posted.end <= self.reaped)
        {
            self.posted.pop_front();
        }
        Some(chunk)
    }
}

/// The half of a connection that receives.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    // Dropped in this order: nothing is written after the endpoint has ended.
    endpoint: Endpoint,
    buffers: Buffers,
    poller: Poller,
}

/// The half of a connection that sends.
#[derive(Debug)]
pub(super) struct SendQueue {
    // Dropped in this order: nothing is read after the context has ended.
    context: Context,
    status: Arc<StatusPage>,
    /// Index of the own endpoint.
    endpoint: u32,
    /// Bytes of the longest send.
    longest: u64,
    buffers: Buffers,
    /// Parts of posted memory that are not in the queue yet: region, offset, bytes.
    waiting: VecDeque<(u32, u64, u64)>,
    /// Sends that have not ended: number of the last byte, and ticket.
    sends: VecDeque<(u64, Ticket)>,
    /// Bytes that are in the queue, or were.
    pushed: u64,
    poller: Poller,
}

impl ReceiveRing {
    fn new(device: &Device, endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            buffers: Buffers::default(),
            poller: device.poller(Spin::Adaptive),
        }
    }

    fn received(&self) -> u64 {
        self.endpoint.received()
    }

    /// Posts memory to receive into. Returns true if the device has to be woken.
    pub(super) fn post(&mut self, device: &Device, memory: &Chunk) -> Result<bool> {
        if self.buffers.busy(self.received()) >= MAX_BUFFERS || self.endpoint.room() == 0 {
            return Err(Error::connection("receive into", Errno::ENOSPC));
        }
        let length = memory.len() as u64;
        let (region, offset) = self.buffers.add(device, memory, Access::Write)?;
        // There is room.
        self.endpoint.post_at(region, offset, length, 0)?;
        Ok(self.endpoint.wants_wakeup())
    }

    pub(super) fn reap(&mut self, chunks: &mut Chunks, most: usize) -> Option<Chunk> {
        let received = self.received();
        self.buffers.reap(chunks, most, received)
    }

    /// Polls for bytes, for as long as a wake-up costs.
    pub(super) fn spin(&mut self) {
        let (endpoint, buffers) = (&self.endpoint, &self.buffers);
        let ready = || (buffers.ready(endpoint.received()) > 0).then_some(());
        spin(&mut self.poller, ready);
    }

    /// Returns true if bytes can be reaped.
    pub(super) fn is_ready(&self) -> bool {
        self.buffers.ready(self.received()) > 0
    }

    /// Returns the count of received bytes to wait for.
    pub(super) fn awaited(&self) -> u64 {
        self.buffers.reaped + 1
    }

    /// Returns bytes received, and bytes posted and not filled.
    pub(super) fn counts(&self) -> (u64, u64) {
        let received = self.received();
        (received, self.buffers.total.saturating_sub(received))
    }
}

impl SendQueue {
    fn new(device: &Device, context: Context, endpoint: &Endpoint, longest: u64) -> Self {
        Self {
            context,
            status: endpoint.receive_status(),
            endpoint: endpoint.name().index,
            longest,
            buffers: Buffers::default(),
            waiting: VecDeque::new(),
            sends: VecDeque::new(),
            pushed: 0,
            poller: device.poller(Spin::Adaptive),
        }
    }

    fn sent(&self) -> u64 {
        self.status.sent()
    }

    /// Posts memory to send, and pushes it if the endpoints are connected.
    pub(super) fn post(&mut self, device: &Device, memory: &Chunk, matched: bool) -> Result<()> {
        if self.buffers.busy(self.sent()) >= MAX_BUFFERS {
            return Err(Error::connection("send", Errno::ENOSPC));
        }
        let length = memory.len() as u64;
        let (region, offset) = self.buffers.add(device, memory, Access::Read)?;
        self.waiting.push_back((region, offset, length));
        self.push(matched);
        Ok(())
    }

    /// Pushes what waits, as much as the queue has room for.
    pub(super) fn push(&mut self, matched: bool) {
        let Some(queue) = self.context.queue().filter(|_| matched) else {
            return;
        };
        let sent = self.status.sent();
        while self.sends.front().is_some_and(|(end, _)| *end <= sent) {
            self.sends.pop_front();
        }
        let mut any = false;
        while let Some((region, offset, length)) = self.waiting.front_mut() {
            let bytes = (*length).min(self.longest);
            let Ok(ticket) = queue.send_to(self.endpoint, (*region, *offset), bytes) else {
                break;
            };
            any = true;
            self.pushed += bytes;
            self.sends.push_back((self.pushed, ticket));
            *offset += bytes;
            *length -= bytes;
            if *length == 0 {
                self.waiting.pop_front();
            }
        }
        if any {
            queue.submit();
        }
    }

    pub(super) fn reap(&mut self, chunks: &mut Chunks, most: usize) -> Option<Chunk> {
        let sent = self.sent();
        self.buffers.reap(chunks, most, sent)
    }

    /// Polls for sent bytes, for as long as a wake-up costs.
    pub(super) fn spin(&mut self) {
        let (status, buffers) = (&self.status, &self.buffers);
        let ready = || (buffers.ready(status.sent()) > 0).then_some(());
        spin(&mut self.poller, ready);
    }

    /// Returns true if bytes can be reaped, or all were.
    pub(super) fn is_ready(&self) -> bool {
        self.buffers.ready(self.sent()) > 0 || self.buffers.posted.is_empty()
    }

    /// Returns the ticket to wait for: of the first send whose bytes were not reaped.
    pub(super) fn awaited(&self) -> Option<u64> {
        let reaped = self.buffers.reaped;
        let first = self.sends.iter().find(|(end, _)| *end > reaped);
        first.map(|(_, ticket)| ticket.get())
    }

    /// Returns bytes sent, and bytes posted and not sent.
    pub(super) fn counts(&self) -> (u64, u64) {
        let sent = self.sent();
        (sent, self.buffers.total.saturating_sub(sent))
    }
}

/// Posts memory again by calls, in the order in which it was posted.
fn post_again(
    buffers: &Buffers,
    call: impl Fn(uapi::uldma_conn_buffer) -> std::result::Result<uapi::uldma_conn_buffer, Errno>,
) -> std::result::Result<(), Errno> {
    for posted in &buffers.posted {
        call(uapi::uldma_conn_buffer {
            addr: posted.address,
            length: posted.length,
            ..Default::default()
        })?;
    }
    Ok(())
}

impl Connection {
    /// Lets the device move the data of the connection from posted memory to posted memory, if the
    /// program at the other side asks for this, too: then posting and reaping memory takes no system
    /// calls. To be called before any memory is posted. Returns false if it is impossible: without
    /// such a device on both sides, with [`ConnectOptions::pull`](crate::ConnectOptions::pull),
    /// without a free context, and after memory was posted. The connection then works as before.
    ///
    /// Everything else stays the same, but: until the other side has decided, posted memory is sent
    /// by the next call of this connection; and the connection's file descriptor only reports its
    /// end to poll(), so use [`Connection::wait`] instead. As with every [`Context`], calls may raise
    /// SIGBUS after the driver was unbound, or when no context has become free in time.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOTCONN when it is not connected, and those of [`Device::endpoint`].
    pub fn match_streams(&self) -> Result<bool> {
        let query = self.device().query()?;
        if query.max_transfer == 0 || !self.query()?.engine {
            return Ok(false);
        }
        let (mut posted, mut unsent) = (super::lock(&self.posted), super::lock(&self.unsent));
        if posted.ring.is_some() {
            return Ok(true);
        }
        let cannot = |errno| {
            matches!(
                errno,
                Errno::EOPNOTSUPP | Errno::EBUSY | Errno::EDQUOT | Errno::ENOSPC | Errno::EISCONN
            )
        };
        let made = self.device().stream_endpoint(query.max_transfer);
        let endpoint = match made {
            Err(error) if error.errno().is_some_and(cannot) => return Ok(false),
            made => made?,
        };
        let options = ContextOptions::default();
        let context = match self.device().context_with(Method::Queue, options) {
            Err(_) => return Ok(false),
            Ok(context) => context,
        };
        self.agreement
            .handle
            .store(endpoint.handle(), Ordering::Release);
        let named = self
            .agreement
            .wait(self.as_fd(), Awaited::default(), Duration::ZERO);
        match named {
            Ok(_) => {}
            Err(errno) if cannot(errno) => return Ok(false),
            Err(errno) => return Err(Error::connection("name an endpoint", errno)),
        }
        let device = self.device();
        let queue = SendQueue::new(device, context, &endpoint, query.max_transfer);
        unsent.queue = Some(queue);
        posted.ring = Some(ReceiveRing::new(device, endpoint));
        Ok(true)
    }

    /// Asks the driver for the peer's answer, unless it has come, and does what it takes.
    pub(super) fn negotiate(&self) -> Result<()> {
        if self.agreement.is_matched() {
            return Ok(());
        }
        let asked = self
            .agreement
            .wait(self.as_fd(), Awaited::default(), Duration::ZERO);
        self.unless_ended("match streams", asked)?;
        self.follow()
    }

    /// Does what the answer of the peer takes: pushes what waits to be sent, or goes back to calls.
    fn follow(&self) -> Result<()> {
        if self.agreement.is_matched() {
            if let Some(queue) = &mut super::lock(&self.unsent).queue {
                queue.push(true);
            }
        }
        if !self.agreement.is_refused() {
            return Ok(());
        }
        let (mut posted, mut unsent) = (super::lock(&self.posted), super::lock(&self.unsent));
        let (Some(ring), Some(queue)) = (posted.ring.take(), unsent.queue.take()) else {
            return Ok(());
        };
        let fd = self.as_fd();
        let again = post_again(&ring.buffers, |argument| sys::conn_prepost(fd, argument))
            .and_then(|()| post_again(&queue.buffers, |argument| sys::conn_send(fd, argument)));
        match again {
            // The next call reports the end.
            Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => Ok(()),
            Err(errno) => Err(Error::connection("post memory again", errno)),
        }
    }

    /// Returns the error of a wait, unless another thread has disconnected meanwhile, which the next
    /// call reports.
    fn unless_ended(&self, what: &str, waited: std::result::Result<bool, Errno>) -> Result<()> {
        match waited {
            Err(errno) if super::lock(&self.posted).ring.is_some() => {
                Err(Error::connection(what, errno))
            }
            _ => Ok(()),
        }
    }

    /// Ends context and endpoint, after which nothing is moved.
    pub(super) fn end_streams(&self) {
        let queue = super::lock(&self.unsent).queue.take();
        drop(queue);
        let ring = super::lock(&self.posted).ring.take();
        drop(ring);
    }

    /// Sleeps until what is awaited has come, the connection ends, or the time is over.
    pub(super) fn sleep(&self, awaited: Awaited, until: Instant) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let woken = self.agreement.wait(self.as_fd(), awaited, left);
        self.unless_ended("wait for the peer", woken)?;
        self.follow()
    }
}

impl Device {
    /// Creates an endpoint of a stream.
    fn stream_endpoint(&self, longest: u64) -> Result<Endpoint> {
        self.endpoint_with(uapi::ULDMA_ENDPOINT_STREAM, longest, Duration::MAX)
    }
}

/// Polls for as long as a wake-up costs.
fn spin(poller: &mut Poller, ready: impl Fn() -> Option<()>) {
    if poller.until(|attempts| repeat(attempts, &ready)).is_none() {
        poller.slept();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::context::tests::{context_of, Memory};

    #[test]
    fn both_halves_poll_for_what_the_device_costs() {
        // Longer than a wake-up by a timer can be.
        let completion = Duration::from_secs(1);
        let device = Device::mute_after(completion);
        let expected = crate::wait::ticks::of(completion);
        let memory = Memory::new();
        let context = context_of(device.clone(), Method::Queue, &memory);
        let endpoint = Endpoint::mute(&device);
        let queue = SendQueue::new(&device, context, &endpoint, 1);
        assert_eq!(queue.poller.limit(), expected);
        let ring = ReceiveRing::new(&device, endpoint);
        assert_eq!(ring.poller.limit(), expected);
    }
}
