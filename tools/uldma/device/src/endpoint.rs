// SPDX-License-Identifier: MIT OR Apache-2.0

//! Endpoints: matches the messages that one node sends with the buffers that another has posted.
//!
//! The engine of the sender does it, and takes each receive descriptor once. What the receiver
//! posted is checked against the receiver's tables: a posted buffer needs no export.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::abi::Status;
use crate::check::{self, AccessCheck};
use crate::completion::StatusPage;
use crate::context::Wait;
use crate::layout::{EndpointEntry, EndpointFlags};
use crate::location::CheckedTransfer;
use crate::memory::{BusError, GuestMemory};
use crate::queue::{list_of, Buffer, Descriptor, Ring, Send};
use crate::tpt::View;
use crate::transfer::{Delivery, Piece, Work};

/// Limit of the bytes of a stream that are delivered together, so that both sides see progress.
const LONGEST_PIECE: u64 = 1 << 20;

/// The context that sends.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Its node.
    pub node: usize,
    /// Its number.
    pub context: usize,
    /// Its space; `None` for a privileged context.
    pub space: Option<u32>,
}

/// The result of a search for the receive descriptor of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// None is posted.
    Waits(Limit),
    /// What to do, or why it cannot be done, and what the receiver gets.
    Found(Result<Work, Status>, Delivery),
}

/// How long a message may wait for a receive descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    node: usize,
    timeout_ms: u32,
}

impl Limit {
    /// Returns the wait that begins now.
    pub fn begin(self, now: Instant) -> Wait {
        let limited = (self.timeout_ms != u32::MAX).then_some(self.timeout_ms);
        let limit = limited.map(|limit| Duration::from_millis(limit.into()));
        Wait {
            node: self.node,
            until: limit.and_then(|limit| now.checked_add(limit)),
        }
    }
}

impl Wait {
    /// Returns true if the send fails by now.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The receptions of one endpoint.
#[derive(Clone, Copy, Debug)]
struct Receptions {
    generation: u64,
    /// Receive descriptors that were taken.
    taken: u64,
    /// Receptions that ended with an error.
    failed: u64,
    /// Receptions that have not ended. All are of one context, since those of two could end in
    /// another order.
    in_flight: u32,
    /// Node and context that sent last.
    sender: (usize, usize),
    stream: StreamState,
}

/// The state of an endpoint that receives a stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamState {
    /// Bytes of the first buffer that is not full for which pieces were taken.
    filled: u64,
    /// Bytes that were received.
    received: u64,
    /// A piece has failed or cannot be placed, so no later one is taken.
    is_closed: bool,
    /// A piece has failed, so that later bytes are at wrong places, and are not counted.
    is_torn: bool,
}

impl StreamState {
    /// Returns the next piece of a send that has `left` bytes left, the buffer that it goes to, and
    /// the place in it.
    fn plan(&self, posted: &Descriptor, left: u64) -> Result<(Piece, Buffer, (u32, u64)), Status> {
        if posted.can_be_redirected() {
            return Err(Status::NotValid);
        }
        let buffer = posted.buffer()?;
        let ((region, position), length) = buffer;
        // The receiver may have changed the length meanwhile.
        let room = length.checked_sub(self.filled).filter(|room| *room > 0);
        let room = room.ok_or(Status::Bounds)?;
        let place = position.checked_add(self.filled).ok_or(Status::Bounds)?;
        let bytes = left.min(room).min(LONGEST_PIECE);
        let piece = Piece {
            bytes,
            fills: bytes == room,
            continues: bytes < left,
        };
        Ok((piece, buffer, (region, place)))
    }

    /// Notes that a piece was taken, or that the buffer cannot be used.
    fn note(&mut self, piece: &Piece, refused: bool) {
        self.is_closed |= refused;
        self.filled = match piece.fills {
            true => 0,
            false => self.filled.saturating_add(piece.bytes),
        };
    }
}

/// What a piece of a stream has changed.
pub(crate) struct Received {
    /// Bytes that were received so far.
    pub(crate) bytes: u64,
    /// The node that sends.
    pub(crate) from: usize,
}

/// The receptions of all endpoints, by node and index.
#[derive(Debug, Default)]
pub struct Endpoints(BTreeMap<(usize, u32), Receptions>);

impl Endpoints {
    /// Forgets an endpoint that is invalidated.
    pub fn forget(&mut self, node: usize, index: u32) {
        self.0.remove(&(node, index));
    }

    /// Forgets the endpoints of a node that is reset, and the messages that it was sending.
    pub fn forget_node(&mut self, node: usize) {
        self.0.retain(|(other, _), _| *other != node);
        for receptions in self.0.values_mut() {
            if receptions.sender.0 == node {
                // What was taken for its pieces does not arrive.
                let is_torn = receptions.in_flight > 0;
                receptions.stream.is_torn |= is_torn;
                receptions.stream.is_closed |= is_torn;
                receptions.in_flight = 0;
            }
        }
    }

    /// Returns the number of the next receive descriptor of an endpoint that messages were sent to.
    pub(crate) fn next(&self, node: usize, index: u32) -> Option<u64> {
        let receptions = self.0.get(&(node, index))?;
        Some(receptions.taken.wrapping_add(1))
    }

    /// Notes that a reception has ended. Returns false if its endpoint is not the same any more.
    pub(crate) fn end(&mut self, delivery: &Delivery) -> bool {
        let known = self.0.get_mut(&(delivery.node, delivery.endpoint));
        let known = known.filter(|known| known.generation == delivery.generation);
        let Some(receptions) = known else {
            return false;
        };
        receptions.in_flight = receptions.in_flight.saturating_sub(1);
        true
    }

    /// Counts a piece of a stream that ended with `status`. Returns nothing if it failed, or one
    /// before it.
    pub(crate) fn end_piece(
        &mut self,
        delivery: &Delivery,
        piece: &Piece,
        status: Status,
    ) -> Option<Received> {
        let receptions = self.0.get_mut(&(delivery.node, delivery.endpoint))?;
        let stream = &mut receptions.stream;
        stream.is_torn |= status != Status::Ok;
        stream.is_closed |= stream.is_torn;
        if stream.is_torn {
            return None;
        }
        stream.received = stream.received.wrapping_add(piece.bytes);
        Some(Received {
            bytes: stream.received,
            from: receptions.sender.0,
        })
    }

    /// Counts a reception with an error. Returns how many there were at the endpoint.
    pub(crate) fn count_failed(&mut self, delivery: &Delivery, failed: bool) -> u64 {
        let known = self.0.get_mut(&(delivery.node, delivery.endpoint));
        known.map_or(0, |receptions| {
            receptions.failed = receptions.failed.wrapping_add(failed.into());
            receptions.failed
        })
    }

    /// Returns the receptions of an endpoint. Those of a new one continue the counts of its status
    /// page.
    fn of(
        &mut self,
        place: (usize, u32),
        entry: &EndpointEntry,
        memory: &GuestMemory,
    ) -> Result<&mut Receptions, BusError> {
        let known = self.0.get(&place);
        if known.is_none_or(|known| known.generation != entry.generation) {
            let page = StatusPage::new(memory, entry.receive_status)?;
            let counts = page.counts()?;
            let receptions = Receptions {
                generation: entry.generation,
                taken: counts.completed,
                failed: counts.failed,
                in_flight: 0,
                sender: (0, 0),
                stream: StreamState {
                    received: page.received()?,
                    ..StreamState::default()
                },
            };
            self.0.insert(place, receptions);
        }
        self.0.get_mut(&place).ok_or(BusError)
    }

    /// Takes the receive descriptor for a message, unless the sender may not send it. Of a stream,
    /// takes room for the bytes after the first `progress` bytes of the send.
    pub fn take(
        &mut self,
        sender: &Sender,
        send: &Send,
        progress: u64,
        access_check: &AccessCheck<'_, GuestMemory>,
        memories: &[&GuestMemory],
    ) -> Result<Match, Status> {
        if send.flags != 0 || send.is_listed && sender.space.is_some() {
            return Err(Status::NotValid);
        }
        let own = access_check.own.endpoint(send.endpoint)?;
        if sender.space.is_some_and(|space| own.space != space) {
            return Err(Status::NotOwner);
        }
        if !own.flags.contains(EndpointFlags::CONNECTED) {
            return Err(Status::NotValid);
        }
        if send.length > own.most_bytes {
            return Err(Status::TooLong);
        }
        let is_stream = own.flags.contains(EndpointFlags::STREAM);
        if is_stream && send.more {
            return Err(Status::NotValid);
        }
        if is_stream && send.length <= progress {
            return Err(Status::BadSize);
        }
        // A message without bytes has no memory to be checked.
        let source = match send.length {
            0 => None,
            bytes if send.is_listed => {
                Some(check::listed(access_check, list_of(send.from), bytes)?)
            }
            bytes => Some(check::message(
                access_check,
                sender.space,
                send.from,
                bytes,
            )?),
        };
        let number = own.flags.get(EndpointFlags::NODE);
        let view = access_check.peer(number, own.link_generation)?;
        let node = number as usize;
        let waits = Match::Waits(Limit {
            node,
            timeout_ms: own.timeout_ms,
        });
        let Some(peer) = peer_of(&own, sender.node, send.endpoint, view)? else {
            return Ok(waits);
        };
        if peer.flags.contains(EndpointFlags::STREAM) != is_stream {
            return Err(Status::Remote);
        }
        let memory = *memories.get(node).ok_or(Status::LinkDown)?;
        let far = |_: BusError| Status::Remote;
        let receptions = self.of((node, own.peer_endpoint), &peer, memory);
        let receptions = receptions.map_err(far)?;
        let ring = Ring::new(memory, peer.receive_ring).map_err(far)?;
        let ticket = receptions.taken.wrapping_add(1);
        let from = (sender.node, sender.context);
        if receptions.in_flight > 0 && receptions.sender != from {
            return Ok(waits);
        }
        let Some(posted) = ring.read(ticket).map_err(far)? else {
            return Ok(waits);
        };
        if is_stream {
            if receptions.stream.is_closed {
                return Err(Status::Remote);
            }
            let whose = (number, own.link_generation);
            let planned = receptions.stream.plan(&posted, send.length - progress);
            let planned = planned.and_then(|(piece, (to, room), place)| {
                check::posted(view, whose, peer.space, to, room)?;
                let to = check::posted(view, whose, peer.space, place, piece.bytes)?;
                Ok((piece, to))
            });
            let (piece, work) = match planned {
                Ok((piece, destination)) => {
                    let first = send.from.1.checked_add(progress).ok_or(Status::Bounds)?;
                    let from = (send.from.0, first);
                    let source = check::message(access_check, sender.space, from, piece.bytes)?;
                    let copy = Work::Copy(CheckedTransfer {
                        source,
                        destination,
                        bytes: piece.bytes,
                    });
                    (piece, Ok(copy))
                }
                Err(refusal) => (Piece::REFUSED, Err(refusal)),
            };
            receptions.stream.note(&piece, work.is_err());
            if piece.fills {
                receptions.taken = ticket;
            }
            receptions.sender = from;
            receptions.in_flight += 1;
            let delivery = Delivery {
                node,
                endpoint: own.peer_endpoint,
                generation: peer.generation,
                sender: send.endpoint,
                ticket,
                more: false,
                redirected: false,
                refusal: work.err(),
                piece: Some(piece),
            };
            return Ok(Match::Found(work.map_err(|_| Status::Remote), delivery));
        }

        let redirected = if posted.can_be_redirected() {
            ring.take_redirected(ticket).map_err(far)?
        } else {
            None
        };
        receptions.taken = ticket;
        receptions.sender = from;
        receptions.in_flight += 1;

        let whose = (number, own.link_generation);
        let redirected = redirected.filter(|(_, room)| send.length <= *room);
        let may_list = peer.flags.contains(EndpointFlags::PRIVILEGED);
        let room = match posted.listed_buffer().filter(|_| may_list) {
            Some((list, room)) => {
                check::posted_list(view, whose, list, room).map(|buffer| (buffer, room))
            }
            None => posted.buffer().and_then(|slot| {
                let (to, room) = redirected.unwrap_or(slot);
                let buffer = check::posted(view, whose, peer.space, to, room);
                Ok((buffer?, room))
            }),
        };
        let (work, refusal) = match room {
            Err(refusal) => (Err(Status::Remote), Some(refusal)),
            Ok((_, room)) if send.length > room => (Err(Status::TooLong), Some(Status::TooLong)),
            Ok((destination, _)) => {
                let copy = source.map(|source| {
                    Work::Copy(CheckedTransfer {
                        source,
                        destination,
                        bytes: send.length,
                    })
                });
                (Ok(copy.unwrap_or(Work::Nothing)), None)
            }
        };
        let delivery = Delivery {
            node,
            endpoint: own.peer_endpoint,
            generation: peer.generation,
            sender: send.endpoint,
            ticket,
            more: send.more,
            redirected: redirected.is_some(),
            refusal,
            piece: None,
        };
        Ok(Match::Found(work, delivery))
    }
}

/// Returns the endpoint that endpoint `index` of `node` is connected to, if that one agrees; `None`
/// if it is not connected yet.
fn peer_of(
    own: &EndpointEntry,
    node: usize,
    index: u32,
    view: &View<'_, GuestMemory>,
) -> Result<Option<EndpointEntry>, Status> {
    let peer = view.endpoint(own.peer_endpoint);
    let peer = peer.map_err(|_| Status::Remote)?;
    if peer.generation != own.peer_generation {
        return Err(Status::Remote);
    }
    if !peer.flags.contains(EndpointFlags::CONNECTED) {
        return Ok(None);
    }
    let agrees = peer.flags.get(EndpointFlags::NODE) as usize == node
        && peer.peer_endpoint == index
        && peer.peer_generation == own.generation
        && peer.link_generation == own.link_generation;
    agrees.then_some(Some(peer)).ok_or(Status::Remote)
}
