// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers that wait for missing pages: each sleeps at the head of its context, in no bracket and not
//! in flight, until the driver of the owner has answered its request, or for as long as the region says.

use std::time::Instant;

use crate::abi::Status;
use crate::layout::PageRequest;
use crate::memory::{BusError, GuestMemory};
use crate::model::Model;
use crate::page_request::{wait_of, Lack, Lacks, Sent, Ticket};
use crate::transfer::{Sleep, Transfer};

/// Limit of the waits of one transfer for the same page, which its owner enters and loses again.
const MOST_WAITS: u8 = 3;

impl Model {
    /// Requests what the transfer at the head of a context lacks. If it waits for that, it falls asleep,
    /// or ends.
    pub(crate) fn request_pages(
        &mut self,
        by: (usize, usize),
        lacks: Lacks,
        memories: &[&GuestMemory],
    ) {
        let Some((lack, limit)) = wait_of(&lacks) else {
            return self.hint_pages(by, lacks, memories);
        };
        let ending = if self.waits_again(by, lack) {
            match self.request_page(by, PageRequest::WAIT, lack, memories) {
                Ok(Sent::Stored(request)) => {
                    let now = Instant::now();
                    let until = now.checked_add(limit).unwrap_or(now);
                    if let Some(head) = self.sleeper(by) {
                        head.sleep = Some(Sleep { request, until });
                    }
                    return;
                }
                Ok(Sent::Dropped | Sent::Needless) => Status::NotLocked,
                Err(BusError) => Status::NotResident,
            }
        } else {
            Status::NotLocked
        };
        if let Some(head) = self.sleeper(by) {
            head.ending = Some(ending);
        }
    }

    /// Returns the head of a context, if its result is not known.
    fn sleeper(&mut self, (node, context): (usize, usize)) -> Option<&mut Transfer> {
        self.nodes
            .get_mut(node)?
            .contexts
            .get_mut(context)?
            .sleeper()
    }

    /// Returns the requests that transfers of a node wait for.
    pub(crate) fn awaited_by(&mut self, node: usize) -> Vec<Ticket> {
        let contexts = 0..self.shape.contexts as usize;
        contexts
            .filter_map(|context| Some(self.sleeper((node, context))?.sleep?.request))
            .collect()
    }

    /// Counts the waits of the head of a context for the same page. Returns false if it has waited for
    /// it often enough.
    fn waits_again(&mut self, by: (usize, usize), lack: &Lack) -> bool {
        let Some(head) = self.sleeper(by) else {
            return false;
        };
        let page = (lack.owner, lack.pages.first);
        let before = head.waited.filter(|(waited, _)| *waited == page);
        let times = before.map_or(0, |(_, times)| times);
        head.waited = Some((page, times + 1));
        times < MOST_WAITS
    }

    /// Calls `wake` with each sleeping transfer that is chosen by its sleep, once it is awake.
    fn wake_sleepers(&mut self, mut wake: impl FnMut(&mut Self, &Sleep) -> Option<Option<Status>>) {
        for node in 0..self.nodes.len() {
            for context in 0..self.shape.contexts as usize {
                let by = (node, context);
                let Some(sleep) = self.sleeper(by).and_then(|head| head.sleep) else {
                    continue;
                };
                let Some(ending) = wake(self, &sleep) else {
                    continue;
                };
                if let Some(head) = self.sleeper(by) {
                    head.sleep = None;
                    head.ending = ending;
                    self.wake = true;
                }
            }
        }
    }

    /// Wakes the transfers whose requests the driver of a node has answered.
    pub(crate) fn read_answers(&mut self, node: usize, memories: &[&GuestMemory]) {
        self.wake_sleepers(|model, sleep| {
            let request: &Ticket = Some(&sleep.request).filter(|it| it.owner == node)?;
            let status = model.take_answer(request, memories)?;
            let status = Status::ALL.get(usize::from(status)).copied();
            Some(match status {
                Some(Status::Ok) => None,
                other => Some(other.unwrap_or(Status::NotResident)),
            })
        });
    }

    /// Ends the transfers that have slept as long as their regions allow.
    pub(crate) fn end_overdue(&mut self, now: Instant, memories: &[&GuestMemory]) {
        let mut any = false;
        self.wake_sleepers(|_, sleep| {
            let is_over = sleep.until <= now;
            any |= is_over;
            is_over.then_some(Some(Status::NotLocked))
        });
        if any {
            self.settle(memories);
        }
    }
}
