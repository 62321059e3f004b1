// SPDX-License-Identifier: GPL-2.0

//! Entering pages that the device has missed, and answering the transfers that wait for them.
//!
//! Each space has a work item, which looks up what is mapped, and has mapped what is not, as far as the area
//! allows: for that it waits for `mmap_lock`, for changes and for I/O, as long as the process likes. So
//! nothing waits for it but transfers for a limited time, and what waits for it is bounded.

use kernel::{
    alloc::kvec::PushError,
    impl_has_work,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    hw::{
        layout::{
            PageRequest,
            MAX_NODES, //
        },
        page_requests::{
            PageAnswer,
            Ticket, //
        },
    },
    kernel_ext::{
        hmm::Snapshot,
        mmu_notifier::IntervalNotifier,
        workqueue, //
    },
    mem::lmm::space::Space,
    uapi, //
};

use super::area::Area;

/// Maximum number of misses of one node in a space that wait.
const MOST_OF_NODE: usize = 8;

/// Maximum number of misses of a space that wait.
const MOST_MISSES: usize = MOST_OF_NODE * MAX_NODES;

/// Maximum number of pages of one miss.
pub(super) const MOST_PAGES: usize = PageRequest::MOST_PAGES as usize;

/// How often a look-up is repeated that a change has met.
const ATTEMPTS: usize = 3;

/// Pages that the device has missed.
pub(crate) struct Miss {
    area: IntervalNotifier<Area>,
    first: usize,
    count: usize,
    for_write: bool,
    /// The node whose transfer has missed them.
    node: u16,
    /// The request of a transfer that waits.
    ticket: Option<Ticket>,
    /// True once no more than a fault can help.
    needs_fault: bool,
}

impl Miss {
    /// Returns the miss that `request` is about, whose first page is number `first` of `area`. Without a
    /// `ticket` nothing waits for it.
    ///
    /// # Errors
    ///
    /// `EFAULT` if it names no page of the area.
    pub(super) fn new(
        area: IntervalNotifier<Area>,
        first: usize,
        request: &PageRequest,
        ticket: Option<Ticket>,
    ) -> Result<Self> {
        let left = area.watcher().pages().checked_sub(first).ok_or(EFAULT)?;
        let count = usize::from(request.count).min(left).min(MOST_PAGES);
        if count == 0 {
            return Err(EFAULT);
        }
        Ok(Self {
            area,
            first,
            count,
            for_write: request.need & PageRequest::WRITE != 0,
            node: request.node,
            ticket,
            needs_fault: false,
        })
    }

    /// Finds what is mapped now.
    fn look(&self) -> Result<Snapshot<MOST_PAGES>> {
        let address = self.area.watcher().address_of(self.first);
        for _ in 1..ATTEMPTS {
            match Snapshot::take(&self.area, address, self.count) {
                Err(EBUSY) => {}
                found => return found,
            }
        }
        Snapshot::take(&self.area, address, self.count)
    }

    /// Enters the pages that are mapped now. Returns how many of the first ones the device can use.
    ///
    /// # Errors
    ///
    /// That of the first page if it cannot: `EAGAIN` if it is not mapped so; `EREMOTEIO` if the device
    /// cannot access it. `EBUSY` if the addresses change all the time; `ESRCH` if the address space has
    /// ended, `ENODEV` if the device is unbound.
    fn enter(&self) -> Result<u16> {
        let area = self.area.watcher();
        for _ in 0..ATTEMPTS {
            let found = self.look()?;
            // What is not mapped takes no room, and no memory of the driver.
            let mapped = self.count - found.lacking(false).count();
            if mapped == 0 {
                return Err(EAGAIN);
            }
            let device = area.space.access();
            let guard = device.gate.try_enter()?;
            let hw = guard.hw();
            area.make_block(&device, hw, self.first)?;
            let optimistic = device.optimistic;
            let mut room = optimistic.take_room((&device, hw), &area.space, mapped)?;
            let (mut usable, mut end) = (0, Ok(()));
            let mut entries = area.entries.lock();
            let is_current = found.if_current(&self.area, &mut *entries, |entries, pages| {
                for (number, page) in (self.first..).zip(pages) {
                    let is_enough = page.is_some_and(|it| it.is_writable || !self.for_write);
                    let entered = page.ok_or(EAGAIN).and_then(|page| {
                        // A page that the device cannot have is missed again.
                        if area.enter(entries, (&device, hw), number, &page)? {
                            room.use_one();
                        }
                        optimistic.filled.fetch_add(1, Relaxed);
                        is_enough.then_some(()).ok_or(EAGAIN)
                    });
                    end = end.and(entered);
                    usable += u16::from(end.is_ok());
                }
            });
            match (is_current, usable) {
                (true, 0) => return end.and(Err(EAGAIN)),
                (true, usable) => return Ok(usable),
                (false, _) => {}
            }
        }
        Err(EBUSY)
    }

    /// Has the pages mapped that are not, as far as the area allows and up to the first where that fails.
    ///
    /// # Errors
    ///
    /// Those of [`Fault::map`](crate::kernel_ext::hmm::Fault::map) for the first page.
    fn fault(&self) -> Result {
        let area = self.area.watcher();
        let fault = area.fault.ok_or(EAGAIN)?;
        for (number, is_mapped) in self.look()?.lacking(self.for_write) {
            let address = area.address_of(self.first + number);
            match fault.map(&self.area, address, self.for_write, is_mapped) {
                Ok(()) => {}
                Err(err) if number == 0 => return Err(err),
                Err(_) => break,
            }
            area.space.access().optimistic.faulted.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Answers the transfer that waits. Returns the space, whose device has to read the answer then.
    fn answer(&self, result: Result<u16>) -> Option<&Arc<Space>> {
        let space = &self.area.watcher().space;
        let ticket = self.ticket?;
        let answer = answer_of(result);
        space.access().optimistic.answer(ticket, answer);
        Some(space)
    }
}

/// Returns the answer to a request of which some pages were entered, or not the first one.
pub(super) fn answer_of(result: Result<u16>) -> PageAnswer {
    let (filled, status) = match result {
        Ok(filled) => (filled, uapi::ULDMA_DMA_OK),
        Err(EAGAIN) => (0, uapi::ULDMA_DMA_NOT_RESIDENT),
        Err(EFAULT | ESRCH) => (0, uapi::ULDMA_DMA_NO_MAPPING),
        Err(EPERM) => (0, uapi::ULDMA_DMA_PAGE_RIGHT),
        Err(_) => (0, uapi::ULDMA_DMA_NOT_LOCKED),
    };
    PageAnswer {
        filled,
        // It has few values.
        status: status.try_into().unwrap_or(u16::MAX),
    }
}

/// Fills the areas of one space.
#[pin_data]
pub(crate) struct Filler {
    #[pin]
    misses: SpinLock<KVec<Miss>>,
    /// Pages of the space that are entered.
    pub(super) entered: Atomic<usize>,
    #[pin]
    work: Work<Filler>,
}

impl_has_work! {
    impl HasWork<Self> for Filler { self.work }
}

impl Filler {
    /// Creates one that has nothing to do.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let misses = KVec::with_capacity(MOST_MISSES, GFP_KERNEL)?;
        let filler = pin_init!(Self {
            misses <- new_spinlock!(misses, "uldma::Filler::misses"),
            entered: Atomic::new(0),
            work <- new_work!("uldma::Filler::work"),
        });
        Arc::pin_init(filler, GFP_KERNEL)
    }
}

/// Has the pages of `miss` entered, and a transfer that waits answered.
///
/// # Errors
///
/// `EBUSY` if too many wait.
pub(super) fn request(miss: Miss) -> Result {
    // Without it the module ends.
    let queue = workqueue::waiting().ok_or(EBUSY)?;
    let filler = miss.area.watcher().space.filler().clone();
    filler.add(miss)?;
    // If it is queued already, it has not begun yet.
    let _ = queue.enqueue(filler);
    Ok(())
}

impl Filler {
    fn add(&self, miss: Miss) -> Result {
        let mut misses = self.misses.lock();
        let of_node = misses.iter().filter(|it| it.node == miss.node);
        if of_node.count() >= MOST_OF_NODE {
            return Err(EBUSY);
        }
        misses.push_within_capacity(miss).map_err(|_| EBUSY)
    }

    /// Enters what is mapped. What needs a fault is added once more, so that it waits for all others.
    fn handle(&self, mut miss: Miss) -> Option<Arc<Space>> {
        let result = match miss.needs_fault {
            true => miss.fault().and_then(|()| miss.enter()),
            false => miss.enter(),
        };
        let area = miss.area.watcher();
        if result != Err(EAGAIN) || area.fault.is_none() || miss.needs_fault {
            return miss.answer(result).cloned();
        }
        miss.needs_fault = true;
        let failed = self.misses.lock().push_within_capacity(miss).err();
        let PushError(miss) = failed?;
        miss.answer(Err(EBUSY)).cloned()
    }
}

/// Has the device of a space read the answers, if there are new ones.
fn read_answers(answered: &mut Option<Arc<Space>>) {
    if let Some(space) = answered.take() {
        let device = space.access();
        if let Some(guard) = device.gate.enter() {
            let hw = guard.hw();
            device.tpt.read_answers(hw, true);
        }
    }
}

impl WorkItem for Filler {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let next = || this.misses.lock().remove(0);
        let mut answered = None;
        while let Ok(miss) = next() {
            if miss.needs_fault {
                // It may take long.
                read_answers(&mut answered);
            }
            answered = this.handle(miss).or(answered);
        }
        read_answers(&mut answered);
    }
}
