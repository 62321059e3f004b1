// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections through the window: the processors move the messages, by two rings in it.
//!
//! The message is cut into pieces of a ring. A piece of full length is followed by another one, so
//! that the end of a message needs no mark of its own.

use std::collections::VecDeque;
use std::time::Duration;

use super::begun::Begun;
use super::copied::Copied;
use super::handshake::Handshake;
use super::sending::{part, pieces};
use super::MessageOptions;
use crate::channel::Channel;
use crate::connection::link::{Link, WindowLink};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::message::{ReceiveTechnique, SendTechnique};
use crate::ring::Violation;
use crate::wait::deadline::Deadline;
use crate::wait::spin::Spin;

/// Bytes of the largest ring.
const LARGEST: u64 = 1 << 20;

/// Pieces of messages in the two rings.
#[derive(Debug)]
struct Pieces<L: Link = WindowLink> {
    channel: Channel<L>,
    /// Bytes of a piece that is not the last one of its message; no piece that is sent has more.
    most: usize,
    /// The same for those of the peer, which has a ring of another size.
    most_received: usize,
    /// Pieces that were taken out of the window before they are received.
    slots: VecDeque<Vec<u8>>,
    /// Slots that there can be.
    room: usize,
    copied: Copied,
    /// The end of the connection, which is reported after the last message.
    ended: Option<Error>,
    /// The peer has sent a longer piece. It stays in its ring, so nothing behind it is received.
    violated: bool,
}

/// One side of a message connection through the window.
#[derive(Debug)]
pub(super) struct Window {
    pieces: Pieces,
    sending: SendTechnique,
    receiving: ReceiveTechnique,
    /// The beginning of a message that a call has left.
    begun: Begun,
    /// A message was sent in part.
    torn: bool,
    device: Device,
}

impl Window {
    /// Returns the bytes of the ring for a side that receives pieces of `piece` bytes: two of them fit, so
    /// that copying to it and from it can overlap.
    pub(super) fn capacity(piece: u64) -> u64 {
        (2 * piece.min(LARGEST / 4).next_power_of_two()).max(4096)
    }

    /// Sends messages over the channel by which the two sides have told each other `own` and `peer`.
    pub(super) fn new(
        device: Device,
        channel: Channel,
        (own, peer): (&Handshake, &Handshake),
        options: &MessageOptions,
    ) -> Self {
        let slot = own.piece.min(peer.piece).min(LARGEST / 4);
        let slots = match options.receiving {
            ReceiveTechnique::CopyDma => options.slots.into(),
            _ => 0,
        };
        Self {
            pieces: Pieces::new(channel, usize::try_from(slot).unwrap_or(usize::MAX), slots),
            sending: options.sending,
            receiving: options.receiving,
            begun: Begun::default(),
            torn: false,
            device,
        }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn set_sending(&mut self, technique: SendTechnique) -> Result<()> {
        self.sending = technique.check_window()?;
        Ok(())
    }

    pub(super) fn sending(&self) -> SendTechnique {
        self.sending
    }

    pub(super) fn receiving(&self) -> ReceiveTechnique {
        self.receiving
    }

    pub(super) fn copied(&self) -> Copied {
        self.pieces.copied
    }

    pub(super) fn set_spin(&mut self, spin: Spin) {
        self.pieces.channel.set_spin(spin);
    }

    /// Copies a message into the window; waits for room.
    pub(super) fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        if self.torn {
            return Err(Error::Torn);
        }
        let deadline = Deadline::after(timeout);
        let most = self.pieces.most as u64;
        // A last piece of full length is followed by an empty one.
        let length = message.len() as u64;
        for piece in pieces(length, most) {
            self.pieces
                .push(part(message, piece).unwrap_or_default(), deadline)
                .inspect_err(|_| self.torn |= piece.offset > 0)?;
        }
        if length > 0 && length % most == 0 {
            let pushed = self.pieces.push(&[], deadline);
            pushed.inspect_err(|_| self.torn = true)?;
        }
        Ok(())
    }

    /// Receives a message into the start of `target`.
    pub(super) fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let deadline = Deadline::after(timeout);
        let mut length = self.begun.resume(target);
        let mut has_begun = length > 0;
        loop {
            // A message without end must not keep the caller here.
            let taken = if has_begun && deadline.is_over() {
                Err(deadline.missed("end of the message"))
            } else {
                let rest = target.get_mut(length..).unwrap_or_default();
                self.pieces.take(rest, deadline)
            };
            let bytes = taken.inspect_err(|_| self.begun.interrupted(target, length))?;
            length = length.saturating_add(bytes);
            has_begun = true;
            if bytes < self.pieces.most_received {
                break;
            }
        }
        if length > target.len() {
            let limit = target.len();
            return Err(Error::TooLong { length, limit });
        }
        Ok(length)
    }
}

impl<L: Link> Pieces<L> {
    /// Creates an object for pieces of at most `most` bytes, up to `room` of which are taken out of
    /// the window before they are received.
    fn new(channel: Channel<L>, most: usize, room: usize) -> Self {
        Self {
            most: most.min(channel.max_message()),
            most_received: most.min(channel.max_received()),
            channel,
            slots: VecDeque::new(),
            room,
            copied: Copied::default(),
            ended: None,
            violated: false,
        }
    }

    /// Copies a piece into the window; waits for room.
    fn push(&mut self, piece: &[u8], deadline: Deadline) -> Result<()> {
        if !self.channel.try_send(piece)? {
            // The peer may wait for room, too.
            self.drain();
            let sent = self.channel.send(piece, deadline.left());
            sent.map_err(|error| match error {
                Error::Timeout { .. } => deadline.missed("buffer of the peer"),
                other => other,
            })?;
        }
        self.copied.by_library += piece.len() as u64;
        Ok(())
    }

    /// Takes pieces out of the window into free slots.
    fn drain(&mut self) {
        while self.slots.len() < self.room && !self.violated {
            let mut slot = vec![0; self.most_received];
            match self.channel.try_receive(&mut slot) {
                Ok(Some(length)) => {
                    slot.truncate(length);
                    self.copied.by_library += length as u64;
                    self.slots.push_back(slot);
                }
                Ok(None) => break,
                Err(error) => {
                    let error = self.end_of(error);
                    self.ended.get_or_insert(error);
                    break;
                }
            }
        }
    }

    /// Returns the error of a connection that ends by `error`: a violation, if a piece does not fit
    /// into a slot.
    fn end_of(&mut self, error: Error) -> Error {
        match error {
            Error::TooLong { .. } => {
                self.violated = true;
                Violation::Length.into()
            }
            other => other,
        }
    }

    /// Waits for a piece, and copies as much of it as `target` has room for. Returns its length.
    fn take(&mut self, target: &mut [u8], deadline: Deadline) -> Result<usize> {
        if self.slots.is_empty() {
            if let Some(error) = self.ended.take() {
                return Err(error);
            }
            if self.violated {
                return Err(Error::Closed);
            }
            // No longer piece is received, whatever room there is.
            let room = target.len().min(self.most_received);
            let rest = target.get_mut(..room).unwrap_or_default();
            match self.channel.receive(rest, deadline.left()) {
                // What has no room is lost, and the rest of the message stays behind it.
                Err(Error::TooLong { .. }) => {
                    let mut slot = vec![0; self.most_received];
                    let received = self.channel.receive(&mut slot, deadline.left());
                    slot.truncate(received.map_err(|error| self.end_of(error))?);
                    self.copied.by_library += slot.len() as u64;
                    self.slots.push_back(slot);
                }
                Err(Error::Timeout { .. }) => return Err(deadline.missed("message from the peer")),
                Ok(length) => {
                    self.copied.by_library += length as u64;
                    return Ok(length);
                }
                Err(error) => return Err(error),
            }
        }
        let slot = self.slots.pop_front().unwrap_or_default();
        let fits = slot.len().min(target.len());
        let (target, bytes) = (target.get_mut(..fits), slot.get(..fits));
        target
            .unwrap_or_default()
            .copy_from_slice(bytes.unwrap_or_default());
        self.copied.by_library += fits as u64;
        // The peer can go on while the caller uses the message.
        self.drain();
        Ok(slot.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::loopback;
    use crate::connection::loopback::Loopback;

    const PATIENCE: Duration = Duration::from_secs(20);
    const PIECE: usize = 16;

    /// A peer that can send anything, and the pieces that it sends.
    fn sides(room: usize) -> (Channel<Loopback>, Pieces<Loopback>) {
        let (left, right) = loopback::pair(4096);
        let left = Channel::over(left, 4096).unwrap();
        let right = Channel::over(right, 4096).unwrap();
        (left, Pieces::new(right, PIECE, room))
    }

    #[test]
    fn a_piece_that_is_too_long_ends_the_connection_once() {
        for (room, size) in [(0, PIECE), (0, 4), (0, 4 * PIECE), (2, PIECE), (2, 4)] {
            let (mut peer, mut pieces) = sides(room);
            assert!(peer.try_send(&[1; 3]).unwrap());
            assert!(peer.try_send(&[2; PIECE + 1]).unwrap());
            assert!(peer.try_send(&[3; 3]).unwrap());
            let mut target = vec![0; size];
            let mut take = || pieces.take(&mut target, Deadline::after(PATIENCE));
            assert_eq!(take().unwrap(), 3);
            let error = take().unwrap_err();
            let is_violation = matches!(error, Error::Violation(Violation::Length));
            assert!(is_violation, "{room}, {size}: {error}");
            for _ in 0..2 {
                let error = take().unwrap_err();
                assert!(matches!(error, Error::Closed), "{room}, {size}: {error}");
            }
        }
    }

    #[test]
    fn a_piece_is_taken_whatever_room_there_is_for_it() {
        for room in [0, 2] {
            let (mut peer, mut pieces) = sides(room);
            for _ in 0..2 {
                assert!(peer.try_send(&[1; PIECE]).unwrap());
            }
            let mut take = |size| {
                let mut target = vec![0; size];
                let length = pieces.take(&mut target, Deadline::after(PATIENCE));
                (length.unwrap(), target)
            };
            assert_eq!(take(4), (PIECE, vec![1; 4]));
            let (length, target) = take(PIECE + 1);
            assert_eq!((length, &target[..PIECE]), (PIECE, &[1; PIECE][..]));
        }
    }
}
