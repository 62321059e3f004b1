// SPDX-License-Identifier: MIT OR Apache-2.0

//! Endpoints: the ends of message connections, between which the devices move messages.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::mmio::full_barrier;
use crate::region::Registered;
use crate::sys;
use crate::sys::{uapi, Mapping};
use crate::transfer::context::Context;
use crate::transfer::descriptor::Ring;
use crate::transfer::status::{Record, StatusPage, RECORDS};
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::nanoseconds;

/// The name of an endpoint, which the program at the other node needs to connect its own to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointName {
    /// Number of its node.
    pub node: u32,
    /// Its index in the device's table.
    pub index: u32,
    /// A number that cannot be guessed.
    pub generation: u64,
}

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reception {
    /// Number of the posted buffer, counted from one.
    pub number: u64,
    /// Bytes of the message.
    pub bytes: u64,
    /// True if the sender continues the message with the next one.
    pub more: bool,
    /// True if the message is where the posted buffer was redirected.
    pub redirected: bool,
    /// Reason for which the message failed, or the buffer could not be used.
    pub failure: Option<Refusal>,
}

/// One end of a message connection: posted buffers, and the messages that the device put there.
///
/// Messages are sent by [`crate::Queue::send`]. For slots, credits and the choice of techniques, see
/// [`crate::MessageConnection`].
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::{Duration, Instant};
/// use uldma::{Access, Buffer, Device, Endpoint};
///
/// let device = Device::open(0)?;
/// let region = device.register(Buffer::new(4096)?, Access::Write)?;
/// let endpoint: Endpoint = device.endpoint(4096, Duration::from_secs(1))?;
/// println!("send to {:?}", endpoint.name());
/// // The other side has said its name by some other way, such as private data of a connection.
/// # let peer = endpoint.name();
/// endpoint.connect(peer)?;
/// let number = endpoint.post(&region, 0, 4096)?;
/// endpoint.wait(1, Instant::now() + Duration::from_secs(1))?;
/// if let Some(reception) = endpoint.ended(number)? {
///     println!("{reception:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Endpoint {
    name: EndpointName,
    handle: u32,
    ring: Ring,
    status: Arc<StatusPage>,
    posted: Cell<u64>,
    device: Device,
}

impl Device {
    /// Creates an endpoint that can send messages of at most `max_message` bytes. A message for
    /// which the peer has posted no buffer waits for `patience`, without limit for
    /// [`Duration::MAX`].
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EOPNOTSUPP when the device does not match messages, EINVAL for a length of
    /// zero or beyond [`crate::Query::max_transfer`], EDQUOT when this user has as many endpoints as
    /// it may, ENOSPC when the device's table is full.
    pub fn endpoint(&self, max_message: u64, patience: Duration) -> Result<Endpoint> {
        self.endpoint_with(0, max_message, patience)
    }

    /// Creates an endpoint with flags.
    pub(crate) fn endpoint_with(
        &self,
        flags: u32,
        max_message: u64,
        patience: Duration,
    ) -> Result<Endpoint> {
        let argument = uapi::uldma_endpoint_create {
            flags,
            timeout_ms: u32::try_from(patience.as_millis()).unwrap_or(u32::MAX),
            max_message,
            ..Default::default()
        };
        let answer = sys::endpoint_create(self.as_fd(), argument).map_err(|errno| match errno {
            Errno::EOPNOTSUPP => Error::System {
                action: "create an endpoint".into(),
                errno,
                hint: Some("only devices with an engine match messages: use a channel".into()),
            },
            errno => Error::system("create an endpoint", errno),
        })?;
        let handle = answer.out_handle;
        Endpoint::map(self, &answer).inspect_err(|_| {
            // The first error is the one to report.
            let _ = sys::endpoint_destroy(self.as_fd(), sys::handle(handle));
        })
    }
}

impl Endpoint {
    fn map(device: &Device, answer: &uapi::uldma_endpoint_create) -> Result<Self> {
        let map = |offset, prot| {
            Mapping::shared(device.as_fd(), offset, device.page_size(), prot)
                .map_err(|errno| Error::system("map an endpoint", errno))
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Ok(Self {
            name: EndpointName {
                node: device.query()?.node,
                index: answer.out_index,
                generation: answer.out_generation,
            },
            handle: answer.out_handle,
            ring: Ring::new(map(answer.out_ring_offset, both)?)?,
            status: Arc::new(StatusPage::new(map(
                answer.out_status_offset,
                ProtFlags::PROT_READ,
            )?)?),
            posted: Cell::new(0),
            device: device.clone(),
        })
    }

    /// Creates an endpoint to which nothing comes, for tests.
    #[cfg(test)]
    pub(crate) fn mute(device: &Device) -> Self {
        let page = || Mapping::anonymous(4096).expect("a page");
        Self {
            name: EndpointName {
                node: 0,
                index: 0,
                generation: 0,
            },
            handle: 0,
            ring: Ring::new(page()).expect("it is large enough"),
            status: Arc::new(StatusPage::new(page()).expect("it is large enough")),
            posted: Cell::new(0),
            device: device.clone(),
        }
    }

    /// Returns the name that the peer needs.
    pub fn name(&self) -> EndpointName {
        self.name
    }

    /// Connects the endpoint to that of a peer, once.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EISCONN when it is connected, ENOTCONN while the link is down, EINVAL for
    /// this node itself or no node.
    pub fn connect(&self, peer: EndpointName) -> Result<()> {
        let argument = uapi::uldma_endpoint_connect {
            handle: self.handle,
            node: peer.node,
            peer_generation: peer.generation,
            peer_index: peer.index,
            ..Default::default()
        };
        sys::endpoint_connect(self.as_fd(), argument)
            .map(drop)
            .map_err(|errno| Error::system("connect an endpoint", errno))
    }

    /// Posts `length` bytes of a region at `offset` for one message. Returns the number of the
    /// posted buffer. The device surely sees it only after [`Endpoint::submit`].
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`] while 64 buffers are posted, [`Refusal::NoRight`] when the region is
    /// not writable. The device checks the rest: see [`Reception::failure`].
    pub fn post(
        &self,
        region: &impl Registered,
        offset: u64,
        length: u64,
    ) -> std::result::Result<u64, Refusal> {
        if !region.access().writes() {
            return Err(Refusal::NoRight);
        }
        self.post_at(region.index(), offset, length, 0)
    }

    /// Posts a part of a region by its index in the device's table, with flags of its descriptor.
    pub(crate) fn post_at(
        &self,
        region: u32,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> std::result::Result<u64, Refusal> {
        if self.room() == 0 {
            return Err(Refusal::QueueFull);
        }
        let number = self.posted.get() + 1;
        self.ring.write(&uapi::uldma_descriptor {
            ticket: number,
            op: uapi::ULDMA_OP_RECV,
            flags,
            dst: region,
            dst_offset: offset,
            length,
            ..Default::default()
        });
        self.posted.set(number);
        Ok(number)
    }

    /// Redirects posted buffer `number` of region `slot`, whose flags allow it, to a whole region.
    /// Returns false if the device has taken the buffer.
    pub(crate) fn redirect(&self, number: u64, slot: u32, region: &impl Registered) -> bool {
        let regions = (region.index(), slot);
        self.ring.redirect(number, regions, 0, region.length())
    }

    /// Withdraws a redirection. Returns false if the device has taken the buffer.
    pub(crate) fn withdraw(&self, number: u64) -> bool {
        self.ring.withdraw(number)
    }

    /// Returns the number of buffers that can be posted now.
    pub fn room(&self) -> u64 {
        let used = self.posted.get().saturating_sub(self.status.completed());
        RECORDS.saturating_sub(used)
    }

    /// Returns the bytes that have been received, if it is a stream.
    #[inline]
    pub(crate) fn received(&self) -> u64 {
        self.status.received()
    }

    /// Returns true if a send waits for a buffer that the device does not poll for.
    pub(crate) fn wants_wakeup(&self) -> bool {
        full_barrier();
        self.status.wants_wakeup()
    }

    /// Returns the page that the device writes. It must not be read after the endpoint has ended.
    pub(crate) fn receive_status(&self) -> Arc<StatusPage> {
        Arc::clone(&self.status)
    }

    /// Returns the handle in the open file.
    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// Notes that the driver has posted buffers, `posted` so far.
    pub(crate) fn set_posted(&self, posted: u64) {
        self.posted.set(posted);
    }

    /// Returns how many buffers have been posted.
    pub fn posted(&self) -> u64 {
        self.posted.get()
    }

    /// Makes the device poll for posted buffers, if a message waits and the device has stopped.
    /// `context` is any context of this node with [`crate::Method::Queue`].
    pub fn submit(&self, context: &Context) {
        if let Some(queue) = context.queue() {
            queue.wake_if_wanted(&self.status);
        }
    }

    /// Returns the message in posted buffer `number`; none while there is none.
    ///
    /// # Errors
    ///
    /// [`Error::RecordLost`] when 64 later messages have arrived.
    #[inline]
    pub fn ended(&self, number: u64) -> Result<Option<Reception>> {
        let record = self.status.record(Ticket(number))?;
        Ok(record.map(|record: Record| Reception {
            number,
            bytes: record.bytes,
            more: record.flags & uapi::ULDMA_COMPLETION_MORE != 0,
            redirected: record.flags & uapi::ULDMA_COMPLETION_REDIRECTED != 0,
            failure: Refusal::from_status(record.status),
        }))
    }

    /// Sleeps until `count` messages have arrived. Returns false at the deadline, or when a signal
    /// was handled.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`]; [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait(&self, count: u64, deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let argument = uapi::uldma_endpoint_wait {
            handle: self.handle,
            count,
            timeout_ns: nanoseconds(left),
            ..Default::default()
        };
        match sys::endpoint_wait(self.as_fd(), argument) {
            Ok(_) => Ok(true),
            Err(Errno::ETIMEDOUT | Errno::EINTR) => Ok(false),
            Err(Errno::ENOTCONN) => Err(Error::LinkDown),
            Err(errno) => Err(Error::system("wait for a message", errno)),
        }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Fails only after the device has been removed; closing the file ends the endpoint, too.
        let _ = sys::endpoint_destroy(self.device.as_fd(), sys::handle(self.handle));
    }
}
