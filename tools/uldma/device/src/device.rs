// SPDX-License-Identifier: MIT OR Apache-2.0

//! The running device: the model behind a lock, the nodes' memory, the window, and the threads. One
//! thread runs the engine, one polls the queues, one generates doorbell storms, and one per node
//! sends interrupts.
//!
//! Lock order: model, then memories by node number. The engine holds the memories from the choice of
//! a chunk until it has moved it, the latter without the model; a client that maps or unmaps a range
//! holds only its own memory. So nothing is moved to or from a range after `dma_unmap` has returned,
//! nor for a node that was a bus master when the chunk was chosen, once [`Device::wait_for_chunk`]
//! has returned. The poller holds both locks, so it polls no queue after the device has answered the
//! access that stopped its polling.

use std::fmt;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::set_current_timer_slack;

use crate::engine::{Job, Progress, Scratch, Speed};
use crate::irq::Event;
use crate::memory::GuestMemory;
use crate::model::Model;
use crate::node::Shape;
use crate::poll::Polled;
use crate::ratelimit::RateLimitedLog;
use crate::stats::Report;
use crate::transfer::Outcome;

/// Interval of the attempts to free a thread from a client that has left.
const RELEASE: Duration = Duration::from_millis(10);

/// A device with its engine's state, shared by all threads.
#[derive(Debug)]
pub struct Device {
    shape: Shape,
    speed: Speed,
    model: Mutex<Model>,
    /// Threads that wait for the model.
    waiting: AtomicUsize,
    work: Condvar,
    queues: Condvar,
    storms: Condvar,
    /// By node.
    interrupts: Vec<Condvar>,
    memories: Vec<RwLock<GuestMemory>>,
    most_ranges: usize,
    /// Error logs, by node.
    error_logs: Vec<RateLimitedLog>,
    window: File,
}

/// Returns the limit of memory ranges per node: the mappings that this process may have, minus a
/// quarter for its own use, divided by the number of nodes.
fn most_ranges(nodes: usize) -> usize {
    /// Default of the kernel, for systems that do not report the limit.
    const DEFAULT: usize = 65530;
    let reported = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let all = reported.and_then(|text| text.trim().parse().ok());
    all.unwrap_or(DEFAULT) / 4 * 3 / nodes.max(1)
}

/// Read locks on the memories of all nodes.
struct Memories<'a>(Vec<RwLockReadGuard<'a, GuestMemory>>);

impl Memories<'_> {
    fn list(&self) -> Vec<&GuestMemory> {
        self.0.iter().map(|memory| &**memory).collect()
    }
}

/// A chunk that the engine has chosen, with the memories that it may access.
struct Chunk<'a> {
    job: Job,
    memories: Memories<'a>,
}

impl Chunk<'_> {
    /// Moves the chunk, then gives the memories back. The error is a panic of the engine.
    fn run(self, scratch: &mut Scratch) -> (Job, thread::Result<Progress>) {
        let run = || self.job.run(&self.memories.list(), scratch);
        let progress = catch_unwind(AssertUnwindSafe(run));
        (self.job, progress)
    }
}

impl Device {
    /// A device with zeroed window and no clients.
    pub fn new(shape: Shape, nodes: usize, speed: Speed) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let window = File::from(rustix::fs::memfd_create("uldma-window", flags)?);
        window.set_len(shape.window_size)?;
        // A client that shrinks the file would kill the other clients, which have it mapped.
        rustix::fs::fcntl_add_seals(
            &window,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let most_ranges = most_ranges(nodes);
        let memory = |node| {
            let mut memory = GuestMemory::limited(most_ranges);
            let size = shape.section_size(nodes);
            memory.set_section(window.try_clone()?, node as u64 * size, size)?;
            Ok(RwLock::new(memory))
        };
        let memories = (0..nodes).map(memory).collect::<io::Result<_>>()?;
        Ok(Self {
            shape,
            speed,
            model: Mutex::new(Model::new(shape, nodes, speed)),
            waiting: AtomicUsize::new(0),
            work: Condvar::new(),
            queues: Condvar::new(),
            storms: Condvar::new(),
            interrupts: (0..nodes).map(|_| Condvar::new()).collect(),
            memories,
            most_ranges,
            error_logs: (0..nodes).map(|_| RateLimitedLog::default()).collect(),
            window,
        })
    }

    /// Starts the threads of the device.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        self.spawn("engine".into(), Self::run_engine)?;
        self.spawn("poller".into(), Self::run_poller)?;
        self.spawn("storms".into(), Self::run_storms)?;
        for node in 0..self.interrupts.len() {
            let run = move |device: &Self| device.run_interrupts(node);
            self.spawn(format!("interrupts-{node}"), run)?;
        }
        Ok(())
    }

    fn spawn(
        self: &Arc<Self>,
        name: String,
        run: impl Fn(&Self) + Send + 'static,
    ) -> io::Result<()> {
        let device = Arc::clone(self);
        let thread = thread::Builder::new().name(name);
        thread.spawn(move || loop {
            device.guard(&run);
        })?;
        Ok(())
    }

    /// Runs `act`, which must not end by a panic: the node that caused a panic is disabled.
    fn guard(&self, act: impl FnOnce(&Self)) {
        if catch_unwind(AssertUnwindSafe(|| act(self))).is_ok() {
            return;
        }
        match self.with(|model, _| model.take_serving()) {
            Some(node) => self.give_up(node),
            None => log::error!("a thread panicked and is restarted"),
        }
    }

    /// Disables a function that has made the model panic.
    fn give_up(&self, node: usize) {
        self.complain(node, format_args!("the model fails; off until a reset"));
        self.with(|model, memories| model.give_up(node, memories));
    }

    /// Returns the limit of memory ranges of each node.
    pub fn most_ranges(&self) -> usize {
        self.most_ranges
    }

    /// Logs an error of a node, at a limited rate.
    pub fn complain(&self, node: usize, message: fmt::Arguments<'_>) {
        if let Some(error_log) = self.error_logs.get(node) {
            error_log.error(format_args!("node {node}: {message}"));
        }
    }

    /// Counts from now on what caches of up to `entries` page entries of each node would have.
    pub fn count_translations(&self, entries: usize) {
        for memory in &self.memories {
            let mut memory = memory.write().unwrap_or_else(PoisonError::into_inner);
            memory.count_translations(entries);
        }
    }

    /// Everything that was counted.
    pub fn report(&self) -> Report {
        self.with(|model, memories| {
            let mut report = model.report();
            for (node, memory) in report.nodes.iter_mut().zip(memories) {
                node.tlb = memory.translations();
            }
            report
        })
    }

    /// Returns the parameters that do not change while the device runs.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the parts of the window that a node reaches: [`Shape::areas`].
    pub fn areas(&self, node: usize) -> Vec<Range<u64>> {
        self.shape.areas(node, self.memories.len())
    }

    /// Returns the timing parameters.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// Returns the window's file, which clients map.
    pub fn window(&self) -> &File {
        &self.window
    }

    /// The model's invariants hold between any two of its calls, so a panic elsewhere is no reason
    /// to stop serving.
    fn lock(&self) -> MutexGuard<'_, Model> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        model
    }

    /// Yields the model to waiting threads. Locks are not fair, so a thread that takes one in a
    /// loop must yield.
    fn give_way(&self) {
        /// Bound on the yields, since other threads may arrive without end.
        const MAX_YIELDS: u32 = 1000;
        for _ in 0..MAX_YIELDS {
            std::thread::yield_now();
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }

    fn memories(&self) -> Memories<'_> {
        let read = |memory| RwLock::read(memory).unwrap_or_else(PoisonError::into_inner);
        Memories(self.memories.iter().map(read).collect())
    }

    /// Runs `act` on the model, then wakes the threads that have new work.
    pub fn with<R>(&self, act: impl FnOnce(&mut Model, &[&GuestMemory]) -> R) -> R {
        let mut model = self.lock();
        let result = act(&mut model, &self.memories().list());
        self.notify(&mut model);
        result
    }

    fn notify(&self, model: &mut Model) {
        if model.take_wake() {
            self.work.notify_one();
        }
        if model.take_wake_poller() {
            self.queues.notify_one();
        }
        if model.take_wake_storm() {
            self.storms.notify_one();
        }
        for (node, interrupts) in self.interrupts.iter().enumerate() {
            if model.due_vectors(node).is_some() {
                interrupts.notify_all();
            }
        }
    }

    /// Sends the interrupts of a node, forever. If the client makes that block, only this thread
    /// waits.
    fn run_interrupts(&self, node: usize) {
        let Some(interrupts) = self.interrupts.get(node) else {
            return;
        };
        let mut model = self.lock();
        loop {
            let Some(vectors) = model.due_vectors(node) else {
                model = interrupts
                    .wait(model)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let events = vectors.take_due();
            drop(model);
            for event in &events {
                if let Err(error) = event.ring() {
                    self.complain(node, format_args!("an interrupt is lost: {error}"));
                }
            }
            let sent = Instant::now();
            model = self.lock();
            if let Some(vectors) = model.vectors(node) {
                vectors.sent();
            }
            interrupts.notify_all();
            let left = self.speed.interrupt.saturating_sub(sent.elapsed());
            if !left.is_zero() {
                // Interrupts raised in between are merged into one.
                drop(model);
                thread::sleep(left);
                model = self.lock();
            }
        }
    }

    /// Waits until nothing is sent to a client that has left, however it has left its files.
    pub fn release_interrupts(&self, node: usize) {
        let Some(interrupts) = self.interrupts.get(node) else {
            return;
        };
        loop {
            let mut model = self.lock();
            let ringing = model.vectors(node).map(|vectors| vectors.ringing());
            let ringing = ringing.unwrap_or_default();
            if ringing.is_empty() {
                return;
            }
            drop(model);
            ringing.iter().for_each(Event::drain);
            let model = self.lock();
            let waited = interrupts.wait_timeout(model, RELEASE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Changes a node's memory map, once no chunk is being moved.
    pub fn with_memory<R>(
        &self,
        node: usize,
        act: impl FnOnce(&mut GuestMemory) -> io::Result<R>,
    ) -> io::Result<R> {
        let memory = self.memories.get(node).ok_or(io::ErrorKind::NotFound)?;
        act(&mut memory.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Chooses the engine's next chunk: [`Model::next`].
    fn choose(&self, model: &mut Model, now: Instant) -> Result<Chunk<'_>, Option<Instant>> {
        let memories = self.memories();
        let job = model.next(now, &memories.list())?;
        Ok(Chunk { job, memories })
    }

    /// Waits until the chunk that was chosen, if any, has been moved.
    pub fn wait_for_chunk(&self) {
        for memory in &self.memories {
            drop(memory.write().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Runs the engine, forever: moves one chunk after the other.
    fn run_engine(&self) {
        let mut scratch = Scratch::default();
        let mut model = self.lock();
        loop {
            let now = Instant::now();
            if model.retry().is_some_and(|when| when <= now) {
                model.refresh_links(&self.memories().list());
                self.notify(&mut model);
            }
            let retry = model.retry();
            let earlier = |when: Option<Instant>| when.into_iter().chain(retry).min();
            match self.choose(&mut model, now).map_err(earlier) {
                Ok(chunk) => {
                    drop(model);
                    let (job, progress) = chunk.run(&mut scratch);
                    let progress = progress.unwrap_or_else(|_| {
                        self.give_up(job.node);
                        Progress::Ended(Outcome::default())
                    });
                    model = self.lock();
                    let memories = self.memories();
                    model.finish(&job, progress, &memories.list());
                    drop(memories);
                    self.notify(&mut model);
                }
                Err(None) => {
                    model = self
                        .work
                        .wait(model)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Err(Some(when)) => {
                    (model, _) = self
                        .work
                        .wait_timeout(model, when.saturating_duration_since(now))
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Generates doorbell storms, forever: rings at a fixed interval while the fault is on.
    fn run_storms(&self) {
        let mut model = self.lock();
        loop {
            if model.storm() {
                self.notify(&mut model);
                drop(model);
                thread::sleep(self.speed.storm);
                model = self.lock();
            } else {
                model = self
                    .storms
                    .wait(model)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Polls the queues of descriptors, forever: repeatedly while at least one is awake.
    fn run_poller(&self) {
        // By default the kernel may end a nap as late as a whole nap of `Speed::NAP` lasts.
        if let Err(error) = set_current_timer_slack(Some(NonZeroU64::MIN)) {
            log::warn!("naps between polls last longer than they should: {error}");
        }
        let mut scratch = Scratch::default();
        let mut model = self.lock();
        let mut found = Instant::now();
        loop {
            let now = Instant::now();
            let polled = model.poll(now, &self.memories().list(), &mut scratch);
            self.notify(&mut model);
            if polled == Polled::Found {
                found = now;
            }
            if polled == Polled::Asleep {
                model = match model.next_timeout() {
                    Some(when) => {
                        let limit = when.saturating_duration_since(now);
                        let waited = self.queues.wait_timeout(model, limit);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        let waited = self.queues.wait(model);
                        waited.unwrap_or_else(PoisonError::into_inner)
                    }
                };
                found = Instant::now();
            } else if let Some(nap) = self.speed.nap_after(now.saturating_duration_since(found)) {
                (model, _) = self
                    .queues
                    .wait_timeout(model, nap)
                    .unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(model);
                self.give_way();
                model = self.lock();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Method;
    use crate::layout::{reg, BAR_CONTROL, ID_MAGIC};
    use crate::method::Compare;
    use crate::transfer::{Transfer, Work};

    const SHAPE: Shape = Shape {
        contexts: 2,
        shadow_bits: 30,
        window_size: 1 << 15,
        methods: Method::ALL,
        compare: Compare::Full,
    };

    /// A device of two nodes that are bus masters.
    fn started() -> Device {
        let device = Device::new(SHAPE, 2, Speed::default()).unwrap();
        (0..2).for_each(|node| start(&device, node));
        device
    }

    fn start(device: &Device, node: usize) {
        device.with(|model, _| {
            model.attach(node);
            model.config_store(node, 4, &[0x06, 0]);
        });
    }

    fn id(device: &Device, node: usize) -> u32 {
        device.with(|model, memories| {
            let mut data = [0; 4];
            let offset = reg::ID.offset() as u64;
            model.load(node, BAR_CONTROL, offset, &mut data, memories);
            u32::from_le_bytes(data)
        })
    }

    #[test]
    fn who_makes_a_thread_fail_is_off() {
        let device = started();
        device.guard(|device| {
            device.with(|model, _| {
                model.begin_for(1);
                panic!("as requested");
            })
        });
        assert_eq!((id(&device, 0), id(&device, 1)), (ID_MAGIC, u32::MAX));
        assert_eq!(device.with(|model, _| model.take_serving()), None);
        device.with(|model, memories| model.reset_function(1, memories));
        start(&device, 1);
        assert_eq!(id(&device, 1), ID_MAGIC);
    }

    #[test]
    fn memories_are_held_from_the_choice_of_a_chunk() {
        let device = started();
        device.with(|model, _| {
            let transfer = Transfer::new(Work::Nothing, Instant::now());
            model.nodes[0].contexts[1].push(transfer).unwrap();
        });
        // As the engine does, which gives the model up before it moves the chunk.
        let chunk = device.choose(&mut device.lock(), Instant::now()).unwrap();
        let free = || {
            let memories = device.memories.iter();
            memories.filter(|memory| memory.try_write().is_ok()).count()
        };
        assert_eq!(free(), 0);
        let (_, progress) = chunk.run(&mut Scratch::default());
        assert!(progress.is_ok());
        assert_eq!(free(), 2);
    }
}
