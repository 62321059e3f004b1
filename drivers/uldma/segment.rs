// SPDX-License-Identifier: GPL-2.0

//! Window segments: parts of the inbound half that one process here reads and one there writes.
//!
//! A part is given back only when the peer cannot write it any more: each time that the peer is told
//! where a segment is, it has been *offered*, and the peer gives every offer back in the end, used
//! or not; or it begins a new session, before which it revokes all. A part that is still offered
//! when its segment ends is *leaving* until then.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    events::{
        Bell,
        Events, //
    },
    hw::Hardware,
    kernel_ext::{
        dma::SharedPage,
        errno::{
            enotconn,
            estale, //
        },
        gate::Gate, //
    },
    link::{
        channel::Channel,
        message::{
            CreatedSegment,
            Message, //
        },
        window::{
            InboundWindow,
            Part, //
        }, //
    },
    maps::{
        Content,
        MapRange,
        Maps, //
    }, //
};

/// Which side of a segment this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Created here under a name: the reader.
    Created(u64),
    /// Attached: the writer.
    Attached,
}

/// What segments need of the device that they are of.
pub(crate) struct Site<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) hw: &'a dyn Hardware,
    pub(crate) maps: &'a Maps,
    pub(crate) window: &'a InboundWindow,
    pub(crate) channel: &'a Channel,
    pub(crate) segments: &'a Segments,
}

/// One side of a segment. [`Segment::release`] has to be called in the end.
pub(crate) struct Segment {
    side: Side,
    part: Part,
    range: MapRange,
    bell: Arc<Bell>,
    events: Arc<Events>,
    /// Created: offers that the peer has not given back. Attached: one as long as it leads to the
    /// peer.
    offers: Atomic<u32>,
}

/// Tells sessions with the peer apart, as far as segments go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// The segments of one device.
#[pin_data]
pub(crate) struct Segments {
    #[pin]
    state: Mutex<State>,
}

struct State {
    epoch: Epoch,
    segments: KVec<Arc<Segment>>,
    /// Parts of ended segments, and how many offers of each are out.
    leaving: KVec<(Part, u32)>,
    /// Messages that did not fit into the ring.
    unsaid: KVec<Message>,
}

impl Segment {
    /// Takes a part of the inbound half, zeroed, for opener `opener`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for name 0 or no bytes, `EEXIST` when the name is taken, `ENOSPC`.
    pub(crate) fn create(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        name: u64,
        length: u64,
    ) -> Result<Arc<Self>> {
        if name == 0 {
            return Err(EINVAL);
        }
        let part = site.window.take(length)?;
        let segment = zero(site, part).and_then(|()| {
            let mut state = site.segments.state.lock();
            if state.created(name).is_some() {
                return Err(EEXIST);
            }
            state.insert(|| Self::new(site, opener, events, handle, Side::Created(name), part, 0))
        });
        segment.inspect_err(|_| site.window.give_back(part))
    }

    /// Attaches to a segment that the peer offered, when asked in epoch `epoch`.
    ///
    /// # Errors
    ///
    /// `EPROTO` when the peer named a part that cannot be, `ESTALE` when the offer is of an earlier
    /// session.
    pub(crate) fn attach(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        offered: &CreatedSegment,
        epoch: Epoch,
    ) -> Result<Arc<Self>> {
        let size = site.hw.geometry().window_size;
        let part = Part::of_peer(offered.offset, offered.length, size)?;
        // Held over all of it, so that no end of the session comes in between.
        let mut state = site.segments.state.lock();
        if state.epoch != epoch {
            return Err(estale());
        }
        state
            .insert(|| Self::new(site, opener, events, handle, Side::Attached, part, 1))
            .inspect_err(|_| state.give_back(site, offered.offset))
    }

    fn new(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        side: Side,
        part: Part,
        offers: u32,
    ) -> Result<Arc<Self>> {
        let content = match side {
            Side::Created(_) => Content::Inbound(part.offset()),
            Side::Attached => {
                let sink = Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?;
                Content::Outbound(part.offset(), sink)
            }
        };
        let bell = events.add_bell(handle)?;
        let segment = site
            .maps
            .add(opener, part.pages(), content, true)
            .and_then(|range| {
                let segment = Self {
                    side,
                    part,
                    range,
                    bell: bell.clone(),
                    events: events.clone(),
                    offers: Atomic::new(offers),
                };
                Arc::new(segment, GFP_KERNEL_ACCOUNT).map_err(|err| {
                    site.maps.remove(range);
                    err.into()
                })
            });
        if segment.is_err() {
            events.remove_bell(&bell);
        }
        segment
    }

    /// The range that can be mapped.
    pub(crate) fn range(&self) -> MapRange {
        self.range
    }

    /// Wakes the other side.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down, `ESTALE` when an attached segment is gone.
    pub(crate) fn ring(&self, site: &Site<'_>) -> Result {
        let guard = site.gate.try_enter()?;
        if self.side == Side::Attached && self.offers.load(Relaxed) == 0 {
            return Err(estale());
        }
        if !site.hw.link(guard.dev())?.up {
            return Err(enotconn());
        }
        site.hw.ring(guard.dev(), self.part.doorbell())
    }

    /// Undoes [`Segment::new`].
    fn forget(&self, site: &Site<'_>) {
        site.maps.remove(self.range);
        self.events.remove_bell(&self.bell);
    }

    /// Ends this side.
    pub(crate) fn release(this: &Arc<Self>, site: &Site<'_>) {
        this.forget(site);
        let mut state = site.segments.state.lock();
        state.segments.retain(|other| !Arc::ptr_eq(other, this));
        let offers = this.offers.load(Relaxed);
        let Ok(offset) = u64::try_from(this.part.offset()) else {
            return;
        };
        match this.side {
            Side::Created(_) if offers == 0 => site.window.give_back(this.part),
            Side::Created(_) => {
                // A part that cannot be remembered is never used again, which harms nobody.
                let _ = state.leaving.push((this.part, offers), GFP_KERNEL);
                state.say(site, Message::SegmentGone(offset));
            }
            Side::Attached if offers == 0 => (),
            Side::Attached => state.give_back(site, offset),
        }
    }
}

/// Clears a part that somebody else may have used.
fn zero(site: &Site<'_>, part: Part) -> Result {
    let guard = site.gate.try_enter()?;
    site.hw
        .zero_inbound(guard.dev(), part.offset(), part.length())
}

impl State {
    fn created(&self, name: u64) -> Option<&Arc<Segment>> {
        let mut segments = self.segments.iter();
        segments.find(|segment| segment.side == Side::Created(name))
    }

    /// Adds the segment that `make` makes.
    fn insert(&mut self, make: impl FnOnce() -> Result<Arc<Segment>>) -> Result<Arc<Segment>> {
        self.segments.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let segment = make()?;
        // There is room for one more.
        self.segments.push(segment.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(segment)
    }

    /// Tells the peer something, now or when there is room in the ring.
    fn say(&mut self, site: &Site<'_>, message: Message) {
        // A peer that cannot be told at all will begin a new session, which tells it more.
        let Some(guard) = site.gate.enter() else {
            return;
        };
        let full = !self.unsaid.is_empty()
            || site.channel.send(guard.dev(), site.hw, &message) == Err(EBUSY);
        if full {
            // What is forgotten here costs a part of the window until the next session.
            let _ = self.unsaid.push(message, GFP_KERNEL);
        }
    }

    /// Gives one offer of the peer's back.
    fn give_back(&mut self, site: &Site<'_>, offset: u64) {
        self.say(site, Message::SegmentLeft(offset, 1));
    }

    /// Makes attached segments lead nowhere; returns how many.
    fn end_attached(&self, site: &Site<'_>, which: impl Fn(Part) -> bool) -> u32 {
        let mut ended = 0;
        for segment in &self.segments {
            if segment.side == Side::Attached
                && which(segment.part)
                && segment.offers.xchg(0, Relaxed) != 0
            {
                site.maps.revoke(segment.range);
                segment.events.ring(&segment.bell);
                ended += 1;
            }
        }
        ended
    }
}

fn is_at(part: Part, offset: u64) -> bool {
    u64::try_from(part.offset()) == Ok(offset)
}

impl Segments {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = State {
            epoch: Epoch(0),
            segments: KVec::new(),
            leaving: KVec::new(),
            unsaid: KVec::new(),
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Segments::state"),
        })
    }

    /// The epoch that it is, to be taken before the peer is asked for a segment.
    pub(crate) fn epoch(&self) -> Epoch {
        self.state.lock().epoch
    }

    /// What the peer gets to know about `name`: an offer.
    pub(crate) fn offer(&self, name: u64) -> Option<CreatedSegment> {
        let state = self.state.lock();
        let segment = state.created(name)?;
        let offers = segment.offers.load(Relaxed).checked_add(1)?;
        segment.offers.store(offers, Relaxed);
        Some(CreatedSegment {
            offset: u64::try_from(segment.part.offset()).ok()?,
            length: u64::try_from(segment.part.length()).ok()?,
        })
    }

    /// Gives back an offer of epoch `epoch` that nobody wants.
    pub(crate) fn decline(&self, site: &Site<'_>, offset: u64, epoch: Epoch) {
        let mut state = self.state.lock();
        if state.epoch == epoch {
            state.give_back(site, offset);
        }
    }

    /// The peer rang: wakes all whose doorbell bit is set.
    pub(crate) fn rung(&self, bits: u32) {
        for segment in &self.state.lock().segments {
            if segment.part.doorbell() & bits != 0 {
                segment.events.ring(&segment.bell);
            }
        }
    }

    /// The peer's segment at `offset` is gone: nobody here writes it any more when this returns.
    pub(crate) fn gone(&self, site: &Site<'_>, offset: u64) {
        let mut state = self.state.lock();
        let count = state.end_attached(site, |part| is_at(part, offset));
        if count > 0 {
            state.say(site, Message::SegmentLeft(offset, count));
        }
    }

    /// The peer gave `count` offers of this node's segment at `offset` back.
    pub(crate) fn left(&self, site: &Site<'_>, offset: u64, count: u32) {
        let mut state = self.state.lock();
        for segment in &state.segments {
            if segment.side != Side::Attached && is_at(segment.part, offset) {
                let offers = segment.offers.load(Relaxed).saturating_sub(count);
                segment.offers.store(offers, Relaxed);
                segment.events.ring(&segment.bell);
            }
        }
        state.leaving.retain(|(part, offers)| {
            if !is_at(*part, offset) {
                return true;
            }
            *offers = offers.saturating_sub(count);
            if *offers == 0 {
                site.window.give_back(*part);
            }
            *offers > 0
        });
    }

    /// A session with the peer ends here: nobody writes the peer's segments any more when this
    /// returns, and no offer of that session is used later.
    pub(crate) fn revoke(&self, site: &Site<'_>) {
        let mut state = self.state.lock();
        state.epoch = Epoch(state.epoch.0.wrapping_add(1));
        state.unsaid.clear();
        state.end_attached(site, |_| true);
        for segment in &state.segments {
            if segment.side != Side::Attached {
                segment.events.ring(&segment.bell);
            }
        }
    }

    /// The peer began a new session: no offer is out any more.
    pub(crate) fn peer_restarted(&self, site: &Site<'_>) {
        let mut state = self.state.lock();
        for segment in &state.segments {
            if segment.side != Side::Attached {
                segment.offers.store(0, Relaxed);
                segment.events.ring(&segment.bell);
            }
        }
        for (part, _) in core::mem::take(&mut state.leaving) {
            site.window.give_back(part);
        }
    }

    /// Says what did not fit before.
    pub(crate) fn resend(&self, site: &Site<'_>) {
        let mut state = self.state.lock();
        let Some(guard) = site.gate.enter() else {
            return;
        };
        while let Some(message) = state.unsaid.first() {
            if site.channel.send(guard.dev(), site.hw, message).is_err() {
                return;
            }
            // There is one: it was just sent.
            let _ = state.unsaid.remove(0);
        }
    }
}
