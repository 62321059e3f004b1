// SPDX-License-Identifier: GPL-2.0

//! Progress of a connection: moves data and sends messages.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    copy::{
        self,
        ByteRing, //
    },
    ring::extent,
    state::{
        CloseMsg,
        Phase,
        State, //
    },
    transport::Transport,
    ConnCtx,
    Connection,
    Direction,
    PULL,
    WINDOW, //
};
use crate::{
    hw::{
        gate::GateGuard,
        Hw, //
    },
    kernel_ext::errno::{
        enotconn,
        eproto, //
    },
    link::{
        message::{
            Connection as ConnMsg,
            Message, //
        },
        peer::Peer, //
    },
    uapi,
    user_abi::status_page::Outcome, //
};

/// Maximum number of steps of one direction in one turn.
const STEPS: usize = 8;

/// Parts of a window range that are filled and emptied at the same time.
const STAGES: u64 = 4;

/// A command of the kernel's queue that moves data of a connection.
pub(super) struct Job {
    connection: Arc<Connection>,
    direction: Direction,
    bytes: u64,
}

/// The result of a turn of a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Turn {
    /// A message was sent or data was moved.
    pub(super) progress: bool,
    /// More work is left, for another turn or until a ring has room.
    pub(super) more: bool,
}

/// The context of a turn.
struct TurnCtx<'a> {
    ctx: &'a ConnCtx<'a>,
    guard: &'a GateGuard<'a>,
    peer: &'a Peer,
}

impl TurnCtx<'_> {
    fn hw(&self) -> Hw<'_> {
        self.guard.hw()
    }
}

impl Connection {
    /// Does a bounded amount of work.
    pub(super) fn work(self: &Arc<Self>, ctx: &ConnCtx<'_>, guard: &GateGuard<'_>) -> Turn {
        let mut turn = Turn::default();
        let Ok(peer) = ctx.link.peer(self.node) else {
            return turn;
        };
        let turn_ctx = TurnCtx { ctx, guard, peer };
        self.end_peer_ring(ctx);
        let mut state = self.state.lock();
        let phase = state.phase;
        match self.work_in(&turn_ctx, &mut state, &mut turn) {
            Ok(()) => (),
            Err(err) if err == EBUSY => turn.more = true,
            // A link that is down resets the connection by itself.
            Err(err) if err == enotconn() => (),
            Err(_) => {
                // The end has to be sent.
                turn.more |= !state.closing.has_begun();
                self.fail(&mut state);
            }
        }
        // What this turn has ended is told when the ring of the peer is revoked, which the next one does.
        turn.more |= state.closing.has_begun() && state.writes_ring();
        if turn.progress {
            if phase == state.phase {
                self.wake_if_ready(&mut state);
            } else {
                self.wake(&mut state);
            }
        }
        turn
    }

    /// Sends `msg` and counts it.
    fn send(
        &self,
        turn_ctx: &TurnCtx<'_>,
        state: &mut State,
        msg: ConnMsg,
        turn: &mut Turn,
    ) -> Result {
        let message = Message::Connection(msg);
        turn_ctx.peer.send(turn_ctx.hw(), &message)?;
        state.counters.messages += 1;
        turn.progress = true;
        Ok(())
    }

    fn work_in(
        self: &Arc<Self>,
        turn_ctx: &TurnCtx<'_>,
        state: &mut State,
        turn: &mut Turn,
    ) -> Result {
        if state.closing.cut {
            return Ok(());
        }
        match state.phase {
            Phase::Asking => {
                let window = match self.transport {
                    Transport::Window => WINDOW,
                    Transport::Engine | Transport::Memory => 0,
                };
                let msg = ConnMsg::Connect {
                    from: self.id,
                    port: self.port,
                    flags: window | if self.pull { PULL } else { 0 },
                    name: state.name,
                    window: extent(state.own_window)?,
                    ring: state.ring_extent()?,
                    offer: state.own_offer,
                };
                self.send(turn_ctx, state, msg, turn)?;
                state.phase = Phase::Asked;
            }
            Phase::Answering => {
                let msg = ConnMsg::Connected {
                    to: state.remote,
                    error: 0,
                    from: self.id,
                    name: state.name,
                    window: extent(state.own_window)?,
                    ring: state.ring_extent()?,
                    offer: state.own_offer,
                };
                self.send(turn_ctx, state, msg, turn)?;
                state.phase = Phase::Connected;
            }
            Phase::Asked | Phase::Connected | Phase::Refused(_) => (),
        }
        if state.phase != Phase::Connected {
            return Ok(());
        }
        let endpoint = state.matching.next_to_tell();
        if let (Some(endpoint), false) = (endpoint, state.closing.has_begun()) {
            let msg = ConnMsg::Stream {
                to: state.remote,
                endpoint,
            };
            self.send(turn_ctx, state, msg, turn)?;
            state.matching.set_told();
        }
        for direction in [Direction::Send, Direction::Receive] {
            if self.moves(direction) {
                self.move_data(turn_ctx, state, direction, turn)?;
            } else {
                self.offer(turn_ctx, state, direction, turn)?;
            }
            turn.progress |=
                self.start_invalidations(turn_ctx.ctx, turn_ctx.guard, state, direction)?;
        }
        match state.closing.next_msg() {
            _ if state.is_in_flight() => (),
            CloseMsg::Nothing => (),
            CloseMsg::Disconnect => {
                let msg = ConnMsg::Disconnect {
                    to: state.remote,
                    from: self.id,
                    reset: state.reset,
                };
                self.send(turn_ctx, state, msg, turn)?;
                state.disconnect_sent();
            }
            CloseMsg::Disconnected => {
                let msg = ConnMsg::Disconnected { to: state.remote };
                self.send(turn_ctx, state, msg, turn)?;
                state.closing.answer_sent = true;
            }
        }
        Ok(())
    }

    /// Moves data between memory of this side and what the peer has offered.
    fn move_data(
        self: &Arc<Self>,
        turn_ctx: &TurnCtx<'_>,
        state: &mut State,
        direction: Direction,
        turn: &mut Turn,
    ) -> Result {
        let mut steps = 0;
        let limit = match state.peer_window {
            Some(window) => u64::try_from(window.length())? / STAGES,
            None => self.transport.step(),
        };
        while !state.closing.has_begun() {
            let half = state.half(direction);
            let piece = half.stream.next(limit);
            let (Some(piece), Some(offer)) = (piece, half.offers.next()) else {
                break;
            };
            if steps == STEPS {
                turn.more = true;
                break;
            }
            steps += 1;
            let bytes = piece.length.min(offer.length);
            let there = copy::PeerSide {
                node: self.node,
                link_generation: turn_ctx.peer.hw_generation()?,
                push: direction == Direction::Send,
            };
            let hw = turn_ctx.hw();
            match self.transport {
                Transport::Engine => {
                    let command = copy::command(&piece, &offer, there, bytes)?;
                    let job = Job {
                        connection: self.clone(),
                        direction,
                        bytes,
                    };
                    let queues = turn_ctx.ctx.queues.ok_or(ENODEV)?;
                    match queues.copy(hw, &command, job) {
                        Ok(()) => half.commands += 1,
                        // Bytes that were moved are still reported.
                        Err(EBUSY) => {
                            turn.more = true;
                            break;
                        }
                        Err(err) => return Err(err),
                    }
                }
                Transport::Memory => {
                    if copy::by_cpu(turn_ctx.ctx.hw, &piece, &offer, there, bytes).is_err() {
                        self.fail(state);
                        break;
                    }
                }
                Transport::Window => {
                    let position = half.stream.total();
                    let window = state.peer_window.ok_or(EINVAL)?;
                    let ring = ByteRing {
                        node: self.node,
                        window,
                    };
                    let half = &state.sending;
                    let piece = half.stream.next(bytes).ok_or(EINVAL)?;
                    ring.push(hw, position, &piece, bytes)?;
                }
            }
            let half = state.half(direction);
            half.stream.claim(bytes);
            half.offers.claim(bytes);
            if self.transport != Transport::Engine {
                half.stream.moved(bytes)?;
                half.unreported += bytes;
                state.counters.copied += bytes;
            }
            turn.progress = true;
            if self.transport == Transport::Window {
                // The peer empties this part while the next one is filled.
                self.report(turn_ctx, state, direction, turn)?;
            }
        }
        self.report(turn_ctx, state, direction, turn)
    }

    /// Reports to the peer the bytes that were moved.
    fn report(
        &self,
        turn_ctx: &TurnCtx<'_>,
        state: &mut State,
        direction: Direction,
        turn: &mut Turn,
    ) -> Result {
        let bytes = state.half(direction).unreported;
        if bytes > 0 {
            let msg = ConnMsg::Done {
                to: state.remote,
                bytes,
            };
            self.send(turn_ctx, state, msg, turn)?;
            state.half(direction).unreported = 0;
        }
        Ok(())
    }

    /// Offers memory of this side to the peer, which moves the data.
    fn offer(
        &self,
        turn_ctx: &TurnCtx<'_>,
        state: &mut State,
        direction: Direction,
        turn: &mut Turn,
    ) -> Result {
        while !state.closing.has_begun() {
            let limit = match (self.transport, state.own_window) {
                (Transport::Window, Some(window)) => {
                    let size = u64::try_from(window.length())?;
                    size.saturating_sub(state.half(direction).stream.in_flight())
                }
                _ => u64::MAX,
            };
            let half = state.half(direction);
            let Some(piece) = half.stream.next(limit) else {
                break;
            };
            if half.offered.len() == half.offered.capacity() {
                break;
            }
            let bytes = piece.length;
            let (token, generation) = piece.buffer.token();
            let msg = ConnMsg::Export {
                to: state.remote,
                bytes,
                token,
                generation,
            };
            self.send(turn_ctx, state, msg, turn)?;
            let half = state.half(direction);
            half.stream.claim(bytes);
            // There is room.
            let _ = half.offered.push_within_capacity(bytes);
        }
        Ok(())
    }

    /// Resets the connection, since data cannot be moved any more.
    pub(super) fn fail(&self, state: &mut State) {
        if !state.closing.has_begun() {
            state.reset = true;
            state.end(false);
            self.wake(state);
        }
    }

    /// Cuts the connection, since the link is down.
    pub(super) fn cut(&self) {
        let mut state = self.state.lock();
        // If the peer has sent *disconnect*, all its data has arrived.
        state.reset |= !state.closing.theirs;
        state.closing.cut = true;
        self.wake(&mut state);
    }

    /// Handles a report of the peer that it has moved `bytes` bytes.
    pub(super) fn done(
        &self,
        ctx: &ConnCtx<'_>,
        state: &mut State,
        direction: Direction,
        bytes: u64,
    ) -> Result {
        if self.transport == Transport::Window {
            self.fetch(ctx, state, bytes)?;
        } else {
            state.half(direction).stream.moved(bytes)?;
        }
        state.half(direction).settle(bytes);
        if self.transport == Transport::Window {
            self.offer_room(ctx, state, direction)?;
        }
        Ok(())
    }

    /// Offers the room of bytes that were copied out of the window. The peer may wait for it, and
    /// more messages may be handled before the next turn of the connection.
    fn offer_room(&self, ctx: &ConnCtx<'_>, state: &mut State, direction: Direction) -> Result {
        let guard = ctx.gate.try_enter()?;
        let turn_ctx = TurnCtx {
            ctx,
            guard: &guard,
            peer: ctx.link.peer(self.node)?,
        };
        // If this fails, so does the next turn, which handles the error.
        let _ = self.offer(&turn_ctx, state, direction, &mut Turn::default());
        Ok(())
    }

    /// Copies `bytes` bytes out of the window.
    fn fetch(&self, ctx: &ConnCtx<'_>, state: &mut State, bytes: u64) -> Result {
        let guard = ctx.gate.try_enter()?;
        let window = state.own_window.ok_or(EINVAL)?;
        let ring = ByteRing {
            node: ctx.hw.geometry().node,
            window,
        };
        if bytes > state.receiving.stream.in_flight() {
            return Err(eproto());
        }
        let mut left = bytes;
        while left > 0 {
            let stream = &mut state.receiving.stream;
            let piece = stream.unmoved().ok_or(EINVAL)?;
            let step = piece.length.min(left);
            ring.pull(guard.hw(), stream.total(), &piece, step)?;
            stream.moved(step)?;
            left -= step;
        }
        state.counters.copied += bytes;
        Ok(())
    }
}

impl Job {
    /// Handles the completion of the command.
    pub(super) fn ended(self, ctx: &ConnCtx<'_>, outcome: Outcome) {
        let connection = &self.connection;
        {
            let mut state = connection.state.lock();
            let state = &mut *state;
            let half = state.half(self.direction);
            half.commands = half.commands.saturating_sub(1);
            let moved = outcome.status == uapi::ULDMA_DMA_OK && outcome.bytes == self.bytes;
            // Memory that was released meanwhile is not counted.
            if moved && half.stream.moved(self.bytes).is_ok() {
                half.unreported += self.bytes;
                state.counters.copied += self.bytes;
                connection.wake_if_ready(state);
            } else {
                connection.fail(state);
            }
        }
        ctx.connections.enqueue(connection);
    }

    /// Drops the command, since the device is unbound.
    pub(super) fn lost(self) {
        let mut state = self.connection.state.lock();
        state.half(self.direction).commands = 0;
    }
}
