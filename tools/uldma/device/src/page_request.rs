// SPDX-License-Identifier: MIT OR Apache-2.0

//! Page requests: by them the device tells the driver of a node which of its pages a transfer lacked.
//!
//! The driver answers in any order, in the slot of the request. The device keeps what it has stored in
//! each slot itself: of what is in the page, it reads the answers alone. It uses a slot again once that is
//! answered, or once no transfer waits for the answer any more.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::Duration;

use crate::layout::{EventCauses, PageRequest, MAX_NODES, PAGE_REQUEST_SLOTS};
use crate::memory::{Bus, BusError, GuestMemory};
use crate::model::Model;
use crate::walk::Missing;

/// Limit of the requests of one node's contexts that are not answered.
const MOST_OF_NODE: usize = 16;
/// Limit of those of one context.
const MOST_OF_CONTEXT: usize = 4;

// No node takes the slots of another.
const _: () = assert!(MOST_OF_NODE * MAX_NODES <= PAGE_REQUEST_SLOTS);

/// Pages of a node that a transfer lacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The node.
    pub owner: usize,
    /// The pages.
    pub pages: Missing,
    /// What the transfer does with them, as in [`PageRequest::need`].
    pub need: u8,
}

/// What a transfer lacked: pages of its source and of its destination.
pub type Lacks = [Option<Lack>; 2];

/// Returns the first of what a transfer lacked, and how long it waits for that; `None` if it ends, since
/// it does not wait for all.
pub fn wait_of(lacks: &Lacks) -> Option<(&Lack, Duration)> {
    let mut all = lacks.iter().flatten();
    let waits = all.clone().all(|lack| lack.pages.limit.is_some());
    let first = all.next().filter(|_| waits)?;
    Some((first, first.pages.limit?))
}

/// A request whose slot is not known to be free.
#[derive(Clone, Copy, Debug)]
struct Stored {
    number: u64,
    /// True if a transfer waits for the answer, or has waited.
    is_wait: bool,
    /// Page entry of its first page.
    first: u32,
    /// Node and context of the transfer.
    by: (usize, usize),
}

/// A request that was stored: its owner, slot and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The node whose page it is.
    pub owner: usize,
    slot: u64,
    number: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Stored(Ticket),
    /// There is no slot for it.
    Dropped,
    /// The driver wants none, or has got it already.
    Needless,
}

/// The requests to the driver of one node.
#[derive(Debug, Default)]
struct OfNode {
    /// Bus address of the page of slots, or 0.
    page: u64,
    /// Number of the last request.
    last: u64,
    /// By slot.
    stored: BTreeMap<u64, Stored>,
}

/// Returns the bus address of a field of a slot.
fn place(page: u64, slot: u64, field: usize) -> Result<u64, BusError> {
    let offset = slot * size_of::<PageRequest>() as u64 + field as u64;
    page.checked_add(offset).ok_or(BusError)
}

impl OfNode {
    /// Requests pages for a transfer of node and context `by`. Transfers of that node wait for the answers
    /// to `awaited`.
    fn send(
        &mut self,
        by: (usize, usize),
        kind: u8,
        lack: &Lack,
        awaited: &[Ticket],
        memory: Option<&GuestMemory>,
    ) -> Result<Sent, BusError> {
        if self.page == 0 {
            return Ok(Sent::Needless);
        }
        let memory = memory.ok_or(BusError)?;
        let page = self.page;
        let answer = |slot| {
            let place = place(page, slot, offset_of!(PageRequest, answered))?;
            memory.load64(place)
        };
        // A driver may take longer than a transfer waits, and is not to keep the slot meanwhile.
        let is_over = |slot: u64, it: &Stored| {
            it.is_wait && {
                let (owner, number) = (lack.owner, it.number);
                let ticket = Ticket {
                    owner,
                    slot,
                    number,
                };
                !awaited.contains(&ticket)
            }
        };
        // Those of other nodes limit this one in no way.
        self.stored.retain(|slot, it| {
            it.by.0 != by.0 || (answer(*slot) != Ok(it.number) && !is_over(*slot, it))
        });
        let of_node = self.stored.values().filter(|it| it.by.0 == by.0);
        let of_context = of_node.clone().filter(|it| it.by == by);
        let first = lack.pages.first;
        let repeats = kind == PageRequest::HINT && of_context.clone().any(|it| it.first == first);
        if repeats {
            return Ok(Sent::Needless);
        }
        let is_free = |slot: &u64| !self.stored.contains_key(slot);
        let free = (0..PAGE_REQUEST_SLOTS as u64).find(is_free);
        let has_room = of_node.count() < MOST_OF_NODE && of_context.count() < MOST_OF_CONTEXT;
        let Some(slot) = free.filter(|_| has_room) else {
            return Ok(Sent::Dropped);
        };
        let number = self.last + 1;
        self.store((slot, number), by, kind, lack, memory)?;
        self.last = number;
        let is_wait = kind == PageRequest::WAIT;
        let stored = Stored {
            number,
            is_wait,
            first,
            by,
        };
        self.stored.insert(slot, stored);
        Ok(Sent::Stored(Ticket {
            owner: lack.owner,
            slot,
            number,
        }))
    }

    /// Returns the status of the answer to a request, if there is one, and frees the slot.
    fn take_answer(&mut self, request: &Ticket, memory: &GuestMemory) -> Option<u16> {
        let Ticket { slot, number, .. } = *request;
        self.stored.get(&slot).filter(|it| it.number == number)?;
        let load = |field| memory.load64(place(self.page, slot, field)?);
        if load(offset_of!(PageRequest, answered)) != Ok(number) {
            return None;
        }
        let word = load(offset_of!(PageRequest, node)).ok()?;
        self.stored.remove(&slot);
        Some((word >> 48) as u16)
    }

    /// Stores a request, and its number last.
    fn store(
        &self,
        (slot, number): (u64, u64),
        (node, context): (usize, usize),
        kind: u8,
        lack: &Lack,
        memory: &GuestMemory,
    ) -> Result<(), BusError> {
        let Missing { first, count, .. } = lack.pages;
        let how = u64::from(lack.need) | (u64::from(kind) << 8);
        let what = u64::from(first) | (u64::from(count) << 32) | (how << 48);
        let by = node as u32 | ((context as u32) << 16);
        let place = |field| place(self.page, slot, field);
        memory.store64(place(offset_of!(PageRequest, index))?, what)?;
        memory.store32(place(offset_of!(PageRequest, node))?, by)?;
        memory.store64(place(offset_of!(PageRequest, number))?, number)
    }
}

/// The page requests to the drivers of all nodes.
#[derive(Debug, Default)]
pub struct PageRequests {
    nodes: Vec<OfNode>,
}

impl PageRequests {
    /// Returns no requests to the drivers of a number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: (0..nodes).map(|_| OfNode::default()).collect(),
        }
    }

    /// Returns the address of a node's page of slots, or 0.
    pub fn page(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.page)
    }

    /// Sets the address of a node's page of slots, of which none is used. The numbers go on.
    pub fn set_page(&mut self, node: usize, page: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.page = page;
            node.stored.clear();
        }
    }
}

impl Model {
    /// Gives the driver of the owner a hint at each of the pages that a transfer of a context lacked.
    /// The transfer's bracket has ended, and its completion is not written yet.
    pub(crate) fn hint_pages(
        &mut self,
        by: (usize, usize),
        lacks: Lacks,
        memories: &[&GuestMemory],
    ) {
        for lack in lacks.iter().flatten() {
            let _ = self.request_page(by, PageRequest::HINT, lack, memories);
        }
    }

    /// Requests pages for a transfer of a context from the driver of the node that owns them.
    pub(crate) fn request_page(
        &mut self,
        by: (usize, usize),
        kind: u8,
        lack: &Lack,
        memories: &[&GuestMemory],
    ) -> Result<Sent, BusError> {
        let awaited = self.awaited_by(by.0);
        let memory = self.reached(lack.owner, memories);
        let requests = self.page_requests.nodes.get_mut(lack.owner);
        let sent = requests
            .ok_or(BusError)?
            .send(by, kind, lack, &awaited, memory);
        let owner = self.nodes.get_mut(lack.owner).ok_or(BusError)?;
        match sent {
            Ok(Sent::Stored(_)) => {
                owner.counters.page_requests += 1;
                owner.raise_event(EventCauses::PAGE);
            }
            Ok(Sent::Dropped) => owner.counters.page_requests_dropped += 1,
            Ok(Sent::Needless) => {}
            Err(BusError) => owner.raise_event(EventCauses::ERROR),
        }
        sent
    }

    /// Returns the status of the answer to a request, if there is one.
    pub(crate) fn take_answer(
        &mut self,
        request: &Ticket,
        memories: &[&GuestMemory],
    ) -> Option<u16> {
        let memory = self.reached(request.owner, memories)?;
        let requests = self.page_requests.nodes.get_mut(request.owner)?;
        requests.take_answer(request, memory)
    }
}
