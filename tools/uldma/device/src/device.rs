// SPDX-License-Identifier: MIT OR Apache-2.0

//! The running device: the model behind a lock, the nodes' memory, the window, the engine, who looks
//! at the queues and who makes storms.
//!
//! Lock order: model, then memories by node number. The engine holds the memories without the
//! model while it moves a chunk; a client that maps or unmaps holds its own memory alone. So
//! nothing is moved to or from a range once `dma_unmap` has returned. Who looks at the queues holds
//! both, so no queue is looked at once an access that ends this has been answered.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::complaints::Complaints;
use crate::engine::{Scratch, Speed};
use crate::memory::GuestMemory;
use crate::model::Model;
use crate::node::Shape;
use crate::poll::Polled;

/// Time between two looks at queues that have had nothing for a while.
const NAP: Duration = Duration::from_micros(50);

/// Time from one interrupt of a storm to the next.
const GUST: Duration = Duration::from_micros(100);

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
    memories: Vec<RwLock<GuestMemory>>,
    most_ranges: usize,
    /// By the node that they are about.
    complaints: Vec<Complaints>,
    window: File,
}

/// How many ranges of memory each node can have: what this process can map, but for a quarter that it
/// needs itself, divided among the nodes.
fn most_ranges(nodes: usize) -> usize {
    /// Where the system does not tell.
    const USUAL: usize = 65530;
    let told = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    let all = told.and_then(|text| text.trim().parse().ok());
    all.unwrap_or(USUAL) / 4 * 3 / nodes.max(1)
}

/// Read locks on the memories of all nodes.
struct Memories<'a>(Vec<RwLockReadGuard<'a, GuestMemory>>);

impl Memories<'_> {
    fn list(&self) -> Vec<&GuestMemory> {
        self.0.iter().map(|memory| &**memory).collect()
    }
}

impl Device {
    /// A device with zeroed window and no clients.
    pub fn new(shape: Shape, nodes: usize, speed: Speed) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let window = File::from(rustix::fs::memfd_create("uldma-window", flags)?);
        window.set_len(shape.window_size)?;
        // A client that cut it short would kill the others, which have it mapped.
        rustix::fs::fcntl_add_seals(
            &window,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let most_ranges = most_ranges(nodes);
        Ok(Self {
            shape,
            speed,
            model: Mutex::new(Model::new(shape, nodes, speed)),
            waiting: AtomicUsize::new(0),
            work: Condvar::new(),
            queues: Condvar::new(),
            storms: Condvar::new(),
            memories: (0..nodes)
                .map(|_| RwLock::new(GuestMemory::limited(most_ranges)))
                .collect(),
            most_ranges,
            complaints: (0..nodes).map(|_| Complaints::default()).collect(),
            window,
        })
    }

    /// How many ranges of memory each node can have.
    pub fn most_ranges(&self) -> usize {
        self.most_ranges
    }

    /// Tells the administrator what is wrong with a node, at a limited rate.
    pub fn complain(&self, node: usize, message: fmt::Arguments<'_>) {
        if let Some(complaints) = self.complaints.get(node) {
            complaints.say(format_args!("node {node}: {message}"));
        }
    }

    /// What does not change while the device runs.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How fast the device is.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The window, mapped by the clients.
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

    /// Lets others have the model. Locks are not fair, so who takes one again and again has to.
    fn give_way(&self) {
        /// Others may come without an end.
        const PATIENCE: u32 = 1000;
        for _ in 0..PATIENCE {
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

    /// Lets the model do something, and the engine look at what came of it.
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

    /// Waits until the chunk that is being moved, if any, has ended.
    pub fn wait_for_chunk(&self) {
        for memory in &self.memories {
            drop(memory.write().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The engine: moves chunk after chunk, forever.
    pub fn run_engine(&self) -> ! {
        let mut scratch = Scratch::default();
        let mut model = self.lock();
        loop {
            let now = Instant::now();
            match model.next(now) {
                Ok(job) => {
                    drop(model);
                    let progress = job.run(&self.memories().list(), &mut scratch);
                    model = self.lock();
                    let memories = self.memories();
                    model.finish(&job, progress, Instant::now(), &memories.list());
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

    /// Who makes storms: rings at a pace while there is one, forever.
    pub fn run_storms(&self) -> ! {
        let mut model = self.lock();
        loop {
            if model.storm() {
                drop(model);
                std::thread::sleep(GUST);
                model = self.lock();
            } else {
                model = self
                    .storms
                    .wait(model)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Who looks at the queues of descriptors: again and again while one is awake, forever.
    pub fn run_poller(&self) -> ! {
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
                model = self
                    .queues
                    .wait(model)
                    .unwrap_or_else(PoisonError::into_inner);
                found = Instant::now();
            } else if now.saturating_duration_since(found) > self.speed.poll {
                (model, _) = self
                    .queues
                    .wait_timeout(model, NAP)
                    .unwrap_or_else(PoisonError::into_inner);
            } else {
                drop(model);
                self.give_way();
                model = self.lock();
            }
        }
    }
}
