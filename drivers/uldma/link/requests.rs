// SPDX-License-Identifier: GPL-2.0

//! Requests to peers that wait for an answer.
//!
//! Each open file has slots per peer, so that a peer that does not answer blocks no requests to
//! others, and each user has a share of the requests of a device. Finding a request and waking its
//! waiter does not depend on the number of other requests.

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
use crate::{
    hw::layout::MAX_NODES,
    kernel_ext::nospec,
    user_abi::ledger::{
        Payer,
        Resource,
        Share, //
    }, //
};

/// Maximum number of pending requests of all users with limits.
pub(crate) const MAX_REQUESTS: usize = 1024;

/// Maximum number of pending requests of one open file to one peer.
const MAX_PENDING: u32 = 16;

/// Time after which a request is repeated.
const RETRY_NS: u64 = 200_000_000;

/// The slots of one open file: how many are in use, by peer.
pub(crate) struct RequestSlots([Atomic<u32>; MAX_NODES]);

impl RequestSlots {
    /// Creates the slots of an open file, all of them free.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; MAX_NODES])
    }

    fn take(&self, peer: u32) -> Result<RequestSlot<'_>> {
        let taken = nospec::get(&self.0, usize::try_from(peer)?).ok_or(EINVAL)?;
        let slot = RequestSlot { taken };
        match taken.fetch_add(1, Relaxed) {
            MAX_PENDING.. => Err(EBUSY),
            _ => Ok(slot),
        }
    }
}

/// A slot that is in use until this is dropped.
struct RequestSlot<'a> {
    taken: &'a Atomic<u32>,
}

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Relaxed);
    }
}

/// The state of a request.
enum Reply {
    Awaited,
    /// The answer arrived and was not taken yet.
    Here(Answer),
    /// The answer was taken, or the request was closed; further answers are unwanted.
    Over,
}

#[pin_data]
struct Request {
    peer: u32,
    #[pin]
    reply: Mutex<Reply>,
    /// Notified when an answer has arrived.
    #[pin]
    changed: CondVar,
}

struct PendingRequests {
    next: u32,
    by_number: RBTree<u32, Arc<Request>>,
}

/// The requests of one device.
#[pin_data]
pub(crate) struct Requests {
    #[pin]
    state: Mutex<PendingRequests>,
}

/// A request that is open until this is dropped.
pub(crate) struct Asking<'a> {
    requests: &'a Requests,
    number: u32,
    request: Arc<Request>,
    _place: RequestSlot<'a>,
    _share: Share,
}

impl Requests {
    /// Creates an empty set.
    pub(super) fn new() -> impl PinInit<Self> {
        let state = PendingRequests {
            next: 1,
            by_number: RBTree::new(),
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Requests::state"),
        })
    }

    /// Opens a request to `peer` in one of an open file's slots; `payer` pays for it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the open file has no free slot for that peer, `ENOMEM`, `EDQUOT` beyond the
    /// limits of the user.
    pub(crate) fn open<'a>(
        &'a self,
        peer: u32,
        slots: &'a RequestSlots,
        payer: &Arc<Payer>,
    ) -> Result<Asking<'a>> {
        let slot = slots.take(peer)?;
        let share = Share::new(payer, Resource::Requests, 1)?;
        let (number, request) = self.add(peer)?;
        Ok(Asking {
            requests: self,
            number,
            request,
            _place: slot,
            _share: share,
        })
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

    /// Delivers an answer of `peer`. Returns true if a request waited for it.
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
    /// Returns what the peer has to name in its answer.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the answer until the request should be repeated, for at most `left_ns`. Returns the
    /// answer, if any.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    pub(crate) fn wait(&self, left_ns: u64) -> Result<Option<Answer>> {
        let slice = left_ns.min(RETRY_NS);
        let Request { reply, changed, .. } = &*self.request;
        match crate::kernel_ext::wait::until(changed, reply, slice, Reply::take) {
            Ok(answer) => Ok(Some(answer)),
            Err(ETIMEDOUT) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Closes the request. Returns an answer that arrived and was not taken.
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
    }
}

#[kunit_tests(uldma_link_requests)]
mod tests {
    use super::*;
    use crate::{
        kernel_ext::errno::edquot,
        user_abi::ledger::{
            Amounts,
            Ledger,
            Limits, //
        }, //
    };

    /// A payer of a ledger by which each user can have `each` requests.
    fn payer(each: usize) -> Result<Arc<Payer>> {
        let capacity = Amounts::default().with(Resource::Requests, 16 * each);
        let chosen = Amounts::default().with(Resource::Requests, each);
        let ledger = Ledger::new(capacity, Limits::new(capacity, chosen, 1))?;
        Payer::new(ledger, 1000, true)
    }

    /// Opens as many requests as possible. Returns them and the error of the next.
    fn open_all<'a>(
        requests: &'a Requests,
        peer: u32,
        slots: &'a RequestSlots,
        payer: &Arc<Payer>,
    ) -> Result<(KVec<Asking<'a>>, Error)> {
        let mut open = KVec::new();
        loop {
            match requests.open(peer, slots, payer) {
                Ok(asking) => open.push(asking, GFP_KERNEL)?,
                Err(err) => return Ok((open, err)),
            }
        }
    }

    #[test]
    fn one_file_does_not_stop_others() -> Result {
        let payer = payer(100)?;
        let (greedy, other) = (RequestSlots::new(), RequestSlots::new());
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let (open, why) = open_all(&requests, 1, &greedy, &payer)?;
        assert_eq!((open.len(), why), (MAX_PENDING as usize, EBUSY));
        assert!(requests.open(1, &other, &payer).is_ok());
        drop(open);
        assert!(requests.open(1, &greedy, &payer).is_ok());
        Ok(())
    }

    #[test]
    fn a_mute_peer_takes_no_place_of_others() -> Result {
        let payer = payer(100)?;
        let slots = RequestSlots::new();
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let (_mute, _) = open_all(&requests, 1, &slots, &payer)?;
        assert!(requests.open(2, &slots, &payer).is_ok());
        Ok(())
    }

    #[test]
    fn a_user_has_a_part_however_many_openers_there_are() -> Result {
        let payer = payer(20)?;
        let (first, second) = (RequestSlots::new(), RequestSlots::new());
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let (_first, why) = open_all(&requests, 1, &first, &payer)?;
        assert_eq!(why, EBUSY);
        let (rest, why) = open_all(&requests, 1, &second, &payer)?;
        assert_eq!((rest.len(), why), (4, edquot()));
        assert_eq!(payer.used().of(Resource::Requests), 20);
        drop(rest);
        assert_eq!(payer.used().of(Resource::Requests), 16);
        assert!(requests.open(1, &second, &payer).is_ok());
        Ok(())
    }

    #[test]
    fn an_answer_is_wanted_once() -> Result {
        let payer = payer(1)?;
        let slots = RequestSlots::new();
        let requests = KBox::pin_init(Requests::new(), GFP_KERNEL)?;
        let asking = requests.open(1, &slots, &payer)?;
        let number = asking.number();
        assert!(!requests.answered(2, number, Answer::Refused));
        assert!(requests.answered(1, number, Answer::Refused));
        assert!(!requests.answered(1, number, Answer::Refused));
        assert_eq!(asking.close(), Some(Answer::Refused));
        assert!(!requests.answered(1, number, Answer::Refused));
        Ok(())
    }
}
