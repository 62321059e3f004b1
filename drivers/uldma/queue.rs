// SPDX-License-Identifier: GPL-2.0

//! The kernel's queue of descriptors: copies between the nodes and invalidations, without a register
//! access as long as the device looks at it.

use core::mem::offset_of;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    new_mutex,
    prelude::*,
    processor::cpu_relax,
    sync::Mutex,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use crate::{
    hw::{
        layout::queue,
        Command,
        ContextSetup,
        Hardware,
        PeerPlace,
        Place, //
    },
    kernel_ext::{
        dma::{
            self,
            SharedPage, //
        },
        wakeup,
        window, //
    },
    method::Method,
    status_page::{
        Outcome,
        StatusPage, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    }, //
};

/// Descriptors of the page; the same as `ULDMA_STATUS_RECORDS`.
const DEPTH: usize = uapi::ULDMA_STATUS_RECORDS as usize;

/// How long an invalidation is waited for, which ends after all that is before it.
const PATIENCE: Delta = Delta::from_secs(2);

struct State<T> {
    /// Who waits for which ticket, by ticket modulo the depth; none for those nobody waits for.
    pending: [Option<T>; DEPTH],
    /// Last ticket that was given out.
    given: u64,
    /// Last ticket whose end was seen.
    ended: u64,
    /// Bus addresses of the pages, until the device goes.
    mapped: Option<(DmaAddress, DmaAddress)>,
}

/// The kernel's queue; `T` is told of the end of a command.
#[pin_data]
pub(crate) struct Queue<T> {
    context: u32,
    page: StatusPage,
    descriptors: SharedPage,
    #[pin]
    state: Mutex<State<T>>,
}

fn slot(ticket: u64) -> usize {
    // The remainder is less than the depth, which is a usize.
    (ticket % DEPTH as u64) as usize
}

impl<T: Unpin> Queue<T> {
    /// Creates the queue of `context`, which works once it was enabled.
    pub(crate) fn new(context: u32) -> Result<impl PinInit<Self>> {
        let page = StatusPage::new()?;
        let descriptors = SharedPage::new()?;
        let state = State {
            pending: [const { None }; DEPTH],
            given: 0,
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

    /// Lets the device look at the queue.
    pub(crate) fn enable(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let mut state = self.state.lock();
        let status_page = self.page.map(dev)?;
        let queue = self
            .descriptors
            .map(dev)
            .inspect_err(|_| dma::unmap(dev, status_page))?;
        state.mapped = Some((status_page, queue));
        let setup = ContextSetup {
            status_page,
            queue,
            methods: Method::QUEUE.bit(),
            privileged: true,
            ..ContextSetup::default()
        };
        hw.enable_context(dev, self.context, &setup)
    }

    /// Unmaps the pages, which the device no longer uses; gives `end` who still waits.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>, mut end: impl FnMut(T)) {
        let waiting: [Option<T>; DEPTH] = {
            let mut state = self.state.lock();
            if let Some((status_page, queue)) = state.mapped.take() {
                dma::unmap(dev, status_page);
                dma::unmap(dev, queue);
            }
            state.ended = state.given;
            core::mem::replace(&mut state.pending, [const { None }; DEPTH])
        };
        waiting.into_iter().flatten().for_each(&mut end);
    }

    /// Gives the device a command; `told` is given back by [`Queue::reap`] when it has ended.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the queue is full, `ENODEV`.
    pub(crate) fn submit(
        &self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        command: &Command,
        told: Option<T>,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        if state.mapped.is_none() {
            return Err(ENODEV);
        }
        let ticket = state.given + 1;
        if ticket - state.ended > DEPTH as u64 {
            return Err(EBUSY);
        }
        self.write(ticket, command)?;
        state.given = ticket;
        if let Some(place) = state.pending.get_mut(slot(ticket)) {
            *place = told;
        }
        window::full_fence();
        if self.page.is_asleep() {
            hw.wake_context(dev, self.context)?;
        }
        Ok(ticket)
    }

    /// Writes the descriptor of `ticket`, the ticket last.
    fn write(&self, ticket: u64, command: &Command) -> Result {
        const MASK_LOW: u64 = 0xffff_ffff;
        let base = slot(ticket) * size_of::<uldma_descriptor>();
        let put = |at: usize, value: u64| self.descriptors.write_u64(base + at, value);
        let peer =
            |place: &PeerPlace| u64::from(place.node) << 32 | u64::from(place.link_generation);
        let copy = u64::from(uapi::ULDMA_OP_COPY);
        let (op, flags, src, dst, length, remote) = match *command {
            Command::Push { src, dst, length } => {
                let remote = (dst.generation, peer(&dst));
                (copy, queue::DST_OF_PEER, src, dst.place, length, remote)
            }
            Command::Pull { src, dst, length } => {
                let remote = (src.generation, peer(&src));
                (copy, queue::SRC_OF_PEER, src.place, dst, length, remote)
            }
            Command::Invalidate { region } => {
                let place = Place { region, offset: 0 };
                (queue::OP_INVALIDATE.into(), 0, place, place, 0, (0, 0))
            }
        };
        // Two fields of 32 bits make one word, little-endian.
        put(
            offset_of!(uldma_descriptor, op),
            op & MASK_LOW | u64::from(flags) << 32,
        )?;
        put(
            offset_of!(uldma_descriptor, src),
            u64::from(src.region) | u64::from(dst.region) << 32,
        )?;
        put(offset_of!(uldma_descriptor, src_offset), src.offset)?;
        put(offset_of!(uldma_descriptor, dst_offset), dst.offset)?;
        put(offset_of!(uldma_descriptor, length), length)?;
        put(offset_of!(uldma_descriptor, operand), remote.0)?;
        put(offset_of!(uldma_descriptor, compare), remote.1)?;
        dma::wmb();
        put(offset_of!(uldma_descriptor, ticket), ticket)
    }

    /// Whether commands have ended that [`Queue::reap`] was not told of.
    pub(crate) fn has_ended(&self) -> bool {
        self.page.completed() > self.state.lock().ended
    }

    /// Whether commands have not ended.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.given > state.ended
    }

    /// Gives `end` whoever waited for commands that have ended, in order; whether any has.
    pub(crate) fn reap(&self, mut end: impl FnMut(T, Outcome)) -> bool {
        let mut progress = false;
        loop {
            let (told, outcome) = {
                let mut state = self.state.lock();
                // A device that says nonsense cannot make us end what was not given.
                if state.ended >= self.page.completed().min(state.given) {
                    return progress;
                }
                let ticket = state.ended + 1;
                let outcome = self.page.record(ticket).unwrap_or(Outcome {
                    bytes: 0,
                    status: uapi::ULDMA_DMA_ABORTED,
                });
                state.ended = ticket;
                let place = state.pending.get_mut(slot(ticket));
                (place.and_then(Option::take), outcome)
            };
            progress = true;
            if let Some(told) = told {
                end(told, outcome);
            }
        }
    }

    /// Asks for an interrupt when the next command ends.
    pub(crate) fn arm(&self, dev: &Device<Bound>, hw: &dyn Hardware) -> Result {
        let ended = self.state.lock().ended;
        hw.arm_context(dev, self.context, ended)
    }

    /// Ends what uses `region`; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when the device does not answer, `EBUSY` when the queue is full.
    pub(crate) fn invalidate(&self, dev: &Device<Bound>, hw: &dyn Hardware, region: u32) -> Result {
        let ticket = self.submit(dev, hw, &Command::Invalidate { region }, None)?;
        let since: Instant<Monotonic> = Instant::now();
        while self.page.completed() < ticket {
            match since.elapsed() {
                elapsed if elapsed > PATIENCE => return Err(ETIMEDOUT),
                elapsed if elapsed > wakeup::cost() => fsleep(wakeup::cost()),
                _ => cpu_relax(),
            }
        }
        self.page.record(ticket).ok_or(EIO)?.check()
    }
}
