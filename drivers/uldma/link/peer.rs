// SPDX-License-Identifier: GPL-2.0

//! One peer: whether it is there, and the messages to and from it.

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
    handshake::{
        self,
        Handshake,
        Misfit,
        Offer,
        Terms, //
    },
    message::Message,
    owed::Owed,
    ring::{
        Channel, //
        Rings,
    },
    session::{
        Session,
        Sight,
        Step, //
    }, //
};
use crate::{
    hw::{
        self,
        Hardware,
        LINK_DOORBELL, //
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

/// What was counted of one peer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) doorbells: u64,
    pub(crate) violations: u64,
}

/// What there is to know of a link.
pub(crate) struct Description {
    pub(crate) up: bool,
    pub(crate) generation: u32,
    pub(crate) terms: Terms,
    pub(crate) counters: Counters,
}

/// What became of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Up,
    /// It ends: nobody may use it any more, and then [`Peer::begin`] has to be called.
    Down,
    /// It was not up, and [`Peer::begin`] has to be called.
    Restart,
}

struct State {
    session: Session,
    terms: Terms,
    rings: Rings,
    hw_link: hw::LinkState,
    /// How often the link came up.
    generation: u32,
    /// What was written for the peer to know that this node is alive.
    heartbeat: u64,
    /// What the peer wrote last, and when that was seen to change.
    last_heartbeat: (u64, Instant<Monotonic>),
    /// The peer broke the rules, which was seen while something was sent.
    broken: bool,
    /// How long the peer is not spoken to, since it broke the rules or ends sessions all the time.
    backoff: Backoff,
    /// What the times of `backoff` count from.
    born: Instant<Monotonic>,
    /// Answers that the peer may give.
    owed: Owed,
    /// Whether it was said that the peer does not fit.
    misfit_reported: bool,
    counters: Counters,
}

/// One peer of this node.
#[pin_data]
pub(crate) struct Peer {
    node: u32,
    /// `State::session.up`, for those who only look.
    up: Atomic<bool>,
    #[pin]
    state: Mutex<State>,
}

impl Peer {
    /// A peer that was not met yet.
    pub(super) fn new(node: u32) -> impl PinInit<Self> {
        let session = Session {
            own: 0,
            met: 0,
            up: false,
        };
        let state = State {
            session,
            terms: Terms::default(),
            rings: Rings::default(),
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
            misfit_reported: false,
            counters: Counters::default(),
        };
        pin_init!(Self {
            node,
            up: Atomic::new(false),
            state <- new_mutex!(state, "uldma::Peer::state"),
        })
    }

    /// The peer's number.
    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Whether the link is up.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Acquire)
    }

    /// Generation of the hardware's link, which imports have to name.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down.
    pub(crate) fn hw_generation(&self) -> Result<u32> {
        let state = self.state.lock();
        match state.session.up {
            true => Ok(state.hw_link.generation),
            false => Err(enotconn()),
        }
    }

    /// The session, by how often the link came up.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down.
    pub(crate) fn session(&self) -> Result<u32> {
        let state = self.state.lock();
        match state.session.up {
            true => Ok(state.generation),
            false => Err(enotconn()),
        }
    }

    /// What there is to know.
    pub(crate) fn describe(&self) -> Description {
        let state = self.state.lock();
        Description {
            up: state.session.up,
            generation: state.generation,
            terms: match state.session.up {
                true => state.terms,
                false => Terms::default(),
            },
            counters: state.counters,
        }
    }

    /// Begins a new session, unless the peer has to wait for it.
    pub(super) fn begin(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        state.session = Session {
            own: 0,
            met: 0,
            up: false,
        };
        if state.has_to_wait() {
            return state.write_handshake(dev, hw, self.node);
        }
        // Neither zero nor all ones.
        state.session.own = (random::u32() & 0x7fff_ffff) | 1;
        state.write_handshake(dev, hw, self.node)?;
        hw.ring(dev, self.node, LINK_DOORBELL)
    }

    /// Looks what became of the peer; `hw_link` is the hardware's state, if that may have changed.
    pub(super) fn update(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        hw_link: Option<hw::LinkState>,
    ) -> Result<Change> {
        let mut state = self.state.lock();
        if core::mem::take(&mut state.broken) {
            drop(state);
            self.quarantine(dev);
            return Ok(Change::Down);
        }
        let before = state.hw_link;
        state.hw_link = hw_link.unwrap_or(before);
        if state.session.own == 0 && !state.has_to_wait() {
            drop(state);
            self.begin(dev, hw)?;
            state = self.state.lock();
        }
        // A link that went down and came up again since has a new generation.
        let same = !state.session.up || state.hw_link == before;
        let reachable = state.hw_link.up && same;
        let sight = match reachable && state.session.own != 0 {
            true => state.sight(dev, hw, self.node)?,
            false => None,
        };
        match state.session.step(sight) {
            Step::Stay => Ok(Change::None),
            Step::Meet(_) if state.session.met != 0 && state.flapped() => Ok(Change::Restart),
            Step::Meet(session) => {
                state.session.met = session;
                state.owed = Owed::default();
                state.rings = Rings::begin(&state.channel(dev, hw, self.node))?;
                state.write_handshake(dev, hw, self.node)?;
                // The peer may have looked too early.
                hw.ring(dev, self.node, LINK_DOORBELL)?;
                Ok(Change::None)
            }
            Step::Up => {
                state.session.up = true;
                state.generation = state.generation.wrapping_add(1);
                state.last_heartbeat = (
                    handshake::read_heartbeat(dev, hw, self.node)?,
                    Instant::now(),
                );
                self.up.store(true, Release);
                Ok(Change::Up)
            }
            Step::Down => {
                // A cable that was pulled is not the peer's doing, and a pause of the beat takes long.
                if reachable && (!state.session.up || state.has_recent_heartbeat()) {
                    state.flapped();
                }
                self.up.store(false, Release);
                match core::mem::replace(&mut state.session.up, false) {
                    true => Ok(Change::Down),
                    false => Ok(Change::Restart),
                }
            }
        }
    }

    /// The peer broke the rules: the link goes down, and is not used again for a while.
    pub(super) fn quarantine(&self, dev: &Device<Bound>) {
        let mut state = self.state.lock();
        state.counters.violations += 1;
        if state.counters.violations == 1 {
            dev_warn!(dev, "node {} breaks the rules of the link\n", self.node);
        }
        let now = state.age();
        state.backoff.violated(now);
        state.session.up = false;
        self.up.store(false, Release);
    }

    /// The peer takes no messages, and more wait for it than may: it goes the way of those that break
    /// the rules.
    pub(crate) fn mark_broken(&self) {
        self.state.lock().broken = true;
    }

    /// Lets nobody use the link any more.
    pub(super) fn end(&self) {
        self.state.lock().session.up = false;
        self.up.store(false, Release);
    }

    /// Tells the peer that there is nobody here.
    pub(super) fn leave(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        state.session.own = 0;
        state.write_handshake(dev, hw, self.node)?;
        hw.ring(dev, self.node, LINK_DOORBELL)
    }

    /// Tells the peer that this node is alive.
    pub(super) fn heartbeat(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        state.heartbeat = state.heartbeat.wrapping_add(1);
        handshake::write_heartbeat(dev, hw, self.node, state.heartbeat)
    }

    /// Puts one message into the peer's ring.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while there is nobody, `EBUSY` while the peer was not met or its ring is full.
    pub(crate) fn send(&self, dev: &Device<Bound>, hw: &dyn Hardware, message: &Message) -> Result {
        let mut state = self.state.lock();
        if !state.session.up {
            return Err(if state.hw_link.up { EBUSY } else { enotconn() });
        }
        let channel = state.channel(dev, hw, self.node);
        let slots = state.terms.slots;
        let wake = match state.rings.put(&channel, slots, message) {
            Err(err) if err == eproto() => {
                state.broken = true;
                return Err(EBUSY);
            }
            result => result?,
        };
        state.counters.sent += 1;
        if matches!(message, Message::Query(..)) {
            state.owed.asked();
        }
        if wake {
            state.counters.doorbells += 1;
            hw.ring(dev, self.node, LINK_DOORBELL)?;
        }
        Ok(())
    }

    /// Takes one message out of the own ring.
    ///
    /// # Errors
    ///
    /// `EPROTO` when the peer breaks the rules, as by an answer that it was not asked for.
    pub(super) fn receive(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
    ) -> Result<Option<Message>> {
        let mut state = self.state.lock();
        if !state.session.up {
            return Ok(None);
        }
        let channel = state.channel(dev, hw, self.node);
        let slots = state.terms.own_slots;
        let message = state.rings.take(&channel, slots)?;
        if matches!(message, Some(Message::Answer(..))) && !state.owed.answered() {
            return Err(eproto());
        }
        if message.is_some() {
            state.counters.received += 1;
        }
        Ok(message)
    }

    /// Wakes the peer if it waits for room, after messages were taken.
    pub(super) fn return_credits(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        if state.session.up && Rings::peer_needs_credits(&state.channel(dev, hw, self.node))? {
            state.counters.doorbells += 1;
            hw.ring(dev, self.node, LINK_DOORBELL)?;
        }
        Ok(())
    }

    /// Whether there is a message to take.
    pub(super) fn has_message(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result<bool> {
        let state = self.state.lock();
        let channel = state.channel(dev, hw, self.node);
        Ok(state.session.up && state.rings.has_message(&channel)?)
    }

    /// Tells the peer whether this node looks only when its doorbell rings.
    pub(super) fn set_asleep(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        asleep: bool,
    ) -> Result {
        let mut state = self.state.lock();
        // A peer that was met may think that the link is up already.
        if state.session.met == 0 {
            return Ok(());
        }
        let channel = state.channel(dev, hw, self.node);
        state.rings.set_asleep(&channel, asleep)
    }
}

impl State {
    /// Nanoseconds since the peer was made.
    fn age(&self) -> i64 {
        self.born.elapsed().as_nanos()
    }

    fn has_to_wait(&self) -> bool {
        self.backoff.is_penalty(self.age())
    }

    /// The peer ended its session, or the one before it; whether it has to wait for the next.
    fn flapped(&mut self) -> bool {
        let now = self.age();
        self.backoff.flapped(now)
    }

    fn channel<'a>(&self, dev: &'a Device<Bound>, hw: &'a dyn Hardware, peer: u32) -> Channel<'a> {
        Channel {
            dev,
            hw,
            peer,
            key: self.session.key(),
        }
    }

    fn write_handshake(&self, dev: &Device<Bound>, hw: &dyn Hardware, peer: u32) -> Result {
        let handshake = Handshake {
            session: self.session.own,
            echo: self.session.met,
            offer: Offer::own(hw, params::link_slots())?,
        };
        handshake.write(dev, hw, peer)
    }

    /// What can be seen of the peer, if it is there, fits and is alive.
    fn sight(
        &mut self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        peer: u32,
    ) -> Result<Option<Sight>> {
        let Some(handshake) = Handshake::read(dev, hw, peer)? else {
            return Ok(None);
        };
        match Offer::own(hw, params::link_slots())?.agree(&handshake.offer) {
            Ok(terms) if !self.session.up => self.terms = terms,
            Ok(_) => (),
            Err(misfit) => {
                self.report_misfit(dev, peer, misfit);
                return Ok(None);
            }
        }
        if self.session.up && !self.is_alive(handshake::read_heartbeat(dev, hw, peer)?) {
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

    /// Whether the peer's beat was seen to change not long ago.
    fn has_recent_heartbeat(&self) -> bool {
        self.last_heartbeat.1.elapsed() < params::link_timeout()
    }

    fn report_misfit(&mut self, dev: &Device<Bound>, peer: u32, misfit: Misfit) {
        // What lies there before there is a peer has no magic either.
        if misfit != Misfit::Magic && !core::mem::replace(&mut self.misfit_reported, true) {
            dev_warn!(dev, "node {peer} does not fit: {misfit:?}\n");
        }
    }
}
