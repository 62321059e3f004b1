// SPDX-License-Identifier: GPL-2.0

//! Connections: byte streams from the memory of a program to that of another on another node.
//!
//! `Documentation/uldma/link.rst` has the protocol, the user interface what programs see. What a
//! program asks for only changes what a connection keeps; [`Connection::work`] does it.
//!
//! Lock order: a listener's `state`, then the table, then what there is to do, then a
//! connection's `state`, then the locks of the link, of the queue and of `Events`. Memory is locked
//! and unlocked under none of them.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::PollCondVar,
        Arc,
        Mutex, //
    },
    task::Kuid,
    time::{
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    kernel_ext::errno::{
        econnreset,
        enotconn, //
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
mod invalidation;
mod listener;
mod message;
mod outbox;
mod progress;
mod queues;
mod site;
mod state;
mod stream;
mod table;
mod transport;

pub(crate) use conn_handle::ConnHandle;
pub(crate) use connections::Connections;
pub(crate) use listener::Listener;
pub(crate) use queues::Queues;
pub(crate) use site::Site;
pub(crate) use table::{
    MAX_CONNECTIONS,
    MAX_LISTENERS, //
};
pub(crate) use transport::Transport;

use buffer::Buffer;
use state::{
    Phase,
    State, //
};

/// Flag of *connect*: receivers move the data.
const PULL: u32 = 1 << 0;
/// Flag of *connect*: data goes through the window.
const WINDOW: u32 = 1 << 1;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From this node.
    Send,
    /// To this node.
    Receive,
}

/// What holds of a connection, for `poll()`.
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

/// One connection, as this side sees it.
#[pin_data]
pub(crate) struct Connection {
    /// This side's number of it.
    id: u32,
    /// The peer's node.
    node: u32,
    /// Which session with it, by how often the link came up.
    session: u32,
    port: u32,
    transport: Transport,
    pull: bool,
    /// The user that connected, if it was this side.
    user: Option<Kuid>,
    /// The user gave it up, and the peer has not answered.
    given_up: Atomic<bool>,
    /// It is among those that have something to do.
    queued: Atomic<bool>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    changed: PollCondVar,
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
            state <- new_mutex!(state, "uldma::Connection::state"),
            changed <- kernel::new_poll_condvar!("uldma::Connection::changed"),
        });
        Arc::pin_init(connection, GFP_KERNEL_ACCOUNT)
    }

    /// The peer's node.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Whether this side moves the data that goes `direction`.
    fn moves(&self, direction: Direction) -> bool {
        (direction == Direction::Send) != self.pull
    }

    /// Tells all who wait for something of the connection.
    fn wake(&self, state: &State) {
        self.changed.notify_all();
        if let Some(watcher) = &state.watcher {
            watcher.wake();
        }
    }

    /// The same, if there is memory to take or the end has begun.
    fn wake_if_ready(&self, state: &State) {
        let ready = state.sending.stream.has_ready() || state.receiving.stream.has_ready();
        if ready || state.reset || state.closing.has_begun() {
            self.wake(state);
        }
    }

    /// Has `events` told of changes from now on.
    pub(crate) fn watch(&self, events: &Arc<Events>) {
        self.state.lock().watcher = Some(events.clone());
    }

    /// Waits until the peer has answered, for at most `timeout_ns`.
    ///
    /// # Errors
    ///
    /// What the peer answered, `ETIMEDOUT`, `EINTR`, `ENOTCONN` when the link goes down,
    /// `ECONNRESET` when the peer breaks the rules.
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

    /// Takes memory of the current process, which runs in `space`, to be sent or to be filled.
    ///
    /// # Errors
    ///
    /// Those of [`Buffer::new`]; `ENOTCONN`, `EPIPE`, `ECONNRESET`, `ENOSPC` when there is too much
    /// already.
    pub(crate) fn post(
        self: &Arc<Self>,
        site: &Site<'_>,
        space: &Arc<Space>,
        direction: Direction,
        (addr, length): (u64, u64),
        keep: bool,
    ) -> Result {
        let check = |state: &mut State| {
            state.check_open()?;
            match state.half(direction).stream.has_room() {
                true => Ok(()),
                false => Err(ENOSPC),
            }
        };
        check(&mut self.state.lock())?;
        let access = Access {
            read: direction == Direction::Send,
            write: direction == Direction::Receive,
        };
        let export = !self.moves(direction);
        let range = (addr, length);
        let buffer = Buffer::new(site, space, self.transport, range, access, export)?;
        let pinned = buffer.was_pinned();
        let left = {
            let mut state = self.state.lock();
            state.counters.locks += u64::from(pinned);
            match check(&mut state) {
                Ok(()) => {
                    let stream = &mut state.half(direction).stream;
                    let posted = stream.post(buffer, range, self.transport == Transport::Engine);
                    posted.map_err(|buffer| (buffer, ENOSPC))
                }
                Err(err) => Err((buffer, err)),
            }
        };
        match left {
            Ok(()) => {
                site.connections.enqueue(self);
                site.worker.kick();
                Ok(())
            }
            Err((buffer, err)) => {
                buffer.release(site, keep);
                Err(err)
            }
        }
    }

    /// Gives memory back to the program, as address and length: at most `limit` bytes, none at the
    /// end. Waits for some unless `nonblock`, and with `spin` for a moment even then.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR`, `ECONNRESET`, `ENODEV`.
    pub(crate) fn reap(
        &self,
        site: &Site<'_>,
        direction: Direction,
        limit: u64,
        (nonblock, spin): (bool, bool),
        keep: bool,
    ) -> Result<(u64, u64)> {
        if !nonblock || spin {
            self.spin(site, direction);
        } else if !self.has_answer(direction) {
            site.work_if_polling();
        }
        let mut state = self.state.lock();
        let range = loop {
            if let Some(range) = state.half(direction).stream.reap(limit) {
                break Ok(range);
            }
            if state.is_over(direction) {
                break match state.reset {
                    true if site.gate.is_open() => Err(econnreset()),
                    true => Err(ENODEV),
                    false => Ok((0, 0)),
                };
            }
            if nonblock {
                return Err(EAGAIN);
            }
            if self.changed.wait_interruptible(&mut state) {
                return Err(ERESTARTNOHAND);
            }
        };
        drop(state);
        while let Some(buffer) = self.pop(|state| state.half(direction).stream.pop_finished()) {
            buffer.release(site, keep);
        }
        range
    }

    /// Takes a buffer out, which may be released only without the lock.
    fn pop(&self, pop: impl FnOnce(&mut State) -> Option<Buffer>) -> Option<Buffer> {
        pop(&mut self.state.lock())
    }

    /// Whether [`Connection::reap`] does not have to wait.
    fn has_answer(&self, direction: Direction) -> bool {
        let mut state = self.state.lock();
        state.is_over(direction) || state.half(direction).stream.has_ready()
    }

    /// Does the work of the link until memory can be taken, for as long as that is cheaper than to
    /// sleep.
    fn spin(&self, site: &Site<'_>, direction: Direction) {
        if self.has_answer(direction) {
            return;
        }
        let most = params::link_spin();
        let limit = self.state.lock().half(direction).polling.limit(most);
        let since: Instant<Monotonic> = Instant::now();
        let found = site.worker.poll_until(limit, || self.has_answer(direction));
        let polled = since.elapsed();
        self.state
            .lock()
            .half(direction)
            .polling
            .note(polled, found);
    }

    /// What holds now.
    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.state.lock();
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

    /// What there is to know.
    pub(crate) fn describe(&self, out: &mut uapi::uldma_conn_query) {
        let state = self.state.lock();
        out.out_state = state.number();
        out.out_flags = [
            (self.pull, uapi::ULDMA_CONN_PULL),
            (self.transport == Transport::Engine, uapi::ULDMA_CONN_ENGINE),
            (self.transport == Transport::Window, uapi::ULDMA_CONN_WINDOW),
            (state.reset, uapi::ULDMA_CONN_RESET),
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
    }

    /// Ends the connection, and waits until nothing is in flight on either side, or the peer's time
    /// to let go of it is over: then it is reset, and gone all the same.
    ///
    /// # Errors
    ///
    /// `EINTR`: it is ending, and can be waited for again. `ETIMEDOUT`: the peer has not let go of
    /// it in time.
    pub(crate) fn disconnect(self: &Arc<Self>, site: &Site<'_>, keep: bool) -> Result {
        self.end(site, false);
        match self.wait_end() {
            Ok(()) => {
                self.release_all(site, keep);
                site.connections.forget(site, self);
                Ok(())
            }
            Err(err) if err == ETIMEDOUT => {
                self.state.lock().reset = true;
                self.abandon(site, keep);
                Err(err)
            }
            Err(err) => Err(err),
        }
    }

    /// Waits until the connection is over, or the peer's time to let go of it.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`.
    fn wait_end(&self) -> Result {
        loop {
            let left = self.state.lock().time_left(params::link_timeout());
            let over = |state: &mut State| state.closing.is_done().then_some(());
            match crate::kernel_ext::wait::until(&self.changed, &self.state, left, over) {
                // Its time may have begun anew.
                Err(err) if err == ETIMEDOUT && left > 0 => (),
                result => return result,
            }
        }
    }

    /// Ends the connection, whose file was closed or whose listener is gone: its memory is out of
    /// reach when this returns, and the peer hears of it.
    fn abandon(self: &Arc<Self>, site: &Site<'_>, keep: bool) {
        self.state.lock().watcher = None;
        self.end(site, true);
        self.release_all(site, keep);
        self.orphan();
        site.connections.forget_if_over(site, self);
    }

    /// Notes that it has no holder any more.
    fn orphan(&self) {
        let mut state = self.state.lock();
        state.watcher = None;
        state.end(true);
        state.orphan = true;
        let given_up = state.phase == Phase::Asked && !state.closing.cut;
        self.given_up.store(given_up, Relaxed);
    }

    /// Begins the end; with `lose` what was given to be sent is not waited for.
    fn end(self: &Arc<Self>, site: &Site<'_>, lose: bool) {
        {
            let mut state = self.state.lock();
            state.end(lose);
            self.wake(&state);
        }
        site.connections.enqueue(self);
        site.worker.kick();
    }

    /// Takes all memory out of reach, and unlocks it.
    pub(crate) fn release_all(&self, site: &Site<'_>, keep: bool) {
        let any = |state: &mut State| {
            let sent = state.sending.stream.pop();
            sent.or_else(|| state.receiving.stream.pop())
        };
        while let Some(buffer) = self.pop(any) {
            buffer.release(site, keep);
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
