// SPDX-License-Identifier: GPL-2.0

//! What a device is made of, and how it comes and goes.
//!
//! Three lifetimes: [`Binding`] lives as long as the driver is bound; [`Shared`] as long as anybody
//! has a file open; each file has its [`Opener`](crate::opener::Opener).
//!
//! Lock order, outermost first: an opener's `objects`; `Space::state` (inside of which pinning
//! takes `mmap_lock`, and whoever changes mappings is waited for); the gate; `Channel::processing`;
//! `Segments::state`; `Channel::state`; `Running::state`; `Contexts::state`; `Claim::past`;
//! `Engine::state`; `Events::state`; the locks of `Tpt` and of the hardware. `Contexts::state` and
//! `Maps::ranges` are taken by faults, under `mmap_lock`, so nothing that takes `mmap_lock` is
//! called under them. `Lmm::spaces`, `Shared::openers`, `Shared::stuck` and the exports' lock are
//! innermost, but for `openers`, under which `Events::state` is taken. What the memory manager
//! calls takes only `Origin::doubt` and `Attention::space`, one after the other; what context
//! switches call takes none.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    pci,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Completion,
        Mutex, //
    }, //
};

use crate::{
    context::Contexts,
    engine::Engine,
    events::{
        Arm,
        Events, //
    },
    export::Exports,
    hw::{
        adapter::Adapter,
        layout::event,
        Hardware, //
    },
    kernel_ext::{
        self,
        errno::eremoteio,
        gate::{
            Gate,
            GateKeeper, //
        },
        shrinker::Shrink, //
    },
    link::{
        channel::{
            self,
            Channel,
            Handler, //
        },
        message::{
            Answer,
            Query, //
        },
        window::InboundWindow, //
    },
    lmm::{
        host::{
            Host,
            Locker, //
        },
        space::Space,
        Lmm, //
    },
    maps::Maps,
    options,
    running::Running,
    segment::{
        Epoch,
        Segments,
        Site, //
    },
    status_page::StatusPage,
    tpt::Tpt, //
};

/// What all openers of a device share; outlives the binding.
#[pin_data]
pub(crate) struct Shared {
    pub(crate) gate: Arc<Gate>,
    pub(crate) hw: Arc<dyn Hardware>,
    #[pin]
    pub(crate) tpt: Tpt,
    #[pin]
    pub(crate) lmm: Lmm,
    #[pin]
    pub(crate) maps: Maps,
    #[pin]
    pub(crate) contexts: Contexts,
    #[pin]
    pub(crate) running: Running,
    #[pin]
    pub(crate) engine: Engine,
    #[pin]
    pub(crate) channel: Channel,
    #[pin]
    pub(crate) window: InboundWindow,
    #[pin]
    pub(crate) exports: Exports,
    #[pin]
    pub(crate) segments: Segments,
    #[pin]
    openers: Mutex<RBTree<u64, Arc<Events>>>,
    next_opener: Atomic<u64>,
    /// Spaces with memory that the device did not let go of in time: kept, and so pinned, until it
    /// is unbound.
    #[pin]
    stuck: Mutex<KVec<Arc<Space>>>,
    /// Complete once the device can do no more DMA and nothing is mapped for it.
    #[pin]
    quiet: Completion,
}

impl Host for Shared {
    fn locker(&self) -> Locker<'_> {
        Locker {
            gate: &self.gate,
            tpt: &self.tpt,
            hw: &*self.hw,
            quiet: &self.quiet,
        }
    }

    fn keep(&self, space: &Arc<Space>) {
        let mut stuck = self.stuck.lock();
        if stuck.iter().any(|other| Arc::ptr_eq(other, space)) {
            return;
        }
        if stuck.push(space.clone(), GFP_KERNEL).is_err() {
            // Pinned for ever is bad; freed under the device would be worse.
            core::mem::forget(space.clone());
        }
    }
}

impl Shrink for Shared {
    fn count(&self) -> usize {
        self.lmm.cached()
    }

    fn give_up(&self, objects: usize) {
        self.lmm.give_up(objects);
    }
}

impl Shared {
    fn new(pdev: &pci::Device<Bound>) -> Result<Arc<Self>> {
        let dev: &Device<Bound> = pdev.as_ref();
        let gate = Arc::pin_init(Gate::new(dev), GFP_KERNEL)?;
        let hw: Arc<dyn Hardware> = Arc::pin_init(Adapter::new(pdev)?, GFP_KERNEL)?;
        let geometry = *hw.geometry();
        let page = Arc::new(StatusPage::new()?, GFP_KERNEL)?;
        let kernel_page = page.clone();
        let running = Running::new(gate.clone(), hw.clone())?;
        let shared = Arc::pin_init(
            try_pin_init!(Self {
                gate,
                hw,
                tpt <- Tpt::new(dev, &geometry),
                lmm <- Lmm::new(options::lmm()),
                maps <- Maps::new()?,
                contexts <- Contexts::new(geometry.contexts)?,
                running <- running,
                engine <- Engine::new(page),
                channel <- Channel::new(),
                window <- InboundWindow::new(geometry.window_size),
                exports <- Exports::new(),
                segments <- Segments::new(),
                openers <- new_mutex!(RBTree::new(), "uldma::Shared::openers"),
                next_opener: Atomic::new(1),
                stuck <- new_mutex!(KVec::new(), "uldma::Shared::stuck"),
                quiet <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        let taken = shared.contexts.take_kernel(dev, &*shared.hw, kernel_page);
        if taken == Err(eremoteio()) {
            dev_err!(
                dev,
                "DMA is bounced (swiotlb=force?); no memory could be registered\n"
            );
        }
        taken?;
        Ok(shared)
    }

    /// What segments need.
    pub(crate) fn site(&self) -> Site<'_> {
        Site {
            gate: &self.gate,
            hw: &*self.hw,
            maps: &self.maps,
            window: &self.window,
            channel: &self.channel,
            segments: &self.segments,
        }
    }

    /// Adds an opener; returns its number.
    pub(crate) fn add_opener(&self, events: Arc<Events>) -> Result<u64> {
        let number = self.next_opener.fetch_add(1, Relaxed);
        let node = RBTreeNode::new(number, events, GFP_KERNEL_ACCOUNT)?;
        self.openers.lock().insert(node);
        Ok(number)
    }

    /// Removes an opener.
    pub(crate) fn remove_opener(&self, number: u64) {
        let removed = self.openers.lock().remove(&number);
        drop(removed);
    }

    /// How many openers there are.
    pub(crate) fn openers(&self) -> usize {
        self.openers.lock().keys().count()
    }

    fn tell_openers(&self, tell: impl Fn(&Events)) {
        for events in self.openers.lock().values() {
            tell(events);
        }
    }

    /// Asks the peer, for at most `timeout_ns`.
    ///
    /// # Errors
    ///
    /// `ENOENT` when it has nothing of that name, `ENOTCONN`, `ETIMEDOUT`, `EINTR`, `ENODEV`.
    pub(crate) fn ask(&self, query: Query, timeout_ns: u64) -> Result<Answer> {
        let epoch = self.segments.epoch();
        let number = self.channel.open_request()?;
        let answer = self.ask_as(number, query, timeout_ns);
        if let Some(late) = self.channel.close_request(number) {
            self.decline(late, epoch);
        }
        match answer? {
            Answer::Refused => Err(ENOENT),
            answer => Ok(answer),
        }
    }

    /// Gives back what an answer of epoch `epoch` offered.
    fn decline(&self, answer: Answer, epoch: Epoch) {
        if let Answer::Segment(segment) = answer {
            self.segments.decline(&self.site(), segment.offset, epoch);
        }
    }

    fn ask_as(&self, number: u32, query: Query, timeout_ns: u64) -> Result<Answer> {
        let message = crate::link::message::Message::Query(number, query);
        let mut left = timeout_ns;
        loop {
            {
                let guard = self.gate.try_enter()?;
                match self.channel.send(guard.dev(), &*self.hw, &message) {
                    // The peer's driver is not there yet, or is slow.
                    Ok(()) | Err(EBUSY) => (),
                    Err(err) => return Err(err),
                }
            }
            let (answer, slice) = self.channel.wait_answer(number, left)?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
            left -= slice;
            if left == 0 {
                return Err(ETIMEDOUT);
            }
        }
    }

    /// Handles an interrupt of the event vector.
    pub(crate) fn handle_events(&self, dev: &Device<Bound>) -> Result {
        let events = self.hw.take_events(dev)?;
        if events & event::COMPLETION != 0 {
            self.engine.poll();
            self.contexts.progress(dev, &*self.hw)?;
        }
        if events & event::LINK != 0 {
            let link = self.hw.link(dev)?;
            self.channel.link_changed(dev, &*self.hw, self, link.up)?;
            self.tell_openers(|opener| opener.link_changed(link.up));
            self.channel.process(dev, &*self.hw, self)?;
        }
        if events & event::KEY != 0 {
            self.contexts.report_bad_keys(dev, &*self.hw)?;
        }
        if events & event::ERROR != 0 {
            dev_err!(dev, "adapter got no answer to a bus address\n");
        }
        Ok(())
    }

    /// Handles an interrupt of the doorbell vector.
    pub(crate) fn handle_doorbell(&self, dev: &Device<Bound>) -> Result {
        let bits = self.hw.take_doorbells(dev)?;
        if bits & channel::DOORBELL != 0 {
            self.channel.process(dev, &*self.hw, self)?;
        }
        self.segments.rung(bits);
        Ok(())
    }
}

impl Arm for Shared {
    fn arm(&self, context: u32, completed: u64) {
        if let Some(guard) = self.gate.enter() {
            // A device that does not take it has left the bus; its removal wakes who waits.
            let _ = self.hw.arm_context(guard.dev(), context, completed);
        }
    }
}

impl Handler for Shared {
    fn query(&self, query: Query) -> Answer {
        let answer = match query {
            Query::Region(name) => self.exports.find(name).map(Answer::Region),
            Query::Segment(name) => self.segments.offer(name).map(Answer::Segment),
        };
        answer.unwrap_or(Answer::Refused)
    }

    fn segment_gone(&self, offset: u64) {
        self.segments.gone(&self.site(), offset);
    }

    fn segment_left(&self, offset: u64, count: u32) {
        self.segments.left(&self.site(), offset, count);
    }

    fn unwanted(&self, answer: Answer) {
        self.decline(answer, self.segments.epoch());
    }

    fn revoke(&self) {
        self.segments.revoke(&self.site());
    }

    fn peer_restarted(&self) {
        self.segments.peer_restarted(&self.site());
    }

    fn resend(&self) {
        self.segments.resend(&self.site());
    }
}

/// What lives as long as the driver is bound. Dropping it leaves plain memory only.
pub(crate) struct Binding<'bound> {
    shared: Arc<Shared>,
    /// Taken first when dropped; an option so that it can be.
    keeper: Option<GateKeeper<'bound>>,
    pdev: &'bound pci::Device<Bound>,
}

impl<'bound> Binding<'bound> {
    /// Sets up `pdev`, which does nothing yet.
    pub(crate) fn new(pdev: &'bound pci::Device<Bound>) -> Result<Self> {
        let shared = Shared::new(pdev)?;
        let keeper = GateKeeper::open(shared.gate.clone(), pdev.as_ref())?;
        Ok(Self {
            shared,
            keeper: Some(keeper),
            pdev,
        })
    }

    /// What openers share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Lets the device run, once its interrupts are handled.
    pub(crate) fn enable(&self) -> Result {
        let setup = self.shared.tpt.setup()?;
        self.shared.hw.enable(self.pdev.as_ref(), &setup)
    }
}

impl Drop for Binding<'_> {
    fn drop(&mut self) {
        let dev: &Device<Bound> = self.pdev.as_ref();
        let shared = &self.shared;
        // No call is inside of the gate from here on.
        self.keeper = None;
        shared.tell_openers(Events::gone);
        shared.maps.mapping().zap_all();
        if let Err(err) = shared.hw.reset(dev) {
            dev_err!(dev, "adapter does not reset: {err:?}\n");
        }
        // Whatever the adapter thinks of the reset, this ends its DMA.
        kernel_ext::pci::clear_master(self.pdev);
        shared.engine.abort();
        shared.contexts.tear_down(dev);
        shared.tpt.tear_down(dev);
        shared.quiet.complete_all();
        let stuck = core::mem::take(&mut *shared.stuck.lock());
        drop(stuck);
    }
}
