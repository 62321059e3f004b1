// SPDX-License-Identifier: GPL-2.0

//! Listeners, which wait for peers to connect to a port.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};

use super::{
    ConnCtx,
    ConnHandle, //
    Connection,
};
use crate::{
    kernel_ext::errno::{
        econnrefused,
        edquot,
        enotconn, //
    },
    mem::lmm::space::Space,
    user_abi::{
        events::Events,
        ledger::Payer,
        offer::Offer, //
    }, //
};

struct State {
    waiting: KVec<ConnHandle>,
    /// Number of connections that were refused because the backlog was full.
    refused: u32,
    closed: bool,
}

/// One listener.
#[pin_data]
pub(crate) struct Listener {
    port: u32,
    /// The space whose open files may accept.
    space: Arc<Space>,
    /// True if the listener itself becomes the first connection.
    once: bool,
    backlog: usize,
    /// What each side that connects is told, and has to fit to.
    offer: Offer,
    /// Bytes of the ring that this side offers of each connection, or zero.
    ring: u64,
    events: Arc<Events>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    changed: CondVar,
}

impl Listener {
    /// Creates a listener at `port` with a backlog of `backlog` connections that fit to `offer`, with rings
    /// of `ring` bytes.
    pub(super) fn new(
        port: u32,
        backlog: usize,
        once: bool,
        (offer, ring): (Offer, u64),
        space: Arc<Space>,
        events: Arc<Events>,
    ) -> Result<Arc<Self>> {
        let state = State {
            waiting: KVec::with_capacity(backlog, GFP_KERNEL_ACCOUNT)?,
            refused: 0,
            closed: false,
        };
        let listener = pin_init!(Self {
            port,
            space,
            once,
            backlog,
            offer,
            ring,
            events,
            state <- new_mutex!(state, "uldma::Listener::state"),
            changed <- new_condvar!("uldma::Listener::changed"),
        });
        Arc::pin_init(listener, GFP_KERNEL_ACCOUNT)
    }

    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Returns true if the listener itself becomes the first connection.
    pub(crate) fn is_once(&self) -> bool {
        self.once
    }

    /// What this side says of each connection.
    pub(super) fn own_offer(&self) -> &Offer {
        &self.offer
    }

    /// Bytes of the ring that this side offers of each connection, or zero.
    pub(super) fn ring(&self) -> u64 {
        self.ring
    }

    /// Returns true if open files of `space` may accept.
    pub(crate) fn is_of(&self, space: &Arc<Space>) -> bool {
        Arc::ptr_eq(&self.space, space)
    }

    /// Returns the payer of connections that peers make here: that of the listener.
    pub(super) fn payer(&self) -> &Arc<Payer> {
        self.space.payer()
    }

    /// Returns the number of connections in the backlog, and the number of refused ones.
    pub(crate) fn count(&self) -> (usize, u32) {
        let state = self.state.lock();
        (state.waiting.len(), state.refused)
    }

    /// Returns true if one more connection of the peer at `node` can wait. Others that are linked have
    /// a part of the backlog in reserve, as far as `node` has one place.
    fn has_room(&self, ctx: &ConnCtx<'_>, state: &State, node: u32) -> bool {
        let waiting = |node| state.waiting.iter().filter(|it| it.node() == node).count();
        let linked = || ctx.link.peers().filter(|peer| peer.session().is_ok());
        let reserve = (self.backlog / (2 * linked().count().max(1))).max(1);
        let others = linked().filter(|peer| peer.node() != node);
        let reserved = others.map(|peer| reserve.saturating_sub(waiting(peer.node())));
        let kept = match waiting(node) {
            0 => 0,
            _ => reserved.sum(),
        };
        state.waiting.len() + kept < self.backlog
    }

    /// Adds the connection that `make` creates for the peer at `node` to the backlog.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED` if the backlog is full but for what other peers have in reserve, or the user of
    /// the listener or the peer is beyond a limit; the errors of `make`.
    pub(super) fn offer(
        &self,
        ctx: &ConnCtx<'_>,
        node: u32,
        make: impl FnOnce() -> Result<Arc<Connection>>,
    ) -> Result<Arc<Connection>> {
        let mut state = self.state.lock();
        let made = if state.closed || !self.has_room(ctx, &state, node) {
            Err(econnrefused())
        } else {
            make()
        };
        let connection = made.map_err(|err| match err == econnrefused() || err == edquot() {
            true => {
                state.refused = state.refused.saturating_add(1);
                econnrefused()
            }
            false => err,
        })?;
        // There is room.
        let handle = ConnHandle::new(connection.clone());
        let _ = state.waiting.push_within_capacity(handle);
        // A one-shot listener accepts one connection.
        state.closed = self.once;
        drop(state);
        self.changed.notify_all();
        self.events.wake();
        Ok(connection)
    }

    /// Takes the oldest connection of the backlog, and waits for one unless `nonblock`.
    ///
    /// # Errors
    ///
    /// `EAGAIN` with `nonblock`, `EINTR`, `ENOTCONN` if the listener was closed.
    pub(crate) fn accept(&self, nonblock: bool) -> Result<ConnHandle> {
        loop {
            match self.try_accept() {
                Err(err) if err == EAGAIN && !nonblock => self.wait()?,
                result => return result,
            }
        }
    }

    /// Takes the oldest connection of the backlog.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none, `ENOTCONN` if there will be none: the listener was closed.
    pub(crate) fn try_accept(&self) -> Result<ConnHandle> {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            return state.waiting.remove(0).map_err(|_| EINVAL);
        }
        Err(if state.closed { enotconn() } else { EAGAIN })
    }

    /// Waits until the backlog has a connection or the listener is closed.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    pub(crate) fn wait(&self) -> Result {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            if self.changed.wait_interruptible(&mut state) {
                return Err(ERESTARTNOHAND);
            }
        }
        Ok(())
    }

    /// Closes the listener. Returns the connections of the backlog.
    pub(super) fn close(&self) -> KVec<ConnHandle> {
        let waiting = {
            let mut state = self.state.lock();
            state.closed = true;
            core::mem::take(&mut state.waiting)
        };
        self.changed.notify_all();
        waiting
    }
}
