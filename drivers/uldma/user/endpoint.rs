// SPDX-License-Identifier: GPL-2.0

//! The endpoints of an open file: what it can map of them, and the wait for receptions.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    dma::endpoint::{
        Endpoint,
        EndpointOwner,
        EndpointSetup,
        NewEndpoint,
        PeerEndpoint, //
    },
    hw::Hw,
    kernel_ext::{
        dma::SharedPage,
        errno::{
            enotconn,
            eopnotsupp, //
        },
        window::full_fence, //
    },
    mem::lmm::space::Space,
    user_abi::{
        events::Events,
        ledger::{
            Resource,
            Share, //
        },
        mmap_offset::{
            Backing,
            MmapRange, //
        },
        status_page::StatusPage, //
    }, //
};

/// An endpoint, its pages mapped or not.
pub(crate) struct FileEndpoint {
    endpoint: Endpoint,
    ring: MmapRange,
    status: MmapRange,
}

/// What a wait for receptions needs, and the ring that they come from.
pub(crate) struct Receiver {
    status: Arc<StatusPage>,
    ring: Arc<SharedPage>,
    is_stream: bool,
    link: Option<(u32, u32)>,
}

impl FileEndpoint {
    /// Creates an endpoint of open file `number`, which `space` pays for. Receptions wake `events`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device does not match messages or has no streams, `ENOSPC` if its table is full, `EDQUOT`
    /// beyond the limits of the user, `ENOMEM`, `EREMOTEIO` if the device cannot access the pages,
    /// `ENODEV` if the device is unbound.
    pub(crate) fn create(
        shared: &Shared,
        number: u64,
        space: &Space,
        events: &Arc<Events>,
        (timeout_ms, most_bytes, is_stream): (u32, u64, bool),
    ) -> Result<Self> {
        let geometry = shared.hw.geometry();
        // First, as the limit of a user is zero where there are none.
        if geometry.endpoint_capacity == 0 || is_stream && !geometry.has_streams {
            return Err(eopnotsupp());
        }
        let share = Share::new(space.payer(), Resource::Endpoints, 1)?;
        let new = NewEndpoint::allocate()?;
        let setup = EndpointSetup {
            space: space.id(),
            timeout_ms,
            most_bytes,
            privileged: false,
            is_stream,
        };
        let owner = EndpointOwner::new(events, share);
        let guard = shared.gate.try_enter()?;
        let dev = guard.dev();
        let endpoint = shared.endpoints.create(dev, new, setup, Some(owner))?;
        let offsets = &shared.mmap_offsets;
        let ring = Backing::Queue(endpoint.ring().clone());
        let ring = offsets.add(number, 1, ring, true);
        let status = Backing::Status(endpoint.status().clone());
        let status = offsets.add(number, 1, status, false);
        match (ring, status) {
            (Ok(ring), Ok(status)) => Ok(Self {
                endpoint,
                ring,
                status,
            }),
            (ring, status) => {
                let made = [ring.as_ref().ok(), status.as_ref().ok()];
                made.into_iter()
                    .flatten()
                    .for_each(|made| offsets.remove(*made));
                // No peer knows it, so the device has nothing to abort.
                let _ = shared
                    .endpoints
                    .release(Hw::new(dev, &*shared.hw), &endpoint);
                ring.and(status).and(Err(ENOMEM))
            }
        }
    }

    /// Returns the index and the generation, by which the peer names it.
    pub(crate) fn name(&self) -> (u32, u64) {
        self.endpoint.name()
    }

    /// Returns the `mmap()` offsets of the page of receive descriptors and of the status page.
    pub(crate) fn offsets(&self) -> (u64, u64) {
        (self.ring.offset(), self.status.offset())
    }

    /// Returns true if it is a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.endpoint.is_stream()
    }

    /// Returns true if it is a stream of which a send has failed.
    pub(crate) fn is_torn(&self) -> bool {
        self.endpoint.status().is_torn()
    }

    /// Returns true if it is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.endpoint.link().is_some()
    }

    /// Connects the endpoint to that of a peer.
    ///
    /// # Errors
    ///
    /// `EISCONN` if it is connected, `ENOTCONN` if the link to the peer is down, `EINVAL` for no
    /// peer, `ENODEV` if the device is unbound.
    pub(crate) fn connect(&mut self, shared: &Shared, peer: PeerEndpoint) -> Result {
        let guard = shared.gate.try_enter()?;
        let hw = guard.hw();
        shared.endpoints.connect(hw, &mut self.endpoint, peer)
    }

    /// Returns what a wait for receptions needs.
    pub(crate) fn receiver(&self) -> Receiver {
        Receiver {
            status: self.endpoint.status().clone(),
            ring: self.endpoint.ring().clone(),
            is_stream: self.endpoint.is_stream(),
            link: self.endpoint.link(),
        }
    }

    /// Ends the endpoint: mappings first, then the entry of the device.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; the endpoint has ended nevertheless.
    pub(crate) fn release(self, shared: &Shared) -> Result {
        shared.mmap_offsets.remove(self.ring);
        shared.mmap_offsets.remove(self.status);
        match shared.gate.enter() {
            Some(guard) => {
                let hw = guard.hw();
                shared.endpoints.release(hw, &self.endpoint).map(drop)
            }
            None => Ok(()),
        }
    }
}

impl Receiver {
    /// Waits until `count` messages, or bytes of a stream, were received, for at most `timeout_ns`.
    /// Returns the number, which is less if the stream is over.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`, `ENOTCONN` if the endpoint is not connected or the link to the peer
    /// went down, `ENODEV` if the device is unbound.
    pub(crate) fn wait(
        &self,
        shared: &Shared,
        events: &Events,
        count: u64,
        timeout_ns: u64,
    ) -> Result<u64> {
        events.wait_for(timeout_ns, || {
            let found = self.request(count).map(Ok);
            found.or_else(|| self.prepare(shared).err().map(Err))
        })
    }

    /// Returns the number of messages or bytes if it is at least `count`, or the stream is over.
    /// Otherwise requests an interrupt for that.
    pub(crate) fn request(&self, count: u64) -> Option<u64> {
        self.reached(count).or_else(|| {
            self.status.notify_from(count);
            // A reception before the request has not interrupted.
            self.reached(count)
        })
    }

    fn reached(&self, count: u64) -> Option<u64> {
        let (received, over) = if self.is_stream {
            (self.status.received(), self.status.failed() > 0)
        } else {
            (self.status.completed(), false)
        };
        (received >= count || over).then_some(received)
    }

    /// Returns true if `count` bytes of the stream were received.
    pub(crate) fn has(&self, count: u64) -> bool {
        self.status.received() >= count
    }

    /// Returns true if bytes of the stream could not be received or sent.
    pub(crate) fn is_torn(&self) -> bool {
        self.status.failed() > 0 || self.status.is_torn()
    }

    /// Returns the receive ring.
    pub(crate) fn ring(&self) -> &SharedPage {
        &self.ring
    }

    /// Returns the receive status.
    pub(crate) fn status(&self) -> &StatusPage {
        &self.status
    }

    /// Makes the device poll the receive ring, in which descriptors were posted.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is unbound.
    pub(crate) fn submit(&self, shared: &Shared) -> Result {
        full_fence();
        let guard = shared.gate.try_enter()?;
        self.wake(shared, guard.hw())
    }

    /// Makes the device poll the receive ring, if it has stopped.
    fn wake(&self, shared: &Shared, hw: Hw<'_>) -> Result {
        if self.status.is_asleep() {
            if let Some(queues) = shared.hw.kernel_queues() {
                hw.wake_context(queues.copies)?;
            }
        }
        Ok(())
    }

    /// Makes the device poll the receive ring, and checks the link.
    fn prepare(&self, shared: &Shared) -> Result {
        let guard = shared.gate.try_enter()?;
        let hw = guard.hw();
        self.wake(shared, hw)?;
        let (node, generation) = self.link.ok_or_else(enotconn)?;
        let link = hw.link(node)?;
        if !link.up || link.generation != generation {
            return Err(enotconn());
        }
        Ok(())
    }
}
