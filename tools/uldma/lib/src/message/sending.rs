// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sending half of a message connection: slots, sends under way, and their results.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::copied::Copied;
use super::driver_slots::DriverSlots;
use super::notice::Put;
use super::window_slots::WindowSlots;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::method::refusal::Refusal;
use crate::region::{Borrowed, Region, Registered};
use crate::transfer::context::Context;
use crate::transfer::descriptor::Order;
use crate::transfer::endpoint::Endpoint;
use crate::transfer::status::{Completion, RECORDS};
use crate::transfer::ticket::Ticket;

/// The result of a message whose sender asks for it; empty while no piece of it has failed.
type Fate = Arc<OnceLock<Completion>>;

/// A message that the device reads from memory that the program must not change yet.
#[derive(Debug)]
#[must_use = "the memory may be changed only after the message was sent"]
pub struct Sent {
    /// Of the last piece.
    pub(super) last: Ticket,
    fate: Fate,
}

impl Sent {
    /// Returns the error of the first piece that failed.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`].
    pub(super) fn check(&self) -> Result<()> {
        let failed = self.fate.get().map_or(Ok(()), |it| it.check().map(drop));
        failed
    }
}

/// A message in a buffer, which is pinned until the message was sent.
#[derive(Debug)]
#[must_use = "dropping it may cut the message off"]
pub struct SentBuffer {
    pub(super) sent: Sent,
    pub(super) region: Region,
}

/// Slots that messages are copied to.
#[derive(Debug)]
struct Slots {
    region: Region,
    bytes: u64,
    turns: Turns,
}

/// The order in which slots are used.
#[derive(Debug)]
struct Turns {
    /// The last send from each slot.
    tickets: Vec<Option<Ticket>>,
    next: usize,
}

impl Turns {
    /// Creates the order of `count` slots.
    fn new(count: u64) -> Self {
        Self {
            tickets: (0..count).map(|_| None).collect(),
            next: 0,
        }
    }

    /// Returns the send that has to end before the next slot is free.
    fn blocked_by(&self) -> Option<Ticket> {
        self.tickets.get(self.next).copied().flatten()
    }

    /// Notes the send from the next slot.
    fn sent(&mut self, ticket: Ticket) {
        if let Some(last) = self.tickets.get_mut(self.next) {
            *last = Some(ticket);
        }
        self.next = (self.next + 1) % self.tickets.len().max(1);
    }
}

/// Memory of a message that its sender has given up, while the device may read it.
#[derive(Debug)]
pub(super) enum Kept {
    /// Memory of the program, which may have changed it.
    Borrowed { _region: Borrowed },
    /// A buffer.
    Owned { _region: Region },
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sender {
    slots: Slots,
    /// Slots of the driver, once they are used.
    driver_slots: Option<(DriverSlots, Turns)>,
    /// Slots in the window, once they are used; as long as the others.
    window_slots: Option<(WindowSlots, Turns)>,
    /// Bytes of one message of the device.
    piece: u64,
    /// The peer takes no message in pieces.
    whole: bool,
    /// Messages that were given to the device.
    pub(super) sent: u64,
    /// Of the messages.
    pub(super) copied: Copied,
    /// Sends of which the result is unknown, oldest first.
    under_way: VecDeque<UnderWay>,
    /// Memory that is kept until these sends have ended.
    kept: Vec<(Ticket, Kept)>,
    /// The first failure of a message that was copied, until a call reports it.
    failed: Option<Completion>,
    /// A message was sent in part, or it is unknown which buffers of the peer were used.
    torn: bool,
}

/// A send of which the result is unknown.
#[derive(Debug)]
struct UnderWay {
    ticket: Ticket,
    /// Of the message, if its sender asks for it.
    fate: Option<Fate>,
    /// It is one of several pieces.
    is_part: bool,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the next buffer that the peer has posted.
    Posted,
    /// To the peer's memory: the index of its region, and an offset there.
    Place(u32, u64),
}

/// The same, with the endpoint.
#[derive(Debug)]
pub(super) enum Destination<'engine> {
    /// To the peer of this endpoint.
    Posted(&'engine Endpoint),
    /// To a region by its index, from this offset on. What is pushed next depends on it.
    Place(u32, u64),
}

/// The slots that a message is copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// Registered memory.
    Memory,
    /// The window.
    Window,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Another one follows.
    pub(super) more: bool,
}

impl Piece {
    /// Returns true if the message has other pieces.
    fn is_part(self) -> bool {
        self.more || self.offset > 0
    }
}

/// Cuts a message of `length` bytes into pieces of at most `most`; an empty one is one piece.
pub(super) fn pieces(length: u64, most: u64) -> impl Iterator<Item = Piece> {
    let most = most.max(1);
    let count = length.div_ceil(most).max(1);
    (0..count).map(move |number| {
        let offset = number * most;
        Piece {
            offset,
            bytes: most.min(length - offset),
            more: number + 1 < count,
        }
    })
}

/// Returns the bytes of a part of a region.
///
/// # Errors
///
/// [`Error::Range`] if the region has no such part.
pub(super) fn length_of(region: &impl Registered, part: &Range<u64>) -> Result<u64> {
    let length = part.end.saturating_sub(part.start);
    if part.start > part.end || part.end > region.length() {
        return Err(Error::Range {
            offset: part.start,
            length,
            size: region.length(),
        });
    }
    Ok(length)
}

/// Returns the bytes of a piece.
pub(super) fn part(message: &[u8], piece: Piece) -> Option<&[u8]> {
    let start = usize::try_from(piece.offset).ok()?;
    let length = usize::try_from(piece.bytes).ok()?;
    message.get(start..)?.get(..length)
}

impl Sender {
    /// Creates the half for slots of `bytes` bytes in `region`, and a peer that takes messages of at
    /// most `piece` bytes: longer ones in pieces, unless it takes them as a `whole` only.
    pub(super) fn new(region: Region, bytes: u64, piece: u64, whole: bool) -> Self {
        let count = region.length() / bytes.max(1);
        Self {
            slots: Slots {
                region,
                bytes,
                turns: Turns::new(count),
            },
            driver_slots: None,
            window_slots: None,
            piece,
            whole,
            sent: 0,
            copied: Copied::default(),
            under_way: VecDeque::new(),
            kept: Vec::new(),
            failed: None,
            torn: false,
        }
    }

    /// Returns true if the peer takes no message in pieces, since its program posts the buffers.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the pieces of a message that the device reads from the program's memory.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] when the peer does not take it.
    pub(super) fn pieces(&self, length: u64) -> Result<impl Iterator<Item = Piece>> {
        self.pieces_of(length, self.piece)
    }

    /// Returns the pieces of a message that is copied to slots first.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] when the peer does not take it.
    pub(super) fn copied_pieces(&self, length: u64) -> Result<impl Iterator<Item = Piece>> {
        self.pieces_of(length, self.piece.min(self.slots.bytes))
    }

    fn pieces_of(&self, length: u64, most: u64) -> Result<impl Iterator<Item = Piece>> {
        if self.whole && length > most {
            return Err(Error::TooLong {
                length: usize::try_from(length).unwrap_or(usize::MAX),
                limit: usize::try_from(most).unwrap_or(usize::MAX),
            });
        }
        Ok(pieces(length, most))
    }

    /// Returns the send that has to end before the next slot is free.
    pub(super) fn blocked_by(&self, via: Via) -> Option<Ticket> {
        match via {
            Via::Memory => self.slots.turns.blocked_by(),
            Via::Window => self.window_slots.as_ref()?.1.blocked_by(),
        }
    }

    /// Returns true if there are slots in the window.
    pub(super) fn has_window_slots(&self) -> bool {
        self.window_slots.is_some()
    }

    /// Sets the slots in the window, none of which was used.
    pub(super) fn set_window_slots(&mut self, slots: WindowSlots) {
        let turns = Turns::new(slots.count());
        self.window_slots = Some((slots, turns));
    }

    /// Returns true if there are slots of the driver.
    pub(super) fn has_driver_slots(&self) -> bool {
        self.driver_slots.is_some()
    }

    /// Sets the slots of the driver, none of which was used.
    pub(super) fn set_driver_slots(&mut self, slots: DriverSlots) {
        let turns = Turns::new(slots.count());
        self.driver_slots = Some((slots, turns));
    }

    /// Returns the send that has to end before the next slot of the driver is free.
    pub(super) fn blocked_by_driver_slot(&self) -> Option<Ticket> {
        self.driver_slots.as_ref()?.1.blocked_by()
    }

    /// Lets the driver copy a piece into its next slot, which is free, and send it.
    pub(super) fn push_by_driver(
        &mut self,
        context: &Context,
        bytes: &[u8],
        piece: Piece,
    ) -> Result<()> {
        let queue = context.queue().ok_or(Refusal::OtherMethod)?;
        let (slots, turns) = self.driver_slots.as_mut().ok_or(Refusal::OtherMethod)?;
        let ticket = queue.push_by_driver(|ticket| slots.send(bytes, ticket, piece.more))?;
        turns.sent(ticket);
        self.copied.by_driver += piece.bytes;
        self.sent += 1;
        self.under_way.push_back(UnderWay {
            ticket,
            fate: None,
            is_part: piece.is_part(),
        });
        Ok(())
    }

    /// Copies a piece into the next slot, which is free, and sends it.
    pub(super) fn push_copy(
        &mut self,
        context: &Context,
        destination: Destination<'_>,
        (bytes, via): (&[u8], Via),
        piece: Piece,
    ) -> Result<()> {
        let size = self.slots.bytes;
        let place = match via {
            Via::Memory => {
                let offset = self.slots.turns.next as u64 * size;
                self.slots.region.write(offset, bytes)?;
                (self.slots.region.index(), offset)
            }
            Via::Window => {
                let window = self.window_slots.as_ref();
                let (slots, turns) = window.ok_or(Refusal::OtherMethod)?;
                let offset = turns.next as u64 * size;
                slots.write(offset, bytes)?;
                (slots.index(), offset)
            }
        };
        let ticket = self.push_at(context, destination, place, piece)?;
        match (via, &mut self.window_slots) {
            (Via::Window, Some((_, turns))) => turns.sent(ticket),
            _ => self.slots.turns.sent(ticket),
        }
        self.copied.by_library += piece.bytes;
        Ok(())
    }

    /// Sends a piece from an offset of a region, which is named by its index in the device's table.
    /// A later call reports its failure.
    pub(super) fn push_at(
        &mut self,
        context: &Context,
        destination: Destination<'_>,
        place: (u32, u64),
        piece: Piece,
    ) -> Result<Ticket> {
        self.push(context, destination, place, piece, None)
    }

    /// Sends a piece from a region; `sent` is the message that it belongs to, if it has begun.
    pub(super) fn push_from(
        &mut self,
        context: &Context,
        destination: Destination<'_>,
        (region, start): (&impl Registered, u64),
        piece: Piece,
        sent: Option<Sent>,
    ) -> Result<Sent> {
        if !region.access().reads() {
            return Err(Refusal::NoRight.into());
        }
        let place = (region.index(), start + piece.offset);
        let fate = sent.map_or_else(Fate::default, |sent| sent.fate);
        let last = self.push(context, destination, place, piece, Some(Arc::clone(&fate)))?;
        Ok(Sent { last, fate })
    }

    /// Sends the notice at `place`, which ends what was put before it; `sent` is the put, if its
    /// sender asks for its result.
    pub(super) fn push_notice(
        &mut self,
        context: &Context,
        endpoint: &Endpoint,
        place: (u32, u64),
        sent: Option<Sent>,
    ) -> Result<Option<Sent>> {
        // As a part of the put it leaves the connection torn if it fails.
        let piece = Piece {
            offset: 1,
            bytes: Put::NOTICE as u64,
            more: false,
        };
        let fate = sent.map(|sent| sent.fate);
        let last = self.push(
            context,
            Destination::Posted(endpoint),
            place,
            piece,
            fate.clone(),
        )?;
        Ok(fate.map(|fate| Sent { last, fate }))
    }

    fn push(
        &mut self,
        context: &Context,
        destination: Destination<'_>,
        place: (u32, u64),
        piece: Piece,
        fate: Option<Fate>,
    ) -> Result<Ticket> {
        let queue = context.queue().ok_or(Refusal::OtherMethod)?;
        let (ticket, is_part) = match destination {
            Destination::Posted(endpoint) => {
                let ticket = queue.send_at(place, piece.bytes, endpoint, piece.more)?;
                self.sent += 1;
                (ticket, piece.is_part())
            }
            Destination::Place(region, start) => {
                let target = (region, start + piece.offset);
                let ticket = queue.copy_at(place, target, piece.bytes, Order::LINK)?;
                // Its notice has still to be sent.
                (ticket, true)
            }
        };
        queue.submit();
        self.under_way.push_back(UnderWay {
            ticket,
            fate,
            is_part,
        });
        Ok(ticket)
    }

    /// Keeps the memory of a message, of which all pieces were given to the device after `before`,
    /// until it has read them.
    pub(super) fn keep_since(&mut self, before: Option<Ticket>, memory: Kept) {
        if let Some(newest) = self.newest().filter(|newest| Some(*newest) > before) {
            self.keep_until(newest, memory);
        }
    }

    /// Keeps memory until the device has ended the send `last`.
    pub(super) fn keep_until(&mut self, last: Ticket, memory: Kept) {
        if self.oldest().is_some_and(|oldest| oldest <= last) {
            self.kept.push((last, memory));
        }
    }

    /// Notes that `piece` of a message cannot be sent. If others of it were, the peer would take the
    /// next message for the rest of this one.
    pub(super) fn tear(&mut self, piece: Piece) {
        self.torn |= piece.offset > 0;
    }

    /// Notes that bytes were put without their notice, which the next one would depend on.
    pub(super) fn tear_put(&mut self) {
        self.torn = true;
    }

    /// Checks that messages can be sent.
    ///
    /// # Errors
    ///
    /// [`Error::Torn`]; [`Error::Transfer`] if the reason was not reported yet.
    pub(super) fn check_torn(&mut self) -> Result<()> {
        if self.torn {
            self.check()?;
            return Err(Error::Torn);
        }
        Ok(())
    }

    /// Takes the results of all sends that have ended. Must be called before each send, so that no
    /// record is overwritten. If credits are `counted`, each message has to use one buffer.
    ///
    /// # Errors
    ///
    /// [`Error::RecordLost`].
    pub(super) fn harvest(&mut self, context: &Context, counted: bool) -> Result<()> {
        while let Some(oldest) = self.under_way.front() {
            let Some(completion) = context.ended(oldest.ticket)? else {
                break;
            };
            if let Some(status) = completion.failure {
                // A message that is too long has used its buffer; others may not have.
                self.torn |= oldest.is_part || (counted && status != Refusal::TooLong);
                match &oldest.fate {
                    Some(fate) => {
                        // Later pieces of a message that failed tell no more.
                        let _ = fate.set(completion);
                    }
                    None => {
                        self.failed.get_or_insert(completion);
                    }
                }
            }
            self.under_way.pop_front();
        }
        if !self.kept.is_empty() {
            let oldest = self.oldest();
            self.kept
                .retain(|(last, _)| oldest.is_some_and(|oldest| oldest <= *last));
        }
        Ok(())
    }

    /// Returns the send that has to end before the queue has room, and its record is free.
    pub(super) fn blocked_by_queue(&self) -> Option<Ticket> {
        let is_full = self.under_way.len() as u64 >= RECORDS;
        self.oldest().filter(|_| is_full)
    }

    /// Returns the oldest send of which the result is unknown.
    pub(super) fn oldest(&self) -> Option<Ticket> {
        self.under_way.front().map(|oldest| oldest.ticket)
    }

    /// Returns the send at whose end half of those under way, and `ticket`, have ended: a caller
    /// that sleeps until then finds more to do than one that sleeps for each.
    pub(super) fn half(&self, ticket: Ticket) -> Ticket {
        let middle = self.under_way.get(self.under_way.len() / 2);
        middle.map_or(ticket, |middle| middle.ticket.max(ticket))
    }

    /// Returns the newest one.
    pub(super) fn newest(&self) -> Option<Ticket> {
        self.under_way.back().map(|newest| newest.ticket)
    }

    /// Reports the failure of a message that was copied, once.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`].
    pub(super) fn check(&mut self) -> Result<()> {
        let failed = self.failed.take();
        failed.map_or(Ok(()), |completion| completion.check().map(drop))
    }
}

impl SentBuffer {
    /// Returns the message, of which [`MessageConnection::is_sent`](super::MessageConnection::is_sent)
    /// says whether the device has read it.
    pub fn sent(&self) -> &Sent {
        &self.sent
    }

    /// Ends the registration and returns the buffer.
    pub(super) fn into_buffer(self) -> Result<Buffer> {
        self.region.unregister()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_message_is_one_piece() {
        let all: Vec<Piece> = pieces(0, 4096).collect();
        let empty = Piece {
            offset: 0,
            bytes: 0,
            more: false,
        };
        assert_eq!(all, [empty]);
    }

    proptest! {
        /// Pieces are adjacent, none is too long, and only the last one ends the message.
        #[test]
        fn pieces_are_the_message(length in 0u64..100_000, most in 1u64..10_000) {
            let all: Vec<Piece> = pieces(length, most).collect();
            let mut next = 0;
            for (piece, number) in all.iter().zip(1..) {
                prop_assert_eq!(piece.offset, next);
                prop_assert!(piece.bytes <= most);
                prop_assert_eq!(piece.more, number < all.len());
                prop_assert!(piece.bytes == most || !piece.more);
                next += piece.bytes;
            }
            prop_assert_eq!(next, length);
        }
    }
}
