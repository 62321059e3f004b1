// SPDX-License-Identifier: GPL-2.0

//! Questions that wait for the answer of a peer.
//!
//! Each opener has a share of its own, and pays for the memory: one that has used it up takes nothing
//! from others. A request is found, and its waiter woken, without regard to how many others there are.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
    }, //
};

use super::message::Answer;

/// Requests of one opener that can be waiting for an answer.
const SHARE: u32 = 16;

/// How long to wait before a request is sent again.
const RETRY_NS: u64 = 200_000_000;

/// How many requests an opener has.
pub(crate) struct Share(Atomic<u32>);

impl Share {
    /// The share of a new opener, of which nothing is used.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    fn take(&self) -> Result {
        let used = self.0.fetch_add(1, Relaxed);
        if used >= SHARE {
            self.give_back();
            return Err(EBUSY);
        }
        Ok(())
    }

    fn give_back(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What became of a question.
enum Reply {
    Awaited,
    /// It was answered, and the answer not taken yet.
    Here(Answer),
    /// It was answered, or nobody waits any more; later answers, to repeated questions, are not wanted.
    Over,
}

#[pin_data]
struct Request {
    peer: u32,
    #[pin]
    reply: Mutex<Reply>,
    /// Notified when an answer has come.
    #[pin]
    changed: CondVar,
}

struct State {
    next: u32,
    by_number: RBTree<u32, Arc<Request>>,
}

/// The requests of one device.
#[pin_data]
pub(crate) struct Requests {
    #[pin]
    state: Mutex<State>,
}

/// A request that is open until this is dropped.
pub(crate) struct Asking<'a> {
    requests: &'a Requests,
    share: &'a Share,
    number: u32,
    request: Arc<Request>,
}

impl Requests {
    /// Creates an empty set.
    pub(super) fn new() -> impl PinInit<Self> {
        let state = State {
            next: 1,
            by_number: RBTree::new(),
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Requests::state"),
        })
    }

    /// Opens a request to `peer`, out of an opener's share.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the share is used up, `ENOMEM`.
    pub(crate) fn open<'a>(&'a self, peer: u32, share: &'a Share) -> Result<Asking<'a>> {
        share.take()?;
        self.add(peer)
            .map(|(number, request)| Asking {
                requests: self,
                share,
                number,
                request,
            })
            .inspect_err(|_| share.give_back())
    }

    fn add(&self, peer: u32) -> Result<(u32, Arc<Request>)> {
        let request = Arc::pin_init(
            pin_init!(Request {
                peer,
                reply <- new_mutex!(Reply::Awaited, "uldma::Request::reply"),
                changed <- new_condvar!("uldma::Request::changed"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        let mut number = state.next;
        while number == 0 || state.by_number.get(&number).is_some() {
            number = number.wrapping_add(1);
        }
        state.next = number.wrapping_add(1);
        let node = reserved.into_node(number, request.clone());
        state.by_number.insert(node);
        Ok((number, request))
    }

    /// Gives an answer of `peer` to who waits for it; returns whether anybody does.
    pub(super) fn answered(&self, peer: u32, number: u32, answer: Answer) -> bool {
        let request = self.state.lock().by_number.get(&number).cloned();
        let Some(request) = request.filter(|request| request.peer == peer) else {
            return false;
        };
        let mut reply = request.reply.lock();
        let wanted = matches!(*reply, Reply::Awaited);
        if wanted {
            *reply = Reply::Here(answer);
            request.changed.notify_all();
        }
        wanted
    }
}

impl Asking<'_> {
    /// What the peer has to name in its answer.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the answer until it is time to ask again; returns how long it took at most.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    pub(crate) fn wait(&self, left_ns: u64) -> Result<(Option<Answer>, u64)> {
        let slice = left_ns.min(RETRY_NS);
        let Request { reply, changed, .. } = &*self.request;
        match crate::wait::until(changed, reply, slice, Reply::take) {
            Ok(answer) => Ok((Some(answer), slice)),
            Err(ETIMEDOUT) => Ok((None, slice)),
            Err(err) => Err(err),
        }
    }

    /// Closes the request; returns an answer that came and was not taken.
    pub(crate) fn close(self) -> Option<Answer> {
        let mut reply = self.request.reply.lock();
        match core::mem::replace(&mut *reply, Reply::Over) {
            Reply::Here(answer) => Some(answer),
            Reply::Awaited | Reply::Over => None,
        }
    }
}

impl Reply {
    fn take(&mut self) -> Option<Answer> {
        let Self::Here(answer) = *self else {
            return None;
        };
        *self = Self::Over;
        Some(answer)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let removed = self.requests.state.lock().by_number.remove(&self.number);
        drop(removed);
        self.share.give_back();
    }
}

#[kunit_tests(uldma_link_requests)]
mod tests {
    use super::*;

    #[test]
    fn one_opener_does_not_stop_others() -> Result {
        let (greedy, other) = (Share::new(), Share::new());
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let mut open = KVec::new();
        while let Ok(asking) = requests.open(1, &greedy) {
            open.push(asking, GFP_KERNEL)?;
        }
        assert_eq!(open.len(), SHARE as usize);
        assert!(requests.open(1, &other).is_ok());
        open.clear();
        assert!(requests.open(1, &greedy).is_ok());
        Ok(())
    }

    #[test]
    fn an_answer_is_wanted_once() -> Result {
        let share = Share::new();
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let asking = requests.open(1, &share)?;
        let number = asking.number();
        assert!(!requests.answered(2, number, Answer::Refused));
        assert!(requests.answered(1, number, Answer::Refused));
        assert!(!requests.answered(1, number, Answer::Refused));
        assert_eq!(asking.close(), Some(Answer::Refused));
        assert!(!requests.answered(1, number, Answer::Refused));
        Ok(())
    }
}
