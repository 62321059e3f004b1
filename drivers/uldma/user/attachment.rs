// SPDX-License-Identifier: GPL-2.0

//! The attachment of an open file to a listener or a connection.

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
        ConnCtx, //
        ConnHandle,
        Connection,
        Listener,
        Readiness,
    },
    kernel_ext::errno::{
        eisconn,
        enotconn, //
    },
    uapi::{
        self,
        uldma_conn_query, //
    },
    user_abi::events::Events, //
};

/// The attachment, with listener `L` or connection `C`.
enum AttachmentState<L, C> {
    Nothing,
    /// A listener or connection is being made.
    Busy,
    Listener(L),
    Connection(C),
}

impl<L: PartialEq, C> AttachmentState<L, C> {
    /// Begins to make a listener or a connection.
    ///
    /// # Errors
    ///
    /// `EISCONN` if the file is attached already.
    fn begin(&mut self) -> Result {
        match self {
            Self::Nothing => {
                *self = Self::Busy;
                Ok(())
            }
            Self::Busy | Self::Listener(_) | Self::Connection(_) => Err(eisconn()),
        }
    }

    /// Returns what was begun has been made, or not.
    fn made(&mut self, made: Option<Self>) {
        *self = made.unwrap_or(Self::Nothing);
    }

    /// Replaces `listener` by `connection`. Returns the connection if the listener was closed
    /// meanwhile.
    fn become_connection(&mut self, listener: &L, connection: C) -> Result<(), C> {
        match self {
            Self::Listener(now) if now == listener => {
                *self = Self::Connection(connection);
                Ok(())
            }
            _ => Err(connection),
        }
    }

    /// Takes the state out if `is_it` returns true.
    fn take_if(&mut self, is_it: impl FnOnce(&Self) -> bool) -> Option<Self> {
        is_it(self).then(|| core::mem::replace(self, Self::Nothing))
    }
}

/// A listener, compared by identity.
struct Listening(Arc<Listener>);

impl PartialEq for Listening {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The attachment of one open file.
#[pin_data]
pub(crate) struct Attachment {
    events: Arc<Events>,
    #[pin]
    state: Mutex<AttachmentState<Listening, ConnHandle>>,
}

impl Attachment {
    /// Creates an empty attachment; `events` are woken on changes.
    pub(crate) fn new(events: Arc<Events>) -> impl PinInit<Self> {
        pin_init!(Self {
            events,
            state <- new_mutex!(AttachmentState::Nothing, "uldma::Attachment::state"),
        })
    }

    /// Attaches to the listener that `make` makes.
    ///
    /// # Errors
    ///
    /// `EISCONN` if the file is attached already; the errors of `make`.
    pub(crate) fn listen(&self, make: impl FnOnce() -> Result<Arc<Listener>>) -> Result {
        self.attach(|| Ok(AttachmentState::Listener(Listening(make()?))))
    }

    /// Attaches to the connection that `make` makes, which may block.
    ///
    /// # Errors
    ///
    /// `EISCONN` if the file is attached already; the errors of `make`.
    pub(crate) fn connect(&self, make: impl FnOnce() -> Result<ConnHandle>) -> Result {
        self.attach(|| {
            let handle = make()?;
            handle.watch(&self.events);
            Ok(AttachmentState::Connection(handle))
        })
    }

    fn attach(
        &self,
        make: impl FnOnce() -> Result<AttachmentState<Listening, ConnHandle>>,
    ) -> Result {
        self.state.lock().begin()?;
        let (made, result) = match make() {
            Ok(made) => (Some(made), Ok(())),
            Err(err) => (None, Err(err)),
        };
        self.state.lock().made(made);
        if result.is_ok() {
            self.events.wake();
        }
        result
    }

    /// Returns the connection. For a one-shot listener, waits for its connection unless `nonblock`.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` without a connection, `EAGAIN` with `nonblock`, `EINTR`.
    pub(crate) fn connection(&self, nonblock: bool) -> Result<Arc<Connection>> {
        let listening = match &*self.state.lock() {
            AttachmentState::Connection(handle) => return Ok((**handle).clone()),
            AttachmentState::Listener(listening) if listening.0.is_once() => {
                Listening(listening.0.clone())
            }
            _ => return Err(enotconn()),
        };
        match listening.0.accept(nonblock) {
            Ok(handle) => {
                let connection = (*handle).clone();
                connection.watch(&self.events);
                let became = self.state.lock().become_connection(&listening, handle);
                // A connection that is returned is dropped without the lock.
                became.map(|()| connection).map_err(|_| enotconn())
            }
            // Another thread may have been faster.
            Err(err) => match &*self.state.lock() {
                AttachmentState::Connection(handle) => Ok((**handle).clone()),
                _ => Err(err),
            },
        }
    }

    /// Returns the state for `poll()`, unless the file is not attached.
    pub(crate) fn readiness(&self) -> Option<Readiness> {
        if let Ok(connection) = self.connection(true) {
            return Some(connection.readiness());
        }
        match &*self.state.lock() {
            AttachmentState::Listener(Listening(listener)) => Some(Readiness {
                readable: !listener.is_once() && listener.count().0 > 0,
                ..Readiness::default()
            }),
            AttachmentState::Connection(handle) => Some(handle.readiness()),
            AttachmentState::Nothing | AttachmentState::Busy => None,
        }
    }

    /// Fills in the answer of a query.
    pub(crate) fn describe(&self, out: &mut uldma_conn_query) -> Result {
        if let Ok(connection) = self.connection(true) {
            connection.describe(out);
            return Ok(());
        }
        match &*self.state.lock() {
            AttachmentState::Nothing => out.out_state = uapi::ULDMA_CONN_NONE,
            AttachmentState::Busy => out.out_state = uapi::ULDMA_CONN_CONNECTING,
            AttachmentState::Listener(Listening(listener)) => {
                let (waiting, refused) = listener.count();
                out.out_state = uapi::ULDMA_CONN_LISTENING;
                out.out_port = listener.port();
                out.out_waiting = u32::try_from(waiting)?;
                out.out_refused = refused;
            }
            AttachmentState::Connection(handle) => handle.describe(out),
        }
        Ok(())
    }

    /// Ends the listener or the connection, and waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the file is not attached, `EINTR`, `ETIMEDOUT` if the peer does not confirm
    /// the end in time.
    pub(crate) fn disconnect(&self, ctx: &ConnCtx<'_>, keep: bool) -> Result {
        if let Ok(connection) = self.connection(true) {
            let result = connection.disconnect(ctx, keep);
            // The call can be repeated.
            if result != Err(ERESTARTNOHAND) {
                let ended = self.state.lock().take_if(|state| match state {
                    AttachmentState::Connection(handle) => Arc::ptr_eq(handle, &connection),
                    _ => false,
                });
                drop(ended);
            }
            return result;
        }
        let is_listener =
            |state: &AttachmentState<_, _>| matches!(state, AttachmentState::Listener(_));
        let listener = self.state.lock().take_if(is_listener);
        match listener {
            Some(AttachmentState::Listener(Listening(listener))) => {
                ctx.connections.unlisten(ctx, &listener);
                Ok(())
            }
            _ => Err(enotconn()),
        }
    }

    /// Ends the listener or the connection after the file was closed.
    pub(crate) fn close(&self, ctx: &ConnCtx<'_>, keep: bool) {
        // The lock is not held while memory is unpinned.
        let state = core::mem::replace(&mut *self.state.lock(), AttachmentState::Nothing);
        match state {
            AttachmentState::Nothing | AttachmentState::Busy => (),
            AttachmentState::Listener(Listening(listener)) => {
                ctx.connections.unlisten(ctx, &listener)
            }
            AttachmentState::Connection(handle) => handle.abandon(ctx, keep),
        }
    }
}

#[kunit_tests(uldma_attachment)]
mod tests {
    use super::*;

    type Slot = AttachmentState<u32, u32>;

    #[test]
    fn a_listener_becomes_its_connection_once() -> Result {
        let mut state = Slot::Nothing;
        state.begin()?;
        assert_eq!(state.begin(), Err(eisconn()));
        state.made(Some(AttachmentState::Listener(1)));
        assert_eq!(state.become_connection(&1, 10), Ok(()));
        assert_eq!(state.become_connection(&1, 11), Err(11));
        assert!(matches!(state, AttachmentState::Connection(10)));
        Ok(())
    }

    /// One thread has accepted, and another one closes the listener before the result is stored.
    #[test]
    fn what_came_late_replaces_nothing() -> Result {
        let mut state = Slot::Listener(1);
        let left = state.take_if(|state| matches!(state, AttachmentState::Listener(_)));
        assert!(matches!(left, Some(AttachmentState::Listener(1))));
        assert_eq!(state.become_connection(&1, 10), Err(10));
        // Another connection, or listener, is being made.
        state.begin()?;
        assert_eq!(state.become_connection(&1, 10), Err(10));
        assert!(matches!(state, AttachmentState::Busy));
        state.made(Some(AttachmentState::Connection(20)));
        assert_eq!(state.become_connection(&1, 10), Err(10));
        assert!(matches!(state, AttachmentState::Connection(20)));
        let ended = state.take_if(|state| matches!(state, AttachmentState::Connection(20)));
        assert!(ended.is_some());
        state.begin()?;
        state.made(Some(AttachmentState::Listener(2)));
        assert_eq!(state.become_connection(&1, 10), Err(10));
        assert!(matches!(state, AttachmentState::Listener(2)));
        Ok(())
    }

    #[test]
    fn what_could_not_be_made_is_nothing() -> Result {
        let mut state = Slot::Nothing;
        state.begin()?;
        state.made(None);
        assert!(matches!(state, AttachmentState::Nothing));
        state.begin()
    }
}
