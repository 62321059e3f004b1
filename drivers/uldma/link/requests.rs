// SPDX-License-Identifier: GPL-2.0

//! Questions that wait for the answer of a peer.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        poll::PollCondVar,
        Mutex, //
    }, //
};

use super::message::Answer;

/// Requests that can be waiting for an answer.
const MAX_REQUESTS: usize = 64;

/// How long to wait before a request is sent again.
const RETRY_NS: u64 = 200_000_000;

struct Request {
    number: u32,
    peer: u32,
    /// An answer came; later ones, to repeated questions, are not wanted.
    answered: bool,
    /// The answer, until it is taken.
    answer: Option<Answer>,
}

struct State {
    next: u32,
    requests: KVec<Request>,
}

/// The requests of one device.
#[pin_data]
pub(crate) struct Requests {
    #[pin]
    state: Mutex<State>,
    /// Notified when an answer has come or a link has changed.
    #[pin]
    changed: PollCondVar,
}

impl Requests {
    /// Creates an empty set.
    pub(super) fn new() -> impl PinInit<Self> {
        let state = State {
            next: 1,
            requests: KVec::new(),
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Requests::state"),
            changed <- kernel::new_poll_condvar!("uldma::Requests::changed"),
        })
    }

    /// Opens a request to `peer`; the number is its only name, so it has to be closed.
    pub(crate) fn open(&self, peer: u32) -> Result<u32> {
        let mut state = self.state.lock();
        if state.requests.len() >= MAX_REQUESTS {
            return Err(EBUSY);
        }
        let number = state.next;
        state.next = number.wrapping_add(1).max(1);
        let request = Request {
            number,
            peer,
            answered: false,
            answer: None,
        };
        state.requests.push(request, GFP_KERNEL)?;
        Ok(number)
    }

    /// Closes a request; returns an answer that came and was not taken.
    pub(crate) fn close(&self, number: u32) -> Option<Answer> {
        let mut state = self.state.lock();
        let mut requests = state.requests.iter_mut();
        let answer = requests
            .find(|request| request.number == number)
            .and_then(|request| request.answer.take());
        state.requests.retain(|request| request.number != number);
        answer
    }

    /// Gives an answer of `peer` to who waits for it; returns whether anybody does.
    pub(super) fn answered(&self, peer: u32, number: u32, answer: Answer) -> bool {
        let mut state = self.state.lock();
        let mut requests = state.requests.iter_mut();
        let waiting = requests
            .find(|request| request.number == number && request.peer == peer && !request.answered);
        let wanted = waiting.is_some();
        if let Some(request) = waiting {
            request.answered = true;
            request.answer = Some(answer);
        }
        drop(state);
        self.changed.notify_all();
        wanted
    }

    /// Waits for the answer to a request until it is time to ask again; returns how long it took
    /// at most.
    pub(crate) fn wait(&self, number: u32, left_ns: u64) -> Result<(Option<Answer>, u64)> {
        let slice = left_ns.min(RETRY_NS);
        let result = crate::wait::until(&self.changed, &self.state, slice, |state| {
            let mut requests = state.requests.iter_mut();
            let request = requests.find(|request| request.number == number)?;
            request.answer.take()
        });
        match result {
            Ok(answer) => Ok((Some(answer), slice)),
            Err(ETIMEDOUT) => Ok((None, slice)),
            Err(err) => Err(err),
        }
    }
}
