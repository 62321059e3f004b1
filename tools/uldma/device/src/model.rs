// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device as a whole: nodes, link and engine, driven by accesses and by finished chunks.
//!
//! A plain state machine without threads; `device` puts it behind a lock.

use std::io;
use std::time::Instant;

use crate::abi::Status;
use crate::check::{CheckedSide, Location};
use crate::completion::{Completion, StatusPage};
use crate::engine::{Job, Progress, Schedule, Speed, Stage, TableView};
use crate::fault::{Fault, Faults};
use crate::flight::InFlight;
use crate::irq::{Event, Vectors};
use crate::layout::{event, invalidate, MAX_NODES};
use crate::link::Links;
use crate::memory::{BusError, GuestMemory};
use crate::node::{Node, Shape};
use crate::stats::{LinkReport, Report, SCHEMA_VERSION};
use crate::transfer::{Outcome, Work};

/// What an access to nothing reads.
pub const ONES: u64 = u64::MAX;

/// All nodes and what joins them.
#[derive(Debug)]
pub struct Model {
    pub(crate) shape: Shape,
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Links,
    pub(crate) schedule: Schedule,
    pub(crate) in_flight: InFlight,
    /// The node that something is being done for.
    broken_node: Option<usize>,
    /// The engine has something new to look at.
    pub(crate) wake: bool,
    /// There may be queues to look at that were asleep before.
    pub(crate) wake_poller: bool,
    /// A storm may have begun.
    wake_storm: bool,
}

impl Model {
    /// A device to which no client is connected.
    pub fn new(shape: Shape, nodes: usize, speed: Speed) -> Self {
        let mut links = Links::new(nodes);
        links.limit(speed.link_ups);
        Self {
            shape,
            nodes: (0..nodes).map(|_| Node::new(shape)).collect(),
            links,
            schedule: Schedule::new(speed),
            in_flight: InFlight::default(),
            broken_node: None,
            wake: false,
            wake_poller: false,
            wake_storm: false,
        }
    }

    /// From now on something is done for a node; gives the one that it was done for before.
    pub(crate) fn begin_for(&mut self, node: usize) -> Option<usize> {
        self.broken_node.replace(node)
    }

    /// What was begun is done, and something for another one goes on, if there was any.
    pub(crate) fn end_for(&mut self, before: Option<usize>) {
        self.broken_node = before;
    }

    /// After a panic: the node that something was being done for. Nothing is any more.
    pub fn broken_node(&mut self) -> Option<usize> {
        self.broken_node.take()
    }

    /// Turns a function off until it is reset; its transfers vanish.
    pub fn give_up(&mut self, node: usize, memories: &[&GuestMemory]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.reset();
            node.is_broken = true;
        }
        self.refresh_links(memories);
        self.settle(memories);
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the engine must look again; asking makes it no.
    pub fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Whether who looks at the queues must look again; asking makes it no.
    pub fn take_wake_poller(&mut self) -> bool {
        std::mem::take(&mut self.wake_poller)
    }

    /// Whether who makes storms must look again; asking makes it no.
    pub fn take_wake_storm(&mut self) -> bool {
        std::mem::take(&mut self.wake_storm)
    }

    /// A client connects to a node: its host is switched on.
    pub fn attach(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.attached = true;
        }
    }

    /// The client is gone: its host is switched off.
    pub fn detach(&mut self, node: usize, memories: &[&GuestMemory]) {
        if let Some(gone) = self.nodes.get_mut(node) {
            gone.attached = false;
            gone.vectors.disconnect();
        }
        self.reset_function(node, memories);
    }

    /// Resets all of a function, as a bus reset does. What was held is never done.
    pub fn reset_function(&mut self, node: usize, memories: &[&GuestMemory]) {
        self.reset_registers(node, memories);
        while let Some(job) = self.in_flight.take_touching(node) {
            self.account(&job, Outcome::failed(Status::Aborted), Instant::now());
        }
        self.settle(memories);
        let sizes = self.shape.bar_sizes();
        if let Some(node) = self.nodes.get_mut(node) {
            node.config = crate::config::Config::new(&sizes);
            node.is_broken = false;
        }
    }

    /// Resets registers and contexts. Ends once nothing of the node is in flight.
    pub(crate) fn reset_registers(&mut self, node: usize, memories: &[&GuestMemory]) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.reset();
            node.resetting = true;
        }
        self.refresh_links(memories);
        self.settle(memories);
    }

    /// Lets the administrator plug or pull cables.
    pub fn with_links<R>(
        &mut self,
        memories: &[&GuestMemory],
        act: impl FnOnce(&mut Links) -> R,
    ) -> R {
        let result = act(&mut self.links);
        self.refresh_links(memories);
        result
    }

    /// A load from a node's configuration space.
    pub fn config_load(&self, node: usize, offset: u64, data: &mut [u8]) {
        match self.nodes.get(node) {
            Some(node) if !node.faults.has(Fault::Gone) => node.config.read(offset, data),
            _ => data.fill(0xff),
        }
    }

    /// A store to a node's configuration space.
    pub fn config_store(&mut self, node: usize, offset: u64, data: &[u8]) {
        if let Some(node) = self.nodes.get_mut(node) {
            if !node.faults.has(Fault::Gone) {
                node.config.write(offset, data);
                self.wake_poller = true;
            }
        }
    }

    /// The client of a node sets, removes or tests interrupt vectors.
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

    /// The interrupts of a node, if it has any to be sent.
    pub fn due_vectors(&mut self, node: usize) -> Option<&mut Vectors> {
        let node = self.nodes.get_mut(node)?;
        Some(&mut node.vectors).filter(|vectors| vectors.is_due())
    }

    /// The interrupts of a node.
    pub fn vectors(&mut self, node: usize) -> Option<&mut Vectors> {
        Some(&mut self.nodes.get_mut(node)?.vectors)
    }

    /// Switches a fault of a node on or off; false if there is no such node.
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
            // Who comes back is a new card.
            self.reset_function(node, memories);
        }
        self.refresh_links(memories);
        self.settle(memories);
        self.wake = true;
        self.wake_poller = true;
        self.wake_storm |= fault == Fault::Storm;
        true
    }

    /// Holds the chunks of one context of a node, or of all; false if there is no such context.
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

    /// The links follow their nodes; tells both ends of those that change.
    pub(crate) fn refresh_links(&mut self, memories: &[&GuestMemory]) {
        let nodes = &self.nodes;
        let is_ready = |node| nodes.get(node).is_some_and(Node::is_enabled);
        let changes = self.links.update(is_ready);
        // The engine has to know when one that waits can come up.
        self.wake |= self.links.retry().is_some();
        if changes.is_empty() {
            return;
        }
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
                        side.remote()
                            .is_some_and(|remote| remote.node as usize == peer)
                    });
                }
            }
            if changed && node.attached {
                node.raise_event(event::LINK);
            }
        }
        self.settle(memories);
    }

    /// The driver of a node comes or goes.
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

    /// What a node's engine sees.
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

    /// A store to the invalidation register.
    pub(crate) fn invalidate(&mut self, node: usize, value: u64, memories: &[&GuestMemory]) {
        let kind = value >> invalidate::KIND_SHIFT;
        self.end_users(node, kind, value as u32, None);
        if let Some(node) = self.nodes.get_mut(node) {
            node.invalidations = node.invalidations.saturating_add(1);
        }
        self.settle(memories);
    }

    /// Lets what uses memory of a node that is named end as aborted, here and at the others. What a
    /// queue has behind the invalidation that it asked for is of a later time.
    pub(crate) fn end_users(
        &mut self,
        node: usize,
        kind: u64,
        index: u32,
        asked_by: Option<usize>,
    ) {
        let named_here = |side: &CheckedSide| match (kind, side.place) {
            (invalidate::ALL, _) => true,
            (_, Location::Peer(_)) => false,
            (invalidate::SPACE, _) => side.space == index,
            (
                invalidate::REGION,
                Location::Region { region, .. } | Location::Import { region, .. },
            ) => region == index,
            _ => false,
        };
        let named_by_peer = |side: &CheckedSide| {
            let remote = side.remote().filter(|remote| remote.node as usize == node);
            remote.is_some_and(|remote| match kind {
                invalidate::ALL => true,
                invalidate::SPACE => remote.space == index,
                invalidate::REGION => remote.region == index,
                _ => false,
            })
        };
        for (number, other) in self.nodes.iter_mut().enumerate() {
            for (place, context) in other.contexts.iter_mut().enumerate() {
                if number != node {
                    context.end_all(Status::Aborted, named_by_peer);
                } else if asked_by != Some(place) {
                    context.end_all(Status::Aborted, named_here);
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.counters.invalidations += 1;
            node.machines.forget_mixable();
        }
    }

    /// A store to the register that rings a peer.
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

    /// Rings at all nodes that have a storm; says whether there are any.
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

    /// The engine asks what to move next; it reports with [`Model::finish`]. Nothing can be moved
    /// before the time that is returned instead, or before something changes.
    pub fn next(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        if let Some(job) = self.resume() {
            return Ok(job);
        }
        let contexts = self.shape.contexts as usize;
        let (nodes, in_flight) = (&self.nodes, &self.in_flight);
        let place = self.schedule.pick(nodes.len() * contexts, now, |place| {
            let (number, context) = (place / contexts, place % contexts);
            let node = nodes.get(number)?;
            let head = node.contexts.get(context)?.head()?;
            let waits = match head.work {
                Work::Invalidate { .. } => in_flight.may_touch(number),
                _ => in_flight.has(number, context),
            };
            (node.engine_runs() && head.ending.is_none() && !waits).then_some(head.ready)
        })?;
        let (node, context) = (place / contexts, place % contexts);
        let job = self.job(node, context).ok_or(None)?;
        self.in_flight.begin(&job);
        Ok(job)
    }

    /// When a link can come up that has to wait, by [`Model::refresh_links`].
    pub(crate) fn retry(&self) -> Option<Instant> {
        self.links.retry()
    }

    /// A chunk that is held no more, and has its access before it.
    fn resume(&mut self) -> Option<Job> {
        let nodes = &self.nodes;
        let (mut job, reached) = self.in_flight.take(|job| {
            let node = nodes.get(job.node);
            node.is_some_and(|node| node.engine_runs() && !node.holds(job.context))
        })?;
        // Who has no DMA any more is not reached, whatever was looked up before.
        let is_master = |number: usize| {
            nodes
                .get(number)
                .is_some_and(|it| it.config.is_bus_master())
        };
        let works = nodes.get(job.node).is_some_and(Node::dma_works);
        job.dma_works = works && reached.into_iter().all(is_master);
        self.in_flight.begin(&job);
        Some(job)
    }

    fn job(&self, number: usize, context: usize) -> Option<Job> {
        let node = self.nodes.get(number)?;
        let head = node.contexts.get(context)?.head()?;
        let touches = matches!(head.work, Work::Copy(_) | Work::Atomic { .. });
        Some(Job {
            node: number,
            context,
            epoch: node.counters.resets,
            ticket: head.ticket,
            work: head.work,
            done: head.done,
            table_view: self.table_view(number)?,
            dma_works: node.dma_works(),
            corrupt: head.done == 0 && node.faults.has(Fault::Corrupt),
            trespass: head.done == 0 && node.faults.has(Fault::Trespass),
            stage: if touches && node.holds(context) {
                Stage::LookUp
            } else {
                Stage::Whole
            },
        })
    }

    /// The engine moved a chunk, failed to, or looked up what it touches.
    pub fn finish(
        &mut self,
        job: &Job,
        progress: Progress,
        now: Instant,
        memories: &[&GuestMemory],
    ) {
        self.in_flight.end();
        let before = self.begin_for(job.node);
        match progress {
            Progress::Ended(outcome) => self.account(job, outcome, now),
            Progress::LookedUp(found) if self.is_current(job) => self.in_flight.hold(job, found),
            Progress::LookedUp(_) => self.account(job, Outcome::failed(Status::Aborted), now),
        }
        self.settle(memories);
        self.end_for(before);
    }

    /// Whether no node that a chunk reaches was reset or lost since it was begun with.
    fn is_current(&self, job: &Job) -> bool {
        let links = job.table_view.peers.iter().enumerate();
        let mut known = links.filter_map(|(peer, known)| Some((peer, known.as_ref()?.1)));
        let node = self.nodes.get(job.node);
        node.is_some_and(|node| node.counters.resets == job.epoch)
            && known
                .all(|(peer, generation)| self.links.current(job.node, peer) == Some(generation))
    }

    /// What became of a chunk.
    fn account(&mut self, job: &Job, outcome: Outcome, now: Instant) {
        self.schedule.charge(outcome.moved, now);
        if let Some(node) = self.nodes.get_mut(job.node) {
            node.counters.count_moved(&job.work, outcome.moved);
            if job.epoch == node.counters.resets {
                if let Some(context) = node.contexts.get_mut(job.context) {
                    context.advance(job.ticket, outcome);
                }
                if let Work::Invalidate { region } = job.work {
                    // Nothing that concerns the node is in flight now, so that is all.
                    self.end_users(job.node, invalidate::REGION, region, Some(job.context));
                }
            }
        }
    }

    /// Ends what waits for the engine to let go of it: transfers whose end is known, invalidations
    /// and resets.
    pub fn settle(&mut self, memories: &[&GuestMemory]) {
        let in_flight = &self.in_flight;
        let before = self.broken_node;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            self.broken_node = Some(number);
            if !node.engine_runs() {
                continue;
            }
            let memory = memories.get(number);
            for context in 0..node.contexts.len() {
                if !in_flight.has(number, context) {
                    self.wake |= complete(node, context, memory.copied());
                }
            }
            // Both wait for the chunks in flight.
            if !in_flight.may_touch(number) {
                node.invalidations = 0;
                node.resetting = false;
            }
        }
        self.broken_node = before;
    }
}

/// Takes ended transfers off a context's queue and tells its owner; says whether there were any.
fn complete(node: &mut Node, number: usize, memory: Option<&GuestMemory>) -> bool {
    let Some(context) = node.contexts.get_mut(number) else {
        return false;
    };
    let done: Vec<_> = std::iter::from_fn(|| context.retire()).collect();
    publish(node, number, &done, memory);
    !done.is_empty()
}

/// Tells the owner of a context of transfers that have ended.
pub(crate) fn publish(
    node: &mut Node,
    number: usize,
    done: &[Completion],
    memory: Option<&GuestMemory>,
) {
    let (Some(context), false) = (node.contexts.get_mut(number), done.is_empty()) else {
        return;
    };
    let page = context.setup.status_page;
    let mut causes = 0;
    if context.take_interrupt() {
        causes |= event::COMPLETION;
    }
    let mut met_error = false;
    for same in done.chunk_by(|one, next| one.status == next.status) {
        let Some(Completion { status, .. }) = same.first() else {
            continue;
        };
        *node.counters.ended.entry(*status).or_default() += same.len() as u64;
        met_error |= *status == Status::BusError;
    }
    let memory = memory.filter(|_| node.config.is_bus_master());
    let written = memory.map(|memory| write(done, &node.faults, memory, page));
    if met_error || written != Some(Ok(())) {
        causes |= event::ERROR;
    }
    if causes != 0 {
        node.raise_event(causes);
    }
}

/// Writes completions, or what a faulty device writes instead.
fn write(
    done: &[Completion],
    faults: &Faults,
    memory: &GuestMemory,
    page: u64,
) -> Result<(), BusError> {
    if faults.has(Fault::DropCompletion) {
        return Ok(());
    }
    let page = StatusPage::new(memory, page)?;
    let forged = |completion: Completion| Completion {
        ticket: completion.ticket.wrapping_add(1 << 40),
        bytes: u64::MAX,
        failed: u64::MAX,
        ..completion
    };
    let mut last = None;
    for completion in done {
        let completion = if faults.has(Fault::ForgeCompletion) {
            forged(*completion)
        } else {
            *completion
        };
        page.record(&completion)?;
        last = Some(completion);
    }
    last.map_or(Ok(()), |last| page.publish(&last))
}
