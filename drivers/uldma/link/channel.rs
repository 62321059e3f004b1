// SPDX-License-Identifier: GPL-2.0

//! The control channel: small messages between the two drivers.
//!
//! The start of each inbound half is a ring that the peer fills:
//!
//! | offset | what | written by |
//! | --- | --- | --- |
//! | 0x000 | u64: messages that the peer has put into this ring | peer |
//! | 0x040 | u64: messages that the peer has taken out of *its* ring | peer |
//! | 0x1000 | [`SLOTS`] messages of 64 bytes | peer |
//!
//! So each node only writes to its outbound half and only reads its inbound half. The two counters
//! carry a key in their upper half, made of one random number of each node (scratchpad 1), so that
//! what was written before either driver was loaded anew, or the link went down, is not believed.
//! Whatever the peer writes is copied once and checked; a peer that breaks the rules is not heard
//! again until the key changes.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        poll::PollCondVar,
        Mutex, //
    }, //
};

use super::message::{
    Answer,
    Message,
    Query,
    Raw,
    WORDS, //
};
use crate::{
    hw::{
        Half,
        Hardware, //
    },
    kernel_ext::{
        errno::{
            enotconn,
            eproto, //
        },
        random, //
    }, //
};

/// Bytes at the start of each half that are the channel's.
pub(crate) const AREA_SIZE: usize = 64 << 10;
/// Doorbell bit that says: look into the ring.
pub(crate) const DOORBELL: u32 = 1 << 0;

const PRODUCED: usize = 0x000;
const CONSUMED: usize = 0x040;
const MESSAGES: usize = 0x1000;
const SLOTS: u32 = 64;

/// Scratchpad 0: the channel's version.
const PAD_VERSION: usize = 0;
const VERSION: u32 = 0x7564_0001;
/// Scratchpad 1: this node's part of the key; 0 while the link is down.
const PAD_SESSION: usize = 1;

/// Requests that can be waiting for an answer.
const MAX_REQUESTS: usize = 64;

/// How long to wait before a request is sent again.
const RETRY_NS: u64 = 200_000_000;

struct Request {
    number: u32,
    /// An answer came; later ones, to repeated questions, are not wanted.
    answered: bool,
    /// The answer, until it is taken.
    answer: Option<Answer>,
}

struct State {
    session: u32,
    key: u32,
    produced: u32,
    consumed: u32,
    /// The peer broke the rules under this key.
    broken: bool,
    next_request: u32,
    requests: KVec<Request>,
    /// The peer's part of the key that was met last; 0 for none.
    peer_session: u32,
    /// It was said once that the peer breaks the rules.
    complained: bool,
}

/// The control channel of one device.
///
/// Lock order: `processing`, then the handler's locks, then `state`.
#[pin_data]
pub(crate) struct Channel {
    /// Held while messages are handled, so that they are handled in order.
    #[pin]
    processing: Mutex<()>,
    #[pin]
    state: Mutex<State>,
    /// Notified when an answer has come or the link has changed.
    #[pin]
    changed: PollCondVar,
}

/// Who answers what the peer asks, and is told what it tells.
pub(crate) trait Handler {
    /// Answers a query.
    fn query(&self, query: Query) -> Answer;
    /// The peer's segment at `offset` is gone.
    fn segment_gone(&self, offset: u64);
    /// `count` of those who were offered this node's segment at `offset` do not write it any more.
    fn segment_left(&self, offset: u64, count: u32);
    /// An answer came that nobody waits for.
    fn unwanted(&self, answer: Answer);
    /// The peer has begun a new session: it forgot, and revoked, all of the last one.
    fn peer_restarted(&self);
    /// A session ends here: nobody may write the peer's segments any more when this returns.
    fn revoke(&self);
    /// Messages may fit into the ring again.
    fn resend(&self);
}

/// A counter in the window: key and count.
fn counter(key: u32, count: u32) -> u64 {
    u64::from(key) << 32 | u64::from(count)
}

fn decode_counter(value: u64, key: u32) -> Option<u32> {
    let (found, count) = ((value >> 32) as u32, value as u32);
    (found == key).then_some(count)
}

impl Channel {
    /// Creates a channel; it works once [`Channel::link_changed`] has said that the link is up.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = State {
            session: 0,
            key: 0,
            produced: 0,
            consumed: 0,
            broken: false,
            next_request: 1,
            requests: KVec::new(),
            peer_session: 0,
            complained: false,
        };
        pin_init!(Self {
            processing <- new_mutex!((), "uldma::Channel::processing"),
            state <- new_mutex!(state, "uldma::Channel::state"),
            changed <- kernel::new_poll_condvar!("uldma::Channel::changed"),
        })
    }

    /// The link went up or down: begins a new session, or ends it.
    pub(crate) fn link_changed(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
        up: bool,
    ) -> Result {
        let _guard = self.processing.lock();
        // Before the peer learns of the new session, which tells it that this has happened.
        handler.revoke();
        let mut state = self.state.lock();
        state.session = if up { random::u32() | 1 } else { 0 };
        state.key = 0;
        hw.write_scratchpad(dev, PAD_VERSION, VERSION)?;
        hw.write_scratchpad(dev, PAD_SESSION, state.session)?;
        drop(state);
        self.changed.notify_all();
        if up {
            hw.ring(dev, DOORBELL)?;
        }
        Ok(())
    }

    /// Takes all messages that have come, and answers them.
    pub(crate) fn process(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
    ) -> Result {
        let _guard = self.processing.lock();
        // More than a full ring comes with a doorbell of its own, so a peer that never stops
        // cannot keep this from ending.
        for _ in 0..SLOTS {
            let Some(message) = self.receive(dev, hw, handler)? else {
                break;
            };
            match message {
                Message::Query(request, query) => {
                    let answer = handler.query(query);
                    // A full ring loses the answer; the peer asks again.
                    if let Err(err) = self.send(dev, hw, &Message::Answer(request, answer)) {
                        if let Answer::Segment(segment) = answer {
                            handler.segment_left(segment.offset, 1);
                        }
                        if err != EBUSY {
                            return Err(err);
                        }
                    }
                }
                Message::Answer(number, answer) => {
                    if !self.answered(number, answer) {
                        handler.unwanted(answer);
                    }
                }
                Message::SegmentGone(offset) => handler.segment_gone(offset),
                Message::SegmentLeft(offset, count) => handler.segment_left(offset, count),
            }
        }
        handler.resend();
        Ok(())
    }

    /// Gives an answer to who waits for it; returns whether anybody does.
    fn answered(&self, number: u32, answer: Answer) -> bool {
        let mut state = self.state.lock();
        let mut requests = state.requests.iter_mut();
        let waiting = requests.find(|request| request.number == number && !request.answered);
        let wanted = waiting.is_some();
        if let Some(request) = waiting {
            request.answered = true;
            request.answer = Some(answer);
        }
        drop(state);
        self.changed.notify_all();
        wanted
    }

    /// Takes one message out of the ring.
    fn receive(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        handler: &dyn Handler,
    ) -> Result<Option<Message>> {
        let mut state = self.state.lock();
        if state.meet_peer(dev, hw)? {
            drop(state);
            handler.peer_restarted();
            state = self.state.lock();
        }
        if state.key == 0 || state.broken {
            return Ok(None);
        }
        let produced = hw.read_window(dev, Half::Inbound, PRODUCED)?;
        let Some(produced) = decode_counter(produced, state.key) else {
            return Ok(None);
        };
        let waiting = produced.wrapping_sub(state.consumed);
        if waiting == 0 {
            return Ok(None);
        }
        let result = if waiting > SLOTS {
            Err(eproto())
        } else {
            read_message(dev, hw, state.consumed).and_then(|raw| Message::decode(&raw))
        };
        match result {
            Ok(message) => {
                state.consumed = state.consumed.wrapping_add(1);
                let value = counter(state.key, state.consumed);
                hw.publish_window(dev, Half::Outbound, CONSUMED, value)?;
                Ok(Some(message))
            }
            Err(err) if err == eproto() => {
                if !state.complained {
                    dev_warn!(
                        dev,
                        "peer breaks the rules of the control channel, ignoring it\n"
                    );
                }
                state.complained = true;
                state.broken = true;
                Ok(None)
            }
            Err(err) => Err(err),
        }
    }

    /// Puts one message into the peer's ring.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down, `EBUSY` while the ring is full or the peer's driver is
    /// not there yet.
    pub(crate) fn send(&self, dev: &Device<Bound>, hw: &dyn Hardware, message: &Message) -> Result {
        if !hw.link(dev)?.up {
            return Err(enotconn());
        }
        let mut state = self.state.lock();
        if state.key == 0 {
            return Err(EBUSY);
        }
        let consumed = hw.read_window(dev, Half::Inbound, CONSUMED)?;
        let consumed = decode_counter(consumed, state.key).unwrap_or(0);
        if state.produced.wrapping_sub(consumed) >= SLOTS {
            return Err(EBUSY);
        }
        let base = slot_offset(state.produced);
        for (number, word) in message.encode().iter().enumerate() {
            hw.write_window(dev, Half::Outbound, base + number * size_of::<u64>(), *word)?;
        }
        state.produced = state.produced.wrapping_add(1);
        let value = counter(state.key, state.produced);
        hw.publish_window(dev, Half::Outbound, PRODUCED, value)?;
        hw.ring(dev, DOORBELL)
    }

    /// Opens a request; the number is its only name, so it has to be closed.
    pub(crate) fn open_request(&self) -> Result<u32> {
        let mut state = self.state.lock();
        if state.requests.len() >= MAX_REQUESTS {
            return Err(EBUSY);
        }
        let number = state.next_request;
        state.next_request = number.wrapping_add(1).max(1);
        let request = Request {
            number,
            answered: false,
            answer: None,
        };
        state.requests.push(request, GFP_KERNEL)?;
        Ok(number)
    }

    /// Closes a request; returns an answer that came and was not taken.
    pub(crate) fn close_request(&self, number: u32) -> Option<Answer> {
        let mut state = self.state.lock();
        let mut requests = state.requests.iter_mut();
        let answer = requests
            .find(|request| request.number == number)
            .and_then(|request| request.answer.take());
        state.requests.retain(|request| request.number != number);
        answer
    }

    /// Waits for the answer to a request until it is time to ask again; returns how long it took
    /// at most.
    pub(crate) fn wait_answer(&self, number: u32, left_ns: u64) -> Result<(Option<Answer>, u64)> {
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

impl State {
    /// Learns the peer's part of the key; returns whether it has begun a new session.
    fn meet_peer(&mut self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result<bool> {
        if self.session == 0 {
            return Ok(false);
        }
        let session = hw.read_peer_scratchpad(dev, PAD_SESSION)?;
        if session == 0 || session == u32::MAX {
            return Ok(false);
        }
        if hw.read_peer_scratchpad(dev, PAD_VERSION)? != VERSION {
            return Ok(false);
        }
        let key = (self.session ^ session) | 1;
        if key == self.key {
            return Ok(false);
        }
        let restarted = core::mem::replace(&mut self.peer_session, session) != session;
        self.key = key;
        self.produced = 0;
        self.consumed = 0;
        self.broken = false;
        hw.write_window(dev, Half::Outbound, CONSUMED, counter(key, 0))?;
        hw.publish_window(dev, Half::Outbound, PRODUCED, counter(key, 0))?;
        // The peer may have looked for our part of the key too early.
        hw.ring(dev, DOORBELL)?;
        Ok(restarted)
    }
}

fn slot_offset(number: u32) -> usize {
    // The remainder is less than `SLOTS`.
    MESSAGES + (number % SLOTS) as usize * WORDS * size_of::<u64>()
}

/// Copies a message out of the inbound ring; each word is read once.
fn read_message(dev: &Device<Bound>, hw: &dyn Hardware, number: u32) -> Result<Raw> {
    let base = slot_offset(number);
    let mut raw: Raw = [0; WORDS];
    for (number, word) in raw.iter_mut().enumerate() {
        *word = hw.read_window(dev, Half::Inbound, base + number * size_of::<u64>())?;
    }
    Ok(raw)
}
