// SPDX-License-Identifier: GPL-2.0

//! Endpoints: the ends of message connections, between which the device moves messages.
//!
//! An endpoint has a page of receive descriptors, which its program writes, and a status page of
//! receptions, which the device writes. The device delivers to it only what the endpoint sends that
//! it is connected to. Two programs tell each other index and generation of their endpoints; the
//! generation is random, so that it cannot be guessed.
//!
//! The pages are freed only when the device has confirmed the invalidation of the endpoint.
//! Otherwise the table keeps them, and the charge for them, until the driver is unbound.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    id_pool::IdPool,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    hw::{
        layout::{
            EndpointEntry,
            EndpointFlags, //
        },
        table::Table,
        Geometry,
        Hw, //
    },
    kernel_ext::{
        dma::{
            self,
            SharedPage, //
        },
        errno::{
            eisconn,
            enotconn,
            eopnotsupp, //
        },
        random, //
    },
    user_abi::{
        events::Events,
        ledger::Share,
        status_page::StatusPage, //
    }, //
};

/// What a program asks for.
#[derive(Clone, Copy)]
pub(crate) struct EndpointSetup {
    /// The space that owns the endpoint.
    pub(crate) space: u32,
    /// Milliseconds for which a send waits for a receive descriptor; all ones: no limit.
    pub(crate) timeout_ms: u32,
    /// Bytes of the longest message that may be sent.
    pub(crate) most_bytes: u64,
    /// Receive descriptors may be lists of bus addresses, so that no process may write them.
    pub(crate) privileged: bool,
    /// A stream of bytes instead of messages.
    pub(crate) is_stream: bool,
}

/// The owner of an endpoint: what its receptions wake, and what it is charged.
pub(crate) struct EndpointOwner {
    events: Arc<Events>,
    _share: Share,
}

impl EndpointOwner {
    /// Creates an owner that pays `share`; receptions wake `events`.
    pub(crate) fn new(events: &Arc<Events>, share: Share) -> Self {
        Self {
            events: events.clone(),
            _share: share,
        }
    }
}

/// An endpoint before [`Endpoints::create`]: what a process pays for, which may make that process
/// sleep.
pub(crate) struct NewEndpoint {
    ring: Arc<SharedPage>,
    status: Arc<StatusPage>,
    room: RBTreeNodeReservation<u32, Taken>,
}

impl NewEndpoint {
    /// Allocates the pages of an endpoint.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn allocate() -> Result<Self> {
        Ok(Self {
            ring: Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?,
            status: Arc::new(StatusPage::new()?, GFP_KERNEL_ACCOUNT)?,
            room: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// Proof that the device does not access what was posted to an endpoint any more.
pub(crate) struct Released(());

/// The endpoint of a peer, as its owner has named it.
#[derive(Clone, Copy)]
pub(crate) struct PeerEndpoint {
    pub(crate) node: u32,
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

/// An endpoint, to be ended by [`Endpoints::release`].
pub(crate) struct Endpoint {
    index: u32,
    generation: u64,
    ring: Arc<SharedPage>,
    status: Arc<StatusPage>,
    is_stream: bool,
    /// The peer's node and the generation of the link to it, once connected.
    link: Option<(u32, u32)>,
}

impl Endpoint {
    /// Returns the index and the generation, by which the peer names it.
    pub(crate) fn name(&self) -> (u32, u64) {
        (self.index, self.generation)
    }

    /// Returns the page of receive descriptors.
    pub(crate) fn ring(&self) -> &Arc<SharedPage> {
        &self.ring
    }

    /// Returns the status page of receptions.
    pub(crate) fn status(&self) -> &Arc<StatusPage> {
        &self.status
    }

    /// Returns true if it receives a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns the peer's node and the generation of the link under which it was connected.
    pub(crate) fn link(&self) -> Option<(u32, u32)> {
        self.link
    }
}

/// An entry in use.
struct Taken {
    ring: (Arc<SharedPage>, DmaAddress),
    status: (Arc<StatusPage>, DmaAddress),
    /// None for an endpoint of the driver.
    owner: Option<EndpointOwner>,
    /// Receptions, or bytes of a stream, that woke waiters.
    seen: u64,
}

impl Taken {
    /// Unmaps the pages, which the device does not use any more.
    fn unmap(self, dev: &Device<Bound>) {
        dma::unmap(dev, self.ring.1);
        dma::unmap(dev, self.status.1);
    }
}

struct State {
    table: Table<EndpointEntry>,
    ids: IdPool,
    capacity: u32,
    taken: RBTree<u32, Taken>,
}

/// The endpoints of a device, until it is unbound.
#[pin_data]
pub(crate) struct Endpoints {
    /// None on devices that do not match messages, and after unbind.
    #[pin]
    state: Mutex<Option<State>>,
}

impl Endpoints {
    /// Creates a table without endpoints.
    pub(crate) fn new<'a>(
        dev: &'a Device<Bound>,
        geometry: &'a Geometry,
    ) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || {
            let capacity = geometry.endpoint_capacity;
            let state = match capacity {
                0 => None,
                _ => Some(State {
                    table: Table::new(dev, capacity)?,
                    ids: IdPool::with_capacity(usize::try_from(capacity)?, GFP_KERNEL)?,
                    capacity,
                    taken: RBTree::new(),
                }),
            };
            Ok(try_pin_init!(Self {
                state <- new_mutex!(state, "uldma::Endpoints::state"),
            }))
        })
    }

    /// Returns the bus address of the directory and the number of entries; zeros without a table.
    pub(crate) fn directory(&self) -> (DmaAddress, u32) {
        let state = self.state.lock();
        let state = state.as_ref();
        state.map_or((0, 0), |state| (state.table.directory(), state.capacity))
    }

    /// Makes `new` an endpoint of `owner`, or of the driver, which waits for its connection.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device does not match messages, `ENOSPC` if its table is full, `EREMOTEIO`
    /// if the device cannot access the pages.
    pub(crate) fn create(
        &self,
        dev: &Device<Bound>,
        NewEndpoint { ring, status, room }: NewEndpoint,
        setup: EndpointSetup,
        owner: Option<EndpointOwner>,
    ) -> Result<Endpoint> {
        let mut state = self.state.lock();
        let state = Option::as_mut(&mut *state).ok_or_else(eopnotsupp)?;
        let id = state.ids.find_unused_id(0).ok_or(ENOSPC)?;
        let index = id.as_u32();
        if index >= state.capacity {
            return Err(ENOSPC);
        }
        state.table.reserve(dev, index, 1)?;
        let ring_address = ring.map(dev)?;
        let status_address = status.map(dev).inspect_err(|_| {
            dma::unmap(dev, ring_address);
        })?;
        id.acquire();
        let generation = random::u64();
        let taken = Taken {
            ring: (ring.clone(), ring_address),
            status: (status.clone(), status_address),
            owner,
            seen: 0,
        };
        state.taken.insert(room.into_node(index, taken));
        let entry = EndpointEntry {
            flags: EndpointFlags::VALID
                | EndpointFlags::PRIVILEGED.when(setup.privileged)
                | EndpointFlags::STREAM.when(setup.is_stream),
            space: setup.space,
            generation,
            receive_ring: ring_address,
            receive_status: status_address,
            timeout_ms: setup.timeout_ms,
            most_bytes: setup.most_bytes,
            ..EndpointEntry::default()
        };
        // The memory is reserved, so this does not fail.
        state.table.insert(index, entry)?;
        Ok(Endpoint {
            index,
            generation,
            ring,
            status,
            is_stream: setup.is_stream,
            link: None,
        })
    }

    /// Connects an endpoint to that of a peer, which has to be connected to this one, too.
    ///
    /// # Errors
    ///
    /// `EISCONN` if it is connected, `ENOTCONN` if the link to the peer is down, `EINVAL` for no
    /// peer, `ENODEV` if the device is unbound.
    pub(crate) fn connect(
        &self,
        hw: Hw<'_>,
        endpoint: &mut Endpoint,
        peer: PeerEndpoint,
    ) -> Result {
        if endpoint.link.is_some() {
            return Err(eisconn());
        }
        let link = hw.link(peer.node)?;
        if !link.up {
            return Err(enotconn());
        }
        let mut state = self.state.lock();
        let state = Option::as_mut(&mut *state).ok_or(ENODEV)?;
        let own = state.table.get(endpoint.index)?;
        let flags = own.flags | EndpointFlags::CONNECTED;
        let flags = flags
            .try_with(EndpointFlags::NODE, peer.node)
            .ok_or(EINVAL)?;
        let entry = EndpointEntry {
            flags,
            peer_endpoint: peer.index,
            peer_generation: peer.generation,
            link_generation: link.generation,
            ..own
        };
        state.table.connect(endpoint.index, entry)?;
        endpoint.link = Some((peer.node, link.generation));
        Ok(())
    }

    /// Ends an endpoint, whose pages are not mapped by processes any more.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not confirm the invalidation. The endpoint has ended
    /// nevertheless, and its pages and entry are kept until unbind.
    pub(crate) fn release(&self, hw: Hw<'_>, endpoint: &Endpoint) -> Result<Released> {
        self.with(|state| {
            state.table.retract(endpoint.index);
            Ok(())
        })?;
        hw.invalidate_endpoint(endpoint.index)
            .inspect_err(|_| hw.health().keeps_endpoint())?;
        self.with(|state| {
            state.table.clear(endpoint.index);
            if let Some(taken) = state.taken.remove(&endpoint.index) {
                taken.unmap(hw.dev());
            }
            state.ids.release_id(usize::try_from(endpoint.index)?);
            Ok(Released(()))
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let mut state = self.state.lock();
        act(Option::as_mut(&mut *state).ok_or(ENODEV)?)
    }

    /// Returns the number of entries that programs use, including those that are kept until unbind.
    pub(crate) fn used(&self) -> usize {
        let state = self.state.lock();
        let state = state.as_ref();
        let owned = |state: &State| state.taken.values().filter(|it| it.owner.is_some()).count();
        state.map_or(0, owned)
    }

    /// Wakes the open files of endpoints with new receptions.
    pub(crate) fn progress(&self) {
        let mut state = self.state.lock();
        let Some(state) = Option::as_mut(&mut *state) else {
            return;
        };
        for taken in state.taken.values_mut() {
            let page = &taken.status.0;
            // Of an endpoint that is no stream, nothing is received in bytes.
            let progress = page.completed().wrapping_add(page.received());
            let is_new = core::mem::replace(&mut taken.seen, progress) != progress;
            if let Some(owner) = taken.owner.as_ref().filter(|_| is_new) {
                owner.events.wake();
            }
        }
    }

    /// Unmaps all pages; the device does no DMA any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) -> Released {
        let Some(mut state) = self.state.lock().take() else {
            return Released(());
        };
        while let Some(first) = state.taken.cursor_front_mut() {
            let (_, node) = first.remove_current();
            node.to_key_value().1.unmap(dev);
        }
        Released(())
    }
}
