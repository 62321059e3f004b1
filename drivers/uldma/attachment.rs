// SPDX-License-Identifier: GPL-2.0

//! What an opener is attached to: nothing, a listener, or a connection.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    connection::{
        Connection,
        Listener,
        Readiness,
        Site, //
    },
    events::Events,
    kernel_ext::errno::{
        eisconn,
        enotconn, //
    },
    uapi::{
        self,
        uldma_conn_query, //
    }, //
};

enum State {
    Nothing,
    /// Something is being made.
    Busy,
    Listener(Arc<Listener>),
    Connection(Arc<Connection>),
}

/// What one opener is attached to.
#[pin_data]
pub(crate) struct Attachment {
    events: Arc<Events>,
    #[pin]
    state: Mutex<State>,
}

impl Attachment {
    /// Attached to nothing; `events` are told of changes later.
    pub(crate) fn new(events: Arc<Events>) -> impl PinInit<Self> {
        pin_init!(Self {
            events,
            state <- new_mutex!(State::Nothing, "uldma::Attachment::state"),
        })
    }

    /// Attaches to the listener that `make` makes.
    ///
    /// # Errors
    ///
    /// `EISCONN` when attached already, and those of `make`, here and in
    /// [`Attachment::connect`].
    pub(crate) fn listen(&self, make: impl FnOnce() -> Result<Arc<Listener>>) -> Result {
        self.attach(|| Ok(State::Listener(make()?)))
    }

    /// Attaches to the connection that `make` makes, which may take as long as it likes.
    pub(crate) fn connect(&self, make: impl FnOnce() -> Result<Arc<Connection>>) -> Result {
        self.attach(|| Ok(self.of_connection(make()?)))
    }

    fn of_connection(&self, connection: Arc<Connection>) -> State {
        connection.watch(&self.events);
        State::Connection(connection)
    }

    fn attach(&self, make: impl FnOnce() -> Result<State>) -> Result {
        {
            let mut state = self.state.lock();
            if !matches!(*state, State::Nothing) {
                return Err(eisconn());
            }
            *state = State::Busy;
        }
        let made = make();
        let mut state = self.state.lock();
        match made {
            Ok(made) => {
                *state = made;
                drop(state);
                self.events.nudge();
                Ok(())
            }
            Err(err) => {
                *state = State::Nothing;
                Err(err)
            }
        }
    }

    /// The connection. A listener that becomes one is waited for unless `nonblock`.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when there is none, `EAGAIN`, `EINTR`.
    pub(crate) fn connection(&self, nonblock: bool) -> Result<Arc<Connection>> {
        let listener = match &*self.state.lock() {
            State::Connection(connection) => return Ok(connection.clone()),
            State::Listener(listener) if listener.is_once() => listener.clone(),
            _ => return Err(enotconn()),
        };
        match listener.accept(nonblock) {
            Ok(connection) => {
                *self.state.lock() = self.of_connection(connection.clone());
                Ok(connection)
            }
            // Another thread may have been faster.
            Err(err) => match &*self.state.lock() {
                State::Connection(connection) => Ok(connection.clone()),
                _ => Err(err),
            },
        }
    }

    /// What holds for `poll()`; none when attached to nothing.
    pub(crate) fn readiness(&self) -> Option<Readiness> {
        if let Ok(connection) = self.connection(true) {
            return Some(connection.readiness());
        }
        match &*self.state.lock() {
            State::Listener(listener) => Some(Readiness {
                readable: !listener.is_once() && listener.count().0 > 0,
                ..Readiness::default()
            }),
            State::Connection(connection) => Some(connection.readiness()),
            State::Nothing | State::Busy => None,
        }
    }

    /// What there is to know.
    pub(crate) fn describe(&self, out: &mut uldma_conn_query) -> Result {
        if let Ok(connection) = self.connection(true) {
            connection.describe(out);
            return Ok(());
        }
        match &*self.state.lock() {
            State::Nothing => out.out_state = uapi::ULDMA_CONN_NONE,
            State::Busy => out.out_state = uapi::ULDMA_CONN_CONNECTING,
            State::Listener(listener) => {
                let (waiting, refused) = listener.count();
                out.out_state = uapi::ULDMA_CONN_LISTENING;
                out.out_port = listener.port();
                out.out_waiting = u32::try_from(waiting)?;
                out.out_refused = refused;
            }
            State::Connection(connection) => connection.describe(out),
        }
        Ok(())
    }

    /// Ends what the opener is attached to, and waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` when there is nothing; those of [`Connection::disconnect`].
    pub(crate) fn disconnect(&self, site: &Site<'_>, keep: bool) -> Result {
        if let Ok(connection) = self.connection(true) {
            connection.disconnect(site, keep)?;
            let mut state = self.state.lock();
            if matches!(&*state, State::Connection(other) if Arc::ptr_eq(other, &connection)) {
                *state = State::Nothing;
            }
            return Ok(());
        }
        let listener = {
            let mut state = self.state.lock();
            match core::mem::replace(&mut *state, State::Nothing) {
                State::Listener(listener) => listener,
                other => {
                    *state = other;
                    return Err(enotconn());
                }
            }
        };
        site.connections.unlisten(site, &listener);
        Ok(())
    }

    /// Ends what the opener is attached to, whose file was closed.
    pub(crate) fn close(&self, site: &Site<'_>, keep: bool) {
        // Not held while memory is unlocked.
        let state = core::mem::replace(&mut *self.state.lock(), State::Nothing);
        match state {
            State::Nothing | State::Busy => (),
            State::Listener(listener) => site.connections.unlisten(site, &listener),
            State::Connection(connection) => connection.abandon(site, keep),
        }
    }
}
