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
    Carrier,
    Connection,
    Site,
    Way,
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
            Connection as Words,
            Place, //
        },
        window_alloc::Part, //
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
    pub(super) part: Place,
}

/// The part of a peer's section that carries data to it, where data goes that way.
fn peer_part(site: &Site<'_>, carrier: Carrier, part: Place) -> Result<Option<Part>> {
    match carrier {
        Carrier::Window => {
            let size = site.hw.geometry().window_size;
            Part::of_peer(part.0, part.1, size).map(Some)
        }
        Carrier::Engine | Carrier::Memory if part == (0, 0) => Ok(None),
        Carrier::Engine | Carrier::Memory => Err(eproto()),
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
        let carrier = Carrier::of(site.hw);
        let window = self.flags & WINDOW != 0;
        let pull = self.flags & PULL != 0;
        if self.flags & !(PULL | WINDOW) != 0
            || window != (carrier == Carrier::Window)
            || (window && pull)
        {
            return Err(eopnotsupp());
        }
        let mut state = State::new(Phase::Answering, self.from, self.name)?;
        state.peer_part = peer_part(site, carrier, self.part)?;
        state.own_part = site.connections.take_part(site, payer, carrier)?;
        let part = state.own_part;
        let whose = (node, site.link.session(node).unwrap_or(0));
        Connection::new(id, whose, self.port, carrier, pull, None, state).inspect_err(|_| {
            if let Some(part) = part {
                // The peer never heard of it.
                site.parts.give_back(part);
            }
        })
    }
}

impl Connection {
    /// Handles a message of the peer, which named this connection.
    pub(super) fn hear(self: &Arc<Self>, site: &Site<'_>, words: &Words) {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            // Once the end has begun here, what is on its way is not for anybody.
            let deaf = state.closing.ours;
            let result = match *words {
                Words::Connected {
                    error,
                    from,
                    name,
                    part,
                    ..
                } => self.answered(site, state, error, (from, name, part)),
                Words::Disconnect { reset, .. } if state.is_connected() => {
                    state.reset |= reset && !deaf;
                    state.closing.theirs = true;
                    Ok(())
                }
                Words::Disconnected { .. } if state.closing.said => {
                    state.closing.answered = true;
                    Ok(())
                }
                Words::Export { .. } | Words::Done { .. } if deaf => Ok(()),
                Words::Export {
                    bytes,
                    token,
                    generation,
                    ..
                } => self.exported(state, (token, generation), bytes),
                Words::Done { bytes, .. } => self.moved_by_peer(site, state, bytes),
                Words::Connect { .. } | Words::Disconnect { .. } | Words::Disconnected { .. } => {
                    Err(eproto())
                }
            };
            match (result, words) {
                (Err(_), _) => self.fail(state),
                (Ok(()), Words::Export { .. } | Words::Done { .. }) => self.wake_if_ready(state),
                (Ok(()), _) => self.wake(state),
            }
        }
        site.connections.list(self);
    }

    fn answered(
        &self,
        site: &Site<'_>,
        state: &mut State,
        error: u32,
        (from, name, part): (u32, u64, Place),
    ) -> Result {
        if state.phase != Phase::Asked || name != state.name {
            return Err(eproto());
        }
        self.given_up.store(false, Relaxed);
        if error != 0 {
            state.phase = Phase::Refused(refusal(error));
            // Nothing is to be said about it any more, and the peer does not write the part.
            state.closing.cut = true;
            if let Some(part) = state.own_part.take() {
                site.parts.give_back(part);
            }
            return Ok(());
        }
        state.remote = from;
        state.phase = Phase::Connected;
        state.peer_part = peer_part(site, self.carrier, part)?;
        Ok(())
    }

    /// The direction of which the peer, or this side, offers memory.
    fn way(&self, peer_moves: bool) -> Way {
        match self.moves(Way::Send) != peer_moves {
            true => Way::Send,
            false => Way::Receive,
        }
    }

    fn exported(&self, state: &mut State, token: (u64, u64), bytes: u64) -> Result {
        let is_possible = match self.carrier {
            Carrier::Engine => token.0 <= size_word::REGION_MASK,
            Carrier::Memory => true,
            Carrier::Window => token == (0, 0),
        };
        if !state.is_connected() || state.closing.theirs || !is_possible {
            return Err(eproto());
        }
        // Through the window there is no more to fill than the peer's part.
        let room = match state.peer_part {
            Some(part) => u64::try_from(part.length())?,
            None => u64::MAX,
        };
        let offers = &mut state.direction(self.way(false)).offers;
        offers.add(token.0, token.1, bytes, room)
    }

    fn moved_by_peer(&self, site: &Site<'_>, state: &mut State, bytes: u64) -> Result {
        if !state.is_connected() || state.closing.theirs || bytes == 0 {
            return Err(eproto());
        }
        self.done(site, state, self.way(true), bytes)
    }
}
