// SPDX-License-Identifier: GPL-2.0

//! The tickets of a queue, and the waiter that learns how each ends.

use kernel::prelude::*;

use crate::{
    dma::descriptor::{
        place_of,
        DEPTH, //
    },
    user_abi::status_page::Outcome, //
};

/// The place of a ticket. `T` is what the queue keeps until its command has ended.
enum Place<T> {
    Free,
    InFlight {
        kept: Option<T>,
        /// A caller takes the outcome.
        is_awaited: bool,
    },
    /// The command was reaped. The place is not reused until its caller has taken the outcome.
    Ended(Outcome),
}

/// Tickets and their places.
pub(super) struct Tickets<T> {
    /// By ticket modulo the depth.
    places: KVec<Place<T>>,
    /// Last submitted ticket.
    submitted: u64,
    /// Last reaped ticket. All later ones that were submitted are in flight.
    reaped: u64,
}

impl<T> Tickets<T> {
    pub(super) fn new() -> Result<Self> {
        // Too much for a stack.
        let mut places = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            places.push(Place::Free, GFP_KERNEL)?;
        }
        Ok(Self {
            places,
            submitted: 0,
            reaped: 0,
        })
    }

    /// Returns the ticket that was submitted last.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Returns the ticket that was reaped last.
    pub(super) fn reaped(&self) -> u64 {
        self.reaped
    }

    /// Returns the last ticket of those that the device says it has completed.
    fn last_of(&self, completed: u64) -> u64 {
        // A device that reports wrong tickets cannot end commands that were not submitted.
        completed.min(self.submitted)
    }

    /// Returns true if commands are in flight or not reaped.
    pub(super) fn is_busy(&self) -> bool {
        self.reaped < self.submitted
    }

    /// Returns true if commands up to `completed` are not reaped.
    pub(super) fn has_ended(&self, completed: u64) -> bool {
        self.reaped < self.last_of(completed)
    }

    /// Returns the place of a ticket, unless it belongs to a later one by now.
    fn place(&mut self, ticket: u64) -> Option<&mut Place<T>> {
        let age = self.submitted.checked_sub(ticket)?;
        let place = self.places.get_mut(place_of(ticket))?;
        (age < DEPTH as u64).then_some(place)
    }

    /// Returns the next ticket, if its place is free.
    pub(super) fn next(&self) -> Option<u64> {
        let ticket = self.submitted + 1;
        let place = self.places.get(place_of(ticket));
        matches!(place, Some(Place::Free)).then_some(ticket)
    }

    /// Submits the [next](Tickets::next) ticket.
    pub(super) fn submit(&mut self, kept: Option<T>, is_awaited: bool) {
        self.submitted += 1;
        if let Some(place) = self.place(self.submitted) {
            *place = Place::InFlight { kept, is_awaited };
        }
    }

    /// Reaps the next ticket up to `completed`: returns what the queue has kept for it, and its outcome.
    pub(super) fn reap(
        &mut self,
        completed: u64,
        outcome_of: impl FnOnce(u64) -> Outcome,
    ) -> Option<(Option<T>, Outcome)> {
        if !self.has_ended(completed) {
            return None;
        }
        self.reaped += 1;
        let outcome = outcome_of(self.reaped);
        let place = self.place(self.reaped)?;
        let Place::InFlight { kept, is_awaited } = core::mem::replace(place, Place::Free) else {
            return None;
        };
        if is_awaited {
            *place = Place::Ended(outcome);
        }
        Some((kept, outcome))
    }

    /// Reaps tickets up to `completed`, and up to the first for which the queue has kept something. So
    /// callers that take outcomes need no worker that reaps.
    pub(super) fn reap_awaited(&mut self, completed: u64, outcome_of: impl Fn(u64) -> Outcome) {
        while !self.next_is_kept() && self.reap(completed, &outcome_of).is_some() {}
    }

    /// Returns true if the queue keeps something for the ticket that is reaped next.
    fn next_is_kept(&mut self) -> bool {
        let place = self.place(self.reaped + 1);
        matches!(place, Some(Place::InFlight { kept: Some(_), .. }))
    }

    /// Takes the outcome of a ticket, if it is up to `completed`, and [awaited](Tickets::submit).
    pub(super) fn take(
        &mut self,
        ticket: u64,
        completed: u64,
        outcome_of: impl FnOnce(u64) -> Outcome,
    ) -> Option<Outcome> {
        let place = self.place(ticket)?;
        match place {
            Place::Ended(outcome) => {
                let outcome = *outcome;
                *place = Place::Free;
                Some(outcome)
            }
            Place::InFlight { is_awaited, .. } if *is_awaited && ticket <= completed => {
                *is_awaited = false;
                Some(outcome_of(ticket))
            }
            _ => None,
        }
    }

    /// Has nothing await the outcome of a ticket any more.
    pub(super) fn abandon(&mut self, ticket: u64) {
        match self.place(ticket) {
            Some(Place::InFlight { is_awaited, .. }) => *is_awaited = false,
            Some(place @ Place::Ended(_)) => *place = Place::Free,
            _ => (),
        }
    }
}

#[kunit_tests(uldma_tickets)]
mod tests {
    use super::*;
    use crate::uapi;

    const ALL: u64 = DEPTH as u64;

    /// An outcome that tells its ticket.
    fn outcome(ticket: u64) -> Outcome {
        Outcome {
            bytes: ticket,
            status: uapi::ULDMA_DMA_OK,
        }
    }

    fn submit(tickets: &mut Tickets<u64>, is_awaited: bool) -> Option<u64> {
        let ticket = tickets.next()?;
        tickets.submit(Some(ticket * 10), is_awaited);
        Some(ticket)
    }

    fn reap(tickets: &mut Tickets<u64>, completed: u64) -> Option<u64> {
        tickets.reap(completed, outcome)?.0
    }

    fn take(tickets: &mut Tickets<u64>, ticket: u64, completed: u64) -> Option<u64> {
        let taken = tickets.take(ticket, completed, outcome);
        taken.map(|outcome| outcome.bytes)
    }

    #[test]
    fn tickets_are_reaped_in_order_and_outcomes_wait() -> Result {
        let mut tickets = Tickets::new()?;
        for ticket in 1..=2 {
            assert_eq!(submit(&mut tickets, true), Some(ticket));
        }
        assert_eq!(reap(&mut tickets, 0), None);
        assert_eq!(take(&mut tickets, 1, 0), None);
        assert_eq!(reap(&mut tickets, 2), Some(10));
        assert_eq!(reap(&mut tickets, 2), Some(20));
        assert_eq!(reap(&mut tickets, 2), None);
        for ticket in [2, 1] {
            assert_eq!(take(&mut tickets, ticket, 2), Some(ticket));
            assert_eq!(take(&mut tickets, ticket, 2), None);
        }
        assert!(!tickets.is_busy());
        Ok(())
    }

    #[test]
    fn an_outcome_is_taken_before_its_ticket_is_reaped() -> Result {
        let mut tickets = Tickets::new()?;
        for _ in 0..2 {
            submit(&mut tickets, true);
        }
        assert_eq!(take(&mut tickets, 2, 1), None);
        assert_eq!(take(&mut tickets, 2, 2), Some(2));
        assert_eq!(take(&mut tickets, 2, 2), None);
        assert_eq!(reap(&mut tickets, 2), Some(10));
        assert_eq!(reap(&mut tickets, 2), Some(20));
        assert_eq!(take(&mut tickets, 2, 2), None);
        Ok(())
    }

    #[test]
    fn a_place_is_free_when_its_outcome_was_taken() -> Result {
        let mut tickets = Tickets::new()?;
        for ticket in 1..=ALL {
            assert_eq!(submit(&mut tickets, true), Some(ticket));
        }
        assert_eq!(submit(&mut tickets, true), None);
        assert_eq!(reap(&mut tickets, 1), Some(10));
        assert_eq!(submit(&mut tickets, true), None);
        assert_eq!(take(&mut tickets, 1, 1), Some(1));
        assert_eq!(submit(&mut tickets, true), Some(ALL + 1));
        assert_eq!(submit(&mut tickets, true), None);
        // The place is that of another ticket now.
        assert_eq!(take(&mut tickets, 1, ALL + 1), None);
        tickets.abandon(1);
        assert_eq!(take(&mut tickets, ALL + 1, ALL + 1), Some(ALL + 1));
        Ok(())
    }

    #[test]
    fn a_place_is_free_when_its_caller_gave_up() -> Result {
        let mut tickets = Tickets::new()?;
        for _ in 0..2 {
            submit(&mut tickets, true);
        }
        tickets.abandon(1);
        assert_eq!(take(&mut tickets, 1, 2), None);
        assert_eq!(reap(&mut tickets, 2), Some(10));
        assert_eq!(reap(&mut tickets, 2), Some(20));
        tickets.abandon(2);
        assert_eq!(take(&mut tickets, 2, 2), None);
        for _ in 0..ALL {
            assert!(submit(&mut tickets, false).is_some());
        }
        Ok(())
    }

    #[test]
    fn callers_that_take_outcomes_need_no_worker() -> Result {
        let mut tickets = Tickets::<u64>::new()?;
        for _ in 0..2 * ALL {
            tickets.submit(None, true);
            tickets.submit(None, true);
            let last = tickets.submitted();
            tickets.reap_awaited(last, outcome);
            assert!(!tickets.is_busy());
            for ticket in [last, last - 1] {
                assert_eq!(take(&mut tickets, ticket, last), Some(ticket));
            }
        }
        // What is kept is left to the worker, and all that comes after it.
        let kept = submit(&mut tickets, false).ok_or(EBUSY)?;
        tickets.submit(None, true);
        tickets.reap_awaited(kept + 1, outcome);
        assert!(tickets.has_ended(kept + 1));
        assert_eq!(take(&mut tickets, kept + 1, kept + 1), Some(kept + 1));
        assert_eq!(reap(&mut tickets, kept + 1), Some(kept * 10));
        tickets.reap_awaited(kept + 1, outcome);
        assert!(!tickets.is_busy());
        Ok(())
    }

    #[test]
    fn a_device_cannot_end_what_was_not_submitted() -> Result {
        let mut tickets = Tickets::new()?;
        submit(&mut tickets, false);
        assert!(tickets.has_ended(u64::MAX));
        assert_eq!(reap(&mut tickets, u64::MAX), Some(10));
        assert_eq!(reap(&mut tickets, u64::MAX), None);
        assert_eq!(take(&mut tickets, 2, u64::MAX), None);
        assert_eq!(submit(&mut tickets, false), Some(2));
        Ok(())
    }
}
