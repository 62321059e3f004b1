// SPDX-License-Identifier: MIT OR Apache-2.0

//! One register context: its registers, its queue of transfers, its tickets and its completions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::abi::{Method, Status};
use crate::completion::{Completion, Counts};
use crate::layout::{ContextControl, Key, QUEUE_DEPTH};
use crate::location::CheckedSide;
use crate::page_request::{wait_of, Lacks};
use crate::stats::ContextCounters;
use crate::transfer::{Delivery, Outcome, Transfer};

/// The setup registers of a context. They keep their values while the context is disabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Space whose pages and regions the context may name.
    pub space: u32,
    /// Bus address of its status page.
    pub status_page: u64,
    /// Mask of the allowed initiation methods.
    pub methods: u32,
    /// Its key.
    pub key: Key,
    /// Bus address of its descriptors.
    pub descriptors: u64,
}

/// Effect of a store to the control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlChange {
    /// The context was enabled.
    Enabled,
    /// The context was disabled.
    Disabled,
    /// Neither.
    None,
}

/// Polling state of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PollState {
    /// The device does not poll the queue before it is woken.
    #[default]
    Asleep,
    /// The device polls the queue; the time is that of the first poll that found it empty.
    Awake(Option<Instant>),
}

/// A send that waits for a receive descriptor of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The receiver's node.
    pub node: usize,
    /// The time at which the send fails, if it does.
    pub until: Option<Instant>,
}

/// The registers and the state of one context.
#[derive(Debug, Default)]
pub struct Context {
    enabled: bool,
    interrupt_always: bool,
    armed: Option<u64>,
    queue: VecDeque<Transfer>,
    ticket: u64,
    completed: u64,
    failed: u64,
    last_end: Option<Status>,
    last_refusal: Option<Status>,
    no_data: bool,
    privileged: bool,
    /// The transfer that ended last was linked to the next, and failed.
    abort_next: bool,
    /// Bytes of the next send that were taken as parts.
    matched: u64,
    /// Refusals before the context was last enabled.
    refused_before: u64,
    watch: PollState,
    /// The send at the head of the ring waits for a receive descriptor.
    wait: Option<Wait>,
    /// Setup registers.
    pub setup: Setup,
    /// Counters.
    pub counters: ContextCounters,
}

impl Context {
    /// The control register.
    pub fn control(&self) -> ContextControl {
        ContextControl::ENABLE.when(self.enabled)
            | ContextControl::INTERRUPT_ALWAYS.when(self.interrupt_always)
            | ContextControl::NO_DATA.when(self.no_data)
            | ContextControl::PRIVILEGED.when(self.privileged)
            | ContextControl::BUSY.when(!self.queue.is_empty())
    }

    /// Stores to the control register. Enabling resets the context, so a store that enables a busy
    /// context is ignored.
    pub fn set_control(&mut self, value: ContextControl) -> ControlChange {
        self.interrupt_always = value.contains(ContextControl::INTERRUPT_ALWAYS);
        self.no_data = value.contains(ContextControl::NO_DATA);
        let enable = value.contains(ContextControl::ENABLE);
        if enable && !self.enabled && self.queue.is_empty() {
            *self = Self {
                enabled: true,
                interrupt_always: self.interrupt_always,
                no_data: self.no_data,
                privileged: value.contains(ContextControl::PRIVILEGED),
                setup: self.setup,
                watch: PollState::Awake(None),
                ..Self::default()
            };
            ControlChange::Enabled
        } else if enable {
            ControlChange::None
        } else {
            self.enabled = false;
            self.privileged = false;
            self.end_everything();
            ControlChange::Disabled
        }
    }

    /// Continues the counters from the values that the status page had when the context was last
    /// enabled.
    pub fn resume(&mut self, counts: &Counts) {
        self.ticket = counts.completed;
        self.completed = counts.completed;
        self.failed = counts.failed;
        self.refused_before = counts.refused;
    }

    /// Returns the number of refused initiations, as the status page counts them.
    pub fn refused(&self) -> u64 {
        self.refused_before.wrapping_add(self.counters.refused)
    }

    /// Returns true if the context accepts initiations.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the initiation method of the context.
    pub fn method(&self) -> Option<Method> {
        Method::of_mask(self.setup.methods)
    }

    /// Returns true if the device polls the context's queue.
    pub fn is_polled(&self) -> bool {
        self.enabled && self.watch != PollState::Asleep && self.method() == Some(Method::Queue)
    }

    /// Makes the device poll the queue.
    pub fn wake(&mut self) {
        self.watch = PollState::Awake(None);
    }

    /// Notes that the next send waits, from the first time that it is found waiting on.
    pub fn wait(&mut self, wait: Wait) {
        self.wait.get_or_insert(wait);
    }

    /// Returns the wait of the next send, if it waits.
    pub fn waiting(&self) -> Option<Wait> {
        self.wait
    }

    /// Notes that the next send does not wait any more.
    pub fn end_wait(&mut self) {
        self.wait = None;
    }

    /// Makes the device stop polling the queue.
    pub fn fall_asleep(&mut self) {
        self.watch = PollState::Asleep;
    }

    /// Notes that a poll found the queue empty. Returns true if it has been empty for longer than
    /// `limit`.
    pub fn is_idle(&mut self, now: Instant, limit: Duration) -> bool {
        match self.watch {
            PollState::Awake(Some(since)) => now.saturating_duration_since(since) >= limit,
            _ => {
                self.watch = PollState::Awake(Some(now));
                limit.is_zero()
            }
        }
    }

    /// Returns the last ticket that was issued.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the ticket to issue next. The arithmetic wraps, since a guest chooses the first
    /// value.
    pub fn next_ticket(&self) -> u64 {
        self.ticket.wrapping_add(1)
    }

    /// Returns the highest ticket that has ended.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the number of tickets that ended with an error.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the bytes still to move of the last initiation, or its negated status.
    pub fn remaining(&self) -> i64 {
        if !self.enabled {
            return Status::Disabled.negated();
        }
        if let Some(status) = self.last_refusal {
            return status.negated();
        }
        match self.queue.back() {
            Some(last) => last.work.bytes().saturating_sub(last.done) as i64,
            None => self.last_end.map_or(0, Status::negated),
        }
    }

    /// Returns the space whose regions its descriptors may name; `None` allows all spaces.
    pub fn descriptor_space(&self) -> Option<u32> {
        (!self.privileged).then_some(self.setup.space)
    }

    /// Returns true if transfers succeed without moving data.
    pub fn moves_nothing(&self) -> bool {
        self.no_data
    }

    /// Returns true if the queue has room for another transfer.
    pub fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_DEPTH
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a transfer and issues its ticket.
    pub fn push(&mut self, mut transfer: Transfer) -> Result<u64, Status> {
        if !self.has_room() {
            return Err(Status::QueueFull);
        }
        transfer.ticket = self.next_ticket();
        if transfer.is_part() {
            // The rest of the send gets the ticket.
            self.matched = self.matched.saturating_add(transfer.work.bytes());
        } else {
            self.ticket = transfer.ticket;
            self.counters.initiations +=
                u64::from(transfer.ending.is_none_or(|end| end == Status::Ok));
            transfer.before = std::mem::take(&mut self.matched);
        }
        if std::mem::take(&mut self.abort_next) {
            transfer.ending = Some(Status::Aborted);
        }
        if self.no_data {
            transfer.ending.get_or_insert(Status::Ok);
        }
        self.queue.push_back(transfer);
        self.last_refusal = None;
        Ok(transfer.ticket)
    }

    /// Returns the bytes of the next send that were taken as parts.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, status: Status) {
        self.counters.refused += 1;
        self.last_refusal = Some(status);
    }

    /// Returns the transfer that the engine works on.
    pub fn head(&self) -> Option<&Transfer> {
        self.queue.front()
    }

    /// Ends the transfers of which `which` selects a side with a status, unless their result is
    /// known already.
    pub fn end_all(&mut self, status: Status, which: impl Fn(&CheckedSide) -> bool) {
        for transfer in &mut self.queue {
            if transfer.ending.is_none() && transfer.work.sides().any(&which) {
                transfer.ending = Some(status);
            }
        }
    }

    /// Ends the messages that `which` selects as aborted, unless their result is known already.
    pub fn end_messages(&mut self, which: impl Fn(&Delivery) -> bool) {
        for transfer in &mut self.queue {
            if transfer.ending.is_none() && transfer.delivery.as_ref().is_some_and(&which) {
                transfer.ending = Some(Status::Aborted);
            }
        }
    }

    /// Ends all transfers as aborted, unless their result is known already.
    pub fn end_everything(&mut self) {
        self.wait = None;
        for transfer in &mut self.queue {
            transfer.ending.get_or_insert(Status::Aborted);
        }
    }

    /// Reports that the engine executed a part of a transfer, or failed to. Returns the pages that the
    /// transfer lacked, if it ends because of them, or waits: then its result is not known.
    pub fn advance(&mut self, ticket: u64, outcome: Outcome) -> Lacks {
        let Some(head) = self.queue.front_mut().filter(|head| head.ticket == ticket) else {
            return Lacks::default();
        };
        head.done += outcome.moved;
        head.word = outcome.word;
        self.counters.bytes += outcome.moved;
        if head.ending.is_some() {
            return Lacks::default();
        }
        if wait_of(&outcome.lacks).is_none() {
            let all = head.done >= head.work.bytes();
            head.ending = outcome.error.or(all.then_some(Status::Ok));
        }
        outcome.lacks
    }

    /// Returns the transfer that lacks a page for which it waits, or will.
    pub fn sleeper(&mut self) -> Option<&mut Transfer> {
        self.queue.front_mut().filter(|head| head.ending.is_none())
    }

    /// Removes the first transfer from the queue if it has ended.
    pub fn retire(&mut self) -> Option<Completion> {
        let head = *self.queue.front()?;
        let status = head.ending?;
        self.queue.pop_front();
        let is_part = head.is_part();
        if !is_part {
            self.completed = head.ticket;
            self.failed = self.failed.wrapping_add(u64::from(status != Status::Ok));
            self.last_end = Some(status);
        }
        if (head.linked || is_part) && status != Status::Ok {
            match self.queue.front_mut() {
                Some(next) => next.ending = Some(Status::Aborted),
                None => self.abort_next = true,
            }
        }
        Some(Completion {
            ticket: head.ticket,
            bytes: head.word.unwrap_or(head.done.saturating_add(head.before)),
            status,
            failed: self.failed,
            flags: 0,
            sends: head.sends,
            delivery: head.delivery,
        })
    }

    /// Returns true if the completion written last must raise an interrupt; disarms the context if
    /// so.
    #[must_use]
    pub fn take_interrupt(&mut self) -> bool {
        let armed = self.armed.is_some_and(|value| self.completed > value);
        if armed {
            self.armed = None;
        }
        armed || self.interrupt_always
    }

    /// Arms an interrupt for the moment when more than `value` tickets have ended. Returns true if
    /// they have already ended.
    #[must_use]
    pub fn arm(&mut self, value: u64) -> bool {
        self.armed = (self.completed <= value).then_some(value);
        self.armed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::{CheckedTransfer, Location};
    use crate::transfer::Work;

    fn transfer(bytes: u64) -> Transfer {
        let side = CheckedSide {
            space: bytes as u32,
            place: Location::Page {
                entry: 0,
                offset: 0,
            },
        };
        let work = Work::Copy(CheckedTransfer {
            source: side,
            destination: side,
            bytes,
        });
        Transfer::new(work, Instant::now())
    }

    fn ended(status: Status) -> Transfer {
        Transfer::ended(status, Instant::now())
    }

    fn moved(bytes: u64) -> Outcome {
        Outcome {
            moved: bytes,
            ..Outcome::default()
        }
    }

    fn enabled() -> Context {
        let mut context = Context::default();
        context.set_control(ContextControl::ENABLE);
        context
    }

    #[test]
    fn tickets_end_in_order() {
        let mut context = enabled();
        assert_eq!(context.push(transfer(10)), Ok(1));
        assert_eq!(context.push(transfer(20)), Ok(2));
        context.end_all(Status::Aborted, |side| side.space == 20);
        assert_eq!(context.retire(), None);
        context.advance(1, moved(4));
        assert_eq!((context.retire(), context.counters.bytes), (None, 4));
        context.advance(1, moved(6));
        let statuses: Vec<_> = std::iter::from_fn(|| context.retire())
            .map(|end| (end.ticket, end.bytes, end.status, end.failed))
            .collect();
        assert_eq!(
            statuses,
            [(1, 10, Status::Ok, 0), (2, 0, Status::Aborted, 1)]
        );
        assert_eq!(context.remaining(), Status::Aborted.negated());
    }

    #[test]
    fn queue_is_bounded() {
        let mut context = enabled();
        for _ in 0..QUEUE_DEPTH {
            context.push(transfer(1)).unwrap();
        }
        assert_eq!(context.push(transfer(1)), Err(Status::QueueFull));
    }

    #[test]
    fn disabling_aborts_and_enabling_waits_for_it() {
        let mut context = enabled();
        context.push(transfer(1)).unwrap();
        context.set_control(ContextControl::NONE);
        assert_eq!(context.control(), ContextControl::BUSY);
        context.set_control(ContextControl::ENABLE);
        assert!(!context.is_enabled());
        assert_eq!(context.retire().unwrap().status, Status::Aborted);
        assert_eq!(context.control(), ContextControl::NONE);
        context.set_control(ContextControl::ENABLE);
        assert_eq!((context.ticket(), context.completed()), (0, 0));
    }

    #[test]
    fn arming_fires_once() {
        let mut context = enabled();
        assert!(!context.arm(0));
        context.push(transfer(0)).unwrap();
        context.advance(1, moved(0));
        context.retire().unwrap();
        assert!(context.take_interrupt());
        assert!(!context.take_interrupt());
        assert!(context.arm(0));
        context.set_control(ContextControl::ENABLE | ContextControl::INTERRUPT_ALWAYS);
        assert!(context.take_interrupt());
    }

    #[test]
    fn links_abort_what_follows() {
        let mut context = enabled();
        let linked = |transfer| Transfer {
            linked: true,
            ..transfer
        };
        context.push(linked(ended(Status::Ok))).unwrap();
        context.push(linked(ended(Status::Bounds))).unwrap();
        context.push(linked(transfer(1))).unwrap();
        let ends = |context: &mut Context| -> Vec<_> {
            std::iter::from_fn(|| context.retire())
                .map(|end| end.status)
                .collect()
        };
        let expected = [Status::Ok, Status::Bounds, Status::Aborted];
        assert_eq!(ends(&mut context), expected);
        // Also one that comes only when the end of the one before is known.
        context.push(transfer(1)).unwrap();
        context.push(ended(Status::Ok)).unwrap();
        assert_eq!(ends(&mut context), [Status::Aborted, Status::Ok]);
        assert_eq!(context.counters.initiations, 4);
    }

    #[test]
    fn without_data_all_ends_at_once() {
        let mut context = Context::default();
        let control = ContextControl::ENABLE | ContextControl::NO_DATA;
        assert_eq!(context.set_control(control), ControlChange::Enabled);
        assert_eq!(context.control(), control);
        context.push(transfer(100)).unwrap();
        context.push(ended(Status::Bounds)).unwrap();
        let ends: Vec<_> = std::iter::from_fn(|| context.retire())
            .map(|end| (end.bytes, end.status))
            .collect();
        assert_eq!(ends, [(0, Status::Ok), (0, Status::Bounds)]);
    }

    #[test]
    fn a_queue_is_watched_for_a_while() {
        let mut context = Context::default();
        context.setup.methods = Method::Queue.bit();
        assert!(!context.is_polled());
        context.set_control(ContextControl::ENABLE);
        let now = Instant::now();
        let limit = Duration::from_micros(5);
        assert!(context.is_polled() && !context.is_idle(now, limit));
        assert!(context.is_idle(now + limit, limit));
        context.wake();
        assert!(!context.is_idle(now + limit, limit), "it found something");
        context.fall_asleep();
        assert!(!context.is_polled());
        context.wake();
        assert!(context.is_idle(now, Duration::ZERO));
        context.setup.methods = Method::Key.bit();
        assert!(!context.is_polled());
    }
}
