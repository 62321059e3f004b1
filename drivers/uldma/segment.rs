// SPDX-License-Identifier: GPL-2.0

//! Window segments: parts of the inbound half that one process here reads and one there writes.
//!
//! A part is given back only when the peer cannot write it any more: when it never attached, when
//! it said that it left, or when its driver was loaded anew. Until then it is *leaving*.

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
    /// Created: the peer may write it. Attached: it can still be written.
    peer: Atomic<bool>,
}

/// The segments of one device.
#[pin_data]
pub(crate) struct Segments {
    #[pin]
    state: Mutex<State>,
}

struct State {
    segments: KVec<Arc<Segment>>,
    leaving: KVec<Part>,
}

impl State {
    fn created(&self, name: u64) -> Option<&Arc<Segment>> {
        let mut segments = self.segments.iter();
        segments.find(|segment| segment.side == Side::Created(name))
    }
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
        if site.segments.state.lock().created(name).is_some() {
            return Err(EEXIST);
        }
        let part = site.window.take(length)?;
        let result = Self::create_at(site, opener, events, handle, name, part);
        if result.is_err() {
            site.window.give_back(part);
        }
        result
    }

    fn create_at(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        name: u64,
        part: Part,
    ) -> Result<Arc<Self>> {
        {
            let guard = site.gate.try_enter()?;
            let (offset, length) = (part.offset(), part.length());
            site.hw.zero_inbound(guard.dev(), offset, length)?;
        }
        let side = Side::Created(name);
        let segment = Self::new(site, opener, events, handle, side, part, false)?;
        let mut state = site.segments.state.lock();
        let result = if state.created(name).is_some() {
            Err(EEXIST)
        } else {
            Ok(state.segments.push(segment.clone(), GFP_KERNEL_ACCOUNT))
        };
        drop(state);
        match result {
            Ok(Ok(())) => Ok(segment),
            Ok(Err(err)) => {
                segment.forget(site);
                Err(err.into())
            }
            Err(err) => {
                segment.forget(site);
                Err(err)
            }
        }
    }

    /// Attaches to a segment that the peer created.
    ///
    /// # Errors
    ///
    /// `EPROTO` when the peer named a part that cannot be.
    pub(crate) fn attach(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        created: &CreatedSegment,
    ) -> Result<Arc<Self>> {
        let size = site.hw.geometry().window_size;
        let part = Part::of_peer(created.offset, created.length, size)?;
        let segment = Self::new(site, opener, events, handle, Side::Attached, part, true);
        let pushed = segment.and_then(|segment| {
            let mut state = site.segments.state.lock();
            let pushed = state.segments.push(segment.clone(), GFP_KERNEL_ACCOUNT);
            drop(state);
            if let Err(err) = pushed {
                segment.forget(site);
                return Err(err.into());
            }
            Ok(segment)
        });
        if pushed.is_err() {
            site.segments.leave(site, part);
        }
        pushed
    }

    fn new(
        site: &Site<'_>,
        opener: u64,
        events: &Arc<Events>,
        handle: u32,
        side: Side,
        part: Part,
        peer: bool,
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
                    peer: Atomic::new(peer),
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
        if self.side == Side::Attached && !self.peer.load(Relaxed) {
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
        match this.side {
            Side::Created(_) => {
                let mut busy = this.peer.load(Relaxed);
                if busy && state.leaving.push(this.part, GFP_KERNEL).is_err() {
                    // It cannot be remembered, so it is never used again; but nobody is harmed.
                    busy = false;
                } else if !busy {
                    site.window.give_back(this.part);
                }
                drop(state);
                if busy {
                    site.segments.say(site, Message::SegmentGone, this.part);
                }
            }
            Side::Attached => {
                drop(state);
                if this.peer.load(Relaxed) {
                    site.segments.leave(site, this.part);
                }
            }
        }
    }
}

impl Segments {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = State {
            segments: KVec::new(),
            leaving: KVec::new(),
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Segments::state"),
        })
    }

    /// Tells the peer about `part`, if it can be told.
    fn say(&self, site: &Site<'_>, message: impl Fn(u64) -> Message, part: Part) {
        // A peer that cannot be told now starts anew later, which tells it more.
        if let (Some(guard), Ok(offset)) = (site.gate.enter(), u64::try_from(part.offset())) {
            let _ = site.channel.send(guard.dev(), site.hw, &message(offset));
        }
    }

    /// Tells the peer that `part` of its half is not written any more, if that is so.
    fn leave(&self, site: &Site<'_>, part: Part) {
        let state = self.state.lock();
        let used = state.segments.iter().any(|segment| {
            segment.side == Side::Attached && segment.part == part && segment.peer.load(Relaxed)
        });
        drop(state);
        if !used {
            self.say(site, Message::SegmentLeft, part);
        }
    }

    /// What the peer gets to know about `name`; it may write the segment from now on.
    pub(crate) fn offer(&self, name: u64) -> Option<CreatedSegment> {
        let state = self.state.lock();
        let segment = state.created(name)?;
        segment.peer.store(true, Relaxed);
        Some(CreatedSegment {
            offset: u64::try_from(segment.part.offset()).ok()?,
            length: u64::try_from(segment.part.length()).ok()?,
        })
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
        self.end_attached(site, |part| u64::try_from(part.offset()) == Ok(offset));
        let size = site.hw.geometry().window_size;
        if let Ok(part) = Part::of_peer(offset, kernel::page::PAGE_SIZE as u64, size) {
            self.say(site, Message::SegmentLeft, part);
        }
    }

    /// Revokes attached segments.
    fn end_attached(&self, site: &Site<'_>, which: impl Fn(Part) -> bool) {
        for segment in &self.state.lock().segments {
            if segment.side == Side::Attached && which(segment.part) {
                segment.peer.store(false, Relaxed);
                site.maps.revoke(segment.range);
                segment.events.ring(&segment.bell);
            }
        }
    }

    /// The peer no longer writes this node's segment at `offset`.
    pub(crate) fn left(&self, site: &Site<'_>, offset: u64) {
        let mut state = self.state.lock();
        let here = |part: &Part| u64::try_from(part.offset()) == Ok(offset);
        for segment in &state.segments {
            if segment.side != Side::Attached && here(&segment.part) {
                segment.peer.store(false, Relaxed);
                segment.events.ring(&segment.bell);
            }
        }
        state.leaving.retain(|part| {
            if here(part) {
                site.window.give_back(*part);
            }
            !here(part)
        });
    }

    /// The peer cannot write any of this node's segments any more, nor this node the peer's.
    pub(crate) fn peer_gone(&self, site: &Site<'_>) {
        self.end_attached(site, |_| true);
        let mut state = self.state.lock();
        for segment in &state.segments {
            if segment.side != Side::Attached {
                segment.peer.store(false, Relaxed);
                segment.events.ring(&segment.bell);
            }
        }
        for part in core::mem::take(&mut state.leaving) {
            site.window.give_back(part);
        }
    }
}
