// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polls the queues of descriptors.
//!
//! A poll holds the model for its whole length. So after a context, a node or the whole device has
//! been disabled, its pages are not read any more.

use std::time::Instant;

use crate::abi::{Method, Status};
use crate::completion::{Completion, StatusPage};
use crate::dispatch;
use crate::endpoint::{Match, Sender};
use crate::engine::{Resolver, Scratch};
use crate::layout::{EventCauses, Invalidation};
use crate::memory::{BusError, GuestMemory};
use crate::model::Model;
use crate::page_request::Lacks;
use crate::queue::Ring;
use crate::transfer::{Transfer, Work};

/// Limit of descriptors that are taken from one queue before the next one is polled.
const BATCH: u64 = 64;

/// Limit of bytes that are moved during a poll; the engine moves longer transfers.
const SHORT: u64 = 4096;

/// Descriptors that were taken from a queue.
#[derive(Debug, Default)]
struct Taken {
    /// Their number.
    descriptors: u64,
    /// Initiations among them.
    started: u64,
    /// The region that the last one has invalidated.
    invalidated: Option<u32>,
    /// Answers to page requests are to be read.
    paged: bool,
    /// What has ended, to be published.
    done: Vec<Completion>,
    /// What transfers that have ended lacked.
    lacks: Vec<Lacks>,
}

/// Result of a poll of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Polled {
    /// No queue is polled before something changes.
    Asleep,
    /// All queues were empty, but some are still polled.
    Nothing,
    /// Descriptors were there.
    Found,
}

impl Model {
    /// Polls each queue that is awake, and takes its descriptors.
    pub fn poll(
        &mut self,
        now: Instant,
        memories: &[&GuestMemory],
        scratch: &mut Scratch,
    ) -> Polled {
        let mut polled = Polled::Asleep;
        self.wake_overdue(now);
        for number in 0..self.nodes.len() {
            for context in 1..self.shape.contexts as usize {
                if !self.looks_at(number, context) {
                    continue;
                }
                let before = self.begin_for(number);
                let result = self.poll_queue((number, context), now, memories, scratch);
                self.end_for(before);
                polled = polled.max(result.unwrap_or_else(|BusError| {
                    if let Some(node) = self.nodes.get_mut(number) {
                        if let Some(context) = node.contexts.get_mut(context) {
                            context.fall_asleep();
                        }
                        node.raise_event(EventCauses::ERROR);
                    }
                    Polled::Asleep
                }));
            }
        }
        if polled == Polled::Found {
            self.stay_awake();
        }
        polled
    }

    /// Work in one queue keeps the other queues awake, since more work is likely to follow there.
    fn stay_awake(&mut self) {
        for context in self.nodes.iter_mut().flat_map(|node| &mut node.contexts) {
            if context.is_polled() {
                context.wake();
            }
        }
    }

    fn looks_at(&self, number: usize, context: usize) -> bool {
        self.nodes.get(number).is_some_and(|node| {
            node.engine_runs()
                && node.config.is_bus_master()
                && node.method_of(context) == Some(Method::Queue)
                && node.contexts.get(context).is_some_and(|it| it.is_polled())
        })
    }

    /// Takes descriptors of a queue, in a bracket if there are any.
    fn poll_queue(
        &mut self,
        queue: (usize, usize),
        now: Instant,
        memories: &[&GuestMemory],
        scratch: &mut Scratch,
    ) -> Result<Polled, BusError> {
        if !self.has_descriptor(queue, memories)? {
            return self.doze(queue, now, memories);
        }
        let nodes = 0..self.nodes.len();
        let reached: Vec<_> = nodes
            .filter(|peer| self.links.is_up(queue.0, *peer))
            .collect();
        let bracket = self.begin_bracket(queue.0, reached.into_iter(), memories);
        let taken = self.take_descriptors(queue, now, memories, scratch);
        self.end_bracket(&bracket, memories);
        let taken = taken?;
        if taken.descriptors == 0 {
            return self.doze(queue, now, memories);
        }
        self.follow_up(queue, taken, memories)
    }

    fn has_descriptor(
        &self,
        (number, place): (usize, usize),
        memories: &[&GuestMemory],
    ) -> Result<bool, BusError> {
        let node = self.nodes.get(number).ok_or(BusError)?;
        let context = node.contexts.get(place).ok_or(BusError)?;
        let memory = memories.get(number).copied().ok_or(BusError)?;
        let ring = Ring::new(memory, context.setup.descriptors)?;
        Ok(ring.read(context.next_ticket())?.is_some())
    }

    /// Takes up to [`BATCH`] descriptors of a queue.
    fn take_descriptors(
        &mut self,
        (number, place): (usize, usize),
        now: Instant,
        memories: &[&GuestMemory],
        scratch: &mut Scratch,
    ) -> Result<Taken, BusError> {
        let table_view = self.table_view(number).ok_or(BusError)?;
        let resolver = Resolver::new(&table_view, number, memories).ok_or(BusError)?;
        let in_flight = self.in_flight.has(number, place);
        let ready = self.schedule.ready();
        let idle = !self.in_flight.may_touch(number);
        let node = self.nodes.get_mut(number).ok_or(BusError)?;
        let (is_instant, has_faults) = (self.schedule.is_instant(), !node.faults.is_empty());
        let context = node.contexts.get_mut(place).ok_or(BusError)?;
        let memory = memories.get(number).copied().ok_or(BusError)?;
        let ring = Ring::new(memory, context.setup.descriptors)?;
        let space = context.descriptor_space();

        let mut taken = Taken::default();
        while taken.descriptors < BATCH && context.has_room() && taken.invalidated.is_none() {
            let Some(descriptor) = ring.read(context.next_ticket())? else {
                break;
            };
            let matched = descriptor.send().map(|send| {
                let sender = Sender {
                    node: number,
                    context: place,
                    space,
                };
                let progress = context.matched();
                self.endpoints
                    .take(&sender, &send, progress, resolver.access_check(), memories)
            });
            let mut transfer = match matched {
                Some(Ok(Match::Waits(wait))) => {
                    context.wait(wait.begin(now));
                    if !context.waiting().is_some_and(|wait| wait.is_over(now)) {
                        break;
                    }
                    Transfer::ended(Status::NotReady, ready)
                }
                Some(Ok(Match::Found(work, delivery))) => Transfer {
                    delivery: Some(delivery),
                    ..Transfer::of(work, ready)
                },
                Some(Err(status)) => Transfer::ended(status, ready),
                None => Transfer::of(descriptor.work(resolver.access_check(), space), ready),
            };
            taken.descriptors += 1;
            taken.started += u64::from(!transfer.is_part());
            context.end_wait();
            transfer.linked = descriptor.is_linked();
            transfer.sends = descriptor.send().map(|send| send.endpoint);
            let alone = context.is_empty();
            if context.push(transfer).is_err() {
                break;
            }
            let head = context.head().filter(|head| {
                let is_short = is_instant && head.work.bytes() <= SHORT;
                let at_once = is_short || !head.work.moves();
                alone && at_once && !has_faults && head.ending.is_none()
            });
            let head = head.map(|head| (head.ticket, head.work));
            // An invalidation only waits for a chunk in flight.
            let head = head.filter(|(_, work)| idle || !matches!(work, Work::Invalidate { .. }));
            if let Some((ticket, work)) = head {
                if let Work::Invalidate { region } = work {
                    taken.invalidated = Some(region);
                }
                taken.paged |= work == Work::Paged;
                let outcome = resolver.perform(&work, 0, scratch);
                node.counters.count_moved(&work, &outcome);
                let lacks = context.advance(ticket, outcome);
                if lacks != Lacks::default() {
                    taken.lacks.push(lacks);
                }
            }
            if !in_flight {
                while let Some(completion) = context.retire() {
                    taken.done.push(completion);
                }
            }
        }

        Ok(taken)
    }

    /// Polls a queue from which no descriptor can be taken less and less often.
    fn doze(
        &mut self,
        (number, place): (usize, usize),
        now: Instant,
        memories: &[&GuestMemory],
    ) -> Result<Polled, BusError> {
        let limit = self.schedule.poll_timeout();
        let node = self.nodes.get_mut(number).ok_or(BusError)?;
        let context = node.contexts.get_mut(place).ok_or(BusError)?;
        if !context.is_idle(now, limit) {
            return Ok(Polled::Nothing);
        }
        if let Some(wait) = context.waiting() {
            context.fall_asleep();
            return self.ask_receiver(number, place, wait, memories);
        }
        let memory = memories.get(number).copied().ok_or(BusError)?;
        let ring = Ring::new(memory, context.setup.descriptors)?;
        let page = StatusPage::new(memory, context.setup.status_page)?;
        page.wakeup(true)?;
        // A program that reuses a slot too early has to wake the device, too.
        if !context.has_room() || ring.read(context.next_ticket())?.is_none() {
            context.fall_asleep();
            return Ok(Polled::Asleep);
        }
        page.wakeup(false)?;
        Ok(Polled::Found)
    }

    /// Does what follows from descriptors that were taken, after their bracket.
    fn follow_up(
        &mut self,
        (number, place): (usize, usize),
        mut taken: Taken,
        memories: &[&GuestMemory],
    ) -> Result<Polled, BusError> {
        let lacked = !taken.lacks.is_empty();
        for lacks in taken.lacks {
            self.request_pages((number, place), lacks, memories);
        }
        let node = self.nodes.get_mut(number).ok_or(BusError)?;
        let context = node.contexts.get_mut(place).ok_or(BusError)?;
        context.wake();
        self.wake |= !context.is_empty();
        node.counters.initiations += taken.started;
        node.counters.method(Method::Queue).initiations += taken.started;
        if let Some(region) = taken.invalidated {
            let what = Invalidation::new(Invalidation::REGION, region);
            self.end_users(number, what, Some(place));
            self.settle(memories);
        }
        self.deliver((number, place), &mut taken.done, memories);
        let node = self.nodes.get_mut(number).ok_or(BusError)?;
        dispatch::publish(node, place, &taken.done, memories.get(number).copied());
        if taken.paged {
            self.read_answers(number, memories);
        }
        if taken.paged || lacked {
            // A transfer that would have waited may have ended.
            self.settle(memories);
        }
        Ok(Polled::Found)
    }
}
