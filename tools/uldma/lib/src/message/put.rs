// SPDX-License-Identifier: MIT OR Apache-2.0

//! `DIRECT_DMA` at the receiver: the sender names the place, in memory that the receiver has
//! registered for the life of the connection.
//!
//! The sender's device copies the bytes to their place, and then sends a *notice*, a message that
//! says where they are. A place is the receiver's until it asks for the next put: then it posts the
//! buffer of the notice again, and so gives the sender a credit.

use std::ops::Range;
use std::time::Duration;

use super::control::Control;
use super::deadline::Deadline;
use super::engine::Engine;
use super::notice::{Named, Put, PutArea};
use super::receiving::check;
use super::sending::{length_of, Sent, Target};
use super::MessageOptions;
use crate::export::Import;
use crate::region::Registered;
use crate::ring::Violation;
use crate::status::RECORDS;
use crate::{
    Access, Buffer, Device, Error, Name, Peer, ReceiveTechnique, Refusal, Region, Result,
    SendTechnique,
};

/// The reason for which a call is refused where the sender names places.
const PLACES: &str = "the sender names the place: use put and receive_put";

/// The memory into which the peer puts bytes, and the name by which it imports it.
#[derive(Debug)]
pub(super) struct Inbound {
    region: Region,
    name: Name,
    puts: u32,
}

impl Inbound {
    /// Registers memory and exports it to `node`; none if the technique needs none.
    pub(super) fn new(
        device: &Device,
        node: u32,
        options: &MessageOptions,
    ) -> Result<Option<Self>> {
        if options.receiving != ReceiveTechnique::DirectDma {
            return Ok(None);
        }
        let region = options.register(device, Access::ReadWrite)?;
        let name = Name::random()?;
        region.export_for_life(Peer::node(node), name, Access::Write)?;
        Ok(Some(Self {
            region,
            name,
            puts: options.slots.into(),
        }))
    }

    /// Returns name and size, which the peer has to know.
    pub(super) fn named(&self) -> Named {
        Named {
            name: self.name,
            area: PutArea {
                bytes: self.region.length(),
                puts: self.puts,
            },
        }
    }
}

/// The memory of the peer, and the notices of what is put there.
#[derive(Debug)]
pub(super) struct Outbound {
    import: Import,
    area: PutArea,
    /// Notices, one for each send that can be under way.
    notices: Region,
}

impl Outbound {
    /// Imports what the peer `node` has exported.
    pub(super) fn new(
        device: &Device,
        node: u32,
        Named { name, area }: Named,
        deadline: Deadline,
    ) -> Result<Self> {
        let peer = Peer::node(node);
        let import = device.import_from(peer, name, Access::Write, deadline.left())?;
        // The peer says in the handshake how long it is.
        if import.length() != area.bytes {
            return Err(Violation::Handshake.into());
        }
        let count = usize::try_from(RECORDS).unwrap_or(usize::MAX);
        let notices = Buffer::new(count.saturating_mul(Put::NOTICE))?;
        Ok(Self {
            import,
            area,
            notices: device.register(notices, Access::Read)?,
        })
    }

    /// Returns the index of the peer's memory in the table of this node's device.
    pub(super) fn index(&self) -> u32 {
        self.import.index()
    }
}

impl Engine {
    /// Checks that the peer takes messages, whose places it chooses itself.
    pub(super) fn check_takes_messages(&self) -> Result<()> {
        match self.outbound {
            Some(_) => Err(ReceiveTechnique::DirectDma.refused(PLACES)),
            None => Ok(()),
        }
    }

    /// Returns the peer's memory; none unless the sender names places.
    pub(super) fn outbound(&self) -> Option<PutArea> {
        self.outbound.as_ref().map(|outbound| outbound.area)
    }

    /// Puts `message` at `offset` of the peer's memory.
    pub(super) fn put(&mut self, message: &[u8], offset: u64, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let target = self.begin_put(offset, message.len() as u64, deadline)?;
        match self.options.sending {
            SendTechnique::DirectDma => Err(SendTechnique::DirectDma
                .refused("it needs registered memory: use MessageConnection::start_put")),
            _ if message.is_empty() => self.end_put(target, 0, None, deadline).map(drop),
            _ => self.send_to(message, target, deadline),
        }
    }

    /// Puts a part of registered memory at `offset` of the peer's memory by `DIRECT_DMA`, and
    /// returns before the device has read it.
    pub(super) fn start_put(
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
        let Some(PutArea { bytes: size, .. }) = self.outbound() else {
            return Err(
                ReceiveTechnique::DirectDma.refused("the peer receives by another technique")
            );
        };
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(Error::Range {
                offset,
                length,
                size,
            });
        }
        self.begin_message()?;
        self.wait_room(deadline)?;
        Ok(Target::Place(offset))
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
        let Target::Place(offset) = target else {
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
        outbound.notices.write(place, &notice)?;
        let place = (outbound.notices.index(), place);
        self.sender
            .push_notice(&self.context, &self.endpoint, place, sent)
    }

    /// Returns the memory into which the peer puts bytes.
    pub(super) fn inbound(&self) -> Option<&Region> {
        self.inbound.as_ref().map(|inbound| &inbound.region)
    }

    /// Waits for the next put of the peer, and lets the peer put over the one before.
    pub(super) fn receive_put(&mut self, timeout: Duration) -> Result<Put> {
        let technique = self.options.receiving;
        let size = match &self.inbound {
            Some(inbound) => inbound.region.length(),
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
