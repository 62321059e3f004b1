// SPDX-License-Identifier: GPL-2.0

//! The ioctls on connections, and on the links to peers.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    }, //
};
use zerocopy::FromZeros;

use crate::{
    connection::{
        Connection,
        Direction, //
    },
    dma::endpoint::PeerEndpoint,
    kernel_ext::{
        capability::current_effective_user,
        errno::eopnotsupp, //
    },
    link::segment::Side,
    uapi::{
        self,
        *, //
    },
    user::open_file::{
        Kind,
        Object,
        OpenFile, //
    },
    user_abi::{
        ledger::{
            Resource,
            Share, //
        },
        offer::Offer, //
    }, //
};

use super::{
    no_flags,
    zero,
    User, //
};

pub(super) fn peer_query(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_peer_query = user.read()?;
    no_flags(arg.flags)?;
    let shared = &open_file.shared;
    shared.gate.check()?;
    let peer = shared.link.peer(arg.node)?;
    let link = peer.describe();
    let doorbell = shared.conn_ctx().wakeup_by_peer(peer.node());
    let stats = shared.worker.stats();
    arg.out_link = if link.up { uapi::ULDMA_LINK_UP } else { 0 };
    arg.out_generation = link.generation;
    arg.out_version = link.terms.version;
    arg.out_features = u32::try_from(link.terms.features)?;
    arg.out_slots = link.terms.slots;
    arg.out_sent = link.counters.sent;
    arg.out_received = link.counters.received;
    arg.out_doorbells = link.counters.doorbells;
    arg.out_violations = link.counters.violations;
    arg.out_interrupts = stats.doorbells;
    arg.out_polls = stats.found;
    arg.out_doorbell_ns = u64::try_from(doorbell.as_nanos())?;
    user.write(&arg)
}

pub(super) fn listen(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let arg: uldma_conn_listen = user.read()?;
    if arg.flags & !uapi::ULDMA_LISTEN_ONCE != 0 {
        return Err(eopnotsupp());
    }
    let watched = open_file.watch()?;
    let once = arg.flags & uapi::ULDMA_LISTEN_ONCE != 0;
    let backlog = match (once, arg.backlog) {
        (true, 0) => 1,
        (false, backlog @ 1..=uapi::ULDMA_CONN_MAX_BACKLOG) => backlog,
        _ => return Err(EINVAL),
    };
    if arg.port == 0 {
        return Err(EINVAL);
    }
    let backlog = usize::try_from(backlog)?;
    let offer = Offer::from_user(&arg.offer, current_effective_user())?;
    let shared = &open_file.shared;
    shared.gate.check()?;
    open_file.attachment.listen(&watched, || {
        let (space, events) = (&open_file.space, &open_file.events);
        let connections = &shared.connections;
        let side = (offer, arg.offer.ring_length);
        connections.listen(arg.port, backlog, once, side, space, events)
    })
}

pub(super) fn accept(open_file: ArcBorrow<'_, OpenFile>, user: &User, nonblock: bool) -> Result {
    let mut arg: uldma_conn_accept = user.read()?;
    no_flags(arg.flags)?;
    let watched = open_file.watch()?;
    // An accepted connection cannot be returned, so check first that the result can be copied.
    user.write(&arg)?;
    let shared = &open_file.shared;
    shared.gate.check()?;
    let listener = shared.connections.listener(arg.port).ok_or(ENOENT)?;
    if !listener.is_of(&open_file.space) {
        return Err(EPERM);
    }
    open_file.attachment.connect(&watched, || {
        let connection = listener.accept(nonblock)?;
        arg.out_node = connection.node();
        Ok(connection)
    })?;
    user.write(&arg)
}

pub(super) fn connect(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let arg: uldma_conn_connect = user.read()?;
    if arg.flags & !uapi::ULDMA_CONNECT_PULL != 0 {
        return Err(eopnotsupp());
    }
    let watched = open_file.watch()?;
    if arg.port == 0 {
        return Err(EINVAL);
    }
    let pull = arg.flags & uapi::ULDMA_CONNECT_PULL != 0;
    let offer = Offer::from_user(&arg.offer, current_effective_user())?;
    let shared = &open_file.shared;
    shared.gate.check()?;
    let peer = shared.link.named(arg.peer)?;
    user.wait(&arg, |deadline| {
        open_file.attachment.connect(&watched, || {
            let connections = &shared.connections;
            connections.connect(
                &shared.conn_ctx(),
                open_file.space.payer(),
                peer,
                (arg.port, offer, arg.offer.ring_length),
                pull,
                deadline.left(),
            )
        })
    })
}

pub(super) fn disconnect(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    zero(arg.handle)?;
    open_file.check_space()?;
    let keep = open_file.keep_pins.load(Relaxed);
    open_file
        .attachment
        .disconnect(&open_file.shared.conn_ctx(), keep)
}

pub(super) fn post(
    open_file: &OpenFile,
    user: &User,
    direction: Direction,
    nonblock: bool,
) -> Result {
    let arg: uldma_conn_buffer = user.read()?;
    no_flags(arg.flags)?;
    open_file.check_space()?;
    let connection = open_file.attachment.connection(nonblock)?;
    let keep = open_file.keep_pins.load(Relaxed);
    let range = (arg.addr, arg.length);
    let ctx = &open_file.shared.conn_ctx();
    connection.post(ctx, &open_file.space, direction, range, keep)
}

pub(super) fn reap(
    open_file: &OpenFile,
    user: &User,
    direction: Direction,
    nonblock: bool,
) -> Result {
    let mut arg: uldma_conn_range = user.read()?;
    if arg.flags & !uapi::ULDMA_RANGE_SPIN != 0 {
        return Err(eopnotsupp());
    }
    open_file.check_space()?;
    if arg.length == 0 {
        return Err(EINVAL);
    }
    // Reaped memory cannot be returned, so check first that the result can be copied.
    user.write(&arg)?;
    let connection = open_file.attachment.connection(nonblock)?;
    let keep = open_file.keep_pins.load(Relaxed);
    let spin = arg.flags & uapi::ULDMA_RANGE_SPIN != 0;
    let (addr, length) = connection.reap(
        &open_file.shared.conn_ctx(),
        direction,
        arg.length,
        (nonblock, spin),
        keep,
    )?;
    arg.out_addr = addr;
    arg.out_length = length;
    user.write(&arg)
}

pub(super) fn query(open_file: &OpenFile, user: &User) -> Result {
    let asked: uldma_conn_query = user.read()?;
    no_flags(asked.flags)?;
    let mut arg = uldma_conn_query::new_zeroed();
    arg.size = asked.size;
    open_file.attachment.describe(&mut arg)?;
    user.write(&arg)
}

pub(super) fn ring(open_file: ArcBorrow<'_, OpenFile>, user: &User, nonblock: bool) -> Result {
    let mut arg: uldma_conn_ring = user.read()?;
    if arg.flags & !uapi::ULDMA_RING_PEER != 0 {
        return Err(eopnotsupp());
    }
    zero(arg.reserved)?;
    open_file.check_space()?;
    open_file.shared.gate.check()?;
    let side = match arg.flags & uapi::ULDMA_RING_PEER {
        0 => Side::Own,
        _ => Side::Peer,
    };
    let connection = open_file.attachment.connection(nonblock)?;
    open_file.make(Kind::Other, user, &mut arg, |handle, arg| {
        let ctx = &open_file.shared.conn_ctx();
        let share = Share::new(open_file.space.payer(), Resource::Objects, 1)?;
        let owner = (open_file.number, share);
        let segment = connection.map_ring(ctx, owner, &open_file.events, handle, side)?;
        arg.out_handle = handle;
        arg.out_offset = segment.range().offset();
        arg.out_length = segment.range().length();
        Ok(Object::Segment(segment))
    })
}

pub(super) fn stream(open_file: &OpenFile, user: &User) -> Result {
    const KNOWN: u32 =
        uapi::ULDMA_STREAM_MATCHED | uapi::ULDMA_STREAM_REFUSED | uapi::ULDMA_STREAM_ENDED;
    let mut arg: uldma_conn_stream = user.read()?;
    if arg.flags & !KNOWN != 0 {
        return Err(eopnotsupp());
    }
    open_file.check_space()?;
    let shared = &open_file.shared;
    let (name, receiver) = {
        let mut objects = open_file.objects.lock();
        let endpoint = objects.endpoint_mut(arg.handle)?;
        if !endpoint.is_stream() {
            return Err(EINVAL);
        }
        (endpoint.name(), endpoint.receiver())
    };
    let connection = open_file.attachment.connection(true)?;
    connection.name_endpoint(&shared.conn_ctx(), name)?;
    receiver.submit(shared)?;
    let events = &open_file.events;
    let changed = || {
        let same = connection.stream_flags() == arg.flags;
        let found = arg.received != 0 && receiver.request(arg.received).is_some();
        (!same || found).then_some(Ok(()))
    };
    let is_torn = || {
        let found = arg.received != 0 && receiver.has(arg.received);
        receiver.is_torn() && !found && connection.peer_endpoint().is_some()
    };
    user.wait(&arg, |deadline| {
        match events.wait_for_either(arg.ticket, deadline.left(), &**shared, changed) {
            Ok(()) if is_torn() => wait_for_end(open_file, &connection, deadline.left()),
            Err(err) if err == ETIMEDOUT && is_torn() => wait_for_end(open_file, &connection, 0),
            waited => waited,
        }
    })?;
    if let Some((index, generation)) = connection.peer_endpoint() {
        let mut objects = open_file.objects.lock();
        let endpoint = objects.endpoint_mut(arg.handle)?;
        if !endpoint.is_connected() {
            let node = connection.node();
            let peer = PeerEndpoint {
                node,
                index,
                generation,
            };
            endpoint.connect(shared, peer)?;
        }
    }
    arg.out_flags = connection.stream_flags();
    user.write(&arg)
}

/// Waits until the connection of a stream that is torn has ended, for at most `timeout_ns`. Resets it
/// when the peer's time to end it is over.
fn wait_for_end(open_file: &OpenFile, connection: &Arc<Connection>, timeout_ns: u64) -> Result {
    let ctx = open_file.shared.conn_ctx();
    let ended = || (connection.stream_flags() & uapi::ULDMA_STREAM_ENDED != 0).then_some(Ok(()));
    let left = connection.tear(&ctx);
    match open_file.events.wait_for(left.min(timeout_ns), ended) {
        Err(err) if err == ETIMEDOUT && connection.tear(&ctx) == 0 => Ok(()),
        waited => waited,
    }
}
