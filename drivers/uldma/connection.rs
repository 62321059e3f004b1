// SPDX-License-Identifier: GPL-2.0

//! Connections: byte streams between the memory of programs on two nodes.
//!
//! `Documentation/uldma/link.rst` defines the protocol. A call of a program only changes the state
//! of a connection; [`Connection::work`] makes progress.
//!
//! Locks are taken in this order: 1. a listener's `state` 2. the table 3. the work list 4. a
//! connection's `state` 5. the locks of the link, of the queue and of `Events`. Memory is pinned
//! and unpinned under none of them.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
    },
    task::Kuid,
    time::{
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    kernel_ext::{
        errno::{
            econnreset,
            enotconn, //
        },
        wakeup, //
    },
    mem::lmm::space::Space,
    params,
    uapi,
    user_abi::{
        access::Access,
        events::Events, //
    }, //
};

mod buffer;
mod conn_handle;
mod connections;
mod copy;
mod ctx;
mod invalidation;
mod listener;
mod matched;
mod matching;
mod message;
mod outbox;
mod progress;
mod queues;
mod ranges;
mod ring;
mod sleeper;
mod state;
mod stream;
mod table;
mod transport;

pub(crate) use conn_handle::ConnHandle;
pub(crate) use connections::Connections;
pub(crate) use ctx::ConnCtx;
pub(crate) use listener::Listener;
pub(crate) use queues::Queues;
pub(crate) use table::{
    MAX_CONNECTIONS,
    MAX_LISTENERS, //
};
pub(crate) use transport::Transport;

use buffer::Buffer;
use state::{
    Phase,
    State,
    Step, //
};

/// Flag of *connect*: receivers move the data.
const PULL: u32 = 1 << 0;
/// Flag of *connect*: data goes through the window.
const WINDOW: u32 = 1 << 1;

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Data goes from this node to the peer.
    Send,
    /// Data comes from the peer to this node.
    Receive,
}

/// The state of a connection for `poll()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Nothing more will be received.
    pub(crate) ended: bool,
    /// Nothing can be sent either.
    pub(crate) hung_up: bool,
    pub(crate) reset: bool,
}

/// This side of a connection.
#[pin_data]
pub(crate) struct Connection {
    /// The number of the connection on this side.
    id: u32,
    /// The peer's node.
    node: u32,
    /// The session with the peer, by how often the link came up.
    session: u32,
    port: u32,
    transport: Transport,
    pull: bool,
    /// The user that connected, if this side did.
    user: Option<Kuid>,
    /// The user abandoned the connection before the peer answered.
    given_up: Atomic<bool>,
    /// The connection is in the work list.
    queued: Atomic<bool>,
    /// What [`Connection::stream_flags`] returns.
    stream_flags: Atomic<u32>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    changed: CondVar,
}

impl Connection {
    fn new(
        id: u32,
        (node, session): (u32, u32),
        port: u32,
        transport: Transport,
        pull: bool,
        user: Option<Kuid>,
        state: State,
    ) -> Result<Arc<Self>> {
        let connection = pin_init!(Self {
            id,
            node,
            session,
            port,
            transport,
            pull,
            user,
            given_up: Atomic::new(false),
            queued: Atomic::new(false),
            stream_flags: Atomic::new(0),
            state <- new_mutex!(state, "uldma::Connection::state"),
            changed <- new_condvar!("uldma::Connection::changed"),
        });
        Arc::pin_init(connection, GFP_KERNEL_ACCOUNT)
    }

    /// The peer's node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Returns true if this side moves the data that goes `direction`.
    fn moves(&self, direction: Direction) -> bool {
        (direction == Direction::Send) != self.pull
    }

    /// Wakes all waiters.
    fn wake(&self, state: &mut State) {
        state.sending.sleeper.wake();
        state.receiving.sleeper.wake();
        self.note_stream_flags(state);
        self.changed.notify_all();
        if let Some(watcher) = &state.watcher {
            watcher.wake();
        }
    }

    /// Wakes all waiters if more memory can be reaped or the end has begun.
    fn wake_if_ready(&self, state: &mut State) {
        let sent = state.sending.stream.has_news();
        let received = state.receiving.stream.has_news();
        if sent || received || state.reset || state.closing.has_begun() {
            self.wake(state);
        }
    }

    /// Wakes `events` on changes from now on.
    pub(crate) fn watch(&self, events: &Arc<Events>) {
        self.state.lock().watcher = Some(events.clone());
    }

    /// Waits until the peer has answered, for at most `timeout_ns`.
    ///
    /// # Errors
    ///
    /// The error with which the peer refused; `ETIMEDOUT`; `EINTR`; `ENOTCONN` if the link goes
    /// down; `ECONNRESET` if the peer violates the protocol.
    fn wait_answer(&self, timeout_ns: u64) -> Result {
        crate::kernel_ext::wait::until(&self.changed, &self.state, timeout_ns, |state| match state
            .phase
        {
            Phase::Refused(err) => Some(Err(err)),
            _ if state.closing.cut => Some(Err(enotconn())),
            Phase::Asking | Phase::Asked if state.reset => Some(Err(econnreset())),
            Phase::Asking | Phase::Asked => None,
            Phase::Answering | Phase::Connected => Some(Ok(())),
        })?
    }

    /// Posts memory of the current process, which runs in `space`, to send or to receive into.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` before the connection is established, `EPIPE` and `ECONNRESET` after it ended,
    /// `EBUSY` if the data goes from endpoint to endpoint, `ENOSPC` if too many buffers are posted,
    /// and the errors of [`Buffer::new`].
    pub(crate) fn post(
        self: &Arc<Self>,
        ctx: &ConnCtx<'_>,
        space: &Arc<Space>,
        direction: Direction,
        (addr, length): (u64, u64),
        keep: bool,
    ) -> Result {
        let check = |state: &mut State| {
            state.check_open()?;
            state.matching.check_calls()?;
            if state.half(direction).stream.has_room() {
                Ok(())
            } else {
                Err(ENOSPC)
            }
        };
        check(&mut self.state.lock())?;
        let access = Access {
            read: direction == Direction::Send,
            write: direction == Direction::Receive,
        };
        let export = !self.moves(direction);
        let range = (addr, length);
        let buffer = Buffer::new(ctx, space, self.transport, range, access, export)?;
        let pinned = buffer.was_pinned();
        let left = {
            let mut state = self.state.lock();
            state.counters.locks += u64::from(pinned);
            match check(&mut state) {
                Ok(()) => {
                    let stream = &mut state.half(direction).stream;
                    let posted = stream.post(buffer, range, self.transport == Transport::Engine);
                    if posted.is_ok() {
                        state.matching.use_calls();
                    }
                    posted.map_err(|buffer| (buffer, ENOSPC))
                }
                Err(err) => Err((buffer, err)),
            }
        };
        match left {
            Ok(()) => {
                ctx.connections.enqueue(self);
                ctx.worker.kick();
                Ok(())
            }
            Err((buffer, err)) => {
                buffer.release(ctx, keep);
                Err(err)
            }
        }
    }

    /// Reaps at most `limit` bytes of completed memory. Returns address and length, zero at the end
    /// of the stream. Waits unless `nonblock`; with `spin` it polls briefly even then.
    ///
    /// # Errors
    ///
    /// `EAGAIN` with `nonblock`, `EINTR`, `ECONNRESET` if data was lost, `ENODEV` if the device is
    /// unbound.
    pub(crate) fn reap(
        &self,
        ctx: &ConnCtx<'_>,
        direction: Direction,
        limit: u64,
        (nonblock, spin): (bool, bool),
        keep: bool,
    ) -> Result<(u64, u64)> {
        if !nonblock || spin {
            self.spin(ctx, direction);
        } else if self.step(direction).is_some() {
            ctx.work_if_polling();
        }
        let mut state = self.state.lock();
        let range = loop {
            state.half(direction).sleeper.runs();
            if let Some(range) = state.half(direction).stream.reap(limit) {
                break Ok(range);
            }
            if state.is_over(direction) {
                break match state.reset {
                    true if ctx.gate.is_open() => Err(econnreset()),
                    true => Err(ENODEV),
                    false => Ok((0, 0)),
                };
            }
            if nonblock {
                if spin {
                    state.half(direction).sleeper.polled_in_vain();
                }
                return Err(EAGAIN);
            }
            state.half(direction).sleeper.sleeps();
            if self.changed.wait_interruptible(&mut state) {
                return Err(ERESTARTNOHAND);
            }
            state.half(direction).awoke(true);
        };
        drop(state);
        while let Some(buffer) = self.pop(|state| state.half(direction).stream.pop_finished()) {
            buffer.release(ctx, keep);
        }
        range
    }

    /// Takes a buffer out, to be released without the lock.
    fn pop(&self, pop: impl FnOnce(&mut State) -> Option<Buffer>) -> Option<Buffer> {
        pop(&mut self.state.lock())
    }

    /// Makes progress until memory can be reaped, for as long as that is cheaper than a sleep.
    ///
    /// Data may need a message of the peer, then a command of the device, then another one. Each of
    /// these is a wait of its own, which ends with the next step.
    fn spin(&self, ctx: &ConnCtx<'_>, direction: Direction) {
        while let Some(step) = self.step(direction) {
            let (cost, rang) = match step {
                Step::Message => (ctx.wakeup_by_peer(self.node), ctx.has_rung(self.node)),
                // The worker, which the interrupt wakes, wakes the thread.
                Step::Copy | Step::Invalidation => {
                    (ctx.completion_cost() + wakeup::cost_by_thread(), false)
                }
            };
            let limit = {
                let mut state = self.state.lock();
                let polling = &mut state.half(direction).polling;
                polling.begin(rang);
                polling.limit(cost, params::link_spin())
            };
            let since: Instant<Monotonic> = Instant::now();
            let is_over = || self.step(direction) != Some(step);
            let found = ctx.worker.poll_until(limit, is_over);
            let polled = since.elapsed();
            let mut state = self.state.lock();
            state.half(direction).polling.note(cost, polled, found);
            if !found {
                return;
            }
        }
    }

    /// Returns what has to happen next before [`Connection::reap`] would not wait, if it would.
    fn step(&self, direction: Direction) -> Option<Step> {
        let mut state = self.state.lock();
        if state.is_over(direction) {
            return None;
        }
        state.half(direction).step()
    }

    /// Returns the current state for `poll()`, whose caller may sleep or not.
    pub(crate) fn readiness(&self, may_sleep: bool) -> Readiness {
        let mut state = self.state.lock();
        state.sending.awoke(may_sleep);
        state.receiving.awoke(may_sleep);
        let over = state.reset || state.closing.has_begun();
        Readiness {
            readable: state.is_over(Direction::Receive) || state.receiving.stream.has_ready(),
            writable: state.is_over(Direction::Send)
                || state.sending.stream.has_ready()
                || (state.is_connected() && state.sending.stream.is_empty()),
            ended: state.reset || state.closing.theirs || state.closing.cut,
            hung_up: over,
            reset: state.reset,
        }
    }

    /// Fills in the answer of a query.
    pub(crate) fn describe(&self, out: &mut uapi::uldma_conn_query) {
        let state = self.state.lock();
        out.out_state = state.number();
        out.out_flags = [
            (self.pull, uapi::ULDMA_CONN_PULL),
            (self.transport == Transport::Engine, uapi::ULDMA_CONN_ENGINE),
            (self.transport == Transport::Window, uapi::ULDMA_CONN_WINDOW),
            (state.reset, uapi::ULDMA_CONN_RESET),
            (state.matching.peer().is_some(), uapi::ULDMA_CONN_MATCHED),
        ]
        .into_iter()
        .filter_map(|(holds, flag)| holds.then_some(flag))
        .sum();
        out.out_node = self.node;
        out.out_port = self.port;
        out.out_name = state.name;
        out.out_sent = state.sending.stream.total();
        out.out_received = state.receiving.stream.total();
        out.out_posted = state.receiving.stream.left();
        out.out_unsent = state.sending.stream.left();
        out.out_copied = state.counters.copied;
        out.out_messages = state.counters.messages;
        out.out_pin_calls = state.counters.locks;
        state.peer_offer.describe(&mut out.out_offer);
        out.out_offer.ring_length = state.peer_ring_bytes() as u64;
        out.out_uid = state.peer_offer.user;
    }

    /// Ends the connection, and waits until nothing is in flight on either side. If the peer does
    /// not confirm that in time, the connection is reset.
    ///
    /// # Errors
    ///
    /// `EINTR`; the connection is ending, and the call can be repeated. `ETIMEDOUT` if the peer has
    /// not confirmed the end in time.
    pub(crate) fn disconnect(self: &Arc<Self>, ctx: &ConnCtx<'_>, keep: bool) -> Result {
        self.end(ctx, false);
        match self.wait_end() {
            Ok(()) => {
                self.release_all(ctx, keep);
                ctx.connections.forget(ctx, self);
                Ok(())
            }
            Err(err) if err == ETIMEDOUT => {
                self.state.lock().reset = true;
                self.abandon(ctx, keep);
                Err(err)
            }
            Err(err) => Err(err),
        }
    }

    /// Waits until both sides have ended the connection, or the time of the peer is over.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`.
    fn wait_end(&self) -> Result {
        loop {
            let left = self.state.lock().time_left(params::link_timeout());
            let over = |state: &mut State| state.closing.is_done().then_some(());
            match crate::kernel_ext::wait::until(&self.changed, &self.state, left, over) {
                // The time may have been restarted.
                Err(err) if err == ETIMEDOUT && left > 0 => (),
                result => return result,
            }
        }
    }

    /// Ends the connection after its file was closed or its listener ended. When this returns, its
    /// memory is unreachable; the peer is notified later.
    fn abandon(self: &Arc<Self>, ctx: &ConnCtx<'_>, keep: bool) {
        self.state.lock().watcher = None;
        self.end(ctx, true);
        self.release_all(ctx, keep);
        self.orphan();
        ctx.connections.forget_if_over(ctx, self);
    }

    /// Notes that the connection has no owner any more.
    fn orphan(&self) {
        let mut state = self.state.lock();
        state.watcher = None;
        state.end(true);
        state.orphan = true;
        let given_up = state.phase == Phase::Asked && !state.closing.cut;
        self.given_up.store(given_up, Relaxed);
    }

    /// Begins the end of the connection. With `lose` it does not wait for posted data to be sent.
    fn end(self: &Arc<Self>, ctx: &ConnCtx<'_>, lose: bool) {
        {
            let mut state = self.state.lock();
            state.end(lose);
            self.wake(&mut state);
        }
        ctx.connections.enqueue(self);
        ctx.worker.kick();
    }

    /// Invalidates and unpins all memory.
    pub(crate) fn release_all(&self, ctx: &ConnCtx<'_>, keep: bool) {
        let any = |state: &mut State| {
            let sent = state.sending.stream.pop();
            sent.or_else(|| state.receiving.stream.pop())
        };
        while let Some(buffer) = self.pop(any) {
            buffer.release(ctx, keep);
        }
    }
}

impl State {
    fn half(&mut self, direction: Direction) -> &mut state::HalfConn {
        match direction {
            Direction::Send => &mut self.sending,
            Direction::Receive => &mut self.receiving,
        }
    }
}
