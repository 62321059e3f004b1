// SPDX-License-Identifier: GPL-2.0

//! The connections and listeners of one device, and the list of those with work to do.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        Mutex, //
    },
    task::Kuid, //
};

use super::{
    outbox::Outbox,
    ranges::OwnRanges,
    state::{
        Phase,
        State, //
    },
    table::{
        Table,
        MAX_CONNECTIONS, //
    },
    ConnCtx, //
    ConnHandle,
    Connection,
    Listener,
    Transport,
};
use crate::{
    hw::gate::GateGuard,
    kernel_ext::{
        errno::{
            enotconn,
            eopnotsupp, //
        },
        random, //
    },
    link::{
        message::{
            Connection as ConnMsg,
            Message, //
        },
        peer::Peer,
        quarantine::{
            Hold,
            Quarantine, //
        },
        window_alloc::Payers, //
    },
    mem::lmm::space::Space,
    params,
    user_abi::{
        events::Events,
        ledger::{
            Payer,
            Resource,
            Share, //
        },
        offer::Offer, //
    }, //
};

/// The pending work.
struct WorkList {
    /// Connections with work to do, each once; there is room for all.
    queued: KVec<Arc<Connection>>,
    /// Answers about connections that do not exist.
    answers: Outbox<ConnMsg>,
}

/// The connections of one device.
#[pin_data]
pub(crate) struct Connections {
    #[pin]
    table: Mutex<Table>,
    #[pin]
    work_list: Mutex<WorkList>,
}

impl Connections {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        let work_list = WorkList {
            queued: KVec::new(),
            // A peer that follows the protocol has no more connections.
            answers: Outbox::new(MAX_CONNECTIONS),
        };
        pin_init!(Self {
            table <- new_mutex!(Table::new(), "uldma::Connections::table"),
            work_list <- new_mutex!(work_list, "uldma::Connections::work_list"),
        })
    }

    /// Returns how many connections there are.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().count()
    }

    /// Listens at `port`, for open files of `space` and sides that fit to `offer`, with a ring of `ring`
    /// bytes for each of them.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the port has a listener, `ENOSPC`, `ENOMEM`, `EDQUOT` beyond the limits of
    /// the user.
    pub(crate) fn listen(
        &self,
        port: u32,
        backlog: usize,
        once: bool,
        (offer, ring): (Offer, u64),
        space: &Arc<Space>,
        events: &Arc<Events>,
    ) -> Result<Arc<Listener>> {
        let side = (offer, ring);
        let listener = Listener::new(port, backlog, once, side, space.clone(), events.clone())?;
        let share = Share::new(space.payer(), Resource::Listeners, 1)?;
        self.table.lock().listen(listener.clone(), share)?;
        Ok(listener)
    }

    /// Returns connection `id` if it is one with `node`.
    pub(super) fn of_peer(&self, node: u32, id: u32) -> Option<Arc<Connection>> {
        let found = self.table.lock().connection(id).cloned();
        found.filter(|connection| connection.node == node)
    }

    /// The listener at `port`.
    pub(crate) fn listener(&self, port: u32) -> Option<Arc<Listener>> {
        self.table.lock().listener(port).cloned()
    }

    /// Ends a listener. Connections in its backlog are reset.
    pub(crate) fn unlisten(&self, ctx: &ConnCtx<'_>, listener: &Arc<Listener>) {
        self.close_port(listener);
        for handle in listener.close() {
            handle.state.lock().reset = true;
            handle.abandon(ctx, false);
        }
    }

    /// Frees the port of a listener.
    pub(crate) fn close_port(&self, listener: &Arc<Listener>) {
        self.table.lock().close_port(listener);
    }

    /// Connects to `port` of `peer`, and waits for the answer for at most `timeout_ns`; `payer` pays
    /// for the connection.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, `EPROTOTYPE`, `EPROTONOSUPPORT` or another error if the peer refuses,
    /// `ENOTCONN` while the link is down, `ETIMEDOUT`, `EINTR`, `ENOSPC`, `ENOMEM`, `ECONNRESET` if
    /// the peer violates the protocol, `EOPNOTSUPP` if the transport cannot pull, `EDQUOT` beyond the
    /// limits of the user.
    pub(crate) fn connect(
        &self,
        ctx: &ConnCtx<'_>,
        payer: &Arc<Payer>,
        peer: &Peer,
        (port, offer, ring): (u32, Offer, u64),
        pull: bool,
        timeout_ns: u64,
    ) -> Result<ConnHandle> {
        let transport = Transport::of(ctx.hw);
        if pull && transport == Transport::Window {
            return Err(eopnotsupp());
        }
        let user = kernel::current!().uid();
        let make = |id| {
            let session = peer.session()?;
            let mut state = State::new(Phase::Asking, 0, random::u64(), offer)?;
            let ranges = OwnRanges::alloc(ctx, peer.node(), (payer, None), transport, ring)?;
            ranges.give_to(&mut state);
            let whose = (peer.node(), session);
            Connection::new(id, whose, port, transport, pull, Some(user), state)
                .inspect_err(|_| ranges.free(ctx))
        };
        // The end of this session cuts all connections in the table, which is locked here.
        let check = |connection: &Connection| match peer.session()? {
            session if session == connection.session => Ok(()),
            _ => Err(enotconn()),
        };
        let made = self.insert(ctx, (payer, None), Some(user), make, check);
        let handle = ConnHandle::new(made?);
        self.enqueue(&handle);
        ctx.worker.kick();
        match handle.wait_answer(timeout_ns) {
            Ok(()) => Ok(handle),
            Err(err) => {
                handle.abandon(ctx, false);
                Err(err)
            }
        }
    }

    /// Creates a connection with the number that `make` is passed, and adds it if `check` allows
    /// that under the table's lock. The payers pay for it; `user` is set if this side connects.
    pub(super) fn insert(
        &self,
        ctx: &ConnCtx<'_>,
        (payer, peer): Payers<'_>,
        user: Option<Kuid>,
        make: impl FnOnce(u32) -> Result<Arc<Connection>>,
        check: impl FnOnce(&Connection) -> Result,
    ) -> Result<Arc<Connection>> {
        let share = |payer| Share::new(payer, Resource::Connections, 1);
        let shares = (share(payer)?, peer.map(share).transpose()?);
        let id = self.reserve(user)?;
        // Without the table's lock, since its memory is charged to the user.
        let made = make(id);
        let mut table = self.table.lock();
        let connection = made.inspect_err(|_| table.cancel(id))?;
        let added = check(&connection).and_then(|()| table.insert(connection.clone(), shares));
        if let Err(err) = added {
            table.cancel(id);
            drop(table);
            // The peer does not know them.
            connection.take_ranges(ctx).free(ctx);
            return Err(err);
        }
        Ok(connection)
    }

    /// Reserves the number of a connection, and room for it in the work list.
    fn reserve(&self, user: Option<Kuid>) -> Result<u32> {
        let mut table = self.table.lock();
        let id = table.reserve(user)?;
        // Connections that are over may still be in the list.
        let count = table.count();
        let room = self.work_list.lock().queued.reserve(count, GFP_KERNEL);
        room.inspect_err(|_| table.cancel(id))?;
        Ok(id)
    }

    /// Adds a connection to the work list.
    pub(crate) fn enqueue(&self, connection: &Arc<Connection>) {
        if !connection.queued.xchg(true, Relaxed) {
            let mut work_list = self.work_list.lock();
            let pushed = work_list.queued.push_within_capacity(connection.clone());
            // There is room for all.
            connection.queued.store(pushed.is_ok(), Relaxed);
        }
    }

    /// Removes a connection that is over. The owner and the worker may call this at the same time;
    /// the one that takes the connection out of the table frees its ranges.
    pub(crate) fn forget(&self, ctx: &ConnCtx<'_>, connection: &Arc<Connection>) {
        if !self.table.lock().remove(connection.id) {
            return;
        }
        let ranges = connection.take_ranges(ctx);
        let (age, may_be_written) = {
            let state = connection.state.lock();
            let heard = state.phase != Phase::Asking;
            (state.age, state.closing.cut && heard)
        };
        // A new session has its number before `WindowAllocator::peer_began()`, so a range that is
        // quarantined under the number of the old session is still found there. A peer that has begun a
        // new session does not write the range.
        ranges.end(ctx, || {
            let same = ctx.link.session(connection.node) == Some(connection.session);
            (may_be_written && same).then(|| Hold::new(connection.node, 1, age))
        });
    }

    /// Removes a connection without an owner if it is over.
    pub(super) fn forget_if_over(&self, ctx: &ConnCtx<'_>, connection: &Arc<Connection>) {
        let over = connection.state.lock().is_forgettable();
        if over {
            self.forget(ctx, connection);
        }
    }

    /// Does the periodic work for connections without an owner. Returns true if any has memory to
    /// be released.
    pub(crate) fn tick(&self) -> bool {
        let limit = params::link_timeout();
        let mut has_memory = false;
        let table = self.table.lock();
        for connection in table.connections() {
            let may_be_over = {
                let mut state = connection.state.lock();
                has_memory |= state.orphan && state.has_memory();
                state.tick(limit);
                state.orphan && !state.is_held()
            };
            if may_be_over {
                self.enqueue(connection);
            }
        }
        has_memory
    }

    /// Adds the connections whose end peers have not confirmed in time to `held`.
    pub(crate) fn add_to(&self, held: &mut Quarantine) {
        for connection in self.table.lock().connections() {
            let state = connection.state.lock();
            if state.is_held() {
                held.add(connection.node, state.written_bytes(), state.age);
            }
        }
    }

    /// Gives each connection with work a turn. Returns true if any made progress.
    pub(crate) fn work(&self, ctx: &ConnCtx<'_>, guard: &GateGuard<'_>) -> bool {
        let mut progress = self.answer(ctx, guard);
        let count = self.work_list.lock().queued.len();
        for _ in 0..count {
            let Ok(connection) = self.work_list.lock().queued.remove(0) else {
                break;
            };
            connection.queued.store(false, Relaxed);
            let turn = connection.work(ctx, guard);
            progress |= turn.progress;
            if turn.more {
                self.enqueue(&connection);
            }
            self.forget_if_over(ctx, &connection);
        }
        progress
    }

    /// Sends the answers that had to wait. Returns true if there were any.
    fn answer(&self, ctx: &ConnCtx<'_>, guard: &GateGuard<'_>) -> bool {
        self.work_list.lock().answers.flush(|node, msg| {
            let message = Message::Connection(*msg);
            let hw = guard.hw();
            ctx.link.peer(node)?.send(hw, &message)
        })
    }

    /// Queues an answer about a connection that does not exist. A peer for which more answers wait
    /// than it can have connections violates the protocol.
    pub(super) fn reply(&self, ctx: &ConnCtx<'_>, node: u32, msg: ConnMsg) {
        let added = self.work_list.lock().answers.add(node, msg);
        if let (Err(_), Ok(peer)) = (added, ctx.link.peer(node)) {
            peer.mark_broken();
        }
    }

    /// Cuts all connections with `node`, since the link is down.
    pub(crate) fn cut(&self, node: u32) {
        let table = self.table.lock();
        for connection in table.connections() {
            if connection.node == node {
                connection.cut();
                self.enqueue(connection);
            }
        }
        drop(table);
        self.work_list.lock().answers.clear(node);
    }

    /// Invalidates and unpins the memory of connections whose link is down or that have no owner.
    pub(crate) fn release_ended(&self, ctx: &ConnCtx<'_>) {
        let mut after = 0;
        // Finds the next connection anew each time, since releasing may wait for a process.
        loop {
            let next = {
                let table = self.table.lock();
                let mut cut = table.connections().filter(|connection| {
                    connection.id > after && connection.state.lock().is_to_be_released()
                });
                // The table is in no order, so take the smallest number beyond the last.
                let first = cut.next().cloned();
                cut.fold(first, |least, other| match least {
                    Some(least) if least.id < other.id => Some(least),
                    _ => Some(other.clone()),
                })
            };
            let Some(connection) = next else {
                return;
            };
            after = connection.id;
            connection.release_all(ctx, false);
            connection.wake(&mut connection.state.lock());
        }
    }
}
