// SPDX-License-Identifier: MIT OR Apache-2.0

//! `DIRECT_DMA` at the receiver: the sender names the place, in memory that the receiver has
//! registered for the life of the connection.
//!
//! The sender's device copies the bytes to their place, and then sends a *notice*, a message that
//! says where they are. A place is the receiver's until it asks for the next put: then it posts the
//! buffer of the notice again, and so gives the sender a credit.

use std::ops::Range;
use std::time::Duration;

use super::Engine;
use crate::error::{Error, Result};
use crate::message::control::Control;
use crate::message::notice::{Put, PutArea};
use crate::message::put_memory::{Inbound, Outbound};
use crate::message::receiving::check;
use crate::message::sending::{length_of, Sent, Target};
use crate::message::ReceiveTechnique;
use crate::method::refusal::Refusal;
use crate::region::{Region, Registered};
use crate::ring::Violation;
use crate::transfer::status::RECORDS;
use crate::wait::deadline::Deadline;
use crate::wait::wakeup::LONGEST_SLEEP;

/// The reason for which a call is refused where the sender names places.
const PLACES: &str = "the sender names the place: use put and receive_put";

impl Engine {
    /// Checks that the peer takes messages, whose places it chooses itself.
    pub(super) fn check_takes_messages(&self) -> Result<()> {
        match self.outbound {
            Some(_) => Err(ReceiveTechnique::DirectDma.refused(PLACES)),
            None => Ok(()),
        }
    }

    /// Returns the peer's memory; none unless the sender names places.
    pub(crate) fn outbound(&self) -> Option<PutArea> {
        self.outbound.as_ref().map(Outbound::area)
    }

    /// Puts `message` at `offset` of the peer's memory.
    pub(crate) fn put(&mut self, message: &[u8], offset: u64, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let target = self.begin_put(offset, message.len() as u64, deadline)?;
        if message.is_empty() {
            return self.end_put(target, 0, None, deadline).map(drop);
        }
        self.send_to(message, target, deadline)
    }

    /// Puts a part of registered memory at `offset` of the peer's memory by `DIRECT_DMA`, and
    /// returns before the device has read it.
    pub(crate) fn start_put(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        offset: u64,
        timeout: Duration,
    ) -> Result<Sent> {
        let deadline = Deadline::after(timeout);
        let length = length_of(region, &part)?;
        if length == 0 {
            // Nothing would say that it was read.
            return Err(Refusal::BadSize.into());
        }
        let target = self.begin_put(offset, length, deadline)?;
        self.start_from(region, part.start, length, target, deadline)
    }

    /// Waits for the credit of a put, so that a put whose bytes have arrived can be noticed.
    fn begin_put(&mut self, offset: u64, length: u64, deadline: Deadline) -> Result<Target> {
        let refused =
            || ReceiveTechnique::DirectDma.refused("the peer receives by another technique");
        let PutArea { bytes: size, .. } = self.outbound().ok_or_else(refused)?;
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(Error::Range {
                offset,
                length,
                size,
            });
        }
        self.begin_message()?;
        self.wait_room(deadline)?;
        // Only now, as the kernel of the peer may take its time to answer.
        let region = self.import(deadline)?;
        Ok(Target::Place(region, offset))
    }

    /// Imports the peer's memory, unless that has happened, and returns the index of its region. An attempt
    /// without time gives the peer's kernel some.
    fn import(&mut self, deadline: Deadline) -> Result<u32> {
        loop {
            let slice = match deadline.left() {
                Duration::ZERO => LONGEST_SLEEP,
                left => left.min(LONGEST_SLEEP),
            };
            let outbound = self.outbound.as_mut().ok_or(Violation::Handshake)?;
            let found = outbound.import(&self.device, self.peer, slice);
            if let Ok(Some(region)) = found {
                return Ok(region);
            }
            // The end of the peer comes first, if that is the reason.
            self.control.check_peer()?;
            if let Err(Error::Violation(_)) = found {
                self.control.abandon(Violation::Handshake);
            }
            found?;
            if deadline.is_over() {
                return Err(deadline.missed("answer of the peer's kernel"));
            }
        }
    }

    /// Sends the notice of what was copied to `target`, if that is a place. `sent` is the message
    /// whose sender asks for its result.
    pub(super) fn end_put(
        &mut self,
        target: Target,
        length: u64,
        sent: Option<Sent>,
        deadline: Deadline,
    ) -> Result<Option<Sent>> {
        let Target::Place(_, offset) = target else {
            return Ok(sent);
        };
        // Bytes that no notice follows would be noticed with the next put.
        let waited = self.wait_queue(deadline);
        waited.inspect_err(|_| self.sender.tear_put())?;
        let Some(outbound) = &self.outbound else {
            return Ok(sent);
        };
        // No more sends than notices are under way.
        let number = self.sender.sent % RECORDS;
        let place = number.saturating_mul(Put::NOTICE as u64);
        let notice = Put { offset, length }.encode();
        let place = outbound.write_notice(place, &notice)?;
        self.sender
            .push_notice(&self.context, &self.endpoint, place, sent)
    }

    /// Returns the memory into which the peer puts bytes.
    pub(crate) fn inbound(&self) -> Option<&Region> {
        self.inbound.as_ref().map(Inbound::region)
    }

    /// Waits for the next put of the peer, and lets the peer put over the one before.
    pub(crate) fn receive_put(&mut self, timeout: Duration) -> Result<Put> {
        let technique = self.options.receiving;
        let size = match &self.inbound {
            Some(inbound) => inbound.region().length(),
            None => return Err(technique.refused("the peer cannot name places: use receive")),
        };
        self.post_slots()?;
        let reception = self.wait_reception(Deadline::after(timeout))?;
        let mut notice = [0; Put::NOTICE];
        let exchanges = &mut self.exchanges;
        let taken = self.receiver.take_piece(&reception, &mut notice, exchanges);
        check(&reception).and(taken)?;
        let put = Put::decode(notice, reception.bytes, size);
        put.ok_or_else(|| abandon(&mut self.control))
    }

    /// Refuses calls for messages where the peer names places.
    pub(super) fn check_receives_messages(&self) -> Result<()> {
        match self.inbound {
            Some(_) => Err(ReceiveTechnique::DirectDma.refused(PLACES)),
            None => Ok(()),
        }
    }
}

/// Ends a connection whose peer names a place outside of the memory.
fn abandon(control: &mut Control) -> Error {
    control.abandon(Violation::Place);
    Violation::Place.into()
}
