// SPDX-License-Identifier: GPL-2.0

//! Events of an open file, for `poll()`, `read()` and its eventfd.
//!
//! Events are coalesced state, not a queue: reporting one allocates nothing and cannot fail,
//! however slow the reader is.

use kernel::{
    fs::File,
    new_mutex,
    prelude::*,
    static_lock_class,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        poll::PollTable,
        Arc,
        Mutex, //
    }, //
};

use crate::{
    kernel_ext::{
        compat::PollCondVarBox,
        eventfd::EventFd, //
    },
    uapi::{
        self,
        uldma_event, //
    },
    user_abi::status_page::StatusPage, //
};

/// The doorbell event of a segment.
pub(crate) struct DoorbellEvent {
    handle: u32,
    rung: Atomic<bool>,
    /// The segment has ended. Stored before `rung`.
    ended: Atomic<bool>,
}

/// A reservation for the event that a region went stale; dropping it removes the event.
pub(crate) struct StaleTicket {
    events: Arc<Events>,
    handle: u32,
}

impl StaleTicket {
    /// Reports that `bytes` bytes of the region, in total, are stale.
    pub(crate) fn report(&self, bytes: u64) {
        self.events
            .update(|state| state.add_stale(self.handle, bytes));
    }
}

impl Drop for StaleTicket {
    fn drop(&mut self) {
        let mut state = self.events.state.lock();
        state.stale.retain(|entry| entry.0 != self.handle);
        state.stale_tickets -= 1;
        if state.reporting_stale == self.handle {
            state.reporting_stale = 0;
        }
    }
}

/// The context of the open file.
struct ContextState {
    /// The number by which the user knows it: that of its first registers.
    number: u32,
    /// The number of its registers, while it is attached.
    registers: Option<u32>,
    page: Arc<StatusPage>,
    /// Last ticket that `read()` reported.
    reported: u64,
    /// Last ticket that woke waiters.
    seen: u64,
    /// What was requested since then.
    request: Request,
}

/// The interrupt that the device was asked for: when a ticket beyond this one of a context has ended.
#[derive(Default)]
struct Request(Option<u64>);

impl Request {
    /// Returns what to ask the device for, so that it interrupts when a ticket beyond `ticket` has
    /// ended; none if it will interrupt before that. All tickets up to `completed` have ended.
    fn beyond(&mut self, ticket: u64, completed: u64) -> Option<u64> {
        let wanted = ticket.max(completed);
        // A request for a ticket that has ended is used up.
        let is_sooner = |earlier| completed <= earlier && earlier < wanted;
        if self.0.is_some_and(is_sooner) {
            return None;
        }
        self.0 = Some(wanted);
        self.0
    }
}

/// Requests an interrupt for the completion of a ticket of a context beyond the given one.
///
/// The device remembers one request per context. Each waiter requests an interrupt, unless one for
/// an earlier completion is requested, checks, and requests again when it is woken.
pub(crate) trait Arm {
    /// Requests the interrupt.
    fn arm(&self, context: u32, completed: u64);
}

/// The pending events of one open file.
pub(crate) struct PendingEvents {
    context: Option<ContextState>,
    /// Number of completed transfers of the kernel.
    ended: u64,
    ended_reported: u64,
    /// State of the link, if it changed since it was reported.
    link: Option<bool>,
    doorbells: KVec<Arc<DoorbellEvent>>,
    /// Regions that went stale and were not reported, and their stale bytes; there is room for all
    /// `stale_tickets`.
    stale: KVec<(u32, u64)>,
    stale_tickets: usize,
    /// The region whose event is being reported, unless it ended meanwhile.
    reporting_stale: u32,
    eventfd: Option<EventFd>,
    gone: bool,
}

/// The events of one open file.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    state: Mutex<PendingEvents>,
    /// Freed after a grace period, for which the end of an open file does not wait.
    changed: PollCondVarBox,
}

impl PendingEvents {
    /// Takes the next pending event.
    fn take(&mut self) -> Option<uldma_event> {
        if let Some(context) = &mut self.context {
            let completed = context.page.completed();
            if completed > context.reported {
                context.reported = completed;
                return Some(event(
                    uapi::ULDMA_EVENT_COMPLETION,
                    context.number,
                    completed,
                ));
            }
        }
        if self.ended > self.ended_reported {
            self.ended_reported = self.ended;
            return Some(event(uapi::ULDMA_EVENT_COMPLETION, 0, self.ended));
        }
        if let Some(up) = self.link.take() {
            return Some(event(uapi::ULDMA_EVENT_LINK, 0, up.into()));
        }
        if !self.stale.is_empty() {
            let (handle, bytes) = self.stale.remove(0).ok()?;
            self.reporting_stale = handle;
            return Some(event(uapi::ULDMA_EVENT_STALE, handle, bytes));
        }
        let doorbell = self
            .doorbells
            .iter()
            .find(|doorbell| doorbell.rung.load(Relaxed))?;
        doorbell.rung.store(false, Relaxed);
        let lives = !doorbell.ended.load(Relaxed);
        Some(event(
            uapi::ULDMA_EVENT_DOORBELL,
            doorbell.handle,
            lives.into(),
        ))
    }

    /// Makes an event pending again that [`PendingEvents::take`] returned.
    fn put_back(&mut self, event: &uldma_event) {
        let before = event.value.saturating_sub(1);
        match (event.type_, event.handle) {
            (uapi::ULDMA_EVENT_COMPLETION, 0) => self.ended_reported = before,
            (uapi::ULDMA_EVENT_COMPLETION, number) => {
                if let Some(context) = self.context.as_mut().filter(|c| c.number == number) {
                    context.reported = before;
                }
            }
            // A later change takes precedence.
            (uapi::ULDMA_EVENT_LINK, _) => self.link = self.link.or(Some(event.value != 0)),
            (uapi::ULDMA_EVENT_STALE, handle) => {
                if self.reporting_stale == handle {
                    self.add_stale(handle, event.value);
                }
            }
            (_, handle) => {
                if let Some(doorbell) = self
                    .doorbells
                    .iter()
                    .find(|doorbell| doorbell.handle == handle)
                {
                    doorbell.rung.store(true, Relaxed);
                }
            }
        }
    }

    fn add_stale(&mut self, handle: u32, bytes: u64) {
        match self.stale.iter_mut().find(|entry| entry.0 == handle) {
            // Stale pages stay stale, so the larger number is newer.
            Some(entry) => entry.1 = entry.1.max(bytes),
            // There is no room only if the region has ended.
            None => {
                let _ = self.stale.push_within_capacity((handle, bytes));
            }
        }
    }

    /// Requests an interrupt for any progress of the context.
    fn arm(&mut self, arm: &dyn Arm) {
        self.arm_beyond(0, arm);
    }

    /// Requests an interrupt for the completion of a ticket beyond `ticket`.
    fn arm_beyond(&mut self, ticket: u64, arm: &dyn Arm) {
        if let Some(context) = &mut self.context {
            let Some(registers) = context.registers else {
                return;
            };
            let completed = context.page.completed();
            if let Some(wanted) = context.request.beyond(ticket, completed) {
                arm.arm(registers, wanted);
            }
        }
    }

    fn pending(&self) -> bool {
        let context = self.context.as_ref();
        context.is_some_and(|context| context.page.completed() > context.reported)
            || self.ended > self.ended_reported
            || self.link.is_some()
            || !self.stale.is_empty()
            || self
                .doorbells
                .iter()
                .any(|doorbell| doorbell.rung.load(Relaxed))
    }
}

fn event(type_: u32, handle: u32, value: u64) -> uldma_event {
    uldma_event {
        type_,
        handle,
        value,
    }
}

impl Events {
    /// Creates an object without pending events.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        let state = PendingEvents {
            context: None,
            ended: 0,
            ended_reported: 0,
            link: None,
            doorbells: KVec::new(),
            stale: KVec::new(),
            stale_tickets: 0,
            reporting_stale: 0,
            eventfd: None,
            gone: false,
        };
        try_pin_init!(Self {
            state <- new_mutex!(state, "uldma::Events::state"),
            changed: PollCondVarBox::new(c"uldma::Events::changed", static_lock_class!())?,
        })
    }

    /// Changes the state and wakes waiters.
    fn update(&self, change: impl FnOnce(&mut PendingEvents)) {
        let mut state = self.state.lock();
        change(&mut state);
        if state.pending() || state.gone {
            if let Some(eventfd) = &state.eventfd {
                eventfd.signal();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Wakes waiters if the context has made progress.
    pub(crate) fn context_progress(&self) {
        let mut state = self.state.lock();
        let Some(context) = &mut state.context else {
            return;
        };
        let completed = context.page.completed();
        if core::mem::replace(&mut context.seen, completed) == completed {
            return;
        }
        // All waiters are woken, and request again.
        context.request = Request::default();
        drop(state);
        self.update(|_| ());
    }

    /// Reports the completion of a transfer of the kernel.
    pub(crate) fn transfer_ended(&self) {
        self.update(|state| state.ended += 1);
    }

    /// Wakes waiters after a change that is not an event.
    pub(crate) fn wake(&self) {
        let state = self.state.lock();
        if let Some(eventfd) = &state.eventfd {
            eventfd.signal();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Reports that the link went up or down.
    pub(crate) fn link_changed(&self, up: bool) {
        self.update(|state| state.link = Some(up));
    }

    /// Reports that the device is unbound.
    pub(crate) fn gone(&self) {
        self.update(|state| state.gone = true);
    }

    /// Sets or removes the context of the open file. [`Events::set_registers`] sets its registers.
    pub(crate) fn set_context(&self, page: Option<Arc<StatusPage>>) {
        self.update(|state| {
            state.context = page.map(|page| ContextState {
                number: 0,
                registers: None,
                page,
                reported: 0,
                seen: 0,
                request: Request::default(),
            });
        });
    }

    /// Sets the registers of the context, or none.
    pub(crate) fn set_registers(&self, registers: Option<u32>) {
        if let Some(context) = &mut self.state.lock().context {
            context.registers = registers;
            // The caller has the device interrupt for any progress.
            context.request = Request(registers.map(|_| context.page.completed()));
            if context.number == 0 {
                context.number = registers.unwrap_or(0);
            }
        }
    }

    /// Sets or removes the eventfd, which is signalled at once if an event is pending.
    pub(crate) fn set_eventfd(&self, eventfd: Option<EventFd>) {
        self.update(|state| state.eventfd = eventfd);
    }

    /// Returns true if every completion has to interrupt, since there is an eventfd.
    pub(crate) fn has_eventfd(&self) -> bool {
        self.state.lock().eventfd.is_some()
    }

    /// Reserves room for the event that region `handle` went stale.
    pub(crate) fn add_stale_ticket(this: &Arc<Self>, handle: u32) -> Result<StaleTicket> {
        let mut state = this.state.lock();
        let more = (state.stale_tickets + 1).saturating_sub(state.stale.len());
        // Not charged: the link's worker takes this lock under that of all open files, which open()
        // takes, and the control group of one process can make a charge sleep.
        state.stale.reserve(more, GFP_KERNEL)?;
        state.stale_tickets += 1;
        Ok(StaleTicket {
            events: this.clone(),
            handle,
        })
    }

    /// Adds a doorbell of segment `handle`.
    pub(crate) fn add_doorbell(&self, handle: u32) -> Result<Arc<DoorbellEvent>> {
        let doorbell = DoorbellEvent {
            handle,
            rung: Atomic::new(false),
            ended: Atomic::new(false),
        };
        let doorbell = Arc::new(doorbell, GFP_KERNEL_ACCOUNT)?;
        // Not charged, as above.
        self.state
            .lock()
            .doorbells
            .push(doorbell.clone(), GFP_KERNEL)?;
        Ok(doorbell)
    }

    /// Removes a doorbell.
    pub(crate) fn remove_doorbell(&self, doorbell: &Arc<DoorbellEvent>) {
        self.state
            .lock()
            .doorbells
            .retain(|other| !Arc::ptr_eq(other, doorbell));
    }

    /// Rings the doorbell of a segment that has ended: all its events say so from now on.
    pub(crate) fn end(&self, doorbell: &DoorbellEvent) {
        self.update(|_| {
            doorbell.ended.store(true, Relaxed);
            doorbell.rung.store(true, Relaxed);
        });
    }

    /// Rings a doorbell.
    pub(crate) fn ring(&self, doorbell: &DoorbellEvent) {
        self.update(|_| doorbell.rung.store(true, Relaxed));
    }

    /// Registers on `table`. Returns two flags: an event is pending, and the device is unbound.
    pub(crate) fn poll(&self, file: &File, table: &PollTable<'_>, arm: &dyn Arm) -> (bool, bool) {
        table.register_wait(file, &self.changed);
        let mut state = self.state.lock();
        if !state.pending() && !state.gone {
            state.arm(arm);
        }
        // Completions before the request have not interrupted.
        (state.pending(), state.gone)
    }

    /// Requests the interrupts that an eventfd needs.
    pub(crate) fn arm(&self, arm: &dyn Arm) {
        self.state.lock().arm(arm);
    }

    /// Returns the last completed ticket of the context.
    pub(crate) fn context_completed(&self) -> Option<u64> {
        let state = self.state.lock();
        let context = state.context.as_ref();
        context.map(|context| context.page.completed())
    }

    /// Takes the next event, and waits for one unless `nonblock`.
    ///
    /// # Errors
    ///
    /// `EAGAIN` with `nonblock`, `EINTR`, `ENODEV` if the device is unbound.
    pub(crate) fn take(&self, nonblock: bool, arm: &dyn Arm) -> Result<uldma_event> {
        let mut state = self.state.lock();
        loop {
            if state.gone {
                return Err(ENODEV);
            }
            if let Some(event) = state.take() {
                return Ok(event);
            }
            if nonblock {
                return Err(EAGAIN);
            }
            state.arm(arm);
            if state.pending() {
                continue;
            }
            if self.changed.wait_interruptible(&mut state) {
                return Err(ERESTARTNOHAND);
            }
        }
    }

    /// Returns an event that could not be copied to the user.
    pub(crate) fn put_back(&self, event: &uldma_event) {
        self.update(|state| state.put_back(event));
    }

    /// Waits until `check`, which is called again after each wake-up, returns something, for at most
    /// `timeout_ns`.
    ///
    /// # Errors
    ///
    /// The errors that `check` returns; `ETIMEDOUT`, `EINTR`, `ENODEV` if the device is unbound.
    pub(crate) fn wait_for<R>(
        &self,
        timeout_ns: u64,
        mut check: impl FnMut() -> Option<Result<R>>,
    ) -> Result<R> {
        crate::kernel_ext::wait::until(&self.changed, &self.state, timeout_ns, |state| {
            check().or_else(|| state.gone.then_some(Err(ENODEV)))
        })?
    }

    /// Waits as [`Events::wait_for`] does, and ends also when `ticket` of the context has ended,
    /// unless it is zero.
    ///
    /// # Errors
    ///
    /// Those of [`Events::wait_for`].
    pub(crate) fn wait_for_either(
        &self,
        ticket: u64,
        timeout_ns: u64,
        arm: &dyn Arm,
        mut check: impl FnMut() -> Option<Result>,
    ) -> Result {
        let has_ended = |state: &PendingEvents| {
            let context = state.context.as_ref().filter(|_| ticket != 0);
            context.is_some_and(|context| context.page.completed() >= ticket)
        };
        crate::kernel_ext::wait::until(&self.changed, &self.state, timeout_ns, |state| {
            if ticket != 0 && !has_ended(state) {
                state.arm_beyond(ticket - 1, arm);
            }
            // An end before the request has not interrupted.
            if has_ended(state) {
                return Some(Ok(()));
            }
            check().or_else(|| state.gone.then_some(Err(ENODEV)))
        })?
    }

    /// Waits for the completion of a ticket of the context, for at most `timeout_ns`.
    ///
    /// # Errors
    ///
    /// `ENXIO` without a context, `ETIMEDOUT`, `EINTR`, `ENODEV` if the device is unbound.
    pub(crate) fn wait_for_context(
        &self,
        ticket: u64,
        timeout_ns: u64,
        arm: &dyn Arm,
    ) -> Result<Arc<StatusPage>> {
        crate::kernel_ext::wait::until(&self.changed, &self.state, timeout_ns, |state| {
            let Some(context) = &state.context else {
                return Some(Err(ENXIO));
            };
            let page = context.page.clone();
            if page.completed() < ticket {
                if state.gone {
                    return Some(Err(ENODEV));
                }
                state.arm_beyond(ticket.saturating_sub(1), arm);
            }
            (page.completed() >= ticket).then_some(Ok(page))
        })?
    }
}

#[kunit_tests(uldma_events)]
mod tests {
    use super::*;

    /// A waiter for a later ticket must not take the interrupt of one for the next ticket.
    #[test]
    fn the_soonest_request_stays() {
        let mut request = Request::default();
        assert_eq!(request.beyond(9, 3), Some(9));
        assert_eq!(request.beyond(0, 3), Some(3));
        assert_eq!(request.beyond(9, 3), None);
        assert_eq!(request.beyond(4, 3), None);
    }

    #[test]
    fn a_request_that_has_interrupted_is_made_again() {
        let mut request = Request::default();
        assert_eq!(request.beyond(0, 3), Some(3));
        assert_eq!(request.beyond(9, 4), Some(9));
        assert_eq!(request.beyond(9, 8), Some(9));
        assert_eq!(request.beyond(9, 10), Some(10));
    }

    #[test]
    fn events_of_a_segment_that_has_ended_say_so() -> Result {
        let events = Arc::pin_init(Events::new(), GFP_KERNEL)?;
        let doorbell = events.add_doorbell(7)?;
        let take = || events.state.lock().take().map(|it| (it.handle, it.value));
        assert_eq!(take(), None);
        events.ring(&doorbell);
        assert_eq!(take(), Some((7, 1)));
        // Only the last one of two events that are pending is reported.
        events.ring(&doorbell);
        events.end(&doorbell);
        assert_eq!(take(), Some((7, 0)));
        assert_eq!(take(), None);
        events.ring(&doorbell);
        assert_eq!(take(), Some((7, 0)));
        Ok(())
    }
}
