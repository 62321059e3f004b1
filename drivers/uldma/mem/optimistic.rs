// SPDX-License-Identifier: GPL-2.0

//! Memory that the device can access while it is there, and that nothing pins: see
//! `Documentation/uldma/optimistic.rst`.
//!
//! An [area](area) has page entries for a range of addresses. It [enters](fill) what is mapped when the
//! device has missed it, and a notification of a change takes it out again.

use kernel::{
    device::{
        Bound,
        Device, //
    },
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
        Mutex, //
    }, //
};

use crate::{
    hw::{
        gate::Gate,
        layout::PageRequest,
        page_requests::{
            PageAnswer,
            PageRequests,
            Ticket, //
        },
        Geometry,
        Hardware,
        Hw, //
    },
    kernel_ext::{
        dma,
        mmu_notifier::IntervalNotifier, //
    },
    mem::{
        lmm::space::Space,
        tpt::{
            Proof,
            Tpt, //
        }, //
    },
    params, //
};

pub(crate) mod ageing;
pub(crate) mod area;
mod clock;
pub(crate) mod fill;

use area::Area;
use clock::Clock;
use fill::Miss;

/// The memory of an area's place.
type Room = RBTreeNodeReservation<u32, IntervalNotifier<Area>>;

/// Counters of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests of the device for pages.
    pub(crate) requests: u64,
    /// Those of them that named no page of an area, or came while many waited.
    pub(crate) dropped: u64,
    /// Answers to transfers that wait.
    pub(crate) answered: u64,
    /// Pages that were entered.
    pub(crate) filled: u64,
    /// Pages that were mapped in their process for that.
    pub(crate) faulted: u64,
    /// Pages that were taken out.
    pub(crate) ended: u64,
    /// Those of them that made room for others.
    pub(crate) evicted: u64,
    /// How often the memory manager was told that the device has accessed pages.
    pub(crate) told: u64,
    /// Pages that are entered now.
    pub(crate) entered: usize,
    /// Maximum of them.
    pub(crate) limit: usize,
}

/// The areas of one device.
#[pin_data]
pub(crate) struct Optimistic {
    /// Closed once the device does no DMA any more. Notifications come until then, also to the thread that
    /// unbinds the device, when it allocates memory.
    pub(crate) gate: Arc<Gate>,
    /// By the number of the last page entry.
    #[pin]
    areas: Mutex<RBTree<u32, IntervalNotifier<Area>>>,
    /// None if the device requests no pages, or is unbound.
    #[pin]
    requests: Mutex<Option<PageRequests>>,
    clock: Clock,
    requested: Atomic<u64>,
    dropped: Atomic<u64>,
    answered: Atomic<u64>,
    filled: Atomic<u64>,
    faulted: Atomic<u64>,
    ended: Atomic<u64>,
    told: Atomic<u64>,
}

impl Optimistic {
    /// Creates the state of a device without areas.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new<'a>(
        dev: &'a Device<Bound>,
        hw: Arc<dyn Hardware>,
    ) -> impl PinInit<Self, Error> + 'a {
        pin_init::pin_init_scope(move || {
            let limit = entries_of(dev, hw.geometry())?;
            let requests = hw.geometry().is_optimistic.then(|| PageRequests::new(dev));
            let requests = requests.transpose()?;
            Ok(try_pin_init!(Self {
                gate: Arc::pin_init(Gate::new(dev, hw), GFP_KERNEL)?,
                areas <- new_mutex!(RBTree::new(), "uldma::Optimistic::areas"),
                requests <- new_mutex!(requests, "uldma::Optimistic::requests"),
                clock: Clock::new(limit),
                requested: Atomic::new(0),
                dropped: Atomic::new(0),
                answered: Atomic::new(0),
                filled: Atomic::new(0),
                faulted: Atomic::new(0),
                ended: Atomic::new(0),
                told: Atomic::new(0),
            }))
        })
    }

    /// Bus address of the page where the device requests pages, or 0.
    pub(crate) fn address(&self) -> u64 {
        let requests = self.requests.lock();
        requests.as_ref().map_or(0, PageRequests::address)
    }

    /// Returns the memory to add an area.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn room(&self) -> Result<Room> {
        RBTreeNodeReservation::new(GFP_KERNEL)
    }

    /// Adds an area, which the device can miss from here on. The caller is inside of the device's gate.
    fn add(&self, room: Room, area: &IntervalNotifier<Area>) {
        let node = room.into_node(area.watcher().last_index(), area.clone());
        self.areas.lock().insert(node);
    }

    /// Removes an area.
    fn remove(&self, area: &Area) {
        let removed = self.areas.lock().remove(&area.last_index());
        drop(removed);
    }

    /// Returns the area of a page entry, and the page's number in it.
    fn find(&self, index: u32) -> Option<(IntervalNotifier<Area>, usize)> {
        let areas = self.areas.lock();
        let area = areas.cursor_lower_bound(&index)?.current().1.clone();
        let number = area.watcher().number_of(index)?;
        Some((area, number))
    }

    /// Queues the device's requests for the work items that fill areas, and waits for none.
    pub(crate) fn handle_requests(&self, tpt: &Tpt, hw: Hw<'_>) {
        let before = self.answered.load(Relaxed);
        let mut requests = self.requests.lock();
        if let Some(requests) = &mut *requests {
            requests.take_new(|request, ticket| self.handle(request, ticket));
        }
        drop(requests);
        if self.answered.load(Relaxed) != before {
            tpt.read_answers(hw, false);
        }
    }

    /// Returns the answer that can be given at once, if there is one.
    fn handle(&self, request: &PageRequest, ticket: Ticket) -> Option<PageAnswer> {
        self.requested.fetch_add(1, Relaxed);
        let waits = request.kind == PageRequest::WAIT;
        let missed = self.find(request.index).ok_or(EFAULT);
        let queued = missed.and_then(|(area, first)| {
            let ticket = waits.then_some(ticket);
            fill::request(Miss::new(area, first, request, ticket)?)
        });
        if queued.is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        match (queued, waits) {
            (Ok(()), true) => None,
            (_, false) => Some(PageAnswer::FREE),
            (Err(err), true) => {
                self.answered.fetch_add(1, Relaxed);
                Some(fill::answer_of(Err(err)))
            }
        }
    }

    /// Stores the answer to a transfer that waits. The device reads it when it is told to.
    fn answer(&self, ticket: Ticket, answer: PageAnswer) {
        self.answered.fetch_add(1, Relaxed);
        if let Some(requests) = &*self.requests.lock() {
            requests.answer(ticket, answer);
        }
    }

    /// Counts pages of `space` that were taken out, and makes room for others.
    fn count_ended(&self, space: &Space, pages: usize) {
        // A usize has 64 bits where this driver can be built.
        self.ended.fetch_add(pages as u64, Relaxed);
        self.clock.give_back(&space.filler().entered, pages);
    }

    /// Counts that the memory manager was told of accesses.
    fn count_told(&self) {
        self.told.fetch_add(1, Relaxed);
    }

    /// Returns the counters.
    pub(crate) fn counts(&self) -> Counts {
        let (entered, limit) = self.clock.entered();
        Counts {
            requests: self.requested.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            answered: self.answered.load(Relaxed),
            filled: self.filled.load(Relaxed),
            faulted: self.faulted.load(Relaxed),
            ended: self.ended.load(Relaxed),
            evicted: self.clock.evicted(),
            told: self.told.load(Relaxed),
            entered,
            limit,
        }
    }

    /// Takes out all pages, and ends all areas. The device does no DMA any more, and no area is added.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>, proof: &Proof) {
        let next = || {
            let mut areas = self.areas.lock();
            let (_, node) = areas.cursor_front_mut()?.remove_current();
            Some(node.to_key_value().1)
        };
        while let Some(area) = next() {
            area.watcher().tear_down(dev, proof);
        }
        let requests = self.requests.lock().take();
        drop(requests);
    }
}

/// Returns how many pages may be entered at a time.
fn entries_of(dev: &Device<Bound>, geometry: &Geometry) -> Result<usize> {
    /// With an IOMMU, whose address space has other users.
    const SCARCE: usize = 16384;
    Ok(match params::optimistic_entries() {
        0 if dma::needs_unmapping(dev) => SCARCE,
        0 => usize::try_from(geometry.page_capacity)?,
        entries => entries,
    })
}
