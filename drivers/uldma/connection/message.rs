// SPDX-License-Identifier: GPL-2.0

//! Messages of peers about connections.
//!
//! A message that is invalid in the state of its connection resets that connection. A message about
//! a connection that does not exist is ignored.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use super::{
    connections::Connections,
    ranges::OwnRanges,
    ring::{
        range_of_peer,
        Ring, //
    },
    state::{
        Phase,
        State, //
    },
    ConnCtx,
    Connection,
    Direction,
    Listener,
    Transport,
    PULL,
    WINDOW, //
};
use crate::{
    hw::layout::REGION_SLOTS,
    kernel_ext::errno::{
        econnrefused,
        eopnotsupp,
        eproto,
        eprotonosupport,
        eprototype, //
    },
    link::{
        message::{
            Connection as ConnMsg,
            Extent, //
        },
        window_alloc::Payers,
        window_range::WindowRange, //
    },
    user_abi::{
        ledger::Payer,
        offer::Offer, //
    }, //
};

/// Returns the error for the errno with which a peer refuses a connection.
fn refusal(errno: u32) -> Error {
    let known = [
        econnrefused(),
        eprototype(),
        eprotonosupport(),
        eopnotsupp(),
        ENOSPC,
        ENOMEM,
    ];
    for err in known {
        if err.to_errno().unsigned_abs() == errno {
            return err;
        }
    }
    eproto()
}

/// A request of a peer for a connection.
struct Request {
    from: u32,
    port: u32,
    flags: u32,
    name: u64,
    window: Extent,
    ring: Extent,
    offer: Offer,
}

/// Checks the range of the section of `node` that carries data to it, if data goes through the window.
fn peer_window(
    ctx: &ConnCtx<'_>,
    node: u32,
    transport: Transport,
    window: Extent,
) -> Result<Option<WindowRange>> {
    let range = range_of_peer(ctx, node, window)?;
    match range.is_some() == (transport == Transport::Window) {
        true => Ok(range),
        false => Err(eproto()),
    }
}

impl Request {
    /// Creates the connection that `node` requests, with number `id`, and the offer of its `listener` for
    /// the answer, a ring only if the peer offers one. The payers pay for the window.
    fn accept(
        &self,
        ctx: &ConnCtx<'_>,
        payers: Payers<'_>,
        node: u32,
        (id, listener): (u32, &Listener),
    ) -> Result<Arc<Connection>> {
        let transport = Transport::of(ctx.hw);
        let window = self.flags & WINDOW != 0;
        let pull = self.flags & PULL != 0;
        if self.flags & !(PULL | WINDOW) != 0
            || window != (transport == Transport::Window)
            || (window && pull)
        {
            return Err(eopnotsupp());
        }
        let own_offer = *listener.own_offer();
        let mut state = State::new(Phase::Answering, self.from, self.name, own_offer)?;
        state.peer_offer = self.offer;
        state.peer_window = peer_window(ctx, node, transport, self.window)?;
        state.peer_ring = range_of_peer(ctx, node, self.ring)?.map(Ring::new);
        let ring = match state.peer_ring {
            Some(_) => listener.ring(),
            None => 0,
        };
        let ranges = OwnRanges::alloc(ctx, node, payers, transport, ring)?;
        ranges.give_to(&mut state);
        let whose = (node, ctx.link.session(node).unwrap_or(0));
        // The peer does not know the ranges.
        Connection::new(id, whose, self.port, transport, pull, None, state)
            .inspect_err(|_| ranges.free(ctx))
    }
}

impl Connections {
    /// Handles a message of `node`.
    pub(crate) fn handle_msg(&self, ctx: &ConnCtx<'_>, node: u32, msg: &ConnMsg) {
        let to = match *msg {
            ConnMsg::Connect {
                from,
                port,
                flags,
                name,
                window,
                ring,
                offer,
            } => {
                let request = Request {
                    from,
                    port,
                    flags,
                    name,
                    window,
                    ring,
                    offer,
                };
                return self.asked(ctx, node, &request);
            }
            ConnMsg::Connected { to, .. }
            | ConnMsg::Disconnect { to, .. }
            | ConnMsg::Disconnected { to }
            | ConnMsg::Export { to, .. }
            | ConnMsg::Done { to, .. }
            | ConnMsg::Stream { to, .. } => to,
        };
        match self.of_peer(node, to) {
            Some(connection) => connection.handle_msg(ctx, msg),
            None => match *msg {
                // It was abandoned, and has expired.
                ConnMsg::Connected { error: 0, from, .. } => self.reply(
                    ctx,
                    node,
                    ConnMsg::Disconnect {
                        to: from,
                        from: to,
                        reset: true,
                    },
                ),
                ConnMsg::Disconnect { from, .. } => {
                    self.reply(ctx, node, ConnMsg::Disconnected { to: from });
                }
                _ => (),
            },
        }
    }

    /// Handles a request of `node` for a connection.
    fn asked(&self, ctx: &ConnCtx<'_>, node: u32, request: &Request) {
        let listener = self.listener(request.port).ok_or(econnrefused());
        let made = listener.and_then(|listener| {
            listener.own_offer().check(&request.offer)?;
            let made = listener.offer(ctx, node, || {
                let peer = Payer::of_peer(ctx.ledger.clone(), node)?;
                let payers = (listener.payer(), Some(&peer));
                let make = |id| request.accept(ctx, payers, node, (id, &listener));
                // This worker ends the session, too.
                self.insert(ctx, payers, None, make, |_| Ok(()))
            })?;
            if listener.is_once() {
                self.close_port(&listener);
            }
            Ok(made)
        });
        match made {
            Ok(connection) => self.enqueue(&connection),
            Err(err) => self.reply(
                ctx,
                node,
                ConnMsg::Connected {
                    to: request.from,
                    error: err.to_errno().unsigned_abs(),
                    from: 0,
                    name: request.name,
                    window: Extent::NONE,
                    ring: Extent::NONE,
                    offer: Offer::NONE,
                },
            ),
        }
    }
}

impl Connection {
    /// Handles a message of the peer, which named this connection.
    fn handle_msg(self: &Arc<Self>, ctx: &ConnCtx<'_>, msg: &ConnMsg) {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            // Messages that arrive after the end has begun here are ignored.
            let closing = state.closing.ours;
            let result = match *msg {
                ConnMsg::Connected {
                    error,
                    from,
                    name,
                    window,
                    ring,
                    offer,
                    ..
                } => self.answered(ctx, state, (error, from, name), (window, ring, offer)),
                ConnMsg::Disconnect { reset, .. } if state.is_connected() => {
                    state.reset |= reset && !closing;
                    state.closing.theirs = true;
                    Ok(())
                }
                ConnMsg::Disconnected { .. } if state.closing.sent => {
                    state.closing.answered = true;
                    Ok(())
                }
                ConnMsg::Export { .. } | ConnMsg::Done { .. } | ConnMsg::Stream { .. }
                    if closing =>
                {
                    Ok(())
                }
                ConnMsg::Stream { endpoint, .. } => self.stream_named(ctx, state, endpoint),
                ConnMsg::Export {
                    bytes,
                    token,
                    generation,
                    ..
                } => self.exported(state, (token, generation), bytes),
                ConnMsg::Done { bytes, .. } => self.moved_by_peer(ctx, state, bytes),
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
        ctx.connections.enqueue(self);
    }

    fn answered(
        &self,
        ctx: &ConnCtx<'_>,
        state: &mut State,
        (error, from, name): (u32, u32, u64),
        (window, ring, offer): (Extent, Extent, Offer),
    ) -> Result {
        if state.phase != Phase::Asked || name != state.name {
            return Err(eproto());
        }
        self.given_up.store(false, Relaxed);
        if error != 0 {
            state.phase = Phase::Refused(refusal(error));
            // No message follows, and the peer does not write the ranges.
            state.closing.cut = true;
            state.take_ranges().free(ctx);
            return Ok(());
        }
        state.remote = from;
        state.phase = Phase::Connected;
        state.own_offer.check(&offer).map_err(|_| eproto())?;
        state.peer_offer = offer;
        state.peer_window = peer_window(ctx, self.node, self.transport, window)?;
        state.peer_ring = range_of_peer(ctx, self.node, ring)?.map(Ring::new);
        match (&state.own_ring, &state.peer_ring) {
            (None, Some(_)) => Err(eproto()),
            (_, Some(_)) | (None, None) => Ok(()),
            (Some(_), None) => {
                // The peer does not write it.
                state.take_ring().free(ctx);
                Ok(())
            }
        }
    }

    /// Returns the direction whose data the peer moves, or this side.
    fn direction(&self, peer_moves: bool) -> Direction {
        if self.moves(Direction::Send) != peer_moves {
            Direction::Send
        } else {
            Direction::Receive
        }
    }

    fn exported(&self, state: &mut State, token: (u64, u64), bytes: u64) -> Result {
        let is_possible = match self.transport {
            Transport::Engine => token.0 < REGION_SLOTS.into(),
            Transport::Memory => true,
            Transport::Window => token == (0, 0),
        };
        if !state.is_connected() || state.closing.theirs || !is_possible {
            return Err(eproto());
        }
        state.matching.heard_call()?;
        // The window bounds the bytes that can be in flight.
        let room = match state.peer_window {
            Some(window) => u64::try_from(window.length())?,
            None => u64::MAX,
        };
        let offers = &mut state.half(self.direction(false)).offers;
        offers.add(token.0, token.1, bytes, room)
    }

    fn moved_by_peer(&self, ctx: &ConnCtx<'_>, state: &mut State, bytes: u64) -> Result {
        if !state.is_connected() || state.closing.theirs || bytes == 0 {
            return Err(eproto());
        }
        state.matching.heard_call()?;
        self.done(ctx, state, self.direction(true), bytes)
    }
}
