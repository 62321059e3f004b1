// SPDX-License-Identifier: GPL-2.0

//! Window segments: ranges of the own section that a process here reads and a process at a peer
//! writes.
//!
//! A range is freed only when no peer can write it any more. Each answer with the location of a
//! segment counts as an *offer*. The peer returns each offer in the end, used or not, or begins a
//! new session, before which it revokes all mappings. A range with offers outstanding when its
//! segment ends is [quarantined](super::quarantine) until then.
//!
//! The rings of a connection are segments without a name, of ranges that the connection allocates, offers
//! and frees: it ends them before it tells the peer, and before it frees the range.

use core::mem::MaybeUninit;

use kernel::{
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
        Mutex,
        UniqueArc, //
    }, //
};

use crate::{
    hw::{
        gate::Gate,
        layout::MAX_NODES,
        Hardware,
        SegmentDoorbells, //
    },
    kernel_ext::{
        dma::SharedPage,
        errno::{
            enotconn,
            eproto,
            estale, //
        },
        nospec, //
    },
    link::{
        message::CreatedSegment,
        quarantine::{
            Age,
            Hold, //
        },
        window_alloc::WindowAllocator,
        window_range::WindowRange,
        Link, //
    },
    user_abi::{
        events::{
            DoorbellEvent,
            Events, //
        },
        ledger::{
            Payer,
            Resource,
            Share, //
        },
        mmap_offset::{
            Backing,
            MmapOffsets, //
            MmapRange,
            RangeRoom,
        }, //
    }, //
};

mod places;
mod unreported;

use places::{
    ByPlace,
    Place,
    Room, //
};
use unreported::{
    Note,
    Unreported, //
};

/// The role of this node in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The reader, which created the segment under a name.
    Created(u64),
    /// The writer, which is attached.
    Attached,
    /// The reader or the writer of a ring of a connection.
    Ring(Side),
}

/// The side whose program reads a ring, and in whose section it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Own,
    Peer,
}

/// The parts of a device that its segments use.
pub(crate) struct SegmentCtx<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) hw: &'a dyn Hardware,
    pub(crate) mmap_offsets: &'a MmapOffsets,
    pub(crate) window_alloc: &'a WindowAllocator,
    pub(crate) link: &'a Link,
    pub(crate) segments: &'a Segments,
}

/// This side of a segment. [`Segment::release`] has to be called in the end.
pub(crate) struct Segment {
    role: Role,
    /// The node of the other side.
    peer: u32,
    place: Place,
    window: WindowRange,
    range: MmapRange,
    doorbell: Arc<DoorbellEvent>,
    events: Arc<Events>,
    /// For a reader: the outstanding offers. For a writer, and for a ring: one while the mapping is valid.
    offers: Atomic<u32>,
    _share: Share,
}

/// A segment without a place yet: what it needs of its open file, and memory for all parts, as none is
/// allocated under the lock of the segments. The worker of the link takes that lock, and the control
/// group of the process can make an allocation sleep.
pub(crate) struct NewSegment {
    open_file: u64,
    share: Share,
    events: Arc<Events>,
    doorbell: Arc<DoorbellEvent>,
    backing: Backing,
    range: RangeRoom,
    segment: UniqueArc<MaybeUninit<Segment>>,
    room: Room<Arc<Segment>>,
}

/// A session with a peer, as segments count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// The segments of one device.
#[pin_data]
pub(crate) struct Segments {
    #[pin]
    state: Mutex<SegmentsState>,
    /// True if there is something in `SegmentsState::unreported`.
    has_unreported: Atomic<bool>,
}

struct SegmentsState {
    epochs: [Epoch; MAX_NODES],
    segments: ByPlace<Arc<Segment>>,
    /// Number of segments that there were.
    made: u64,
    /// Those of this node, by name.
    created: RBTree<u64, Arc<Segment>>,
    /// Messages that did not fit into the ring of a peer, by peer.
    unreported: [Unreported; MAX_NODES],
}

impl Segment {
    /// Creates a segment in a zeroed range of the lane of `peer`, which alone may attach, for open file
    /// `open_file`. `payer` pays for the range.
    ///
    /// # Errors
    ///
    /// `EINVAL` for name 0 or zero bytes, `EEXIST` if the name is in use, `ENOSPC`, `ENOMEM`,
    /// `EDQUOT` beyond the limits of the user, `ENODEV` if the device is unbound.
    pub(crate) fn create(
        ctx: &SegmentCtx<'_>,
        (open_file, payer): (u64, &Arc<Payer>),
        events: &Arc<Events>,
        handle: u32,
        (name, peer): (u64, u32),
        length: u64,
    ) -> Result<Arc<Self>> {
        if name == 0 {
            return Err(EINVAL);
        }
        let share = Share::new(payer, Resource::Objects, 1)?;
        let window = ctx.window_alloc.alloc(peer, (payer, None), length)?;
        let segment = zero(ctx, window).and_then(|()| {
            let backing = Backing::Window(ctx.hw.geometry().node, window.offset(), None);
            let new = NewSegment::new(ctx, (open_file, share), events, handle, backing)?;
            let Ok(named) = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT) else {
                new.cancel();
                return Err(ENOMEM);
            };
            let mut state = ctx.segments.state.lock();
            if state.created.get(&name).is_some() {
                drop(state);
                new.cancel();
                return Err(EEXIST);
            }
            let segment = state.insert(ctx, (Role::Created(name), peer), window, new)?;
            state.created.insert(named.into_node(name, segment.clone()));
            Ok(segment)
        });
        segment.inspect_err(|_| ctx.window_alloc.free(window))
    }

    /// Attaches open file `open_file`, which pays `share`, to a segment that `peer` offered in epoch
    /// `epoch`.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer named an invalid range, `ESTALE` if the offer is from an earlier
    /// session, `ENOMEM`, `ENOSPC`.
    pub(crate) fn attach(
        ctx: &SegmentCtx<'_>,
        owner: (u64, Share),
        events: &Arc<Events>,
        handle: u32,
        peer: u32,
        offered: &CreatedSegment,
        epoch: Epoch,
    ) -> Result<Arc<Self>> {
        let lane = ctx.hw.geometry().outbound(peer)?;
        let window = WindowRange::of_peer(offered.offset, offered.length, &lane)?;
        let new = sink().and_then(|sink| {
            let backing = Backing::Window(peer, window.offset(), Some(sink));
            NewSegment::new(ctx, owner, events, handle, backing)
        });
        let new = new.inspect_err(|_| ctx.segments.decline(ctx, peer, offered.offset, epoch))?;
        // Held until the segment is inserted, so that the session cannot end in between.
        let mut state = ctx.segments.state.lock();
        if state.epoch(peer) != epoch {
            drop(state);
            new.cancel();
            return Err(estale());
        }
        state
            .insert(ctx, (Role::Attached, peer), window, new)
            .inspect_err(|_| state.give_back(ctx, peer, offered.offset, 1))
    }

    /// Returns the range that can be mapped.
    pub(crate) fn range(&self) -> MmapRange {
        self.range
    }

    /// Rings the doorbell of the other side.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` while the link is down, `ESTALE` if an attached segment has ended, `ENODEV` if
    /// the device is unbound.
    pub(crate) fn ring(&self, ctx: &SegmentCtx<'_>) -> Result {
        let guard = ctx.gate.try_enter()?;
        // Offers may end meanwhile. A segment that has none left has nothing to ring for.
        let is_offered = self.is_offered();
        if !matches!(self.role, Role::Created(_)) && !is_offered {
            return Err(estale());
        }
        let peer = ctx.link.peer(self.peer)?;
        if !peer.is_up() {
            return Err(enotconn());
        }
        if is_offered {
            let (doorbell, has_vector) = (self.window.doorbell(), peer.has_segment_vector());
            guard.hw().ring_segment(self.peer, doorbell, has_vector)?;
        }
        Ok(())
    }

    /// Returns true if the peer may have the segment mapped, or this side of it is valid.
    pub(crate) fn is_offered(&self) -> bool {
        self.offers.load(Relaxed) > 0
    }

    /// Undoes [`Segment::new`].
    fn forget(&self, ctx: &SegmentCtx<'_>) {
        ctx.mmap_offsets.remove(self.range);
        self.events.remove_doorbell(&self.doorbell);
    }

    /// Ends this side.
    pub(crate) fn release(this: &Arc<Self>, ctx: &SegmentCtx<'_>) {
        this.forget(ctx);
        let mut state = ctx.segments.state.lock();
        state.segments.remove(&this.place);
        if let Role::Created(name) = this.role {
            state.created.remove(&name);
        }
        let Ok(offset) = u64::try_from(this.window.offset()) else {
            return;
        };
        let count = this.offers.load(Relaxed);
        match this.role {
            Role::Created(_) => {
                let is_told =
                    count == 0 || state.notify(ctx, this.peer, Note::Gone(offset)).is_ok();
                let age = if is_told { Age::NEW } else { Age::UNTOLD };
                let hold = || (count > 0).then(|| Hold::new(this.peer, count, age));
                ctx.window_alloc.end(this.window, hold);
            }
            Role::Attached if count == 0 => (),
            Role::Attached => state.give_back(ctx, this.peer, offset, 1),
            Role::Ring(_) => this.offers.store(0, Relaxed),
        }
    }

    /// Ends a ring. When this returns, no process here accesses its range by this segment.
    pub(crate) fn end_ring(&self, ctx: &SegmentCtx<'_>) {
        let _state = ctx.segments.state.lock();
        if matches!(self.role, Role::Ring(_)) {
            self.revoke(ctx);
        }
    }

    /// Revokes the mappings. Returns false if that was done before. The lock of the segments is held.
    fn revoke(&self, ctx: &SegmentCtx<'_>) -> bool {
        if !self.is_offered() {
            return false;
        }
        self.offers.store(0, Relaxed);
        ctx.mmap_offsets.revoke(self.range);
        self.events.end(&self.doorbell);
        true
    }
}

impl NewSegment {
    /// Prepares the segment of a ring at `window` of the section of `node`, for open file `open_file`,
    /// which pays `share`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_ring(
        ctx: &SegmentCtx<'_>,
        owner: (u64, Share),
        events: &Arc<Events>,
        handle: u32,
        (node, window): (u32, WindowRange),
    ) -> Result<Self> {
        let backing = Backing::Window(node, window.offset(), Some(sink()?));
        Self::new(ctx, owner, events, handle, backing)
    }

    /// Makes it the segment of the ring of `side`, at `window`, which it was prepared for. One that is
    /// `over` maps private memory only, as one that has ended does.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all mmap offsets are used up.
    pub(crate) fn insert_ring(
        mut self,
        ctx: &SegmentCtx<'_>,
        (side, peer): (Side, u32),
        window: WindowRange,
        over: bool,
    ) -> Result<Arc<Segment>> {
        if over {
            self.backing.sink();
        }
        let mut state = ctx.segments.state.lock();
        let segment = state.insert(ctx, (Role::Ring(side), peer), window, self)?;
        if over {
            segment.offers.store(0, Relaxed);
            segment.events.end(&segment.doorbell);
        }
        Ok(segment)
    }

    fn new(
        ctx: &SegmentCtx<'_>,
        (open_file, share): (u64, Share),
        events: &Arc<Events>,
        handle: u32,
        backing: Backing,
    ) -> Result<Self> {
        let range = ctx.mmap_offsets.room()?;
        let segment = UniqueArc::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let room = Room::new()?;
        // Last, since it has to be removed again.
        let doorbell = events.add_doorbell(handle)?;
        Ok(Self {
            open_file,
            share,
            events: events.clone(),
            doorbell,
            backing,
            range,
            segment,
            room,
        })
    }

    /// Undoes [`NewSegment::new`].
    pub(crate) fn cancel(self) {
        self.events.remove_doorbell(&self.doorbell);
    }
}

/// Returns a page for accesses to a segment that has ended.
fn sink() -> Result<Arc<SharedPage>> {
    Ok(Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?)
}

/// Zeroes a range, which another segment may have used.
fn zero(ctx: &SegmentCtx<'_>, window: WindowRange) -> Result {
    let guard = ctx.gate.try_enter()?;
    guard.hw().zero_window(window.offset(), window.length())
}

impl SegmentsState {
    /// Gives a segment its place.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all mmap offsets are used up.
    fn insert(
        &mut self,
        ctx: &SegmentCtx<'_>,
        (role, peer): (Role, u32),
        window: WindowRange,
        new: NewSegment,
    ) -> Result<Arc<Segment>> {
        let (node, offers) = match role {
            Role::Created(_) => (ctx.hw.geometry().node, 0),
            Role::Ring(Side::Own) => (ctx.hw.geometry().node, 1),
            Role::Attached | Role::Ring(Side::Peer) => (peer, 1),
        };
        let offsets = ctx.mmap_offsets;
        let range = offsets.insert(new.range, new.open_file, window.pages(), new.backing, true);
        let range = range.inspect_err(|_| new.events.remove_doorbell(&new.doorbell))?;
        let segment = new.segment.write(Segment {
            role,
            peer,
            place: Place::new(node, window.offset(), self.made),
            window,
            range,
            doorbell: new.doorbell,
            events: new.events,
            offers: Atomic::new(offers),
            _share: new.share,
        });
        let segment: Arc<Segment> = segment.into();
        self.made += 1;
        self.segments
            .insert(new.room, segment.place, segment.clone());
        Ok(segment)
    }

    /// Returns the epoch of the session with `peer`.
    fn epoch(&self, peer: u32) -> Epoch {
        let place = usize::try_from(peer).ok();
        let epoch = place.and_then(|place| nospec::get(&self.epochs, place));
        epoch.copied().unwrap_or(Epoch(0))
    }

    /// Sends a message to `peer`, now or when the ring has room. Without a session the message is not
    /// needed: a new session revokes everything.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the message is lost.
    fn notify(&mut self, ctx: &SegmentCtx<'_>, peer: u32, note: Note) -> Result {
        let (Some(guard), Ok(to)) = (ctx.gate.enter(), ctx.link.peer(peer)) else {
            return Ok(());
        };
        let place = usize::try_from(peer).ok();
        let Some(unreported) = place.and_then(|place| self.unreported.get_mut(place)) else {
            return Ok(());
        };
        let hw = guard.hw();
        if unreported.len() == 0 && to.send(hw, &note.message()) != Err(EBUSY) {
            return Ok(());
        }
        ctx.segments.has_unreported.store(true, Relaxed);
        match unreported.add(note) {
            Err(err) if err == eproto() => {
                to.mark_broken();
                Ok(())
            }
            added => added,
        }
    }

    /// Returns `count` offers of `peer`.
    fn give_back(&mut self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64, count: u32) {
        // One that is lost for lack of memory takes `peer` to the deadline of its quarantine, at which it
        // begins a new session.
        let _ = self.notify(ctx, peer, Note::Left(offset, count));
    }

    /// Rings the segments of this node that `peer` writes, since what it has of them has changed.
    fn ring_created(&self, peer: u32, each: impl Fn(&Segment)) {
        for segment in self.created.values().filter(|it| it.peer == peer) {
            each(segment);
            segment.events.ring(&segment.doorbell);
        }
    }
}

impl Segments {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = SegmentsState {
            epochs: [Epoch(0); MAX_NODES],
            segments: ByPlace::new(),
            made: 0,
            created: RBTree::new(),
            unreported: [const { Unreported::new() }; MAX_NODES],
        };
        pin_init!(Self {
            state <- new_mutex!(state, "uldma::Segments::state"),
            has_unreported: Atomic::new(false),
        })
    }

    /// Returns the current epoch, to be read before `peer` is asked for a segment.
    pub(crate) fn epoch(&self, peer: u32) -> Epoch {
        self.state.lock().epoch(peer)
    }

    /// Offers the segment `name` to `peer`.
    pub(crate) fn offer(&self, peer: u32, name: u64) -> Option<CreatedSegment> {
        let state = self.state.lock();
        let segment = state.created.get(&name)?;
        if segment.peer != peer {
            return None;
        }
        let offers = segment.offers.load(Relaxed).checked_add(1)?;
        segment.offers.store(offers, Relaxed);
        Some(CreatedSegment {
            offset: u64::try_from(segment.window.offset()).ok()?,
            length: u64::try_from(segment.window.length()).ok()?,
        })
    }

    /// Returns an offer of `peer`, of epoch `epoch`, that is not used.
    pub(crate) fn decline(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64, epoch: Epoch) {
        let mut state = self.state.lock();
        if state.epoch(peer) == epoch {
            state.give_back(ctx, peer, offset, 1);
        }
    }

    /// Wakes the programs of all segments whose doorbells may have rung.
    pub(crate) fn rung(&self, rung: SegmentDoorbells) {
        let mut state = self.state.lock();
        state
            .segments
            .rung(rung, |segment| segment.events.ring(&segment.doorbell));
    }

    /// Ends the mappings of the segment of `peer` at `offset`. When this returns, no process here
    /// writes it any more.
    pub(crate) fn gone(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64) {
        let Ok(place) = usize::try_from(offset) else {
            return;
        };
        let mut state = self.state.lock();
        let mut count = 0;
        state.segments.at(peer, place, |segment| {
            // A late message about an earlier segment says nothing about a ring in its place.
            if segment.role == Role::Attached {
                count += u32::from(segment.revoke(ctx));
            }
        });
        if count > 0 {
            state.give_back(ctx, peer, offset, count);
        }
    }

    /// Handles the return of `count` offers of this node's segment at `offset` by `peer`.
    pub(crate) fn left(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64, count: u32) {
        let Ok(offset) = usize::try_from(offset) else {
            return;
        };
        let mut state = self.state.lock();
        state
            .segments
            .at(ctx.hw.geometry().node, offset, |segment| {
                let is_created = matches!(segment.role, Role::Created(_));
                if is_created && segment.peer == peer && segment.is_offered() {
                    let offers = segment.offers.load(Relaxed).saturating_sub(count);
                    segment.offers.store(offers, Relaxed);
                    segment.events.ring(&segment.doorbell);
                }
            });
        ctx.window_alloc.given_back(peer, offset, count);
    }

    /// Ends a session with `peer`. When this returns, no process here writes its segments any more,
    /// and no offer of that session is used later.
    pub(crate) fn revoke(&self, ctx: &SegmentCtx<'_>, peer: u32) {
        let mut state = self.state.lock();
        let place = usize::try_from(peer).ok();
        if let Some(epoch) = place.and_then(|place| state.epochs.get_mut(place)) {
            *epoch = Epoch(epoch.0.wrapping_add(1));
        }
        if let Some(unreported) = place.and_then(|place| state.unreported.get_mut(place)) {
            unreported.clear();
        }
        state.segments.of_node(peer, |segment| {
            segment.revoke(ctx);
        });
        state.ring_created(peer, |_| ());
    }

    /// Drops all offers to `peer`, since it began a new session.
    pub(crate) fn peer_began(&self, peer: u32) {
        let state = self.state.lock();
        state.ring_created(peer, |segment| segment.offers.store(0, Relaxed));
    }

    /// Sends messages that did not fit before.
    pub(crate) fn resend(&self, ctx: &SegmentCtx<'_>) {
        if !self.has_unreported.load(Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let Some(guard) = ctx.gate.enter() else {
            return;
        };
        let hw = guard.hw();
        for peer in ctx.link.peers() {
            let place = usize::try_from(peer.node()).ok();
            if let Some(unreported) = place.and_then(|place| state.unreported.get_mut(place)) {
                unreported.send(|message| peer.send(hw, message));
            }
        }
        let has_unreported = state
            .unreported
            .iter()
            .any(|unreported| unreported.len() > 0);
        self.has_unreported.store(has_unreported, Relaxed);
    }

    /// Returns the number of messages that wait for room in the ring of a peer.
    pub(crate) fn unreported(&self) -> usize {
        self.state
            .lock()
            .unreported
            .iter()
            .map(Unreported::len)
            .sum()
    }
}
