// SPDX-License-Identifier: GPL-2.0

//! The ioctls: decode, check, call, encode.

use kernel::{
    ioctl::_IO,
    prelude::*,
    sync::ArcBorrow, //
};

use crate::{
    connection::Direction,
    dma::{
        engine::NewTransfer,
        method, //
    },
    hw::{
        layout::SizeWord,
        Backend, //
    },
    kernel_ext::{
        errno::{
            eopnotsupp,
            eproto, //
        },
        eventfd::EventFd,
        wait::Deadline,
        wakeup, //
    },
    link::{
        message::{
            Answer,
            Query, //
        },
        progress_worker::ProgressOps,
        segment::Segment, //
    },
    mem::lmm::range::pages_to_bytes,
    uapi::{
        self,
        *, //
    },
    user::{
        open_file::{
            Kind,
            Object,
            OpenFile, //
        },
        watched::Watched, //
    },
    user_abi::{
        access::Access,
        ledger::{
            Resource,
            Share, //
        },
        status_page::Outcome, //
    }, //
};

mod argument;
mod connection;
mod context;
mod endpoint;
mod exchange;
mod message;
mod region;

use argument::{
    Argument,
    User, //
};

fn no_flags(flags: u32) -> Result {
    if flags != 0 {
        return Err(eopnotsupp());
    }
    Ok(())
}

fn zero(reserved: u32) -> Result {
    if reserved != 0 {
        return Err(EINVAL);
    }
    Ok(())
}

/// The mode in which the file was opened.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    /// Calls do not wait.
    pub(crate) nonblock: bool,
    /// Calls may change something.
    pub(crate) writable: bool,
}

/// Returns true if a call changes the state of open file, device or peer, rather than query it or
/// wait.
fn changes(number: u32) -> bool {
    matches!(
        number,
        ULDMA_CMD_REGION_REGISTER
            | ULDMA_CMD_REGION_UNREGISTER
            | ULDMA_CMD_REGION_EXPORT
            | ULDMA_CMD_REGION_UNEXPORT
            | ULDMA_CMD_REGION_IMPORT
            | ULDMA_CMD_REGION_CLEANUP
            | ULDMA_CMD_REGION_WINDOW
            | ULDMA_CMD_CONTEXT_CREATE
            | ULDMA_CMD_CONTEXT_DESTROY
            | ULDMA_CMD_CONTEXT_MAP_OUT
            | ULDMA_CMD_DMA
            | ULDMA_CMD_SEGMENT_CREATE
            | ULDMA_CMD_SEGMENT_ATTACH
            | ULDMA_CMD_SEGMENT_DESTROY
            | ULDMA_CMD_DOORBELL
            | ULDMA_CMD_CONN_LISTEN
            | ULDMA_CMD_CONN_ACCEPT
            | ULDMA_CMD_CONN_CONNECT
            | ULDMA_CMD_CONN_DISCONNECT
            | ULDMA_CMD_CONN_PREPOST
            | ULDMA_CMD_CONN_SEND
            | ULDMA_CMD_CONN_RECV
            | ULDMA_CMD_CONN_RECYCLE
            | ULDMA_CMD_CONN_STREAM
            | ULDMA_CMD_CONN_RING
            | ULDMA_CMD_ENDPOINT_CREATE
            | ULDMA_CMD_ENDPOINT_CONNECT
            | ULDMA_CMD_ENDPOINT_DESTROY
            | ULDMA_CMD_MSG_SLOTS
            | ULDMA_CMD_MSG_SEND
            | ULDMA_CMD_MSG_RECV
            | ULDMA_CMD_EXCHANGE_CREATE
            | ULDMA_CMD_EXCHANGE_PROTECT
            | ULDMA_CMD_EXCHANGE_RELEASE
            | ULDMA_CMD_EXCHANGE_SWAP
    )
}

/// Runs the ioctl `cmd`.
///
/// # Errors
///
/// `ENOTTY` for an unknown ioctl, `EBADF` if it changes state and the file is open for reading
/// only; the errors of the call.
pub(crate) fn dispatch(
    this: ArcBorrow<'_, OpenFile>,
    cmd: u32,
    arg: usize,
    mode: Mode,
) -> Result<isize> {
    let open_file: &OpenFile = &this;
    let nonblock = mode.nonblock;
    let user = User::at(arg);
    let number = cmd & 0xff;
    if cmd != _IO(uapi::ULDMA_TYPE, number) {
        return Err(ENOTTY);
    }
    if changes(number) && !mode.writable {
        return Err(EBADF);
    }
    match number {
        ULDMA_CMD_NOP => Ok(()),
        ULDMA_CMD_QUERY => query(open_file, &user),
        ULDMA_CMD_REGION_REGISTER => region::register(this, &user),
        ULDMA_CMD_REGION_UNREGISTER => region::unregister(open_file, &user),
        ULDMA_CMD_REGION_EXPORT => region::export(open_file, &user),
        ULDMA_CMD_REGION_UNEXPORT => region::unexport(open_file, &user),
        ULDMA_CMD_REGION_IMPORT => region::import(this, &user),
        ULDMA_CMD_REGION_QUERY => region::query(open_file, &user),
        ULDMA_CMD_REGION_CHARGE => region::charge(open_file, &user),
        ULDMA_CMD_REGION_BLOCKS => region::blocks(open_file, &user),
        ULDMA_CMD_REGION_CLEANUP => region::cleanup(open_file, &user),
        ULDMA_CMD_REGION_WINDOW => region::window(this, &user),
        ULDMA_CMD_LMM => region::lmm(open_file, &user, mode.writable),
        ULDMA_CMD_CONTEXT_CREATE => context::create(this, &user),
        ULDMA_CMD_CONTEXT_DESTROY => context::destroy(open_file, &user),
        ULDMA_CMD_CONTEXT_STATS => context::stats(open_file, &user),
        ULDMA_CMD_CONTEXT_MAP_OUT => context::map_out(open_file, &user),
        ULDMA_CMD_EVENTFD => eventfd(open_file, &user),
        ULDMA_CMD_DMA => dma(open_file, &user),
        ULDMA_CMD_DMA_WAIT => dma_wait(open_file, &user),
        ULDMA_CMD_SEGMENT_CREATE => segment_create(this, &user),
        ULDMA_CMD_SEGMENT_ATTACH => segment_attach(this, &user),
        ULDMA_CMD_SEGMENT_DESTROY => segment_destroy(open_file, &user),
        ULDMA_CMD_DOORBELL => doorbell(open_file, &user),
        ULDMA_CMD_PEER_QUERY => connection::peer_query(open_file, &user),
        ULDMA_CMD_CONN_LISTEN => connection::listen(this, &user),
        ULDMA_CMD_CONN_ACCEPT => connection::accept(this, &user, nonblock),
        ULDMA_CMD_CONN_CONNECT => connection::connect(this, &user),
        ULDMA_CMD_CONN_DISCONNECT => connection::disconnect(open_file, &user),
        ULDMA_CMD_CONN_PREPOST => connection::post(open_file, &user, Direction::Receive, nonblock),
        ULDMA_CMD_CONN_SEND => connection::post(open_file, &user, Direction::Send, nonblock),
        ULDMA_CMD_CONN_RECV => connection::reap(open_file, &user, Direction::Receive, nonblock),
        ULDMA_CMD_CONN_RECYCLE => connection::reap(open_file, &user, Direction::Send, nonblock),
        ULDMA_CMD_CONN_QUERY => connection::query(open_file, &user),
        ULDMA_CMD_CONN_STREAM => connection::stream(open_file, &user),
        ULDMA_CMD_CONN_RING => connection::ring(this, &user, nonblock),
        ULDMA_CMD_ENDPOINT_CREATE => endpoint::create(this, &user),
        ULDMA_CMD_ENDPOINT_CONNECT => endpoint::connect(open_file, &user),
        ULDMA_CMD_ENDPOINT_DESTROY => endpoint::destroy(open_file, &user),
        ULDMA_CMD_ENDPOINT_WAIT => endpoint::wait(open_file, &user),
        ULDMA_CMD_MSG_SLOTS => message::slots(this, &user),
        ULDMA_CMD_MSG_SEND => message::send(open_file, &user),
        ULDMA_CMD_MSG_RECV => message::receive(open_file, &user),
        ULDMA_CMD_EXCHANGE_CREATE => exchange::create(this, &user),
        ULDMA_CMD_EXCHANGE_PROTECT => exchange::protect(open_file, &user),
        ULDMA_CMD_EXCHANGE_RELEASE => exchange::release(open_file, &user),
        ULDMA_CMD_EXCHANGE_SWAP => exchange::swap(open_file, &user),
        _ => Err(ENOTTY),
    }?;
    Ok(0)
}

impl OpenFile {
    /// Makes an object, copies the result to the user, and only then makes its handle valid. If
    /// copying fails, the object is ended.
    fn make<T: Argument>(
        self: ArcBorrow<'_, Self>,
        kind: Kind,
        user: &User,
        arg: &mut T,
        make: impl FnOnce(u32, &mut T) -> Result<Object>,
    ) -> Result {
        let _: Watched = self.watch()?;
        // The lock is not held while memory is faulted in, so that queries do not wait for that.
        let handle = self.objects.lock().reserve(kind)?;
        let result = match make(handle, arg) {
            Ok(object) => match user.write(arg) {
                // Returned from here, as each way of an object costs a copy of it.
                Ok(()) => return self.objects.lock().handles.insert(handle, object),
                Err(err) => {
                    // The user does not know it; memory that the device may still access is
                    // retained.
                    let _ = self.end(object);
                    Err(err)
                }
            },
            Err(err) => Err(err),
        };
        self.objects.lock().cancel(kind, handle);
        result
    }
}

fn query(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_query = user.read()?;
    no_flags(arg.flags)?;
    let shared = &open_file.shared;
    let geometry = shared.hw.geometry();
    shared.gate.check()?;
    let links = shared
        .link
        .peers()
        .map(|peer| (peer.node(), peer.describe()));
    let (mut up, mut generation) = (0u32, 0u32);
    for (node, link) in links {
        up |= u32::from(link.up) << node;
        generation = generation.wrapping_add(link.generation);
    }
    let usage = shared.tpt.usage();
    let regions = open_file.objects.lock().regions();
    arg.out_abi_version = uapi::ULDMA_ABI_VERSION;
    arg.out_node = geometry.node;
    arg.out_link = if up != 0 { uapi::ULDMA_LINK_UP } else { 0 };
    arg.out_link_generation = generation;
    arg.out_contexts = geometry.contexts - 1;
    arg.out_contexts_used = shared.contexts.used();
    arg.out_page_shift = u32::try_from(kernel::page::PAGE_SHIFT)?;
    arg.out_shadow_window_shift = geometry.shadow_shift;
    arg.out_max_transfer = SizeWord::BYTES.max();
    arg.out_max_regions = geometry.region_capacity - 1;
    arg.out_regions = usage.regions;
    arg.out_max_pages = geometry.page_capacity;
    arg.out_pages = usage.pages;
    arg.out_window_size = geometry.lanes.section();
    arg.out_window_used = u64::try_from(shared.window_alloc.used())?;
    arg.out_methods = method::allowed(geometry.methods);
    arg.out_file_regions = u32::try_from(regions)?;
    arg.out_mm_pinned = pages_to_bytes(open_file.space.locked_pages());
    arg.out_nodes = geometry.nodes;
    arg.out_peers = up;
    arg.out_backend = match geometry.backend {
        Backend::Adapter => uapi::ULDMA_BACKEND_ADAPTER,
        Backend::Ivshmem => uapi::ULDMA_BACKEND_IVSHMEM,
        Backend::Loopback => uapi::ULDMA_BACKEND_LOOPBACK,
    };
    arg.out_connections = u32::try_from(shared.connections.count())?;
    let payer = open_file.space.payer();
    let (used, limits) = (payer.used(), payer.limits());
    arg.out_user_regions = u32::try_from(used.of(Resource::Regions))?;
    arg.out_user_max_regions = u32::try_from(limits.of(Resource::Regions))?;
    arg.out_user_pages = u32::try_from(used.of(Resource::Pages))?;
    arg.out_user_max_pages = u32::try_from(limits.of(Resource::Pages))?;
    arg.out_user_contexts = u32::try_from(used.of(Resource::Contexts))?;
    arg.out_user_max_contexts = u32::try_from(limits.of(Resource::Contexts))?;
    arg.out_user_exclusive_contexts = u32::try_from(used.of(Resource::ExclusiveContexts))?;
    arg.out_user_max_exclusive_contexts = u32::try_from(limits.of(Resource::ExclusiveContexts))?;
    arg.out_user_connections = u32::try_from(used.of(Resource::Connections))?;
    arg.out_user_max_connections = u32::try_from(limits.of(Resource::Connections))?;
    arg.out_user_listeners = u32::try_from(used.of(Resource::Listeners))?;
    arg.out_user_max_listeners = u32::try_from(limits.of(Resource::Listeners))?;
    arg.out_user_window = u64::try_from(used.of(Resource::Window))?;
    arg.out_user_max_window = u64::try_from(limits.of(Resource::Window))?;
    arg.out_user_requests = u32::try_from(used.of(Resource::Requests))?;
    arg.out_user_max_requests = u32::try_from(limits.of(Resource::Requests))?;
    arg.out_user_endpoints = u32::try_from(used.of(Resource::Endpoints))?;
    arg.out_user_max_endpoints = u32::try_from(limits.of(Resource::Endpoints))?;
    arg.out_user_transfers = u32::try_from(used.of(Resource::Transfers))?;
    arg.out_user_max_transfers = u32::try_from(limits.of(Resource::Transfers))?;
    arg.out_user_objects = u32::try_from(used.of(Resource::Objects))?;
    arg.out_user_max_objects = u32::try_from(limits.of(Resource::Objects))?;
    if geometry.backend == Backend::Adapter {
        // The thread that handles the interrupt wakes the program.
        let cost = shared.completion_cost() + wakeup::cost_by_thread();
        arg.out_completion_ns = u64::try_from(cost.as_nanos())?;
    }
    user.write(&arg)
}

fn eventfd(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_eventfd = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    let eventfd = match arg.fd {
        -1 => None,
        fd if fd < 0 => return Err(EINVAL),
        fd => Some(EventFd::from_fd(fd).map_err(|_| EINVAL)?),
    };
    open_file.set_eventfd(eventfd);
    Ok(())
}

fn dma(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_dma = user.read()?;
    no_flags(arg.flags)?;
    open_file.check_space()?;
    if arg.length == 0 || arg.length > SizeWord::BYTES.max() {
        return Err(EINVAL);
    }
    let read = Access {
        read: true,
        write: false,
    };
    let write = Access {
        read: false,
        write: true,
    };
    // A transfer cannot be undone, so check first that its ticket can be copied.
    user.write(&arg)?;
    let new = NewTransfer::allocate(&open_file.events)?;
    // Held until the device has accepted the regions, so that they cannot be replaced.
    let mut objects = open_file.objects.lock();
    let (src, dst) = (objects.region(arg.src)?, objects.region(arg.dst)?);
    let src = src.place(arg.src_offset, arg.length, read)?;
    let dst = dst.place(arg.dst_offset, arg.length, write)?;
    let shared = &open_file.shared;
    // Room that the user's own transfers have left counts.
    shared.engine.poll();
    let share = Share::new(open_file.space.payer(), Resource::Transfers, 1)?;
    let transfer = {
        let guard = shared.gate.try_enter()?;
        let (engine, hw) = (&shared.engine, guard.hw());
        engine.start(hw, (src, dst, arg.length), share, new)?
    };
    arg.out_ticket = transfer.ticket;
    objects.remember(transfer);
    drop(objects);
    user.write(&arg)
}

fn dma_wait(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_dma_wait = user.read()?;
    if arg.flags & !uapi::ULDMA_WAIT_CONTEXT != 0 {
        return Err(eopnotsupp());
    }
    zero(arg.reserved)?;
    let outcome = user.wait(&arg, |deadline| {
        if arg.flags & uapi::ULDMA_WAIT_CONTEXT != 0 {
            return wait_for_context(open_file, arg.ticket, deadline);
        }
        let transfer = open_file.objects.lock().transfer(arg.ticket)?;
        open_file.shared.engine.wait(&transfer, deadline.left())
    })?;
    arg.out_bytes = outcome.bytes;
    arg.out_status = outcome.status;
    user.write(&arg)
}

/// Waits for a transfer that was started from user level.
fn wait_for_context(open_file: &OpenFile, ticket: u64, deadline: Deadline) -> Result<Outcome> {
    let vctx = {
        let objects = open_file.objects.lock();
        objects.context.as_ref().ok_or(ENXIO)?.vctx.clone()
    };
    let shared = &open_file.shared;
    // A program issues the tickets of its queue itself, before the device has seen them.
    let ahead = if vctx.method.needs_queue() {
        uapi::ULDMA_STATUS_RECORDS
    } else {
        0
    };
    let completed = open_file.events.context_completed().unwrap_or(0);
    // The device has seen what has ended: it need not be asked about the usual tickets of a queue.
    if ticket == 0 || ticket > completed.saturating_add(ahead.into()) {
        let guard = shared.gate.try_enter()?;
        let hw = guard.hw();
        let last = shared.contexts.last_ticket(hw, &vctx)?;
        if ticket == 0 || ticket > last.saturating_add(ahead.into()) {
            return Err(ENOENT);
        }
    }
    let page = open_file
        .events
        .wait_for_context(ticket, deadline.left(), &**shared)?;
    page.record(ticket).ok_or(ENOENT)
}

fn segment_create(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_segment_create = user.read()?;
    no_flags(arg.flags)?;
    open_file.check_space()?;
    let peer = open_file.shared.link.named(arg.peer)?.node();
    open_file.make(Kind::Other, user, &mut arg, |handle, arg| {
        let segment = Segment::create(
            &open_file.shared.segment_ctx(),
            (open_file.number, open_file.space.payer()),
            &open_file.events,
            handle,
            (arg.name, peer),
            arg.length,
        )?;
        arg.out_handle = handle;
        arg.out_offset = segment.range().offset();
        arg.out_length = segment.range().length();
        Ok(Object::Segment(segment))
    })
}

fn segment_attach(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_segment_attach = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    if arg.name == 0 {
        return Err(EINVAL);
    }
    zero(arg.reserved2)?;
    let peer = open_file.shared.link.named(arg.peer)?;
    let epoch = open_file.shared.segments.epoch(peer.node());
    let query = Query::Segment(arg.name);
    // The peer counts its answer, so it is asked when nothing but memory can be missing.
    open_file.make(Kind::Other, user, &mut arg, |handle, arg| {
        let shared = &open_file.shared;
        let share = Share::new(open_file.space.payer(), Resource::Objects, 1)?;
        let answer = user.wait(arg, |deadline| {
            shared.ask(open_file.asker(), peer, query, deadline)
        })?;
        let Answer::Segment(created) = answer else {
            return Err(eproto());
        };
        let segment = Segment::attach(
            &shared.segment_ctx(),
            (open_file.number, share),
            &open_file.events,
            handle,
            peer.node(),
            &created,
            epoch,
        )?;
        arg.out_handle = handle;
        arg.out_offset = segment.range().offset();
        arg.out_length = segment.range().length();
        Ok(Object::Segment(segment))
    })
}

fn segment_destroy(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    open_file.check_space()?;
    let mut objects = open_file.objects.lock();
    objects.segment(arg.handle)?;
    let object = objects.handles.remove(arg.handle)?;
    drop(objects);
    open_file.end(object)
}

fn doorbell(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    open_file.check_space()?;
    let segment = open_file.objects.lock().segment(arg.handle)?.clone();
    segment.ring(&open_file.shared.segment_ctx())
}
