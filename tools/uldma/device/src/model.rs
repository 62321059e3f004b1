// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device as a whole: nodes and links, driven by accesses, by clients and by the administrator.
//!
//! A plain state machine without threads; `device` puts it behind a lock.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use crate::abi::Status;
use crate::endpoint::Endpoints;
use crate::engine::{Schedule, Speed, TableView};
use crate::fault::Fault;
use crate::flight::InFlight;
use crate::irq::{Event, Vectors};
use crate::layout::{EventCauses, MAX_NODES};
use crate::link::Links;
use crate::memory::GuestMemory;
use crate::node::{Node, Shape};
use crate::page_request::PageRequests;
use crate::stats::{LinkReport, Report, SCHEMA_VERSION};
use crate::touch::{Bracket, Brackets};
use crate::transfer::Outcome;

/// Value of a load that nothing answers.
pub const ONES: u64 = u64::MAX;

/// The state of all nodes and of the links between them.
#[derive(Debug)]
pub struct Model {
    pub(crate) shape: Shape,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Links,
    pub(crate) schedule: Schedule,
    pub(crate) in_flight: InFlight,
    pub(crate) endpoints: Endpoints,
    pub(crate) brackets: Brackets,
    pub(crate) page_requests: PageRequests,
    /// The node that the model works for.
    pub(crate) serving: Option<usize>,
    /// The engine has new work.
    pub(crate) wake: bool,
    /// A queue that was asleep may have to be polled.
    pub(crate) wake_poller: bool,
    /// A storm may have begun.
    wake_storm: bool,
}

impl Model {
    /// Creates a device to which no client is connected.
    pub fn new(shape: Shape, nodes: usize, speed: Speed) -> Self {
        let mut links = Links::new(nodes);
        links.limit(speed.link_ups);
        Self {
            shape,
            nodes: (0..nodes).map(|_| Node::new(shape)).collect(),
            links,
            schedule: Schedule::new(speed),
            in_flight: InFlight::default(),
            endpoints: Endpoints::default(),
            brackets: Brackets::new(nodes),
            page_requests: PageRequests::new(nodes),
            serving: None,
            wake: false,
            wake_poller: false,
            wake_storm: false,
        }
    }

    /// Notes the node that the model works for from now on. Returns the previous one.
    pub(crate) fn begin_for(&mut self, node: usize) -> Option<usize> {
        self.serving.replace(node)
    }

    /// Notes the end of the work for a node, and the node whose work continues, if any.
    pub(crate) fn end_for(&mut self, before: Option<usize>) {
        self.serving = before;
    }

    /// Returns the node that the model worked for when it panicked, and ends that work.
    pub fn take_serving(&mut self) -> Option<usize> {
        self.serving.take()
    }

    /// Disables a function until it is reset; its transfers are dropped.
    pub fn give_up(&mut self, node: usize, memories: &[&GuestMemory]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.reset();
            node.is_broken = true;
        }
        self.refresh_links(memories);
        self.settle(memories);
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if the engine has new work, and clears the flag.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Returns true if the poller has new work, and clears the flag.
    pub fn take_wake_poller(&mut self) -> bool {
        std::mem::take(&mut self.wake_poller)
    }

    /// Returns true if the storm thread has new work, and clears the flag.
    pub fn take_wake_storm(&mut self) -> bool {
        std::mem::take(&mut self.wake_storm)
    }

    /// Attaches a client to a node: its host counts as switched on.
    pub fn attach(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.attached = true;
        }
    }

    /// Detaches the client of a node: its host counts as switched off.
    pub fn detach(&mut self, node: usize, memories: &[&GuestMemory]) {
        if let Some(detached) = self.nodes.get_mut(node) {
            detached.attached = false;
            detached.vectors.disconnect();
        }
        self.reset_function(node, memories);
    }

    /// Resets a whole function, as a bus reset does. Held chunks are dropped.
    pub fn reset_function(&mut self, node: usize, memories: &[&GuestMemory]) {
        self.reset_registers(node, memories);
        while let Some(job) = self.in_flight.take_touching(node) {
            self.end_bracket(&job.bracket, memories);
            self.account(&job, Outcome::failed(Status::Aborted), memories);
        }
        self.settle(memories);
        let sizes = self.shape.bar_sizes();
        if let Some(node) = self.nodes.get_mut(node) {
            node.config = crate::config::Config::new(&sizes);
            node.is_broken = false;
        }
    }

    /// Resets registers and contexts. The reset ends when nothing of the node is in flight.
    pub(crate) fn reset_registers(&mut self, node: usize, memories: &[&GuestMemory]) {
        self.endpoints.forget_node(node);
        self.page_requests.set_page(node, 0);
        if let Some(node) = self.nodes.get_mut(node) {
            node.reset();
            node.resetting = true;
        }
        self.refresh_links(memories);
        self.settle(memories);
    }

    /// Plugs or unplugs cables for the administrator.
    pub fn with_links<R>(
        &mut self,
        memories: &[&GuestMemory],
        act: impl FnOnce(&mut Links) -> R,
    ) -> R {
        let result = act(&mut self.links);
        self.refresh_links(memories);
        result
    }

    /// Loads from a node's configuration space.
    pub fn config_load(&self, node: usize, offset: u64, data: &mut [u8]) {
        match self.nodes.get(node) {
            Some(node) if !node.faults.has(Fault::Gone) => node.config.read(offset, data),
            _ => data.fill(0xff),
        }
    }

    /// Stores to a node's configuration space.
    pub fn config_store(&mut self, node: usize, offset: u64, data: &[u8]) {
        if let Some(node) = self.nodes.get_mut(node) {
            if !node.faults.has(Fault::Gone) {
                node.config.write(offset, data);
                self.wake_poller = true;
            }
        }
    }

    /// Returns true if a node may access its host's memory.
    pub fn is_bus_master(&self, node: usize) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|node| node.config.is_bus_master())
    }

    /// Sets, removes or tests interrupt vectors for the client of a node.
    pub fn set_vectors(
        &mut self,
        node: usize,
        flags: u32,
        start: u32,
        count: u32,
        events: Vec<Event>,
    ) -> io::Result<()> {
        match self.nodes.get_mut(node) {
            Some(node) => node.vectors.configure(flags, start, count, events),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Takes the interrupts of a node, if it has any to send.
    pub fn due_vectors(&mut self, node: usize) -> Option<&mut Vectors> {
        let node = self.nodes.get_mut(node)?;
        Some(&mut node.vectors).filter(|vectors| vectors.is_due())
    }

    /// Returns the interrupts of a node.
    pub fn vectors(&mut self, node: usize) -> Option<&mut Vectors> {
        Some(&mut self.nodes.get_mut(node)?.vectors)
    }

    /// Switches a fault of a node on or off. Returns false if there is no such node.
    pub fn set_fault(
        &mut self,
        node: usize,
        fault: Fault,
        on: bool,
        memories: &[&GuestMemory],
    ) -> bool {
        let Some(faulty) = self.nodes.get_mut(node) else {
            return false;
        };
        faulty.faults.set(fault, on);
        if fault == Fault::Hold {
            faulty.held_context = None;
        }
        if fault == Fault::Gone && !on {
            // A function that comes back to the bus behaves as a new card.
            self.reset_function(node, memories);
        }
        self.refresh_links(memories);
        self.settle(memories);
        self.wake = true;
        self.wake_poller = true;
        self.wake_storm |= fault == Fault::Storm;
        true
    }

    /// Holds the chunks of one context of a node, or of all. Returns false if there is no such
    /// context.
    pub fn set_hold(
        &mut self,
        node: usize,
        context: Option<usize>,
        on: bool,
        memories: &[&GuestMemory],
    ) -> bool {
        let contexts = self.shape.contexts as usize;
        if context.is_some_and(|context| context >= contexts) {
            return false;
        }
        let known = self.set_fault(node, Fault::Hold, on, memories);
        if let Some(node) = self.nodes.get_mut(node) {
            node.held_context = context;
        }
        known
    }

    /// Everything that was counted.
    pub fn report(&self) -> Report {
        Report {
            schema_version: SCHEMA_VERSION,
            links: self
                .links
                .pairs()
                .map(|nodes @ [one, other]| LinkReport {
                    nodes,
                    up: self.links.is_up(one, other),
                    generation: self.links.generation(one, other),
                })
                .collect(),
            nodes: self
                .nodes
                .iter()
                .enumerate()
                .map(|(number, node)| node.report(number, self.in_flight.report(number)))
                .collect(),
        }
    }

    /// Updates the links from the states of their nodes, and reports each change to both ends.
    pub(crate) fn refresh_links(&mut self, memories: &[&GuestMemory]) {
        let nodes = &self.nodes;
        let is_ready = |node| nodes.get(node).is_some_and(Node::is_enabled);
        let changes = self.links.update(is_ready);
        // The engine must learn when a delayed link can come up.
        self.wake |= self.links.retry().is_some();
        if changes.is_empty() {
            return;
        }
        self.wake_senders(|_| true);
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let mut changed = false;
            for change in &changes {
                let peer = match change.nodes {
                    [one, other] if one == number => other,
                    [one, other] if other == number => one,
                    _ => continue,
                };
                changed = true;
                if change.up {
                    continue;
                }
                for context in &mut node.contexts {
                    context.end_all(Status::LinkDown, |side| {
                        side.peer().is_some_and(|node| node as usize == peer)
                    });
                }
            }
            if changed && node.attached {
                node.raise_event(EventCauses::LINK);
            }
        }
        self.settle(memories);
    }

    /// Enables or disables a node, as its driver requests.
    pub(crate) fn set_enabled(&mut self, node: usize, enabled: bool, memories: &[&GuestMemory]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.registers.enabled = enabled;
            if !enabled {
                for context in &mut node.contexts {
                    context.end_everything();
                }
            }
        }
        self.wake_poller = true;
        self.refresh_links(memories);
        self.settle(memories);
    }

    /// Returns the memory of a node that the device may access.
    pub(crate) fn reached<'a>(
        &self,
        node: usize,
        memories: &[&'a GuestMemory],
    ) -> Option<&'a GuestMemory> {
        let memory = memories.get(node).copied();
        memory.filter(|_| self.is_bus_master(node))
    }

    /// Begins a bracket that may use the tables of a node and of some peers of it.
    pub(crate) fn begin_bracket(
        &mut self,
        node: usize,
        peers: impl Iterator<Item = usize>,
        memories: &[&GuestMemory],
    ) -> Bracket {
        let peers = peers.filter(|peer| *peer != node);
        let nodes: BTreeSet<_> = peers.chain([node]).collect();
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| (node, self.reached(node, memories)))
            .collect();
        self.brackets.begin(nodes.into_iter())
    }

    /// Ends a bracket.
    pub(crate) fn end_bracket(&mut self, bracket: &Bracket, memories: &[&GuestMemory]) {
        let nodes = &self.nodes;
        self.brackets.end(bracket, |node| {
            let is_master = nodes.get(node)?.config.is_bus_master();
            memories.get(node).copied().filter(|_| is_master)
        });
    }

    /// Returns the tables that a node's engine uses.
    pub(crate) fn table_view(&self, node: usize) -> Option<TableView> {
        let own = self.nodes.get(node)?;
        let mut peers = [None; MAX_NODES];
        for (number, (place, peer)) in peers.iter_mut().zip(&self.nodes).enumerate() {
            if let Some(generation) = self.links.current(node, number) {
                let answers = peer.config.is_bus_master();
                *place = answers.then_some((peer.registers.tables, generation));
            }
        }
        Some(TableView {
            own: own.registers.tables,
            peers,
        })
    }

    /// Stores to the register that rings a peer.
    pub(crate) fn ring_peer(&mut self, node: usize, peer: usize, bits: u32) {
        let up = self.links.is_up(node, peer);
        if let Some(own) = self.nodes.get_mut(node) {
            own.counters.doorbells += u64::from(up);
            own.counters.doorbells_dropped += u64::from(!up);
        }
        if let Some(peer) = self.nodes.get_mut(peer).filter(|_| up) {
            if !peer.faults.has(Fault::DropDoorbell) {
                peer.ring(bits);
            }
        }
    }

    /// Rings at all nodes whose storm fault is on. Returns true if there is one.
    pub fn storm(&mut self) -> bool {
        let mut any = false;
        for node in self
            .nodes
            .iter_mut()
            .filter(|node| node.faults.has(Fault::Storm))
        {
            any = true;
            node.ring(1);
        }
        any
    }

    /// Returns the time at which a delayed link can come up, by [`Model::refresh_links`].
    pub(crate) fn retry(&self) -> Option<Instant> {
        self.links.retry()
    }
}
