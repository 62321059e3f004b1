// SPDX-License-Identifier: GPL-2.0

//! One peer: its session, and messages to and from it.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

use super::{
    backoff::Backoff,
    doorbell_cost::DoorbellCost,
    handshake::{
        self,
        Handshake,
        Misfit,
        Offer,
        Terms, //
    },
    lane::Lane,
    message::Message,
    owed::Owed,
    ring::{
        Channel,
        Rings, //
    },
    session::{
        Session,
        Sight,
        Step, //
    },
    turnaround::Turnaround, //
};
use crate::{
    hw::{
        self,
        Hw,
        KernelDoorbell, //
    },
    kernel_ext::{
        errno::{
            enotconn,
            eproto, //
        },
        random, //
    },
    params, //
};

mod doorbell;

/// Counters of one peer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) doorbells: u64,
    pub(crate) violations: u64,
    /// Messages that have shown the cost of a doorbell.
    pub(super) followed: u64,
}

/// A snapshot of a link.
pub(crate) struct Description {
    pub(crate) up: bool,
    pub(crate) generation: u32,
    pub(crate) terms: Terms,
    pub(crate) counters: Counters,
}

/// The change of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Up,
    /// The link went down. The caller has to end its users, and then to call [`Peer::begin`].
    Down,
    /// The link was not up, and the caller has to call [`Peer::begin`].
    Restart,
}

struct PeerState {
    session: Session,
    terms: Terms,
    /// The ends of this node of the rings, once it has met the peer.
    rings: Option<Rings>,
    hw_link: hw::LinkState,
    /// Number of times that the link came up.
    generation: u32,
    /// The heartbeat that this node wrote last.
    heartbeat: u64,
    /// The heartbeat of the peer, and when it changed last.
    last_heartbeat: (u64, Instant<Monotonic>),
    /// The peer violated the protocol, as detected by a sender.
    broken: bool,
    /// Backoff before the next session after violations or too many sessions.
    backoff: Backoff,
    /// The origin of the times of `backoff`.
    born: Instant<Monotonic>,
    /// Answers that the peer may send.
    owed: Owed,
    /// The measurement of the doorbell's cost in this session.
    doorbell_cost: DoorbellCost,
    /// The times by which that cost is followed.
    turnaround: Turnaround,
    /// Number of times that this node stopped to need doorbells.
    wakes: u64,
    /// True if the incompatibility of the peer was logged.
    misfit_reported: bool,
    counters: Counters,
}

/// One peer of this node.
#[pin_data]
pub(crate) struct Peer {
    node: u32,
    /// The node may have a session: the administrator has named it, or no nodes are named.
    is_named: bool,
    /// A copy of `PeerState::session.up` that is read without the lock.
    up: Atomic<bool>,
    /// The doorbell of the peer rang, and no message of the peer has come since.
    rang: Atomic<bool>,
    /// Nanoseconds that a doorbell costs, as measured between idle nodes and followed since; 0
    /// before.
    doorbell_cost: Atomic<i64>,
    #[pin]
    state: Mutex<PeerState>,
}

impl Peer {
    /// Creates a peer without a session.
    pub(super) fn new(node: u32) -> impl PinInit<Self> {
        let state = PeerState {
            session: Session::NONE,
            terms: Terms::default(),
            rings: None,
            hw_link: hw::LinkState {
                up: false,
                generation: 0,
            },
            generation: 0,
            heartbeat: 0,
            last_heartbeat: (0, Instant::now()),
            broken: false,
            backoff: Backoff::new(params::link_backoff().as_nanos()),
            born: Instant::now(),
            owed: Owed::default(),
            doorbell_cost: DoorbellCost::default(),
            turnaround: Turnaround::default(),
            wakes: 0,
            misfit_reported: false,
            counters: Counters::default(),
        };
        let is_named = params::is_link_peer(node);
        pin_init!(Self {
            node,
            is_named,
            up: Atomic::new(false),
            rang: Atomic::new(false),
            doorbell_cost: Atomic::new(0),
            state <- new_mutex!(state, "uldma::Peer::state"),
        })
    }

    /// Returns the number of the peer.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Returns true if the link is up.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Acquire)
    }

    /// Returns the generation of the hardware's link, which imports name.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down.
    pub(crate) fn hw_generation(&self) -> Result<u32> {
        let state = self.state.lock();
        if state.session.up {
            Ok(state.hw_link.generation)
        } else {
            Err(enotconn())
        }
    }

    /// Returns the session, by how often the link came up.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down.
    pub(crate) fn session(&self) -> Result<u32> {
        let state = self.state.lock();
        if state.session.up {
            Ok(state.generation)
        } else {
            Err(enotconn())
        }
    }

    /// Returns true if both nodes have streams between endpoints.
    pub(crate) fn has_streams(&self) -> bool {
        let state = self.state.lock();
        state.session.up && state.terms.has_streams()
    }

    /// Returns true if both nodes have an interrupt of segments alone.
    pub(in crate::link) fn has_segment_vector(&self) -> bool {
        let state = self.state.lock();
        state.session.up && state.terms.has_segment_vector()
    }

    /// Returns a snapshot.
    pub(crate) fn describe(&self) -> Description {
        let state = self.state.lock();
        Description {
            up: state.session.up,
            generation: state.generation,
            terms: if state.session.up {
                state.terms
            } else {
                Terms::default()
            },
            counters: state.counters,
        }
    }

    /// Begins a new session, or none during a backoff or with a node that is not named.
    pub(super) fn begin(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        state.leave_session();
        if !self.is_named || state.has_to_wait() {
            return state.handshake(hw, self.node)?.write(hw, self.node);
        }
        // Neither zero nor all ones.
        state.session.own = (random::u32() & 0x7fff_ffff) | 1;
        state.handshake(hw, self.node)?.write(hw, self.node)?;
        // The peer would wait for words that are lost.
        hw.check_answers().inspect_err(|_| state.session.own = 0)?;
        hw.ring(self.node, KernelDoorbell::Link)
    }

    /// Ends the session, without telling a peer that this node cannot reach. The next one begins once
    /// it can. Returns true if the link was up.
    pub(super) fn lose(&self) -> bool {
        let mut state = self.state.lock();
        self.up.store(false, Release);
        state.leave_session().up
    }

    /// Updates the session from what the peer wrote; `hw_link` is the state of the hardware, if it
    /// was read.
    pub(super) fn update(&self, hw: Hw<'_>, hw_link: Option<hw::LinkState>) -> Result<Change> {
        if !self.is_named {
            return Ok(Change::None);
        }
        let mut state = self.state.lock();
        if core::mem::take(&mut state.broken) {
            drop(state);
            hw.check_answers()?;
            self.quarantine(hw.dev());
            return Ok(Change::Down);
        }
        let before = state.hw_link;
        state.hw_link = hw_link.unwrap_or(before);
        if state.session.own == 0 && !state.has_to_wait() {
            drop(state);
            self.begin(hw)?;
            state = self.state.lock();
        }
        // A link that went down and came up again since has a new generation. What was written for a
        // peer that was met, such as the cleared ring, may be lost.
        let same = state.session.met == 0 || state.hw_link == before;
        let reachable = state.hw_link.up && same;
        let sight = if reachable && state.session.own != 0 {
            state.sight(hw, self.node)?
        } else {
            None
        };
        match state.session.step(sight) {
            Step::Stay => Ok(Change::None),
            Step::Meet(_) if state.session.met != 0 && state.flapped() => Ok(Change::Restart),
            Step::Meet(session) => {
                state.session.met = session;
                state.owed = Owed::default();
                state.doorbell_cost = DoorbellCost::default();
                state.turnaround = Turnaround::default();
                let (channel, terms) = (channel(hw, self.node), state.terms);
                state.rings = Some(Rings::begin(&channel, terms.own_slots, terms.slots)?);
                state.handshake(hw, self.node)?.write_again(hw, self.node)?;
                // The peer may have polled too early.
                hw.ring(self.node, KernelDoorbell::Link)?;
                Ok(Change::None)
            }
            Step::Up => {
                state.session.up = true;
                state.generation = state.generation.wrapping_add(1);
                state.last_heartbeat = (handshake::read_heartbeat(hw, self.node)?, Instant::now());
                self.up.store(true, Release);
                Ok(Change::Up)
            }
            Step::Down => {
                // A link that the hardware reports as down, or a missing heartbeat, is not held
                // against the peer.
                if reachable && (!state.session.up || state.has_recent_heartbeat()) {
                    state.flapped();
                }
                self.up.store(false, Release);
                if core::mem::replace(&mut state.session.up, false) {
                    Ok(Change::Down)
                } else {
                    Ok(Change::Restart)
                }
            }
        }
    }

    /// Takes the link down after the peer violated the protocol. The next session begins after a
    /// backoff.
    pub(super) fn quarantine(&self, dev: &Device<Bound>) {
        let mut state = self.state.lock();
        state.counters.violations += 1;
        if state.counters.violations == 1 {
            dev_warn!(
                dev,
                "node {} violates the link protocol; its sessions are delayed\n",
                self.node
            );
        }
        let now = state.age();
        state.backoff.violated(now);
        state.session.up = false;
        self.up.store(false, Release);
    }

    /// Marks the session as broken, since more messages wait for the peer than may, or it has held
    /// something for too long.
    pub(crate) fn mark_broken(&self) {
        self.state.lock().broken = true;
    }

    /// Takes the link down for all users.
    pub(super) fn end(&self) {
        self.state.lock().session.up = false;
        self.up.store(false, Release);
    }

    /// Ends the session for the peer.
    pub(super) fn leave(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        state.session.own = 0;
        state.handshake(hw, self.node)?.write(hw, self.node)?;
        hw.ring(self.node, KernelDoorbell::Link)
    }

    /// Writes the heartbeat of this node, and while there is no session its handshake again, which is lost
    /// on hardware that drops stores while its link is down.
    pub(super) fn heartbeat(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        if !state.session.up {
            state.handshake(hw, self.node)?.write_again(hw, self.node)?;
        }
        state.heartbeat = state.heartbeat.wrapping_add(1);
        handshake::write_heartbeat(hw, self.node, state.heartbeat)
    }

    /// Sends one message by the ring of the peer.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the hardware's link is down; `EBUSY` while there is no session, if the ring is
    /// full, or if the peer has broken its rules; `ENODEV` if the device has left the bus.
    pub(crate) fn send(&self, hw: Hw<'_>, message: &Message) -> Result {
        let mut state = self.state.lock();
        if state.send(hw, self.node, message)? {
            self.rang.store(true, Relaxed);
        }
        Ok(())
    }

    /// Receives one message from the own ring.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer violates the protocol, for example by an answer without a query.
    pub(super) fn receive(&self, hw: Hw<'_>) -> Result<Option<Message>> {
        let mut state = self.state.lock();
        if !state.session.up {
            return Ok(None);
        }
        let Some(rings) = &mut state.rings else {
            return Ok(None);
        };
        let (taken, wake) = rings.take(&channel(hw, self.node))?;
        if wake {
            state.counters.doorbells += 1;
            hw.ring(self.node, KernelDoorbell::Link)?;
        }
        let Some((message, turnaround)) = taken else {
            state.turnaround.found_none();
            return Ok(None);
        };
        if matches!(message, Message::Answer(..)) && !state.owed.answered() {
            return Err(eproto());
        }
        self.rang.store(false, Relaxed);
        state.counters.received += 1;
        let now = state.age();
        if let Some(sample) = state.turnaround.received(now, turnaround) {
            state.counters.followed += 1;
            self.follow_doorbell_cost(sample);
        }
        Ok(Some(message))
    }

    /// Returns true if a message is pending.
    pub(super) fn has_message(&self, hw: Hw<'_>) -> Result<bool> {
        let mut state = self.state.lock();
        let is_up = state.session.up;
        let Some(rings) = state.rings.as_mut().filter(|_| is_up) else {
            return Ok(false);
        };
        let (has_message, wake) = rings.has_message(&channel(hw, self.node))?;
        if wake {
            state.counters.doorbells += 1;
            hw.ring(self.node, KernelDoorbell::Link)?;
        }
        Ok(has_message)
    }

    /// Tells the peer whether this node needs doorbells.
    pub(super) fn set_asleep(&self, hw: Hw<'_>, asleep: bool) -> Result {
        let mut state = self.state.lock();
        // A peer that was met may regard the link as up already.
        let Some(rings) = &mut state.rings else {
            return Ok(());
        };
        let wakes = !asleep && rings.is_asleep();
        rings.set_asleep(&channel(hw, self.node), asleep)?;
        state.wakes += u64::from(wakes);
        Ok(())
    }
}

fn channel(hw: Hw<'_>, peer: u32) -> Channel<'_> {
    Channel { hw, peer }
}

/// Returns the offer of this node to `peer`.
fn own_offer(hw: Hw<'_>, peer: u32) -> Result<Offer> {
    let sends_packets = hw.kernel_queues().is_some_and(|it| it.packets.is_some());
    let network = match Lane::inbound(hw.geometry(), peer)?.network() {
        Some(_) if sends_packets => handshake::NETWORK | handshake::NETWORK_ENGINE,
        Some(_) => handshake::NETWORK,
        None => 0,
    };
    let streams = match hw.geometry().has_streams {
        true => handshake::STREAMS,
        false => 0,
    };
    let segments = match hw.has_segment_vector() {
        true => handshake::SEGMENT_VECTOR,
        false => 0,
    };
    let features = network | streams | segments;
    Offer::own(hw, params::link_slots(), features)
}

impl PeerState {
    /// Leaves the session, and the rings that came with it. Returns it.
    fn leave_session(&mut self) -> Session {
        self.rings = None;
        core::mem::replace(&mut self.session, Session::NONE)
    }

    /// Returns nanoseconds since the peer was created.
    fn age(&self) -> i64 {
        self.born.elapsed().as_nanos()
    }

    /// Sends `message`. Returns true if the doorbell of the peer rang.
    fn send(&mut self, hw: Hw<'_>, peer: u32, message: &Message) -> Result<bool> {
        if !self.session.up {
            return Err(if self.hw_link.up { EBUSY } else { enotconn() });
        }
        let now = self.age();
        let Some(rings) = &mut self.rings else {
            return Err(EBUSY);
        };
        let turnaround = self.turnaround.next(now);
        let wake = match rings.put(&channel(hw, peer), message, turnaround) {
            Err(err) if err == eproto() => {
                self.broken = true;
                return Err(EBUSY);
            }
            result => result?,
        };
        self.turnaround.told();
        self.counters.sent += 1;
        if matches!(message, Message::Query(..)) {
            self.owed.asked();
        }
        if wake {
            self.counters.doorbells += 1;
            self.turnaround.rang(now);
            hw.ring(peer, KernelDoorbell::Link)?;
        }
        Ok(wake)
    }

    fn has_to_wait(&self) -> bool {
        self.backoff.is_penalty(self.age())
    }

    /// Notes that the peer ended its session. Returns true if a backoff precedes the next.
    fn flapped(&mut self) -> bool {
        let now = self.age();
        self.backoff.flapped(now)
    }

    /// Returns what this node says to the peer.
    fn handshake(&self, hw: Hw<'_>, peer: u32) -> Result<Handshake> {
        Ok(Handshake {
            session: self.session.own,
            echo: self.session.met,
            offer: own_offer(hw, peer)?,
        })
    }

    /// Reads the handshake of the peer, if it is present, compatible and alive.
    fn sight(&mut self, hw: Hw<'_>, peer: u32) -> Result<Option<Sight>> {
        let Some(handshake) = Handshake::read(hw, peer)? else {
            return Ok(None);
        };
        match own_offer(hw, peer)?.agree(&handshake.offer) {
            Ok(terms) if !self.session.up => self.terms = terms,
            Ok(_) => (),
            Err(misfit) => {
                self.report_misfit(hw.dev(), peer, misfit);
                return Ok(None);
            }
        }
        if self.session.up && !self.is_alive(handshake::read_heartbeat(hw, peer)?) {
            return Ok(None);
        }
        Ok(Some(Sight {
            session: handshake.session,
            echo: handshake.echo,
        }))
    }

    fn is_alive(&mut self, heartbeat: u64) -> bool {
        if heartbeat != self.last_heartbeat.0 {
            self.last_heartbeat = (heartbeat, Instant::now());
        }
        self.has_recent_heartbeat()
    }

    /// Returns true if the heartbeat of the peer changed within the timeout.
    fn has_recent_heartbeat(&self) -> bool {
        self.last_heartbeat.1.elapsed() < params::link_timeout()
    }

    fn report_misfit(&mut self, dev: &Device<Bound>, peer: u32, misfit: Misfit) {
        // Before there is a peer, its area has no magic either.
        if misfit != Misfit::Magic && !core::mem::replace(&mut self.misfit_reported, true) {
            dev_warn!(
                dev,
                "node {peer} is incompatible ({misfit:?}); check versions and parameters of both drivers\n"
            );
        }
    }
}
