// SPDX-License-Identifier: MIT OR Apache-2.0

//! The model's side of messages: reports receptions, and wakes what waits for buffers.

use std::time::Instant;

use crate::abi::{status_page, Status};
use crate::completion::{Completion, StatusPage};
use crate::context::{Context, Wait};
use crate::dispatch;
use crate::endpoint::Received;
use crate::fault::Fault;
use crate::layout::{EndpointEntry, EndpointFlags, EventCauses};
use crate::memory::{BusError, GuestMemory};
use crate::model::Model;
use crate::poll::Polled;
use crate::queue::Ring;
use crate::tpt::View;
use crate::transfer::{Delivery, Piece};

impl Delivery {
    fn flags(&self) -> u32 {
        let flag = |set, flag| if set { flag } else { 0 };
        flag(self.more, status_page::MORE) | flag(self.redirected, status_page::REDIRECTED)
    }

    /// Returns the status that the receiver sees of a message that ended with `status`.
    fn status(&self, status: Status) -> Status {
        match (self.refusal, status) {
            (Some(refusal), _) => refusal,
            (None, Status::Ok | Status::LinkDown) => status,
            // What was wrong at the sender does not concern the receiver.
            (None, _) => Status::Aborted,
        }
    }
}

impl Model {
    /// Writes the receptions of messages of a context that have ended, before the sender learns of
    /// their end. Removes the parts of sends, which are no end.
    pub(crate) fn deliver(
        &mut self,
        sender: (usize, usize),
        done: &mut Vec<Completion>,
        memories: &[&GuestMemory],
    ) {
        for completion in &*done {
            if let (Some(index), true) = (completion.sends, completion.status != Status::Ok) {
                self.tear(sender, index, memories);
            }
            if let Some(delivery) = &completion.delivery {
                self.deliver_one(delivery, completion, memories);
                // Another context may wait for the end of this one's messages.
                self.wake_senders(|wait| wait.node == delivery.node);
            }
        }
        done.retain(|completion| {
            !completion
                .delivery
                .as_ref()
                .is_some_and(Delivery::continues)
        });
    }

    fn deliver_one(
        &mut self,
        delivery: &Delivery,
        completion: &Completion,
        memories: &[&GuestMemory],
    ) {
        if !self.endpoints.end(delivery) {
            return;
        }
        let node = self.nodes.get_mut(delivery.node);
        let (Some(node), Some(memory)) = (node, memories.get(delivery.node)) else {
            return;
        };
        if !node.is_enabled() || !node.config.is_bus_master() {
            return;
        }
        let view = View::new(&node.registers.tables, *memory);
        // An endpoint that is being invalidated gets nothing more.
        let entry = view.endpoint(delivery.endpoint).ok();
        let Some(entry) = entry.filter(|entry| entry.generation == delivery.generation) else {
            return;
        };
        let status = delivery.status(completion.status);
        if let Some(piece) = &delivery.piece {
            let received = self.endpoints.end_piece(delivery, piece, status);
            if received.is_none() && status == Status::Ok {
                // The bytes before it did not arrive.
                return;
            }
            let counted = received.map(|received| (received, *piece));
            return self.deliver_piece(delivery, (completion, status), counted, &entry, memories);
        }
        let failed = self.endpoints.count_failed(delivery, status != Status::Ok);
        let reception = Completion {
            ticket: delivery.ticket,
            bytes: completion.bytes,
            status,
            failed,
            flags: delivery.flags(),
            sends: None,
            delivery: None,
        };
        let written = dispatch::write(&[reception], &node.faults, memory, entry.receive_status);
        let notified = written.and_then(|()| {
            StatusPage::new(memory, entry.receive_status)?.take_notify(delivery.ticket)
        });
        match notified {
            Ok(true) => node.raise_event(EventCauses::COMPLETION),
            Ok(false) => {}
            Err(BusError) => node.raise_event(EventCauses::ERROR),
        }
    }

    /// Writes the end of a piece of a stream: the record of a buffer that is full or failed, the
    /// count of the receiver, and that of the sender.
    fn deliver_piece(
        &mut self,
        delivery: &Delivery,
        (completion, status): (&Completion, Status),
        counted: Option<(Received, Piece)>,
        entry: &EndpointEntry,
        memories: &[&GuestMemory],
    ) {
        let failed = self.endpoints.count_failed(delivery, status != Status::Ok);
        let reception = Completion {
            ticket: delivery.ticket,
            bytes: completion.bytes,
            status,
            failed,
            flags: 0,
            sends: None,
            delivery: None,
        };
        let ends_buffer = counted.as_ref().is_none_or(|(_, piece)| piece.fills);
        let node = self.nodes.get_mut(delivery.node);
        let (Some(node), Some(memory)) = (node, memories.get(delivery.node)) else {
            return;
        };
        let drops = node.faults.has(Fault::DropCompletion);
        let write = || {
            if ends_buffer {
                let done = [reception];
                dispatch::write(&done, &node.faults, memory, entry.receive_status)?;
            }
            let page = StatusPage::new(memory, entry.receive_status)?;
            let Some((received, _)) = counted.as_ref().filter(|_| !drops) else {
                // A receiver that waits learns of the failure.
                return page.take_notify(u64::MAX);
            };
            page.publish_received(received.bytes)?;
            page.take_notify(received.bytes)
        };
        match write() {
            Ok(true) => node.raise_event(EventCauses::COMPLETION),
            Ok(false) => {}
            Err(BusError) => node.raise_event(EventCauses::ERROR),
        }
        if let Some((received, _)) = counted {
            self.publish_sent(&received, delivery.sender, entry, memories);
        }
    }

    /// Writes the count of bytes that endpoint `index` of the sender has sent.
    fn publish_sent(
        &mut self,
        received: &Received,
        index: u32,
        receiver: &EndpointEntry,
        memories: &[&GuestMemory],
    ) {
        let node = self.nodes.get_mut(received.from);
        let (Some(node), Some(memory)) = (node, memories.get(received.from)) else {
            return;
        };
        if !node.is_enabled() || !node.config.is_bus_master() {
            return;
        }
        let own = View::new(&node.registers.tables, *memory).endpoint(index);
        let own = own.ok();
        let Some(own) = own.filter(|own| own.generation == receiver.peer_generation) else {
            return;
        };
        let page = StatusPage::new(memory, own.receive_status);
        if page
            .and_then(|page| page.publish_sent(received.bytes))
            .is_err()
        {
            node.raise_event(EventCauses::ERROR);
        }
    }

    /// Notes at an endpoint of a stream that a send has failed. Other endpoints, and those that the
    /// context may not send from, are left as they are.
    fn tear(&mut self, (number, place): (usize, usize), index: u32, memories: &[&GuestMemory]) {
        let node = self.nodes.get_mut(number);
        let (Some(node), Some(memory)) = (node, memories.get(number)) else {
            return;
        };
        let writes = node.is_enabled() && node.config.is_bus_master();
        if !writes || node.faults.has(Fault::DropCompletion) {
            return;
        }
        let space = node.contexts.get(place).map(Context::descriptor_space);
        let own = View::new(&node.registers.tables, *memory).endpoint(index);
        let own = own.ok().filter(|own| {
            let owned = space.is_some_and(|space| space.is_none_or(|space| space == own.space));
            owned && own.flags.contains(EndpointFlags::STREAM)
        });
        let Some(own) = own else {
            return;
        };
        let page = StatusPage::new(memory, own.receive_status);
        if page.and_then(|page| page.tear()).is_err() {
            node.raise_event(EventCauses::ERROR);
        }
    }

    /// Asks the receiver of a message that waits to store to its context page when it has posted a
    /// buffer, and looks for the buffer once more.
    pub(crate) fn ask_receiver(
        &mut self,
        number: usize,
        place: usize,
        wait: Wait,
        memories: &[&GuestMemory],
    ) -> Result<Polled, BusError> {
        let found = self.posted_meanwhile(number, place, wait, memories);
        if found == Some(true) {
            let node = self.nodes.get_mut(number).ok_or(BusError)?;
            node.contexts.get_mut(place).ok_or(BusError)?.wake();
            return Ok(Polled::Found);
        }
        Ok(Polled::Asleep)
    }

    fn posted_meanwhile(
        &mut self,
        number: usize,
        place: usize,
        wait: Wait,
        memories: &[&GuestMemory],
    ) -> Option<bool> {
        let node = self.nodes.get(number)?;
        let setup = node.contexts.get(place)?.setup;
        let next = node.contexts.get(place)?.next_ticket();
        let memory = *memories.get(number)?;
        let ring = Ring::new(memory, setup.descriptors).ok()?;
        let send = ring.read(next).ok()??.send()?;
        let own = View::new(&node.registers.tables, memory);
        let own = own.endpoint(send.endpoint).ok()?;
        let peer = self.nodes.get(wait.node)?;
        let memory = *memories.get(wait.node)?;
        let entry = View::new(&peer.registers.tables, memory).endpoint(own.peer_endpoint);
        let entry = entry.ok()?;
        let page = StatusPage::new(memory, entry.receive_status).ok()?;
        page.wakeup(true).ok()?;
        let next = self.endpoints.next(wait.node, own.peer_endpoint)?;
        let ring = Ring::new(memory, entry.receive_ring).ok()?;
        let posted = ring.read(next).ok()?.is_some();
        if posted {
            page.wakeup(false).ok()?;
        }
        Some(posted)
    }

    /// Polls the queues again whose sends wait for what `which` selects.
    pub(crate) fn wake_senders(&mut self, which: impl Fn(&Wait) -> bool) {
        for context in self.nodes.iter_mut().flat_map(|node| &mut node.contexts) {
            if context.waiting().as_ref().is_some_and(&which) {
                context.wake();
                self.wake_poller = true;
            }
        }
    }

    /// Polls the queues again whose sends have waited long enough.
    pub(crate) fn wake_overdue(&mut self, now: Instant) {
        self.wake_senders(|wait| wait.is_over(now));
    }

    /// Returns the time at which the next send fails that waits.
    pub fn next_timeout(&self) -> Option<Instant> {
        let contexts = self.nodes.iter().flat_map(|node| &node.contexts);
        contexts.filter_map(|it| it.waiting()?.until).min()
    }
}
