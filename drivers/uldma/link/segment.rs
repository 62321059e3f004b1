// SPDX-License-Identifier: GPL-2.0

//! Window segments: ranges of the own section that a process here reads and a process at a peer
//! writes.
//!
//! A range is freed only when no peer can write it any more. Each answer with the location of a
//! segment counts as an *offer*. The peer returns each offer in the end, used or not, or begins a
//! new session, before which it revokes all mappings. A range with offers outstanding when its
//! segment ends is *leaving* until then.

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
    hw::{
        layout::MAX_NODES,
        Hardware,
        Hw,
        SegmentDoorbells, //
    },
    kernel_ext::{
        dma::SharedPage,
        errno::{
            enotconn,
            eproto,
            estale, //
        },
        gate::Gate,
        nospec, //
    },
    link::{
        message::CreatedSegment,
        window_alloc::{
            WindowAllocator, //
            WindowRange,
        },
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
        }, //
    }, //
};

mod unreported;

use unreported::{
    Note,
    Unreported, //
};

/// The role of this node in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The reader, which created the segment under a name, for all peers or one.
    Created(u64, Option<u32>),
    /// The writer, which is attached to a segment of this peer.
    Attached(u32),
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
    window: WindowRange,
    range: MmapRange,
    doorbell: Arc<DoorbellEvent>,
    events: Arc<Events>,
    offers: Offers,
    _share: Share,
}

/// Offers by peer. For a reader: the outstanding ones. For a writer: one while the mapping is
/// valid.
struct Offers([Atomic<u32>; MAX_NODES]);

impl Offers {
    fn of(peer: Option<u32>) -> Self {
        let offers = Self([const { Atomic::new(0) }; MAX_NODES]);
        if let Some(peer) = peer {
            offers.set(peer, 1);
        }
        offers
    }

    fn get(&self, peer: u32) -> u32 {
        let place = usize::try_from(peer).ok();
        let offers = place.and_then(|place| nospec::get(&self.0, place));
        offers.map_or(0, |offers| offers.load(Relaxed))
    }

    fn set(&self, peer: u32, count: u32) {
        let place = usize::try_from(peer).ok();
        if let Some(offers) = place.and_then(|place| nospec::get(&self.0, place)) {
            offers.store(count, Relaxed);
        }
    }

    fn all(&self) -> [u32; MAX_NODES] {
        self.0.each_ref().map(|offers| offers.load(Relaxed))
    }
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
    segments: KVec<Arc<Segment>>,
    /// Ranges of ended segments, and the number of outstanding offers by peer.
    leaving: KVec<(WindowRange, [u32; MAX_NODES])>,
    /// Messages that did not fit into the ring of a peer, by peer.
    unreported: [Unreported; MAX_NODES],
}

impl Segment {
    /// Creates a segment in a zeroed range of the own section for open file `open_file`, to which
    /// one peer or all may attach. `payer` pays for the range.
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
        (name, peer): (u64, Option<u32>),
        length: u64,
    ) -> Result<Arc<Self>> {
        if name == 0 {
            return Err(EINVAL);
        }
        let share = Share::new(payer, Resource::Objects, 1)?;
        let window = ctx.window_alloc.alloc(payer, length)?;
        let segment = zero(ctx, window).and_then(|()| {
            let mut state = ctx.segments.state.lock();
            if state.created(name).is_some() {
                return Err(EEXIST);
            }
            state.insert(|| {
                Self::new(
                    ctx,
                    (open_file, share),
                    events,
                    handle,
                    Role::Created(name, peer),
                    window,
                )
            })
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
        let size = ctx.hw.geometry().window_size;
        let window = WindowRange::of_peer(offered.offset, offered.length, size)?;
        // Held until the segment is inserted, so that the session cannot end in between.
        let mut state = ctx.segments.state.lock();
        if state.epoch(peer) != epoch {
            return Err(estale());
        }
        state
            .insert(|| Self::new(ctx, owner, events, handle, Role::Attached(peer), window))
            .inspect_err(|_| state.give_back(ctx, peer, offered.offset))
    }

    fn new(
        ctx: &SegmentCtx<'_>,
        (open_file, share): (u64, Share),
        events: &Arc<Events>,
        handle: u32,
        role: Role,
        window: WindowRange,
    ) -> Result<Arc<Self>> {
        let (backing, peer) = match role {
            Role::Created(..) => {
                let own = ctx.hw.geometry().node;
                (Backing::Inbound(own, window.offset()), None)
            }
            Role::Attached(peer) => {
                let sink = Arc::new(SharedPage::new()?, GFP_KERNEL_ACCOUNT)?;
                (Backing::Outbound(peer, window.offset(), sink), Some(peer))
            }
        };
        let doorbell = events.add_doorbell(handle)?;
        let segment = ctx
            .mmap_offsets
            .add(open_file, window.pages(), backing, true)
            .and_then(|range| {
                let segment = Self {
                    role,
                    window,
                    range,
                    doorbell: doorbell.clone(),
                    events: events.clone(),
                    offers: Offers::of(peer),
                    _share: share,
                };
                Arc::new(segment, GFP_KERNEL_ACCOUNT).map_err(|err| {
                    ctx.mmap_offsets.remove(range);
                    err.into()
                })
            });
        if segment.is_err() {
            events.remove_doorbell(&doorbell);
        }
        segment
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
        match self.role {
            Role::Attached(peer) if self.offers.get(peer) == 0 => return Err(estale()),
            Role::Attached(_) | Role::Created(..) => (),
        }
        if !ctx.link.is_up() {
            return Err(enotconn());
        }
        // Offers may end meanwhile. A segment that has none left has nothing to ring for.
        let (mut rung, mut is_missed) = (false, false);
        for peer in ctx.link.peers() {
            if self.offers.get(peer.node()) > 0 {
                if !peer.is_up() {
                    is_missed = true;
                    continue;
                }
                Hw::new(guard.dev(), ctx.hw).ring_segment(peer.node(), self.window.doorbell())?;
                rung = true;
            }
        }
        if is_missed && !rung {
            return Err(enotconn());
        }
        Ok(())
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
        state.segments.retain(|other| !Arc::ptr_eq(other, this));
        let offers = this.offers.all();
        let Ok(offset) = u64::try_from(this.window.offset()) else {
            return;
        };
        match this.role {
            Role::Created(..) if offers == [0; MAX_NODES] => ctx.window_alloc.free(this.window),
            Role::Created(..) => {
                // Without memory the range is never used again, which is safe.
                let _ = state.leaving.push((this.window, offers), GFP_KERNEL);
                for peer in ctx.link.peers() {
                    if this.offers.get(peer.node()) > 0 {
                        state.notify(ctx, peer.node(), Note::Gone(offset));
                    }
                }
            }
            Role::Attached(peer) if this.offers.get(peer) == 0 => (),
            Role::Attached(peer) => state.give_back(ctx, peer, offset),
        }
    }
}

impl Segment {
    fn is_created(&self) -> bool {
        matches!(self.role, Role::Created(..))
    }
}

/// Zeroes a range, which another segment may have used.
fn zero(ctx: &SegmentCtx<'_>, window: WindowRange) -> Result {
    let guard = ctx.gate.try_enter()?;
    Hw::new(guard.dev(), ctx.hw).zero_window(window.offset(), window.length())
}

impl SegmentsState {
    fn created(&self, name: u64) -> Option<&Arc<Segment>> {
        let mut segments = self.segments.iter();
        segments.find(|segment| matches!(segment.role, Role::Created(other, _) if other == name))
    }

    /// Adds the segment that `make` creates.
    fn insert(&mut self, make: impl FnOnce() -> Result<Arc<Segment>>) -> Result<Arc<Segment>> {
        self.segments.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let segment = make()?;
        // There is room for one more.
        self.segments.push(segment.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(segment)
    }

    /// Returns the epoch of the session with `peer`.
    fn epoch(&self, peer: u32) -> Epoch {
        let place = usize::try_from(peer).ok();
        let epoch = place.and_then(|place| nospec::get(&self.epochs, place));
        epoch.copied().unwrap_or(Epoch(0))
    }

    /// Sends a message to `peer`, now or when the ring has room.
    fn notify(&mut self, ctx: &SegmentCtx<'_>, peer: u32, note: Note) {
        // Without a session the message is not needed: a new session revokes everything.
        let Some(guard) = ctx.gate.enter() else {
            return;
        };
        let Ok(to) = ctx.link.peer(peer) else {
            return;
        };
        let place = usize::try_from(peer).ok();
        let Some(unreported) = place.and_then(|place| self.unreported.get_mut(place)) else {
            return;
        };
        let hw = Hw::new(guard.dev(), ctx.hw);
        let full = unreported.len() > 0 || to.send(hw, &note.message()) == Err(EBUSY);
        if full {
            ctx.segments.has_unreported.store(true, Relaxed);
            // A message that is lost for lack of memory costs a range of the window until the next
            // session.
            if unreported.add(note) == Err(eproto()) {
                to.mark_broken();
            }
        }
    }

    /// Returns one offer of `peer`.
    fn give_back(&mut self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64) {
        self.notify(ctx, peer, Note::Left(offset, 1));
    }

    /// Revokes the mappings of segments that are attached to those of `peer`. Returns their number.
    fn end_attached(
        &self,
        ctx: &SegmentCtx<'_>,
        peer: u32,
        which: impl Fn(WindowRange) -> bool,
    ) -> u32 {
        let mut ended = 0;
        for segment in &self.segments {
            if segment.role == Role::Attached(peer)
                && which(segment.window)
                && segment.offers.get(peer) != 0
            {
                segment.offers.set(peer, 0);
                ctx.mmap_offsets.revoke(segment.range);
                segment.events.end(&segment.doorbell);
                ended += 1;
            }
        }
        ended
    }
}

impl SegmentsState {
    /// Changes the outstanding offers of ended segments to `peer`, and frees ranges without any.
    fn forget_offers(
        &mut self,
        ctx: &SegmentCtx<'_>,
        peer: u32,
        change: impl Fn(WindowRange, u32) -> u32,
    ) {
        self.leaving.retain(|(window, offers)| {
            let place = usize::try_from(peer).ok();
            if let Some(count) = place.and_then(|place| offers.get_mut(place)) {
                *count = change(*window, *count);
            }
            let left = *offers != [0; MAX_NODES];
            if !left {
                ctx.window_alloc.free(*window);
            }
            left
        });
    }
}

fn is_at(window: WindowRange, offset: u64) -> bool {
    u64::try_from(window.offset()) == Ok(offset)
}

impl Segments {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = SegmentsState {
            epochs: [Epoch(0); MAX_NODES],
            segments: KVec::new(),
            leaving: KVec::new(),
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
        let segment = state.created(name)?;
        if matches!(segment.role, Role::Created(_, Some(only)) if only != peer) {
            return None;
        }
        let offers = segment.offers.get(peer).checked_add(1)?;
        segment.offers.set(peer, offers);
        Some(CreatedSegment {
            offset: u64::try_from(segment.window.offset()).ok()?,
            length: u64::try_from(segment.window.length()).ok()?,
        })
    }

    /// Returns an offer of `peer`, of epoch `epoch`, that is not used.
    pub(crate) fn decline(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64, epoch: Epoch) {
        let mut state = self.state.lock();
        if state.epoch(peer) == epoch {
            state.give_back(ctx, peer, offset);
        }
    }

    /// Wakes the programs of all segments whose doorbells may have rung.
    pub(crate) fn rung(&self, rung: SegmentDoorbells) {
        for segment in &self.state.lock().segments {
            if segment.window.doorbell().meet(rung) {
                segment.events.ring(&segment.doorbell);
            }
        }
    }

    /// Ends the mappings of the segment of `peer` at `offset`. When this returns, no process here
    /// writes it any more.
    pub(crate) fn gone(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64) {
        let mut state = self.state.lock();
        let count = state.end_attached(ctx, peer, |window| is_at(window, offset));
        if count > 0 {
            state.notify(ctx, peer, Note::Left(offset, count));
        }
    }

    /// Handles the return of `count` offers of this node's segment at `offset` by `peer`.
    pub(crate) fn left(&self, ctx: &SegmentCtx<'_>, peer: u32, offset: u64, count: u32) {
        let mut state = self.state.lock();
        for segment in &state.segments {
            let is_meant = segment.is_created() && is_at(segment.window, offset);
            if is_meant && segment.offers.get(peer) > 0 {
                let offers = segment.offers.get(peer).saturating_sub(count);
                segment.offers.set(peer, offers);
                segment.events.ring(&segment.doorbell);
            }
        }
        state.forget_offers(ctx, peer, |window, offers| {
            if is_at(window, offset) {
                offers.saturating_sub(count)
            } else {
                offers
            }
        });
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
        state.end_attached(ctx, peer, |_| true);
        for segment in &state.segments {
            if segment.is_created() {
                segment.events.ring(&segment.doorbell);
            }
        }
    }

    /// Drops all offers to `peer`, since it began a new session.
    pub(crate) fn peer_began(&self, ctx: &SegmentCtx<'_>, peer: u32) {
        let mut state = self.state.lock();
        for segment in &state.segments {
            if segment.is_created() {
                segment.offers.set(peer, 0);
                segment.events.ring(&segment.doorbell);
            }
        }
        state.forget_offers(ctx, peer, |_, _| 0);
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
        let hw = Hw::new(guard.dev(), ctx.hw);
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
