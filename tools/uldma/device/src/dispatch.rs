// SPDX-License-Identifier: MIT OR Apache-2.0

//! The model's side of the engine: gives it chunks to move, and completes transfers.

use std::time::Instant;

use crate::abi::Status;
use crate::completion::{Completion, StatusPage};
use crate::engine::{Job, Progress, Ready, Stage};
use crate::fault::{Fault, Faults};
use crate::layout::{EventCauses, Invalidation};
use crate::memory::{BusError, GuestMemory};
use crate::model::Model;
use crate::node::Node;
use crate::touch::Bracket;
use crate::transfer::{Outcome, Work};

impl Model {
    /// Returns the next chunk to move, for the engine, which reports the result by
    /// [`Model::finish`]. The error is the time before which there is nothing to move unless
    /// something changes.
    pub fn next(
        &mut self,
        now: Instant,
        memories: &[&GuestMemory],
    ) -> Result<Job, Option<Instant>> {
        if let Some(job) = self.resume(now) {
            return Ok(job);
        }
        let late = match self.in_flight.take_late(now) {
            Ok(job) => {
                self.in_flight.begin(&job);
                return Ok(job);
            }
            Err(late) => late,
        };
        self.end_overdue(now, memories);
        let contexts = self.shape.contexts as usize;
        let (nodes, in_flight) = (&self.nodes, &self.in_flight);
        let turn = self.schedule.pick(nodes.len() * contexts, now, |place| {
            let (number, context) = (place / contexts, place % contexts);
            let node = nodes.get(number)?;
            let head = node.contexts.get(context)?.head()?;
            let waits = match head.work {
                Work::Invalidate { .. } => in_flight.may_touch(number),
                _ => in_flight.has(number, context),
            };
            let moves = head.work.moves() && head.sleep.is_none();
            let at = match head.sleep {
                Some(sleep) => sleep.until,
                None if moves => head.ready,
                None => now,
            };
            let ready = Ready { at, moves };
            (node.engine_runs() && head.ending.is_none() && !waits).then_some(ready)
        });
        let turn = turn.map_err(|next| next.into_iter().chain(late).min())?;
        let (node, context) = (turn.place / contexts, turn.place % contexts);
        let mut job = self.job(node, context, turn.began).ok_or(None)?;
        if job.work.moves() {
            job.bracket = self.begin_bracket(node, job.work.peers(), memories);
        }
        self.in_flight.begin(&job);
        Ok(job)
    }

    /// Returns a chunk that is not held any more; its access remains.
    fn resume(&mut self, now: Instant) -> Option<Job> {
        let nodes = &self.nodes;
        let (mut job, reached) = self.in_flight.take(|job| {
            let node = nodes.get(job.node);
            node.is_some_and(|node| node.engine_runs() && !node.holds(job.context))
        })?;
        // A node without DMA is not accessed, whatever was looked up before.
        let is_master = |number: usize| {
            nodes
                .get(number)
                .is_some_and(|it| it.config.is_bus_master())
        };
        let works = nodes.get(job.node).is_some_and(Node::dma_works);
        job.began = now;
        job.dma_works = works && reached.into_iter().all(is_master);
        self.in_flight.begin(&job);
        if self.is_late(job.node) {
            self.in_flight.repeat(&job);
        }
        Some(job)
    }

    /// Returns true if a node's chunks access once more.
    fn is_late(&self, number: usize) -> bool {
        let node = self.nodes.get(number);
        node.is_some_and(|node| node.faults.has(Fault::Late))
    }

    fn job(&self, number: usize, context: usize, began: Instant) -> Option<Job> {
        let node = self.nodes.get(number)?;
        let head = node.contexts.get(context)?.head()?;
        let touches = head.work.moves();
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
            stage: if touches && (node.holds(context) || node.faults.has(Fault::Late)) {
                Stage::LookUp
            } else {
                Stage::Whole
            },
            began,
            bracket: Bracket::default(),
            late: false,
        })
    }

    /// Reports that the engine moved a chunk, failed to, or looked up its bus addresses.
    pub fn finish(&mut self, job: &Job, progress: Progress, memories: &[&GuestMemory]) {
        self.in_flight.end();
        if job.late {
            self.settle(memories);
            return;
        }
        let before = self.begin_for(job.node);
        let is_held = matches!(progress, Progress::LookedUp(_)) && self.is_current(job);
        if !is_held {
            self.end_bracket(&job.bracket, memories);
        }
        match progress {
            Progress::Ended(outcome) => self.account(job, outcome, memories),
            Progress::LookedUp(found) if is_held => self.in_flight.hold(job, found),
            Progress::LookedUp(_) => {
                self.account(job, Outcome::failed(Status::Aborted), memories);
            }
        }
        self.settle(memories);
        self.end_for(before);
    }

    /// Returns true if no node that the chunk touches was reset or lost after the chunk was begun.
    fn is_current(&self, job: &Job) -> bool {
        let links = job.table_view.peers.iter().enumerate();
        let mut known = links.filter_map(|(peer, known)| Some((peer, known.as_ref()?.1)));
        let node = self.nodes.get(job.node);
        node.is_some_and(|node| node.counters.resets == job.epoch)
            && known
                .all(|(peer, generation)| self.links.current(job.node, peer) == Some(generation))
    }

    /// Accounts for the outcome of a chunk.
    pub(crate) fn account(&mut self, job: &Job, outcome: Outcome, memories: &[&GuestMemory]) {
        self.schedule.charge(outcome.moved, job.began);
        if let Some(node) = self.nodes.get_mut(job.node) {
            node.counters.count_moved(&job.work, &outcome);
            if job.epoch == node.counters.resets {
                if let Some(context) = node.contexts.get_mut(job.context) {
                    let lacks = context.advance(job.ticket, outcome);
                    self.request_pages((job.node, job.context), lacks, memories);
                }
                if let Work::Invalidate { region } = job.work {
                    // No chunk that concerns the node is in flight now, so nothing else has to be
                    // waited for.
                    let what = Invalidation::new(Invalidation::REGION, region);
                    self.end_users(job.node, what, Some(job.context));
                }
                if job.work == Work::Paged {
                    self.read_answers(job.node, memories);
                }
            }
        }
    }

    /// Ends the operations that waited for the engine: transfers whose result is known,
    /// invalidations and resets.
    pub fn settle(&mut self, memories: &[&GuestMemory]) {
        let before = self.serving;
        for number in 0..self.nodes.len() {
            self.serving = Some(number);
            let contexts = match self.nodes.get(number) {
                Some(node) if node.engine_runs() => node.contexts.len(),
                _ => continue,
            };
            for context in 0..contexts {
                if !self.in_flight.has(number, context) {
                    self.complete(number, context, memories);
                }
            }
            let in_flight = &self.in_flight;
            let Some(node) = self.nodes.get_mut(number) else {
                continue;
            };
            // Both wait for the chunks in flight.
            if !in_flight.may_touch(number) {
                node.invalidations = 0;
                if std::mem::take(&mut node.resetting) {
                    self.brackets.set_page(number, 0, None);
                }
            }
        }
        self.serving = before;
    }

    /// Removes ended transfers from a context's queue and publishes their completions.
    fn complete(&mut self, number: usize, context: usize, memories: &[&GuestMemory]) {
        let node = self.nodes.get_mut(number);
        let Some(owner) = node.and_then(|node| node.contexts.get_mut(context)) else {
            return;
        };
        let mut done: Vec<_> = std::iter::from_fn(|| owner.retire()).collect();
        if done.is_empty() {
            return;
        }
        self.wake = true;
        self.deliver((number, context), &mut done, memories);
        if let Some(node) = self.nodes.get_mut(number) {
            publish(node, context, &done, memories.get(number).copied());
        }
    }
}

/// Publishes completions to the owner of a context.
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
    let mut causes = EventCauses::NONE;
    if context.take_interrupt() {
        causes |= EventCauses::COMPLETION;
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
        causes |= EventCauses::ERROR;
    }
    if !causes.is_empty() {
        node.raise_event(causes);
    }
}

/// Writes completions, or what a faulty device writes instead.
pub(crate) fn write(
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
