// SPDX-License-Identifier: GPL-2.0

//! A queue of descriptors of the kernel, for copies between nodes and for invalidations. Submission
//! takes no register access while the device polls the queue.

use core::mem::offset_of;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use crate::{
    dma::method::Method,
    hw::{
        self,
        layout::{
            DescriptorFlags as Flags,
            DescriptorHead,
            DescriptorRegions,
            PeerLink,
            OP_INVALIDATE,
            OP_PAGED, //
        },
        wait,
        Command,
        ContextSetup,
        Hw,
        PeerRegionOffset, //
    },
    kernel_ext::{
        dma::{
            self,
            SharedPage, //
        },
        window, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    },
    user_abi::status_page::{
        Outcome,
        StatusPage, //
    }, //
};

mod measure;
pub(super) mod tickets;

/// Number of descriptors in the page; the same as `ULDMA_STATUS_RECORDS`.
const DEPTH: usize = uapi::ULDMA_STATUS_RECORDS as usize;

/// The outcome of a command without a completion record.
const ABORTED: Outcome = Outcome {
    bytes: 0,
    status: uapi::ULDMA_DMA_ABORTED,
};

/// The waiter of a ticket.
enum Waiter<T> {
    None,
    /// A waiter that [`Queue::reap`] passes to its caller.
    Queued(T),
    /// A caller that polls; the slot is not reused until it has taken the outcome.
    Sync,
    /// The outcome for that caller.
    Done(Outcome),
}

/// The slot of a ticket.
struct Slot<T> {
    waiter: Waiter<T>,
    /// The outcome of the command, copied because the device may overwrite its record later.
    outcome: Outcome,
}

struct QueueState<T> {
    /// By ticket modulo the depth; empty after the queue was torn down.
    slots: KVec<Slot<T>>,
    /// Last submitted ticket.
    submitted: u64,
    /// Last ticket whose outcome was copied.
    seen: u64,
    /// Last reaped ticket.
    ended: u64,
    /// Bus addresses of the pages, until the queue is torn down.
    mapped: Option<(DmaAddress, DmaAddress)>,
}

impl<T> Slot<T> {
    const EMPTY: Self = Self {
        waiter: Waiter::None,
        outcome: ABORTED,
    };

    /// Notes the outcome of the command.
    fn ended(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if matches!(self.waiter, Waiter::Sync) {
            self.waiter = Waiter::Done(outcome);
        }
    }

    /// Takes the queued waiter, if there is one.
    fn take_queued(&mut self) -> Option<T> {
        match core::mem::replace(&mut self.waiter, Waiter::None) {
            Waiter::Queued(waiter) => Some(waiter),
            other => {
                self.waiter = other;
                None
            }
        }
    }

    fn is_free(&self) -> bool {
        !matches!(self.waiter, Waiter::Sync | Waiter::Done(_))
    }
}

impl<T> QueueState<T> {
    /// Reaps completed commands without waiters, up to the first with one. So callers that poll
    /// need no worker that reaps.
    fn reap_unwaited(&mut self) {
        while self.ended < self.seen {
            let next = self.ended + 1;
            match self.slot(next).map(|slot| &slot.waiter) {
                Some(Waiter::None) => self.ended = next,
                _ => return,
            }
        }
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot<T>> {
        self.slots.get_mut(slot_of(ticket))
    }
}

/// A queue of the kernel; `T` is the waiter of a command.
#[pin_data]
pub(crate) struct Queue<T> {
    context: u32,
    page: StatusPage,
    descriptors: SharedPage,
    #[pin]
    state: Mutex<QueueState<T>>,
}

fn slot_of(ticket: u64) -> usize {
    // The remainder is less than the depth, which is a usize.
    (ticket % DEPTH as u64) as usize
}

impl<T: Unpin> Queue<T> {
    /// Creates the queue of `context`, which works after [`Queue::enable`].
    pub(crate) fn new(context: u32) -> Result<impl PinInit<Self>> {
        let page = StatusPage::new()?;
        let descriptors = SharedPage::new()?;
        // Too much for a stack.
        let mut slots = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            slots.push(Slot::EMPTY, GFP_KERNEL)?;
        }
        let state = QueueState {
            slots,
            submitted: 0,
            seen: 0,
            ended: 0,
            mapped: None,
        };
        Ok(pin_init!(Self {
            context,
            page,
            descriptors,
            state <- new_mutex!(state, "uldma::Queue::state"),
        }))
    }

    /// Enables the context of the queue.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        let status_page = self.page.map(hw.dev())?;
        let queue = self
            .descriptors
            .map(hw.dev())
            .inspect_err(|_| dma::unmap(hw.dev(), status_page))?;
        state.mapped = Some((status_page, queue));
        let setup = ContextSetup {
            status_page,
            queue,
            methods: Method::QUEUE.bit(),
            privileged: true,
            ..ContextSetup::default()
        };
        hw.enable_context(self.context, &setup)
    }

    /// Unmaps the pages, which the device does not use any more, and passes all queued waiters to
    /// `end`.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>, mut end: impl FnMut(T)) {
        let mut slots = {
            let mut state = self.state.lock();
            if let Some((status_page, queue)) = state.mapped.take() {
                dma::unmap(dev, status_page);
                dma::unmap(dev, queue);
            }
            state.seen = state.submitted;
            state.ended = state.submitted;
            core::mem::take(&mut state.slots)
        };
        slots
            .iter_mut()
            .filter_map(Slot::take_queued)
            .for_each(&mut end);
    }

    /// Submits a command. [`Queue::reap`] returns `waiter` when it has completed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, `ENODEV` if it was torn down.
    pub(crate) fn submit(&self, hw: Hw<'_>, command: &Command, waiter: T) -> Result {
        self.submit_for(hw, command, Waiter::Queued(waiter))
            .map(drop)
    }

    /// Submits a command whose outcome tells nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`].
    pub(crate) fn post(&self, hw: Hw<'_>, command: &Command) -> Result {
        {
            let mut state = self.state.lock();
            self.collect(&mut state);
            state.reap_unwaited();
        }
        self.submit_for(hw, command, Waiter::None).map(drop)
    }

    fn submit_for(&self, hw: Hw<'_>, command: &Command, waiter: Waiter<T>) -> Result<u64> {
        let mut state = self.state.lock();
        if state.mapped.is_none() {
            return Err(ENODEV);
        }
        let ticket = self.enqueue(&mut state, command, waiter)?;
        window::full_fence();
        if self.page.is_asleep() {
            hw.wake_context(self.context)?;
        }
        Ok(ticket)
    }

    /// Writes a command to the next slot. Returns its ticket.
    fn enqueue(
        &self,
        state: &mut QueueState<T>,
        command: &Command,
        waiter: Waiter<T>,
    ) -> Result<u64> {
        let ticket = state.submitted + 1;
        if ticket - state.ended > DEPTH as u64 {
            return Err(EBUSY);
        }
        let slot = state.slot(ticket).filter(|slot| slot.is_free());
        let slot = slot.ok_or(EBUSY)?;
        self.write(ticket, command)?;
        slot.waiter = waiter;
        state.submitted = ticket;
        Ok(ticket)
    }

    /// Copies the outcomes of completed commands.
    fn collect(&self, state: &mut QueueState<T>) {
        // A device that reports wrong tickets cannot end commands that were not submitted.
        let completed = self.page.completed().min(state.submitted);
        while state.seen < completed {
            let ticket = state.seen + 1;
            let outcome = self.page.record(ticket).unwrap_or(ABORTED);
            state.seen = ticket;
            if let Some(slot) = state.slot(ticket) {
                slot.ended(outcome);
            }
        }
    }

    /// Writes the descriptor of `ticket`, the ticket last.
    fn write(&self, ticket: u64, command: &Command) -> Result {
        let base = slot_of(ticket) * size_of::<uldma_descriptor>();
        let put = |at: usize, value: u64| self.descriptors.write_u64(base + at, value);
        let peer = |slot: &PeerRegionOffset| {
            PeerLink::NONE
                .with(PeerLink::NODE, slot.node)
                .with(PeerLink::GENERATION, slot.link_generation)
        };
        let copy = uapi::ULDMA_OP_COPY;
        let (op, flags, src, dst, length, remote) = match *command {
            Command::Push { src, dst, length } => {
                let remote = (dst.generation, peer(&dst));
                (copy, Flags::DST_OF_PEER, src, dst.at, length, remote)
            }
            Command::Pull { src, dst, length } => {
                let remote = (src.generation, peer(&src));
                (copy, Flags::SRC_OF_PEER, src.at, dst, length, remote)
            }
            Command::Invalidate { region } => {
                let slot = hw::RegionOffset { region, offset: 0 };
                let remote = (0, PeerLink::NONE);
                (OP_INVALIDATE, Flags::NONE, slot, slot, 0, remote)
            }
            Command::ReadAnswers => {
                let slot = hw::RegionOffset {
                    region: 0,
                    offset: 0,
                };
                let remote = (0, PeerLink::NONE);
                (OP_PAGED, Flags::NONE, slot, slot, 0, remote)
            }
        };
        let head = DescriptorHead::NONE
            .with(DescriptorHead::OP, op)
            .with(DescriptorHead::FLAGS, flags.bits());
        let regions = DescriptorRegions::NONE
            .with(DescriptorRegions::SRC, src.region)
            .with(DescriptorRegions::DST, dst.region);
        // Two fields of 32 bits make one word, little-endian.
        put(offset_of!(uldma_descriptor, op), head.bits())?;
        put(offset_of!(uldma_descriptor, src), regions.bits())?;
        put(offset_of!(uldma_descriptor, src_offset), src.offset)?;
        put(offset_of!(uldma_descriptor, dst_offset), dst.offset)?;
        put(offset_of!(uldma_descriptor, length), length)?;
        put(offset_of!(uldma_descriptor, operand), remote.0)?;
        put(offset_of!(uldma_descriptor, compare), remote.1.bits())?;
        dma::wmb();
        put(offset_of!(uldma_descriptor, ticket), ticket)
    }

    /// Returns true if completed commands have not been reaped.
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.state.lock();
        // As in `collect`.
        self.page.completed().min(state.submitted) > state.ended
    }

    /// Returns true if commands are in flight or not reaped.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.submitted > state.ended
    }

    /// Passes the waiters of completed commands to `end`, in order. Returns true if any completed.
    pub(crate) fn reap(&self, mut end: impl FnMut(T, Outcome)) -> bool {
        let mut progress = false;
        loop {
            let (waiter, outcome) = {
                let mut state = self.state.lock();
                self.collect(&mut state);
                if state.ended >= state.seen {
                    return progress;
                }
                let ticket = state.ended + 1;
                state.ended = ticket;
                let Some(slot) = state.slot(ticket) else {
                    continue;
                };
                (slot.take_queued(), slot.outcome)
            };
            progress = true;
            if let Some(waiter) = waiter {
                end(waiter, outcome);
            }
        }
    }

    /// Requests an interrupt for the next completion.
    pub(crate) fn arm(&self, hw: Hw<'_>) -> Result {
        let ended = self.state.lock().ended;
        hw.arm_context(self.context, ended)
    }

    /// Invalidates `region` and waits for that; bounded, and without waiting while the device is
    /// sick.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EBUSY` if the queue is full, `ENODEV` if it was
    /// torn down, `EIO` if the command fails or the device was reset and has lost the queue.
    pub(crate) fn invalidate(&self, hw: Hw<'_>, region: u32) -> Result {
        hw.health().check()?;
        let command = Command::Invalidate { region };
        let ticket = self.submit_for(hw, &command, Waiter::Sync)?;
        let outcome = self.wait(hw, || Ok(self.answer(ticket)));
        if outcome.is_err() {
            self.cancel_wait(ticket);
        }
        outcome?.check()
    }

    /// Waits until the device has read all commands that were submitted before; bounded. It
    /// normally reads them at once, however long they take.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EIO` if it was reset and has lost the queue.
    pub(crate) fn wait_until_read(&self, hw: Hw<'_>) -> Result {
        let submitted = self.submitted();
        self.wait(hw, || {
            let is_read = self.completed() >= submitted || self.last_read(hw)? >= submitted;
            Ok(is_read.then_some(()))
        })
    }

    /// Waits until all commands that were submitted before have completed; bounded.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::wait_until_read`].
    pub(crate) fn wait_until_ended(&self, hw: Hw<'_>) -> Result {
        let submitted = self.submitted();
        self.wait(hw, || Ok((self.completed() >= submitted).then_some(())))
    }

    /// Returns the ticket of the command that was submitted last.
    pub(crate) fn submitted(&self) -> u64 {
        self.state.lock().submitted
    }

    /// Returns the ticket of the command that the device has read last.
    pub(crate) fn last_read(&self, hw: Hw<'_>) -> Result<u64> {
        hw.last_ticket(self.context)
    }

    /// Returns the ticket of the command that has completed last.
    pub(crate) fn completed(&self) -> u64 {
        self.page.completed()
    }

    fn wait<R>(&self, hw: Hw<'_>, ready: impl FnMut() -> Result<Option<R>>) -> Result<R> {
        wait::until(hw, || self.completed(), ready)
    }

    /// Takes the outcome for the caller that polls for `ticket`, if there is one.
    fn answer(&self, ticket: u64) -> Option<Outcome> {
        let mut state = self.state.lock();
        self.collect(&mut state);
        let slot = state.slot(ticket)?;
        let Waiter::Done(outcome) = slot.waiter else {
            return None;
        };
        slot.waiter = Waiter::None;
        state.reap_unwaited();
        Some(outcome)
    }

    /// Cancels the wait of the caller that polls for `ticket`.
    fn cancel_wait(&self, ticket: u64) {
        if let Some(slot) = self.state.lock().slot(ticket) {
            slot.waiter = Waiter::None;
        }
    }
}

#[kunit_tests(uldma_queue)]
mod tests {
    use super::*;

    const COMMAND: Command = Command::Invalidate { region: 1 };
    const OK: Outcome = Outcome {
        bytes: 0,
        status: uapi::ULDMA_DMA_OK,
    };

    fn queue() -> Result<Pin<KBox<Queue<u64>>>> {
        KBox::pin_init(Queue::new(1)?, GFP_KERNEL)
    }

    fn enqueue(queue: &Queue<u64>, waiter: Waiter<u64>) -> Result<u64> {
        queue.enqueue(&mut queue.state.lock(), &COMMAND, waiter)
    }

    /// Submits and completes `count` commands of other callers.
    fn pass(queue: &Queue<u64>, count: u64) -> Result {
        for _ in 0..count {
            let ticket = enqueue(queue, Waiter::Queued(7))?;
            queue.page.end_as_device(ticket, OK)?;
            queue.reap(|_, _| ());
        }
        Ok(())
    }

    #[test]
    fn forged_completions_are_no_news() -> Result {
        let queue = queue()?;
        let ticket = enqueue(&queue, Waiter::Queued(7))?;
        queue.page.end_as_device(ticket + 1000, OK)?;
        assert!(queue.has_ended());
        assert!(queue.reap(|_, _| ()));
        assert!(!queue.has_ended());
        assert!(!queue.reap(|_, _| ()));
        Ok(())
    }

    #[test]
    fn an_answer_is_kept_for_its_caller() -> Result {
        let queue = queue()?;
        let ticket = enqueue(&queue, Waiter::Sync)?;
        queue.page.end_as_device(ticket, OK)?;
        assert!(queue.reap(|_, _| ()));
        // All other slots are used meanwhile, but not that of the caller.
        pass(&queue, DEPTH as u64 - 1)?;
        assert_eq!(pass(&queue, 1), Err(EBUSY));
        let answer = queue.answer(ticket);
        assert_eq!(
            answer.map(|outcome| outcome.status),
            Some(uapi::ULDMA_DMA_OK)
        );
        assert!(queue.answer(ticket).is_none());
        pass(&queue, DEPTH as u64)
    }

    #[test]
    fn callers_that_poll_need_no_worker() -> Result {
        let queue = queue()?;
        for _ in 0..2 * DEPTH {
            let (first, second) = (
                enqueue(&queue, Waiter::Sync)?,
                enqueue(&queue, Waiter::Sync)?,
            );
            queue.page.end_as_device(first, OK)?;
            queue.page.end_as_device(second, OK)?;
            // In the other order, so that the first still has a waiter.
            assert!(queue.answer(second).is_some());
            assert!(queue.has_ended());
            assert!(queue.answer(first).is_some());
            assert!(!queue.has_ended());
        }
        // A command of a worker is left to it.
        let ticket = enqueue(&queue, Waiter::Queued(7))?;
        queue.page.end_as_device(ticket, OK)?;
        let ticket = enqueue(&queue, Waiter::Sync)?;
        queue.page.end_as_device(ticket, OK)?;
        assert!(queue.answer(ticket).is_some());
        let mut reaped = 0;
        assert!(queue.reap(|waiter, _| reaped += waiter));
        assert_eq!(reaped, 7);
        assert!(!queue.is_busy());
        Ok(())
    }

    #[test]
    fn a_place_is_free_when_its_caller_gave_up() -> Result {
        let queue = queue()?;
        let ticket = enqueue(&queue, Waiter::Sync)?;
        queue.cancel_wait(ticket);
        assert_eq!(queue.answer(ticket).map(|outcome| outcome.status), None);
        queue.page.end_as_device(ticket, OK)?;
        assert!(queue.reap(|_, _| ()));
        pass(&queue, 2 * DEPTH as u64)
    }
}
