// SPDX-License-Identifier: GPL-2.0

//! The state machine of a connection.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    buffer::Buffer,
    matching::Matching,
    ring::Ring,
    sleeper::Sleeper,
    stream::{
        Offers,
        Stream, //
    },
    Direction, //
};
use crate::{
    kernel_ext::{
        errno::{
            econnreset,
            enotconn, //
        },
        wakeup, //
    },
    link::{
        polling::Polling,
        quarantine::Age,
        window_range::WindowRange, //
    },
    params,
    uapi,
    user_abi::{
        events::Events,
        offer::Offer, //
    }, //
};

/// The end of a connection, which either side, or both, can begin.
///
/// A side sends *disconnect* when it has nothing in flight, and answers that of the peer in the
/// same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Closing {
    /// This side has ended it.
    pub(super) ours: bool,
    /// Our *disconnect* was sent.
    pub(super) sent: bool,
    /// The peer has answered it.
    pub(super) answered: bool,
    /// The peer has ended it.
    pub(super) theirs: bool,
    /// The *disconnect* of the peer was answered.
    pub(super) answer_sent: bool,
    /// The link is down, or the peer does not know the connection: no message can be sent any more.
    pub(super) cut: bool,
    /// The peer has not confirmed the end in time, and cannot access memory of this node.
    pub(super) expired: bool,
}

/// The next message of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseMsg {
    Nothing,
    Disconnect,
    Disconnected,
}

impl Closing {
    /// Returns true if no new transfer may begin.
    pub(super) fn has_begun(&self) -> bool {
        self.ours || self.theirs || self.cut
    }

    /// Returns the next message. Nothing must be in flight.
    pub(super) fn next_msg(&self) -> CloseMsg {
        if self.cut || self.expired {
            CloseMsg::Nothing
        } else if self.theirs && !self.answer_sent {
            CloseMsg::Disconnected
        } else if self.ours && !self.sent && !self.theirs {
            CloseMsg::Disconnect
        } else {
            CloseMsg::Nothing
        }
    }

    /// Returns true if neither side uses resources of the other any more.
    pub(super) fn is_done(&self) -> bool {
        let answered = !self.theirs || self.answer_sent;
        self.cut || self.expired || (answered && (self.theirs || self.answered))
    }
}

/// The phase of a connection before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// *Connect* has to be sent.
    Asking,
    /// *Connect* was sent and not answered.
    Asked,
    /// *Connected* has to be sent.
    Answering,
    Connected,
    /// The peer refused the connection.
    Refused(Error),
}

/// What has to happen before bytes of one direction can be reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A message of the peer.
    Message,
    /// The completion of a copy.
    Copy,
    /// The completion of an invalidation.
    Invalidation,
}

/// One direction of a connection.
pub(super) struct HalfConn {
    pub(super) stream: Stream<Buffer>,
    /// Memory that the peer has offered, if this side moves the data.
    pub(super) offers: Offers,
    /// Lengths of the memory that this side has offered, if the peer moves the data.
    pub(super) offered: KVec<u64>,
    /// Bytes that were moved and not reported to the peer.
    pub(super) unreported: u64,
    /// Number of commands in flight.
    pub(super) commands: u32,
    /// Polling of calls that reap memory.
    pub(super) polling: Polling,
    /// The calls of these that sleep.
    pub(super) sleeper: Sleeper,
}

impl HalfConn {
    pub(super) fn new() -> Result<Self> {
        let room = KVec::with_capacity(uapi::ULDMA_CONN_MAX_BUFFERS as usize, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            stream: Stream::new()?,
            offers: Offers::new()?,
            offered: room,
            unreported: 0,
            commands: 0,
            polling: Polling::new(),
            sleeper: Sleeper::default(),
        })
    }

    /// Notes that a thread runs that may have slept until bytes could be reaped, and may sleep again.
    pub(super) fn awoke(&mut self, may_sleep: bool) {
        let woken = self.sleeper.awoke(may_sleep);
        if let Some(sample) = woken.filter(|_| params::wakeup().is_none()) {
            wakeup::follow_thread(sample);
        }
    }

    /// Returns what has to happen next before bytes can be reaped, unless they can be.
    pub(super) fn step(&self) -> Option<Step> {
        if self.stream.has_ready() {
            None
        } else if self.stream.is_withheld() {
            Some(Step::Invalidation)
        } else if self.commands > 0 {
            Some(Step::Copy)
        } else {
            Some(Step::Message)
        }
    }

    /// Notes that the peer has moved `bytes` of the offered bytes.
    pub(super) fn settle(&mut self, bytes: u64) {
        let mut left = bytes;
        while let Some(first) = self.offered.first_mut() {
            let step = left.min(*first);
            *first -= step;
            left -= step;
            if *first > 0 {
                break;
            }
            let _ = self.offered.remove(0);
        }
    }
}

/// Counters of a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) copied: u64,
    pub(super) messages: u64,
    pub(super) locks: u64,
}

/// The part of a connection that its lock protects.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) closing: Closing,
    /// Data was lost or may have been lost.
    pub(super) reset: bool,
    /// The connection has no owner, and is removed when it is over.
    pub(super) orphan: bool,
    /// Start of the time in which the peer has to confirm the end: the end began here, or
    /// *disconnect* was sent.
    since: Option<Instant<Monotonic>>,
    /// The same in ticks.
    pub(super) age: Age,
    /// The peer has not confirmed the end in time.
    is_late: bool,
    /// The peer's number of the connection.
    pub(super) remote: u32,
    /// A random number that both sides know.
    pub(super) name: u64,
    /// What this side says.
    pub(super) own_offer: Offer,
    /// What the peer's side has said, once the connection is established.
    pub(super) peer_offer: Offer,
    pub(super) sending: HalfConn,
    pub(super) receiving: HalfConn,
    /// Range of this node's section into which the peer writes its data, if data goes through the
    /// window.
    pub(super) own_window: Option<WindowRange>,
    /// Range of the peer's section into which this node writes its data, if data goes through the
    /// window.
    pub(super) peer_window: Option<WindowRange>,
    /// The ring that the program of the peer writes, if this side offers one.
    pub(super) own_ring: Option<Ring>,
    /// The ring that the program here writes, if the peer's side offers one.
    pub(super) peer_ring: Option<Ring>,
    /// Events that are woken on changes.
    pub(super) watcher: Option<Arc<Events>>,
    pub(super) counters: Counters,
    pub(super) matching: Matching,
    /// When this side noticed that the device has refused bytes of the matched stream.
    pub(super) torn: Option<Instant<Monotonic>>,
}

impl State {
    pub(super) fn new(phase: Phase, remote: u32, name: u64, own_offer: Offer) -> Result<Self> {
        Ok(Self {
            phase,
            closing: Closing::default(),
            reset: false,
            orphan: false,
            since: None,
            age: Age::NEW,
            is_late: false,
            remote,
            name,
            own_offer,
            peer_offer: Offer::NONE,
            sending: HalfConn::new()?,
            receiving: HalfConn::new()?,
            own_window: None,
            peer_window: None,
            own_ring: None,
            peer_ring: None,
            watcher: None,
            counters: Counters::default(),
            matching: Matching::default(),
            torn: None,
        })
    }

    /// Begins the end here; with `lose` what was given to be sent is not waited for.
    pub(super) fn end(&mut self, lose: bool) {
        if !self.closing.ours {
            self.closing.ours = true;
            self.since = Some(Instant::now());
            self.age = Age::NEW;
        }
        match self.phase {
            // The peer does not know the connection.
            Phase::Asking | Phase::Refused(_) => self.closing.cut = true,
            // *Disconnect* is sent after the peer has answered.
            Phase::Asked => self.reset = true,
            Phase::Answering | Phase::Connected => {
                self.reset |= lose && self.sending.stream.left() > 0;
            }
        }
    }

    /// Notes that *disconnect* was sent.
    pub(super) fn disconnect_sent(&mut self) {
        self.closing.sent = true;
        self.since = Some(Instant::now());
        self.age = Age::NEW;
    }

    /// Returns the nanoseconds of `limit` that the peer has left to confirm the end.
    pub(super) fn time_left(&self, limit: Delta) -> u64 {
        let used = self.since.map_or(Delta::ZERO, |since| since.elapsed());
        u64::try_from((limit - used).as_nanos()).unwrap_or(0)
    }

    /// Returns true if the connection can be removed: it has no owner, and neither side uses
    /// resources of the other.
    pub(super) fn is_forgettable(&self) -> bool {
        self.orphan && self.closing.is_done() && self.is_drained()
    }

    /// Counts a tick, and checks if the peer has confirmed the end within `limit`. If *disconnect*
    /// was sent and the peer cannot write to this node, no answer is needed, and the connection expires.
    pub(super) fn tick(&mut self, limit: Delta) {
        if !self.closing.ours || !self.is_drained() {
            // A command of this node is not the fault of the peer.
            return;
        }
        self.age.tick();
        self.is_late = self.orphan && self.time_left(limit) == 0;
        if self.is_late && !self.closing.is_done() {
            let heard = self.closing.sent || self.phase == Phase::Asked;
            let is_written = self.own_window.is_some() || self.own_ring.is_some();
            self.closing.expired = heard && !is_written;
        }
    }

    /// Returns true if the connection is held by its peer alone, which has not confirmed its end in
    /// time.
    pub(super) fn is_held(&self) -> bool {
        self.is_late && self.is_drained() && !self.closing.is_done()
    }

    /// Returns true if memory has to be released, whatever the owner does.
    pub(super) fn is_to_be_released(&self) -> bool {
        self.closing.cut || (self.orphan && self.has_memory())
    }

    /// Returns true if the connection has memory of a program.
    pub(super) fn has_memory(&self) -> bool {
        !(self.sending.stream.is_released() && self.receiving.stream.is_released())
    }

    /// Returns the state as the user interface numbers it.
    pub(super) fn number(&self) -> u32 {
        match self.phase {
            _ if self.closing.has_begun() => uapi::ULDMA_CONN_CLOSING,
            Phase::Asking | Phase::Asked => uapi::ULDMA_CONN_CONNECTING,
            Phase::Answering | Phase::Connected => uapi::ULDMA_CONN_CONNECTED,
            Phase::Refused(_) => uapi::ULDMA_CONN_NONE,
        }
    }

    /// Fails unless memory can be posted.
    pub(super) fn check_open(&self) -> Result {
        if self.reset {
            return Err(econnreset());
        }
        if self.closing.has_begun() {
            return Err(EPIPE);
        }
        match self.phase {
            Phase::Answering | Phase::Connected => Ok(()),
            _ => Err(enotconn()),
        }
    }

    /// Returns true if no more memory of this direction can be reaped.
    pub(super) fn is_over(&self, direction: Direction) -> bool {
        let half = match direction {
            Direction::Send => &self.sending,
            Direction::Receive => &self.receiving,
        };
        (self.reset || self.closing.has_begun()) && !half.stream.is_withheld()
    }

    /// Returns true if data can move.
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected | Phase::Answering)
    }

    /// Returns true if no command is in flight.
    pub(super) fn is_drained(&self) -> bool {
        self.sending.commands == 0 && self.receiving.commands == 0
    }

    /// Returns true if commands are in flight, or completed ones were not reported to the peer, or the
    /// program here can write the peer's ring.
    pub(super) fn is_in_flight(&self) -> bool {
        let busy = |half: &HalfConn| half.commands > 0 || half.unreported > 0;
        busy(&self.sending) || busy(&self.receiving) || self.writes_ring()
    }

    /// Returns the bytes of the own section that the peer may write.
    pub(super) fn written_bytes(&self) -> usize {
        let ring = self.own_ring.as_ref().map(|ring| ring.range);
        let ranges = [self.own_window, ring].into_iter().flatten();
        ranges.map(|range| range.length()).sum()
    }
}

#[kunit_tests(uldma_connection_state)]
mod tests {
    use super::*;

    /// Sends the next message of one side to the other.
    fn exchange(from: &mut Closing, to: &mut Closing) -> bool {
        match from.next_msg() {
            CloseMsg::Nothing => return false,
            CloseMsg::Disconnect => {
                from.sent = true;
                to.theirs = true;
            }
            CloseMsg::Disconnected => {
                from.answer_sent = true;
                to.answered = true;
            }
        }
        true
    }

    fn settle(a: &mut Closing, b: &mut Closing) {
        while exchange(a, b) || exchange(b, a) {}
    }

    #[test]
    fn a_wait_has_steps() -> Result {
        let mut half = HalfConn::new()?;
        assert_eq!(half.step(), Some(Step::Message));
        half.commands = 1;
        assert_eq!(half.step(), Some(Step::Copy));
        Ok(())
    }

    #[test]
    fn one_side_ends_it() {
        let (mut a, mut b) = (Closing::default(), Closing::default());
        settle(&mut a, &mut b);
        assert!(!a.is_done() && !b.is_done());
        a.ours = true;
        settle(&mut a, &mut b);
        assert!(a.is_done() && b.is_done());
    }

    #[test]
    fn both_sides_end_it_at_once() {
        let (mut a, mut b) = (Closing::default(), Closing::default());
        (a.ours, b.ours) = (true, true);
        // Both send before either receives.
        let (mut heard_by_a, mut heard_by_b) = (Closing::default(), Closing::default());
        exchange(&mut a, &mut heard_by_b);
        exchange(&mut b, &mut heard_by_a);
        (a.theirs, b.theirs) = (heard_by_a.theirs, heard_by_b.theirs);
        assert!(a.theirs && b.theirs && !a.is_done() && !b.is_done());
        settle(&mut a, &mut b);
        assert!(a.is_done() && b.is_done());
    }

    #[test]
    fn a_cut_link_ends_it() {
        let mut side = Closing {
            ours: true,
            ..Closing::default()
        };
        side.cut = true;
        assert_eq!(side.next_msg(), CloseMsg::Nothing);
        assert!(side.is_done());
    }

    #[test]
    fn an_end_before_the_answer_waits_for_it() -> Result {
        let mut state = State::new(Phase::Asked, 0, 1, Offer::NONE)?;
        state.orphan = true;
        state.end(true);
        assert!(state.reset && !state.is_forgettable());
        // The peer has accepted the connection nevertheless.
        state.phase = Phase::Connected;
        assert_eq!(state.closing.next_msg(), CloseMsg::Disconnect);
        state.disconnect_sent();
        assert!(!state.is_forgettable());
        state.closing.answered = true;
        assert!(state.is_forgettable());
        Ok(())
    }

    #[test]
    fn what_was_never_asked_for_ends_at_once() -> Result {
        let mut state = State::new(Phase::Asking, 0, 1, Offer::NONE)?;
        state.orphan = true;
        state.end(true);
        assert!(state.is_forgettable() && !state.reset);
        Ok(())
    }

    #[test]
    fn a_peer_has_its_time_to_let_go() -> Result {
        let (now, later) = (Delta::ZERO, Delta::from_secs(1000));
        let held = |state: &mut State, limit| {
            state.tick(limit);
            state.is_held()
        };
        let mut state = State::new(Phase::Connected, 0, 1, Offer::NONE)?;
        state.end(false);
        // The owner may still wait.
        assert!(!held(&mut state, now));
        state.orphan = true;
        assert!(!held(&mut state, later) && state.time_left(later) > 0);
        // Until *disconnect* was sent it does not expire, even if the peer cannot write to this
        // node.
        assert!(held(&mut state, now) && !state.is_forgettable());
        assert_ne!(state.age, Age::NEW);
        state.disconnect_sent();
        assert_eq!(state.age, Age::NEW);
        assert!(!held(&mut state, later));
        assert!(!held(&mut state, now) && state.is_forgettable());
        Ok(())
    }

    #[test]
    fn a_part_stays_until_the_peer_lets_go() -> Result {
        let mut state = State::new(Phase::Connected, 0, 1, Offer::NONE)?;
        state.own_ring = Some(Ring::new(WindowRange::of_peer(
            65536,
            65536,
            &(0..1 << 20),
        )?));
        assert_eq!(state.written_bytes(), 65536);
        state.orphan = true;
        state.end(false);
        state.disconnect_sent();
        state.tick(Delta::ZERO);
        assert!(state.is_held() && !state.is_forgettable());
        let age = state.age;
        state.receiving.commands = 1;
        state.tick(Delta::ZERO);
        assert!(!state.is_held() && state.age == age);
        state.receiving.commands = 0;
        state.closing.answered = true;
        state.tick(Delta::ZERO);
        assert!(!state.is_held() && state.is_forgettable());
        Ok(())
    }
}
