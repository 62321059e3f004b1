// SPDX-License-Identifier: GPL-2.0

//! What peers say about connections.
//!
//! A message that cannot come in the state that a connection is in costs the peer that connection;
//! one about a connection that is gone costs nothing.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use super::{
    state::{
        Phase,
        State, //
    },
    Connection,
    Direction,
    Site,
    Transport,
    PULL,
    WINDOW, //
};
use crate::{
    hw::layout::size_word,
    kernel_ext::errno::{
        econnrefused,
        eopnotsupp,
        eproto, //
    },
    link::{
        message::{
            Connection as ConnMsg,
            RawWindowRange, //
        },
        window_alloc::WindowRange, //
    },
    user_abi::ledger::Payer, //
};

/// The errors that a peer may refuse a connection with.
fn refusal(errno: u32) -> Error {
    for err in [econnrefused(), eopnotsupp(), ENOSPC, ENOMEM] {
        if err.to_errno().unsigned_abs() == errno {
            return err;
        }
    }
    eproto()
}

/// What a peer asks for.
pub(super) struct Request {
    pub(super) from: u32,
    pub(super) port: u32,
    pub(super) flags: u32,
    pub(super) name: u64,
    pub(super) window: RawWindowRange,
}

/// The part of a peer's section that carries data to it, where data goes that way.
fn peer_window(
    site: &Site<'_>,
    transport: Transport,
    window: RawWindowRange,
) -> Result<Option<WindowRange>> {
    match transport {
        Transport::Window => {
            let size = site.hw.geometry().window_size;
            WindowRange::of_peer(window.0, window.1, size).map(Some)
        }
        Transport::Engine | Transport::Memory if window == (0, 0) => Ok(None),
        Transport::Engine | Transport::Memory => Err(eproto()),
    }
}

impl Request {
    /// Makes the connection that is asked for by `node`, with number `id`; `payer` pays for what it
    /// takes of the window.
    pub(super) fn accept(
        &self,
        site: &Site<'_>,
        payer: &Arc<Payer>,
        node: u32,
        id: u32,
    ) -> Result<Arc<Connection>> {
        let transport = Transport::of(site.hw);
        let window = self.flags & WINDOW != 0;
        let pull = self.flags & PULL != 0;
        if self.flags & !(PULL | WINDOW) != 0
            || window != (transport == Transport::Window)
            || (window && pull)
        {
            return Err(eopnotsupp());
        }
        let mut state = State::new(Phase::Answering, self.from, self.name)?;
        state.peer_window = peer_window(site, transport, self.window)?;
        state.own_window = site.connections.alloc_window(site, payer, transport)?;
        let window = state.own_window;
        let whose = (node, site.link.session(node).unwrap_or(0));
        Connection::new(id, whose, self.port, transport, pull, None, state).inspect_err(|_| {
            if let Some(window) = window {
                // The peer never heard of it.
                site.window_alloc.free(window);
            }
        })
    }
}

impl Connection {
    /// Handles a message of the peer, which named this connection.
    pub(super) fn handle_msg(self: &Arc<Self>, site: &Site<'_>, msg: &ConnMsg) {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            // Once the end has begun here, what is on its way is not for anybody.
            let closing = state.closing.ours;
            let result = match *msg {
                ConnMsg::Connected {
                    error,
                    from,
                    name,
                    window,
                    ..
                } => self.answered(site, state, error, (from, name, window)),
                ConnMsg::Disconnect { reset, .. } if state.is_connected() => {
                    state.reset |= reset && !closing;
                    state.closing.theirs = true;
                    Ok(())
                }
                ConnMsg::Disconnected { .. } if state.closing.sent => {
                    state.closing.answered = true;
                    Ok(())
                }
                ConnMsg::Export { .. } | ConnMsg::Done { .. } if closing => Ok(()),
                ConnMsg::Export {
                    bytes,
                    token,
                    generation,
                    ..
                } => self.exported(state, (token, generation), bytes),
                ConnMsg::Done { bytes, .. } => self.moved_by_peer(site, state, bytes),
                ConnMsg::Connect { .. }
                | ConnMsg::Disconnect { .. }
                | ConnMsg::Disconnected { .. } => Err(eproto()),
            };
            match (result, msg) {
                (Err(_), _) => self.fail(state),
                (Ok(()), ConnMsg::Export { .. } | ConnMsg::Done { .. }) => {
                    self.wake_if_ready(state)
                }
                (Ok(()), _) => self.wake(state),
            }
        }
        site.connections.enqueue(self);
    }

    fn answered(
        &self,
        site: &Site<'_>,
        state: &mut State,
        error: u32,
        (from, name, window): (u32, u64, RawWindowRange),
    ) -> Result {
        if state.phase != Phase::Asked || name != state.name {
            return Err(eproto());
        }
        self.given_up.store(false, Relaxed);
        if error != 0 {
            state.phase = Phase::Refused(refusal(error));
            // Nothing is to be said about it any more, and the peer does not write the part.
            state.closing.cut = true;
            if let Some(window) = state.own_window.take() {
                site.window_alloc.free(window);
            }
            return Ok(());
        }
        state.remote = from;
        state.phase = Phase::Connected;
        state.peer_window = peer_window(site, self.transport, window)?;
        Ok(())
    }

    /// The direction of which the peer, or this side, offers memory.
    fn direction(&self, peer_moves: bool) -> Direction {
        match self.moves(Direction::Send) != peer_moves {
            true => Direction::Send,
            false => Direction::Receive,
        }
    }

    fn exported(&self, state: &mut State, token: (u64, u64), bytes: u64) -> Result {
        let is_possible = match self.transport {
            Transport::Engine => token.0 <= size_word::REGION_MASK,
            Transport::Memory => true,
            Transport::Window => token == (0, 0),
        };
        if !state.is_connected() || state.closing.theirs || !is_possible {
            return Err(eproto());
        }
        // Through the window there is no more to fill than the peer's part.
        let room = match state.peer_window {
            Some(window) => u64::try_from(window.length())?,
            None => u64::MAX,
        };
        let offers = &mut state.half(self.direction(false)).offers;
        offers.add(token.0, token.1, bytes, room)
    }

    fn moved_by_peer(&self, site: &Site<'_>, state: &mut State, bytes: u64) -> Result {
        if !state.is_connected() || state.closing.theirs || bytes == 0 {
            return Err(eproto());
        }
        self.done(site, state, self.direction(true), bytes)
    }
}
