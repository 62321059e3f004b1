// SPDX-License-Identifier: MIT OR Apache-2.0

//! One register context: its latch, its queue of transfers, its tickets and completions.

use std::collections::VecDeque;
use std::time::Instant;

use crate::abi::{status_page, Method, Status, STATUS_RECORDS};
use crate::check::Checked;
use crate::layout::{context_control, QUEUE_DEPTH};
use crate::memory::{BusError, GuestMemory};
use crate::method::{ExtendedShadow, Machine};
use crate::stats::ContextCounters;

/// A transfer that was given a ticket.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Its ticket in its context.
    pub ticket: u64,
    /// What it moves.
    pub checked: Checked,
    /// Bytes moved so far.
    pub done: u64,
    /// The engine does not start before this.
    pub ready: Instant,
    /// How it ends, once that is known.
    pub ending: Option<Status>,
}

/// What a context writes to its status page when a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The transfer's ticket.
    pub ticket: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// How it ended.
    pub status: Status,
    /// Transfers that did not end well, this one included.
    pub failed: u64,
}

impl Completion {
    /// Writes the record, then the counts that publish it.
    pub fn write(&self, memory: &GuestMemory, page: u64) -> Result<(), BusError> {
        let place = self.ticket % STATUS_RECORDS * status_page::RECORD_SIZE;
        let at = |offset: u64| page.checked_add(offset).ok_or(BusError);
        let record = at(status_page::RECORDS + place)?;
        let field = |offset: u64| record.checked_add(offset).ok_or(BusError);
        memory.store64(field(status_page::RECORD_TICKET)?, self.ticket)?;
        memory.store64(field(status_page::RECORD_BYTES)?, self.bytes)?;
        memory.store64(field(status_page::RECORD_STATUS)?, self.status as u64)?;
        memory.store64(at(status_page::FAILED)?, self.failed)?;
        memory.store64(at(status_page::COMPLETED)?, self.ticket)
    }
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
    /// Space whose pages and regions it may name.
    pub space: u32,
    /// Bus address of its status page.
    pub status_page: u64,
    /// Allowed initiation methods.
    pub methods: u32,
    /// Half-passed arguments.
    pub latch: ExtendedShadow,
    /// What it counted.
    pub counters: ContextCounters,
}

impl Context {
    /// The control register.
    pub fn control(&self) -> u32 {
        let mut value = 0;
        if self.enabled {
            value |= context_control::ENABLE;
        }
        if self.interrupt_always {
            value |= context_control::INTERRUPT_ALWAYS;
        }
        if !self.queue.is_empty() {
            value |= context_control::BUSY;
        }
        value
    }

    /// A store to the control register. Enabling starts anew, so it has to wait until the context
    /// is not busy and is ignored before.
    pub fn set_control(&mut self, value: u32) {
        self.interrupt_always = value & context_control::INTERRUPT_ALWAYS != 0;
        let enable = value & context_control::ENABLE != 0;
        if enable && !self.enabled && self.queue.is_empty() {
            *self = Self {
                enabled: true,
                interrupt_always: self.interrupt_always,
                space: self.space,
                status_page: self.status_page,
                methods: self.methods,
                ..Self::default()
            };
        } else if !enable {
            self.enabled = false;
            self.latch.forget(0);
            self.end_all(Status::Aborted, |_| true);
        }
    }

    /// Whether the context takes initiations.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether programs may initiate by extended shadow addressing.
    pub fn takes_shadow(&self) -> bool {
        self.enabled && self.methods & Method::ExtendedShadow.bit() != 0
    }

    /// Last ticket given out.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Highest ticket that has ended.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// How many did not end well.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Bytes to go of the last initiation, or its negated status.
    pub fn remaining(&self) -> i64 {
        if !self.enabled {
            return Status::Disabled.negated();
        }
        if let Some(status) = self.last_refusal {
            return status.negated();
        }
        match self.queue.back() {
            Some(last) => last.checked.bytes.saturating_sub(last.done) as i64,
            None => self.last_end.map_or(0, Status::negated),
        }
    }

    /// Queues a transfer.
    pub fn push(&mut self, checked: Checked, ready: Instant) -> Result<u64, Status> {
        if self.queue.len() >= QUEUE_DEPTH {
            return Err(Status::QueueFull);
        }
        self.ticket += 1;
        self.queue.push_back(Transfer {
            ticket: self.ticket,
            checked,
            done: 0,
            ready,
            ending: None,
        });
        self.counters.initiations += 1;
        self.last_refusal = None;
        Ok(self.ticket)
    }

    /// Counts a refusal.
    pub fn refuse(&mut self, status: Status) {
        self.counters.refused += 1;
        self.last_refusal = Some(status);
    }

    /// The transfer that the engine works on.
    pub fn head(&self) -> Option<&Transfer> {
        self.queue.front()
    }

    /// Lets the transfers that `which` picks end with a status, unless their end is known already.
    pub fn end_all(&mut self, status: Status, which: impl Fn(&Checked) -> bool) {
        for transfer in &mut self.queue {
            if transfer.ending.is_none() && which(&transfer.checked) {
                transfer.ending = Some(status);
            }
        }
    }

    /// The engine moved a part of a transfer, and perhaps failed then.
    pub fn advance(&mut self, ticket: u64, moved: u64, error: Option<Status>) {
        let Some(head) = self.queue.front_mut().filter(|head| head.ticket == ticket) else {
            return;
        };
        head.done += moved;
        self.counters.bytes += moved;
        if head.ending.is_none() {
            head.ending = error.or((head.done >= head.checked.bytes).then_some(Status::Ok));
        }
    }

    /// Takes the first transfer off the queue if it has ended.
    pub fn retire(&mut self) -> Option<Completion> {
        let head = self.queue.front()?;
        let (status, ticket, bytes) = (head.ending?, head.ticket, head.done);
        self.queue.pop_front();
        self.completed = ticket;
        self.failed += u64::from(status != Status::Ok);
        self.last_end = Some(status);
        Some(Completion {
            ticket,
            bytes,
            status,
            failed: self.failed,
        })
    }

    /// Whether the completion that was written last must interrupt; disarms if so.
    #[must_use]
    pub fn take_interrupt(&mut self) -> bool {
        let armed = self.armed.is_some_and(|value| self.completed > value);
        if armed {
            self.armed = None;
        }
        armed || self.interrupt_always
    }

    /// Asks for an interrupt once more than `value` tickets have ended; true if they have already.
    #[must_use]
    pub fn arm(&mut self, value: u64) -> bool {
        self.armed = (self.completed <= value).then_some(value);
        self.armed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Place, Side};

    fn transfer(bytes: u64) -> Checked {
        let side = Side {
            space: 1,
            place: Place::Page {
                entry: 0,
                offset: 0,
            },
        };
        Checked {
            source: side,
            destination: side,
            bytes,
        }
    }

    fn enabled() -> Context {
        let mut context = Context::default();
        context.set_control(context_control::ENABLE);
        context
    }

    #[test]
    fn tickets_end_in_order() {
        let mut context = enabled();
        let now = Instant::now();
        assert_eq!(context.push(transfer(10), now), Ok(1));
        assert_eq!(context.push(transfer(20), now), Ok(2));
        context.end_all(Status::Aborted, |checked| checked.bytes == 20);
        assert_eq!(context.retire(), None);
        context.advance(1, 4, None);
        assert_eq!((context.retire(), context.counters.bytes), (None, 4));
        context.advance(1, 6, None);
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
            context.push(transfer(1), Instant::now()).unwrap();
        }
        assert_eq!(
            context.push(transfer(1), Instant::now()),
            Err(Status::QueueFull)
        );
    }

    #[test]
    fn disabling_aborts_and_enabling_waits_for_it() {
        let mut context = enabled();
        context.push(transfer(1), Instant::now()).unwrap();
        context.set_control(0);
        assert_eq!(context.control(), context_control::BUSY);
        context.set_control(context_control::ENABLE);
        assert!(!context.is_enabled());
        assert_eq!(context.retire().unwrap().status, Status::Aborted);
        assert_eq!(context.control(), 0);
        context.set_control(context_control::ENABLE);
        assert_eq!((context.ticket(), context.completed()), (0, 0));
    }

    #[test]
    fn arming_fires_once() {
        let mut context = enabled();
        assert!(!context.arm(0));
        context.push(transfer(0), Instant::now()).unwrap();
        context.advance(1, 0, None);
        context.retire().unwrap();
        assert!(context.take_interrupt());
        assert!(!context.take_interrupt());
        assert!(context.arm(0));
        context.set_control(context_control::ENABLE | context_control::INTERRUPT_ALWAYS);
        assert!(context.take_interrupt());
    }
}
