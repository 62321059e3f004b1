// SPDX-License-Identifier: GPL-2.0

//! Open files of a device.

use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    device::Shared,
    dma::{
        context::NewContext,
        descriptor, //
    },
    kernel_ext::{
        capability::{
            self,
            Capability, //
        },
        eventfd::EventFd,
        mmu_notifier::{
            Change,
            Event,
            IntervalNotifier,
            Watcher, //
        },
        workqueue::{
            flush,
            system_default, //
        }, //
    },
    link::{
        requests::RequestSlots,
        segment::Segment, //
    },
    mem::{
        exchange::Exchange,
        lmm::space::Space, //
    },
    user::{
        attachment::Attachment,
        region::Region,
        watched::Watched, //
    },
    user_abi::{
        events::Events,
        ledger::{
            Payer,
            Resource,
            Share, //
        },
        mmap_offset::{
            Backing,
            MmapRange, //
        }, //
    }, //
};

mod objects;

pub(crate) use objects::{
    FileContext,
    Kind,
    Object,
    Objects, //
};

/// An open file of a device, which several processes may share.
#[pin_data]
pub(crate) struct OpenFile {
    pub(crate) number: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) space: Arc<Space>,
    pub(crate) events: Arc<Events>,
    /// Its requests to peers that wait for an answer.
    requests: RequestSlots,
    /// True if regions that end leave their pins in the cache.
    pub(crate) keep_pins: Atomic<bool>,
    /// Its exchangeable memory.
    pub(crate) exchange: Arc<Exchange>,
    #[pin]
    pub(crate) objects: Mutex<Objects>,
    #[pin]
    pub(crate) attachment: Attachment,
    /// Notifier of the end of the address space, from the first object until the file is closed.
    #[pin]
    end: Mutex<Option<IntervalNotifier<SpaceEnd>>>,
    /// True if that notifier is registered.
    is_watched: Atomic<bool>,
    #[pin]
    work: Work<OpenFile>,
    /// The thread whose wait for registers has timed out, or 0.
    waited_in_vain: Atomic<i32>,
    _share: Share,
}

impl_has_work! {
    impl HasWork<Self> for OpenFile { self.work }
}

/// Releases the objects of an open file when its address space ends, even if other processes have
/// the file open.
#[pin_data]
struct SpaceEnd {
    /// None once the file is closed.
    #[pin]
    open_file: SpinLock<Option<Arc<OpenFile>>>,
}

impl Watcher for SpaceEnd {
    fn changes(&self, event: &Event) -> bool {
        if event.change != Change::End {
            return true;
        }
        if let Some(open_file) = &*self.open_file.lock() {
            // If it is queued already, it has not begun yet.
            let _ = system_default().enqueue(open_file.clone());
        }
        true
    }
}

impl WorkItem for OpenFile {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Nothing is mapped any more, so cached pins are useless.
        this.keep_pins.store(false, Relaxed);
        this.release_all();
    }
}

impl OpenFile {
    /// Opens a device for the current process.
    ///
    /// The caller holds a lock of all misc devices, so this waits for no user: it takes no
    /// `mmap_lock`, and charges no memory to the control group of the process, which can make that
    /// take seconds. [`OpenFile::watch`] does the rest, before the first object is made.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is unbound, `EPERM` without an address space, `ENOSPC` if the device
    /// has no number for another address space, `EDQUOT` beyond the limits of the user, `ENOMEM`.
    pub(crate) fn open(shared: Arc<Shared>) -> Result<Arc<Self>> {
        if !shared.gate.is_open() {
            return Err(ENODEV);
        }
        let space = {
            let task = kernel::current!();
            let mm = task.mm().ok_or(EPERM)?;
            shared.lmm.join(mm, shared.clone(), || {
                let limited = !capability::has(Capability::SysResource);
                Payer::new(shared.ledger.clone(), capability::current_user(), limited)
            })?
        };
        Self::new(shared.clone(), space.clone()).inspect_err(|_| shared.lmm.leave(&space))
    }

    /// Has the objects of the file end with its address space, in which the current process has to
    /// run. The first call registers the notifier of that end, until [`OpenFile::close`].
    ///
    /// # Errors
    ///
    /// `EPERM` from another address space; the first time also `ENOMEM`, and `EINTR` if a signal
    /// comes.
    pub(crate) fn watch(self: ArcBorrow<'_, Self>) -> Result<Watched> {
        let task = kernel::current!();
        let mm = self.space.current(task).ok_or(EPERM)?;
        if self.is_watched.load(Acquire) {
            return Ok(Watched::registered());
        }
        self.space.prepare_watching(mm)?;
        let mut end = self.end.lock();
        // Another thread may have been faster.
        if end.is_none() {
            let this: Arc<Self> = self.into();
            let space_end = pin_init!(SpaceEnd {
                open_file <- new_spinlock!(Some(this), "uldma::SpaceEnd::open_file"),
            });
            // The end concerns all addresses, so watching the first page, where nothing else
            // happens, suffices.
            let remover = self.space.remover();
            *end = Some(IntervalNotifier::new(mm, 0, PAGE_SIZE, space_end, remover)?);
        }
        drop(end);
        self.is_watched.store(true, Release);
        Ok(Watched::registered())
    }

    fn new(shared: Arc<Shared>, space: Arc<Space>) -> Result<Arc<Self>> {
        // The payer is that of the address space, so it is known without `mmap_lock`, and this
        // waits for no user: the ledger's lock is innermost.
        let share = Share::new(space.payer(), Resource::Objects, 1)?;
        let events = Arc::pin_init(Events::new(), GFP_KERNEL)?;
        let exchange = Exchange::new()?;
        let number = shared.add_file(events.clone(), exchange.clone())?;
        let objects = Objects::new();
        let keep = shared.clone();
        let attachment = Attachment::new(events.clone());
        let open_file = pin_init!(Self {
            number,
            shared,
            space,
            events,
            requests: RequestSlots::new(),
            keep_pins: Atomic::new(false),
            exchange,
            objects <- new_mutex!(objects, "uldma::OpenFile::objects"),
            attachment <- attachment,
            end <- new_mutex!(None, "uldma::OpenFile::end"),
            is_watched: Atomic::new(false),
            work <- new_work!("uldma::OpenFile::work"),
            waited_in_vain: Atomic::new(0),
            _share: share,
        });
        Arc::pin_init(open_file, GFP_KERNEL).inspect_err(|_| keep.remove_file(number))
    }

    /// Notes that the wait of the current thread for registers has timed out.
    pub(crate) fn give_up(&self) {
        self.waited_in_vain.store(kernel::current!().pid(), Relaxed);
    }

    /// Returns true, once, if the wait of the current thread for registers has timed out.
    pub(crate) fn has_given_up(&self) -> bool {
        let thread = kernel::current!().pid();
        self.waited_in_vain.cmpxchg(thread, 0, Relaxed).is_ok()
    }

    /// Fails with `EPERM` unless the current process runs in the address space that opened the
    /// file.
    pub(crate) fn check_space(&self) -> Result {
        self.space
            .current(kernel::current!())
            .map(|_| ())
            .ok_or(EPERM)
    }

    /// Returns its slots for requests to peers, and their payer.
    pub(crate) fn asker(&self) -> (&RequestSlots, &Arc<Payer>) {
        (&self.requests, self.space.payer())
    }

    /// Ends an object.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; the object has ended nevertheless.
    pub(crate) fn end(&self, object: Object) -> Result {
        match object {
            Object::Region(region) => region.release(&self.shared, self.keep_pins.load(Relaxed)),
            Object::Segment(segment) => {
                Segment::release(&segment, &self.shared.segment_ctx());
                Ok(())
            }
            Object::Endpoint(endpoint) => {
                let result = endpoint.release(&self.shared);
                // Its entry, which the device may still use, has the number of the space.
                result.inspect_err(|_| self.space.keep_until_unbound())
            }
        }
    }

    /// Ends all current regions and imports.
    ///
    /// If the space has no other members, such as connection buffers or regions of other open
    /// files, one invalidation of the space suffices.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; all have ended nevertheless.
    pub(crate) fn end_regions(&self) -> Result {
        let shared = &self.shared;
        let keep = self.keep_pins.load(Relaxed);
        let mut result = if keep {
            Ok(())
        } else {
            self.space.while_closed(|all| self.end_regions_at_once(all))
        };
        // Bounded, as other threads may make new ones all the time.
        let count = self.objects.lock().regions();
        for _ in 0..count {
            // The lock is not held while a region ends, so that queries do not wait for that.
            let Some(region) = self.objects.lock().take_any_region() else {
                break;
            };
            result = result.and(region.release(shared, keep));
        }
        result
    }

    /// Ends all current regions and imports by one invalidation, if they are `all` members of the
    /// space and there is memory for it.
    fn end_regions_at_once(&self, all: usize) -> Result {
        let mut regions = KVVec::new();
        {
            let mut objects = self.objects.lock();
            let count = objects.regions();
            let room = regions.reserve(count, GFP_KERNEL);
            let (true, Ok(())) = (count == all && count > 1, room) else {
                return Ok(());
            };
            while let Some(region) = objects.take_any_region() {
                // There is room for all.
                let _ = regions.push_within_capacity(region);
            }
        }
        Region::release_all(&self.shared, &self.space, regions)
    }

    /// Makes `new` the context. Returns its number and, if the method needs one, its key. The caller
    /// has called [`OpenFile::watch`], and allocated `new`, without the lock of the objects.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the open file has one, all are in use, the limits of exclusive contexts are
    /// reached, or the address space has a context that needs notification already; `EDQUOT` beyond
    /// the limits of objects; `EOPNOTSUPP`
    /// if context switches cannot be reported; `ENOSPC` if all mmap offsets are used up; `ENOMEM`;
    /// `ETIMEDOUT` if the device does not answer; `EREMOTEIO` if it cannot access the status page;
    /// `ENODEV` if it is unbound.
    pub(crate) fn take_context(
        &self,
        _: &Watched,
        objects: &mut Objects,
        new: NewContext,
    ) -> Result<(u32, u64)> {
        let vctx = new.vctx.clone();
        if objects.context.is_some() {
            return Err(EBUSY);
        }
        let shared = &self.shared;
        let offsets = &shared.mmap_offsets;
        let guard = shared.gate.try_enter()?;
        let hw = guard.hw();
        let mut shown: [Option<MmapRange>; 3] = [None; 3];
        let queue = vctx.queue.clone();
        let contents = [
            Some((Backing::Context, true)),
            Some((Backing::Status(vctx.page.clone()), false)),
            queue.map(|queue| (Backing::Queue(queue), true)),
        ];
        let result = (|| {
            for (range, backing) in shown.iter_mut().zip(contents) {
                if let Some((backing, writable)) = backing {
                    *range = Some(offsets.add(self.number, 1, backing, writable)?);
                }
            }
            offsets.add_context(self.number)?;
            // Before it is attached, since it may be detached at once.
            self.events.set_context(Some(vctx.page.clone()));
            let (number, key) = shared.contexts.attach(hw, offsets, new)?;
            if vctx.method.needs_sched_notify() {
                shared.sched_notify.add(self.space.key(), number)?;
            }
            Ok((number, key))
        })();
        match (result, shown) {
            (Ok((number, key)), [Some(registers), Some(status), queue]) => {
                let serial = objects.next_serial();
                objects.context = Some(FileContext {
                    vctx,
                    serial,
                    registers,
                    status,
                    queue,
                });
                Ok((number, key))
            }
            (result, _) => {
                self.events.set_context(None);
                offsets.remove_context(self.number);
                shown
                    .into_iter()
                    .flatten()
                    .for_each(|range| offsets.remove(range));
                // The context has just been enabled, if at all, so nothing is in flight.
                let _ = shared.contexts.release(Some(hw), &vctx);
                result.and(Err(EINVAL))
            }
        }
    }

    /// Ends the context: mappings first, then the registers.
    ///
    /// # Errors
    ///
    /// `ENXIO` without a context; `ETIMEDOUT` if the device does not answer, and the context has
    /// ended nevertheless.
    pub(crate) fn drop_context(&self, objects: &mut Objects) -> Result {
        let context = objects.context.take().ok_or(ENXIO)?;
        let shared = &self.shared;
        shared.mmap_offsets.remove_context(self.number);
        shared.mmap_offsets.remove(context.registers);
        shared.mmap_offsets.remove(context.status);
        if let Some(queue) = context.queue {
            shared.mmap_offsets.remove(queue);
        }
        if context.vctx.method.needs_sched_notify() {
            shared.sched_notify.remove(self.space.key());
        }
        self.events.set_context(None);
        let guard = shared.gate.enter();
        let hw = guard.as_ref().map(|it| it.hw());
        shared.contexts.release(hw, &context.vctx)
    }

    /// Ends the context. Returns true if a descriptor of its queue was not done, or a send of a stream
    /// has failed: the end of the address space may have ended its memory before.
    fn abort_sends(&self) -> bool {
        let mut objects = self.objects.lock();
        let Some(context) = &objects.context else {
            return false;
        };
        let (page, queue) = (context.vctx.page.clone(), context.vctx.queue.clone());
        // A device that does not answer has not confirmed that they are done.
        if self.drop_context(&mut objects).is_err() {
            return true;
        }
        // Sends of an endpoint that has ended before are not told from other transfers.
        let has_failed = objects.has_torn_stream();
        if has_failed.unwrap_or_else(|| page.failed() > 0) {
            return true;
        }
        let next = page.completed().wrapping_add(1);
        queue.is_some_and(|queue| descriptor::is_written(&queue, next))
    }

    /// Sets or removes the eventfd, and requests the interrupts that it needs.
    pub(crate) fn set_eventfd(&self, eventfd: Option<EventFd>) {
        self.events.set_eventfd(eventfd);
        self.events.arm(&*self.shared);
    }

    /// Ends the open file after its file was closed.
    pub(crate) fn close(&self) {
        if let Some(end) = self.end.lock().take() {
            let this = end.watcher().open_file.lock().take();
            drop(this);
        }
        // It is not queued any more.
        flush(&self.work);
        self.release_all();
        self.shared.remove_file(self.number);
        self.shared.lmm.leave(&self.space);
    }

    /// Releases all objects of the open file. No new ones are made meanwhile, since the file was
    /// closed or no thread runs in its address space any more.
    fn release_all(&self) {
        if let Some(connection) = self.attachment.matched() {
            // First, so that nothing is sent after the end.
            connection.lose(self.abort_sends());
        }
        self.attachment
            .close(&self.shared.conn_ctx(), self.keep_pins.load(Relaxed));
        let mut objects = self.objects.lock();
        // There may be no context.
        let _ = self.drop_context(&mut objects);
        drop(objects);
        // Memory that the device may still access is retained, and the timeout was logged.
        let _ = self.end_regions();
        let mut objects = self.objects.lock();
        while let Some(object) = objects.handles.pop_if(|_| true) {
            // Memory that the device may still access is retained, and the timeout was logged.
            let _ = self.end(object);
        }
    }
}
