// SPDX-License-Identifier: GPL-2.0

//! What connections do: move data, and say what has to be said.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

use super::{
    copy::{
        self,
        Lane, //
    },
    state::{
        Phase,
        Say,
        State, //
    },
    transport::Carrier,
    Connection,
    Site,
    Way,
    PULL,
    WINDOW, //
};
use crate::{
    kernel_ext::{
        errno::{
            enotconn,
            eproto, //
        },
        gate::GateGuard, //
    },
    link::{
        message::{
            Connection as Words,
            Message,
            Place, //
        },
        peer::Peer,
        window_alloc::Part, //
    },
    uapi,
    user_abi::status_page::Outcome, //
};

/// Steps of one direction in one turn.
const STEPS: usize = 8;

/// A command of the kernel's queue that moves data of a connection.
pub(super) struct Job {
    connection: Arc<Connection>,
    way: Way,
    bytes: u64,
}

/// What one turn of a connection has brought.
#[derive(Clone, Copy, Default)]
pub(super) struct Turn {
    /// Something was said or moved.
    pub(super) progress: bool,
    /// There is more to do: another turn, or when there is room.
    pub(super) more: bool,
}

/// What a turn works with.
struct Tools<'a> {
    site: &'a Site<'a>,
    guard: &'a GateGuard<'a>,
    peer: &'a Peer,
}

impl Tools<'_> {
    fn dev(&self) -> &Device<Bound> {
        self.guard.dev()
    }
}

fn place(part: Option<Part>) -> Result<Place> {
    match part {
        Some(part) => Ok((u64::try_from(part.offset())?, u64::try_from(part.length())?)),
        None => Ok((0, 0)),
    }
}

impl Connection {
    /// Does what there is to do, but not more than others can wait for.
    pub(super) fn work(self: &Arc<Self>, site: &Site<'_>, guard: &GateGuard<'_>) -> Turn {
        let mut turn = Turn::default();
        let Ok(peer) = site.link.peer(self.node) else {
            return turn;
        };
        let tools = Tools { site, guard, peer };
        let mut state = self.state.lock();
        let phase = state.phase;
        match self.work_in(&tools, &mut state, &mut turn) {
            Ok(()) => (),
            Err(err) if err == EBUSY => turn.more = true,
            // A link that is down resets the connection by itself.
            Err(err) if err == enotconn() => (),
            Err(_) => {
                // The end has to be said.
                turn.more |= !state.closing.has_begun();
                self.fail(&mut state);
            }
        }
        if turn.progress {
            match phase == state.phase {
                true => self.wake_if_ready(&state),
                false => self.wake(&state),
            }
        }
        turn
    }

    /// Says `words`, counted as of this connection.
    fn say(&self, tools: &Tools<'_>, state: &mut State, words: Words, turn: &mut Turn) -> Result {
        let hw = tools.site.hw;
        tools
            .peer
            .send(tools.dev(), hw, &Message::Connection(words))?;
        state.counters.messages += 1;
        turn.progress = true;
        Ok(())
    }

    fn work_in(self: &Arc<Self>, tools: &Tools<'_>, state: &mut State, turn: &mut Turn) -> Result {
        if state.closing.cut {
            return Ok(());
        }
        match state.phase {
            Phase::Asking => {
                let window = match self.carrier {
                    Carrier::Window => WINDOW,
                    Carrier::Engine | Carrier::Memory => 0,
                };
                let words = Words::Connect {
                    from: self.id,
                    port: self.port,
                    flags: window | if self.pull { PULL } else { 0 },
                    name: state.name,
                    part: place(state.own_part)?,
                };
                self.say(tools, state, words, turn)?;
                state.phase = Phase::Asked;
            }
            Phase::Answering => {
                let words = Words::Connected {
                    to: state.remote,
                    error: 0,
                    from: self.id,
                    name: state.name,
                    part: place(state.own_part)?,
                };
                self.say(tools, state, words, turn)?;
                state.phase = Phase::Connected;
            }
            Phase::Asked | Phase::Connected | Phase::Refused(_) => (),
        }
        if state.phase != Phase::Connected {
            return Ok(());
        }
        for way in [Way::Send, Way::Receive] {
            match self.moves(way) {
                true => self.move_data(tools, state, way, turn)?,
                false => self.offer(tools, state, way, turn)?,
            }
            turn.progress |= self.withdraw(tools.site, tools.guard, state, way)?;
        }
        match state.closing.say() {
            _ if state.is_in_flight() => (),
            Say::Nothing => (),
            Say::Disconnect => {
                let words = Words::Disconnect {
                    to: state.remote,
                    from: self.id,
                    reset: state.reset,
                };
                self.say(tools, state, words, turn)?;
                state.said_end();
            }
            Say::Disconnected => {
                let words = Words::Disconnected { to: state.remote };
                self.say(tools, state, words, turn)?;
                state.closing.answer_said = true;
            }
        }
        Ok(())
    }

    /// Moves data between memory of this side and what the peer has offered.
    fn move_data(
        self: &Arc<Self>,
        tools: &Tools<'_>,
        state: &mut State,
        way: Way,
        turn: &mut Turn,
    ) -> Result {
        let mut steps = 0;
        while !state.closing.has_begun() {
            let direction = state.direction(way);
            let piece = direction.stream.next(self.carrier.step());
            let (Some(piece), Some(offer)) = (piece, direction.offers.next()) else {
                break;
            };
            if steps == STEPS {
                turn.more = true;
                break;
            }
            steps += 1;
            let bytes = piece.length.min(offer.length);
            let there = copy::Peer {
                node: self.node,
                link_generation: tools.peer.hw_generation()?,
                push: way == Way::Send,
            };
            let hw = tools.site.hw;
            match self.carrier {
                Carrier::Engine => {
                    let command = copy::command(&piece, &offer, there, bytes)?;
                    let job = Job {
                        connection: self.clone(),
                        way,
                        bytes,
                    };
                    let queues = tools.site.queues.ok_or(ENODEV)?;
                    match queues.copy(tools.dev(), hw, &command, job) {
                        Ok(()) => direction.commands += 1,
                        // What was moved is told all the same.
                        Err(EBUSY) => {
                            turn.more = true;
                            break;
                        }
                        Err(err) => return Err(err),
                    }
                }
                Carrier::Memory => {
                    if copy::by_cpu(hw, &piece, &offer, there, bytes).is_err() {
                        self.fail(state);
                        break;
                    }
                }
                Carrier::Window => {
                    let position = direction.stream.total();
                    let part = state.peer_part.ok_or(EINVAL)?;
                    let lane = Lane {
                        node: self.node,
                        part,
                    };
                    let direction = &state.sending;
                    let piece = direction.stream.next(bytes).ok_or(EINVAL)?;
                    lane.push(tools.guard, hw, position, &piece, bytes)?;
                }
            }
            let direction = state.direction(way);
            direction.stream.claim(bytes);
            direction.offers.claim(bytes);
            if self.carrier != Carrier::Engine {
                direction.stream.moved(bytes)?;
                direction.unsaid += bytes;
                state.counters.copied += bytes;
            }
            turn.progress = true;
        }
        let bytes = state.direction(way).unsaid;
        if bytes > 0 {
            let words = Words::Done {
                to: state.remote,
                bytes,
            };
            self.say(tools, state, words, turn)?;
            state.direction(way).unsaid = 0;
        }
        Ok(())
    }

    /// Offers memory of this side to the peer, which moves the data.
    fn offer(&self, tools: &Tools<'_>, state: &mut State, way: Way, turn: &mut Turn) -> Result {
        while !state.closing.has_begun() {
            let limit = match (self.carrier, state.own_part) {
                (Carrier::Window, Some(part)) => {
                    let size = u64::try_from(part.length())?;
                    size.saturating_sub(state.direction(way).stream.in_flight())
                }
                _ => u64::MAX,
            };
            let direction = state.direction(way);
            let Some(piece) = direction.stream.next(limit) else {
                break;
            };
            if direction.offered.len() == direction.offered.capacity() {
                break;
            }
            let bytes = piece.length;
            let (token, generation) = piece.buffer.token();
            let words = Words::Export {
                to: state.remote,
                bytes,
                token,
                generation,
            };
            self.say(tools, state, words, turn)?;
            let direction = state.direction(way);
            direction.stream.claim(bytes);
            // There is room.
            let _ = direction.offered.push_within_capacity(bytes);
        }
        Ok(())
    }

    /// Data cannot be moved any more: this side ends the connection.
    pub(super) fn fail(&self, state: &mut State) {
        if !state.closing.has_begun() {
            state.reset = true;
            state.end(false);
            self.wake(state);
        }
    }

    /// The link is down: nothing can be moved or said any more.
    pub(super) fn cut(&self) {
        let mut state = self.state.lock();
        // Who has been told of the end by the peer has got all that there was.
        state.reset |= !state.closing.theirs;
        state.closing.cut = true;
        self.wake(&state);
    }

    /// The peer has moved `bytes` bytes, so they are here, or on their way to be.
    pub(super) fn done(&self, site: &Site<'_>, state: &mut State, way: Way, bytes: u64) -> Result {
        if self.carrier == Carrier::Window {
            self.fetch(site, state, bytes)?;
        } else {
            state.direction(way).stream.moved(bytes)?;
        }
        state.direction(way).settle(bytes);
        Ok(())
    }

    /// Copies `bytes` bytes out of the window.
    fn fetch(&self, site: &Site<'_>, state: &mut State, bytes: u64) -> Result {
        let guard = site.gate.try_enter()?;
        let part = state.own_part.ok_or(EINVAL)?;
        let lane = Lane {
            node: site.hw.geometry().node,
            part,
        };
        if bytes > state.receiving.stream.in_flight() {
            return Err(eproto());
        }
        let mut left = bytes;
        while left > 0 {
            let stream = &mut state.receiving.stream;
            let piece = stream.unmoved().ok_or(EINVAL)?;
            let step = piece.length.min(left);
            lane.pull(&guard, site.hw, stream.total(), &piece, step)?;
            stream.moved(step)?;
            left -= step;
        }
        state.counters.copied += bytes;
        Ok(())
    }
}

impl Job {
    /// The command has ended.
    pub(super) fn ended(self, site: &Site<'_>, outcome: Outcome) {
        let connection = &self.connection;
        {
            let mut state = connection.state.lock();
            let state = &mut *state;
            let direction = state.direction(self.way);
            direction.commands = direction.commands.saturating_sub(1);
            let moved = outcome.status == uapi::ULDMA_DMA_OK && outcome.bytes == self.bytes;
            // What was taken away meanwhile is not counted.
            if moved && direction.stream.moved(self.bytes).is_ok() {
                direction.unsaid += self.bytes;
                state.counters.copied += self.bytes;
                connection.wake_if_ready(state);
            } else {
                connection.fail(state);
            }
        }
        site.connections.list(connection);
    }

    /// The device is gone, and with it the command.
    pub(super) fn lost(self) {
        let mut state = self.connection.state.lock();
        state.direction(self.way).commands = 0;
    }
}
