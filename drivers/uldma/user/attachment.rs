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
    user::watched::Watched,
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

impl<L, C> AttachmentState<L, C> {
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

    /// Returns the connection, after replacing a listener by the one that `accept` takes from it.
    /// The lock of the state makes both one step: no thread sees a listener without its connection.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` without either; the errors of `accept`.
    fn connection(&mut self, accept: impl FnOnce(&L) -> Result<C>) -> Result<&C> {
        if let Self::Listener(listener) = self {
            *self = Self::Connection(accept(listener)?);
        }
        match self {
            Self::Connection(connection) => Ok(connection),
            _ => Err(enotconn()),
        }
    }

    /// Takes the state out if `is_it` returns true.
    fn take_if(&mut self, is_it: impl FnOnce(&Self) -> bool) -> Option<Self> {
        is_it(self).then(|| core::mem::replace(self, Self::Nothing))
    }
}

/// The attachment of one open file.
#[pin_data]
pub(crate) struct Attachment {
    events: Arc<Events>,
    #[pin]
    state: Mutex<AttachmentState<Arc<Listener>, ConnHandle>>,
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
    pub(crate) fn listen(
        &self,
        _: &Watched,
        make: impl FnOnce() -> Result<Arc<Listener>>,
    ) -> Result {
        self.attach(|| Ok(AttachmentState::Listener(make()?)))
    }

    /// Attaches to the connection that `make` makes, which may block.
    ///
    /// # Errors
    ///
    /// `EISCONN` if the file is attached already; the errors of `make`.
    pub(crate) fn connect(&self, _: &Watched, make: impl FnOnce() -> Result<ConnHandle>) -> Result {
        self.attach(|| {
            let handle = make()?;
            handle.watch(&self.events);
            Ok(AttachmentState::Connection(handle))
        })
    }

    fn attach(
        &self,
        make: impl FnOnce() -> Result<AttachmentState<Arc<Listener>, ConnHandle>>,
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
        loop {
            let mut waits_at = None;
            let mut state = self.state.lock();
            let connection = state.connection(|listener| {
                self.accept_from(listener).inspect_err(|err| {
                    waits_at = (*err == EAGAIN).then(|| listener.clone());
                })
            });
            let connection = connection.map(|handle| (**handle).clone());
            drop(state);
            match (connection, waits_at) {
                (Err(_), Some(listener)) if !nonblock => listener.wait()?,
                (result, _) => return result,
            }
        }
    }

    /// Takes the connection of a one-shot listener.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` for another listener, or if there will be none; `EAGAIN` if there is none yet.
    fn accept_from(&self, listener: &Listener) -> Result<ConnHandle> {
        if !listener.is_once() {
            return Err(enotconn());
        }
        listener
            .try_accept()
            .inspect(|handle| handle.watch(&self.events))
    }

    /// Returns the state for `poll()`, whose caller may sleep or not, unless the file is not attached.
    pub(crate) fn readiness(&self, may_sleep: bool) -> Option<Readiness> {
        if let Ok(connection) = self.connection(true) {
            return Some(connection.readiness(may_sleep));
        }
        match &*self.state.lock() {
            AttachmentState::Listener(listener) => Some(Readiness {
                readable: !listener.is_once() && listener.count().0 > 0,
                ..Readiness::default()
            }),
            AttachmentState::Connection(handle) => Some(handle.readiness(may_sleep)),
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
            AttachmentState::Listener(listener) => {
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
        let ending = {
            // One step, lest a listener become its connection between two.
            let mut state = self.state.lock();
            match state.connection(|listener| self.accept_from(listener)) {
                Ok(handle) => Ok((**handle).clone()),
                Err(_) => Err(state.take_if(|state| matches!(state, AttachmentState::Listener(_)))),
            }
        };
        match ending {
            Ok(connection) => {
                let result = connection.disconnect(ctx, keep);
                // The call can be repeated.
                if result != Err(ERESTARTNOHAND) {
                    let ended = self.state.lock().take_if(|state| match state {
                        AttachmentState::Connection(handle) => Arc::ptr_eq(handle, &connection),
                        _ => false,
                    });
                    drop(ended);
                }
                result
            }
            Err(Some(AttachmentState::Listener(listener))) => {
                ctx.connections.unlisten(ctx, &listener);
                Ok(())
            }
            Err(_) => Err(enotconn()),
        }
    }

    /// Returns the connection, if its data goes, or may go, from endpoint to endpoint.
    pub(crate) fn matched(&self) -> Option<Arc<Connection>> {
        match &*self.state.lock() {
            AttachmentState::Connection(handle) if handle.is_matched() => Some((**handle).clone()),
            _ => None,
        }
    }

    /// Ends the listener or the connection after the file was closed.
    pub(crate) fn close(&self, ctx: &ConnCtx<'_>, keep: bool) {
        // The lock is not held while memory is unpinned.
        let state = core::mem::replace(&mut *self.state.lock(), AttachmentState::Nothing);
        match state {
            AttachmentState::Nothing | AttachmentState::Busy => (),
            AttachmentState::Listener(listener) => ctx.connections.unlisten(ctx, &listener),
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
        assert_eq!(state.connection(|_| Ok(10)), Err(enotconn()));
        state.begin()?;
        assert_eq!(state.begin(), Err(eisconn()));
        assert_eq!(state.connection(|_| Ok(10)), Err(enotconn()));
        state.made(Some(AttachmentState::Listener(1)));
        assert_eq!(state.connection(|_| Err(EAGAIN)), Err(EAGAIN));
        assert!(matches!(state, AttachmentState::Listener(1)));
        assert_eq!(state.connection(|listener| Ok(listener + 9)), Ok(&10));
        assert_eq!(state.connection(|_| Ok(11)), Ok(&10));
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
