// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts and the device between them, driven by accesses alone.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use uldma_device::abi::{Method, Status};
use uldma_device::engine::{Job, Scratch, Speed};
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, ContextRegister, Control, ControlRegister, Invalidation, Key,
    Register, Running, Word, BAR_CONTROL, BAR_SHADOW, CONTEXT_BLOCKS,
};
use uldma_device::memory::GuestMemory;
use uldma_device::method::Compare;
use uldma_device::model::Model;
use uldma_device::node::Shape;
use uldma_device::poll::Polled;
use uldma_device::shadow::SizeWord;

use super::{memfd, Guest, FREE, PAGE, PAGES, REGIONS};

pub(crate) const SHAPE: Shape = Shape {
    contexts: 4,
    shadow_bits: 30,
    window_size: 64 * 1024,
    methods: Method::ALL,
    compare: Compare::Full,
};
pub(crate) const SPACE: u32 = 5;
pub(crate) const OTHER_SPACE: u32 = 6;
/// A context of [`SPACE`] on each node, and one of [`OTHER_SPACE`].
pub(crate) const OURS: u32 = 1;
pub(crate) const THEIRS: u32 = 2;

type ControlAt<T, A> = Register<ControlRegister, T, A>;
type ContextAt<T, A> = Register<ContextRegister, T, A>;

/// A register of a context block.
pub(crate) fn of_context<T, A>(context: u32, register: ContextAt<T, A>) -> ControlAt<T, A> {
    register.of(CONTEXT_BLOCKS.at(context as usize).unwrap())
}

/// Hosts and the device between them, without threads.
pub(crate) struct Rig {
    pub(crate) model: Model,
    pub(crate) guests: Vec<Guest>,
    pub(crate) memories: Vec<GuestMemory>,
    pub(crate) scratch: Scratch,
    window: File,
    /// Bytes of each node's section of the window.
    pub(crate) section: u64,
}

impl Rig {
    /// Starts two nodes without drivers.
    pub(crate) fn cold(speed: Speed) -> Self {
        Self::of_shape(SHAPE, speed)
    }

    /// Starts two nodes of other sizes.
    pub(crate) fn of_shape(shape: Shape, speed: Speed) -> Self {
        Self::of_nodes(2, shape, speed)
    }

    /// Starts any number of nodes without drivers.
    pub(crate) fn of_nodes(nodes: usize, shape: Shape, speed: Speed) -> Self {
        let guests: Vec<_> = (0..nodes).map(|_| Guest::new(16 << 20)).collect();
        let mut memories: Vec<_> = guests.iter().map(Guest::memory).collect();
        let window = memfd(shape.window_size);
        let section = shape.section_size(nodes);
        for (node, memory) in (0..).zip(&mut memories) {
            let window = window.try_clone().unwrap();
            memory.set_section(window, node * section, section).unwrap();
        }
        let mut rig = Self {
            model: Model::new(shape, nodes, speed),
            guests,
            memories,
            scratch: Scratch::default(),
            window,
            section,
        };
        for node in 0..nodes {
            rig.model.attach(node);
            rig.model.config_store(node, 4, &[0x06, 0]);
        }
        rig
    }

    /// Writes to a node's section of the window.
    pub(crate) fn put_window(&self, node: u64, offset: u64, data: &[u8]) {
        let place = node * self.section + offset;
        self.window.write_all_at(data, place).unwrap();
    }

    /// Reads the whole window.
    pub(crate) fn window(&self) -> Vec<u8> {
        let mut data = vec![0; self.window.metadata().unwrap().len() as usize];
        self.window.read_exact_at(&mut data, 0).unwrap();
        data
    }

    /// Two nodes with drivers, tables and contexts.
    pub(crate) fn new() -> Self {
        let mut rig = Self::cold(Speed::default());
        for node in 0..2 {
            rig.probe(node);
        }
        rig
    }

    pub(crate) fn probe(&mut self, node: usize) {
        let (pages, regions) = (
            self.guests[node].page_directory(),
            self.guests[node].region_directory(),
        );
        self.set(node, reg::PAGE_DIRECTORY, pages);
        self.set(node, reg::REGION_DIRECTORY, regions);
        self.set(node, reg::PAGE_CAPACITY, PAGES);
        self.set(node, reg::REGION_CAPACITY, REGIONS);
        for (context, space) in [(0, 0), (OURS, SPACE), (THEIRS, OTHER_SPACE)] {
            let page = self.guests[node].status_page(context);
            self.set_ctx(node, context, ctx::STATUS_PAGE, page);
            let descriptors = self.guests[node].descriptors(context);
            self.set_ctx(node, context, ctx::QUEUE, descriptors);
            self.set_ctx(node, context, ctx::KEY, Key::from_bits(Self::key(context)));
            self.set_ctx(node, context, ctx::SPACE, space);
            self.set_ctx(node, context, ctx::METHODS, 1);
            self.set_ctx(node, context, ctx::CONTROL, ContextControl::ENABLE);
        }
        self.set(node, reg::CONTROL, Control::ENABLE);
    }

    pub(crate) fn load(&mut self, node: usize, bar: u32, offset: u64, width: usize) -> u64 {
        let memories: Vec<_> = self.memories.iter().collect();
        let mut data = [0; 8];
        self.model
            .load(node, bar, offset, &mut data[..width], &memories);
        u64::from_le_bytes(data)
    }

    pub(crate) fn store(&mut self, node: usize, bar: u32, offset: u64, width: usize, value: u64) {
        let memories: Vec<_> = self.memories.iter().collect();
        let data = value.to_le_bytes();
        self.model
            .store(node, bar, offset, &data[..width], &memories);
    }

    /// A register, with its own width.
    pub(crate) fn get<T: Word, A>(&mut self, node: usize, register: ControlAt<T, A>) -> T {
        let offset = register.offset() as u64;
        T::from_raw(self.load(node, BAR_CONTROL, offset, size_of::<T>()))
    }

    pub(crate) fn set<T: Word, A>(&mut self, node: usize, register: ControlAt<T, A>, value: T) {
        let offset = register.offset() as u64;
        self.store(node, BAR_CONTROL, offset, size_of::<T>(), value.to_raw());
    }

    /// A register of a context.
    pub(crate) fn get_ctx<T: Word, A>(
        &mut self,
        node: usize,
        context: u32,
        register: ContextAt<T, A>,
    ) -> T {
        self.get(node, of_context(context, register))
    }

    pub(crate) fn set_ctx<T: Word, A>(
        &mut self,
        node: usize,
        context: u32,
        register: ContextAt<T, A>,
        value: T,
    ) {
        self.set(node, of_context(context, register), value);
    }

    /// A context's key.
    pub(crate) fn key(context: u32) -> u64 {
        0x1234_5678_9abc_def0 | u64::from(context)
    }

    /// Shadow address of a byte of a page entry.
    pub(crate) fn shadow(context: u32, entry: u32, offset: u64) -> u64 {
        (u64::from(context) << 28) + u64::from(entry) * PAGE + offset
    }

    /// A store of eight bytes to shadow space.
    pub(crate) fn st(&mut self, context: u32, (entry, offset): (u32, u64), word: u64) {
        self.store(0, BAR_SHADOW, Self::shadow(context, entry, offset), 8, word);
    }

    /// A load of eight bytes from shadow space.
    pub(crate) fn ld(&mut self, context: u32, (entry, offset): (u32, u64)) -> i64 {
        self.load(0, BAR_SHADOW, Self::shadow(context, entry, offset), 8) as i64
    }

    /// Reports the running context of a CPU to node 0.
    pub(crate) fn run_on(&mut self, cpu: u32, context: u32) {
        let running = Running::NONE.with(Running::CPU, cpu);
        self.set(0, reg::RUNNING, running.with(Running::CONTEXT, context));
    }

    /// Makes one initiation by extended shadow addressing.
    pub(crate) fn initiate(
        &mut self,
        node: usize,
        context: u32,
        (source, src_region): (u64, u32),
        (destination, dst_region): (u64, u32),
        bytes: u32,
    ) -> i64 {
        let word = SizeWord {
            bytes,
            src_low: (source % 8) as u32,
            dst_low: (destination % 8) as u32,
            src_region,
            dst_region,
        };
        let slice = u64::from(context) << 28;
        let at = slice + (destination & !7);
        self.store(node, BAR_SHADOW, at, 8, word.pack());
        self.load(node, BAR_SHADOW, slice + (source & !7), 8) as i64
    }

    /// Polls the queues once.
    pub(crate) fn poll(&mut self) -> Polled {
        self.poll_at(Instant::now())
    }

    /// Polls the queues once, at some time.
    pub(crate) fn poll_at(&mut self, now: Instant) -> Polled {
        let memories: Vec<_> = self.memories.iter().collect();
        self.model.poll(now, &memories, &mut self.scratch)
    }

    /// Switches a context off and on, with another method.
    pub(crate) fn set_method(&mut self, node: usize, context: u32, method: Method) {
        self.set_ctx(node, context, ctx::CONTROL, ContextControl::NONE);
        self.set_ctx(node, context, ctx::METHODS, method.bit());
        let enable = ContextControl::ENABLE;
        self.set_ctx(node, context, ctx::CONTROL, enable);
    }

    /// Returns the engine's next chunk.
    pub(crate) fn next(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        let memories: Vec<_> = self.memories.iter().collect();
        self.model.next(now, &memories)
    }

    /// Moves the engine's next chunk. Returns false if it has none.
    pub(crate) fn step(&mut self) -> bool {
        let memories: Vec<_> = self.memories.iter().collect();
        match self.model.next(Instant::now(), &memories) {
            Ok(job) => {
                let progress = job.run(&memories, &mut self.scratch);
                self.model.finish(&job, progress, &memories);
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    pub(crate) fn invalidate(&mut self, node: usize, kind: u8, index: u32) {
        self.set(node, reg::INVALIDATE, Invalidation::new(kind, index));
    }

    pub(crate) fn fault(&mut self, node: usize, fault: Fault, on: bool) {
        let memories: Vec<_> = self.memories.iter().collect();
        assert!(self.model.set_fault(node, fault, on, &memories));
    }

    /// Holds a context's chunks before their access, or lets them go on.
    pub(crate) fn hold(&mut self, node: usize, context: u32, on: bool) {
        let memories: Vec<_> = self.memories.iter().collect();
        let context = Some(context as usize);
        assert!(self.model.set_hold(node, context, on, &memories));
    }

    /// Plugs or unplugs all cables.
    pub(crate) fn plug(&mut self, up: bool) {
        let memories: Vec<_> = self.memories.iter().collect();
        self.model.with_links(&memories, |links| links.plug(up));
    }

    /// Restores or cuts the link between two nodes.
    pub(crate) fn set_link(&mut self, one: usize, other: usize, up: bool) {
        let memories: Vec<_> = self.memories.iter().collect();
        let known = self
            .model
            .with_links(&memories, |links| links.cut(one, other, !up));
        assert!(known);
    }

    /// Node 0: region 1 over page entries 10.., region 2 over 500..; node 1: region 3, imported by
    /// node 0 as region 4 over page entries 1000...
    pub(crate) fn regions(&mut self, length: u64) {
        self.guests[0].register(1, SPACE, 10, FREE + 0x123, length);
        self.guests[0].register(2, SPACE, 500, FREE + (4 << 20) + 0x456, length);
        self.guests[1].register(3, OTHER_SPACE, 77, FREE + 0x789, length);
        self.guests[0].import(4, SPACE, 1000, (1, 3), length);
    }
}

/// Shadow byte of a byte of region 1, 2 or 4 of [`Rig::regions`].
pub(crate) fn at(region: u32, position: u64) -> (u64, u32) {
    let start = match region {
        1 => 10 * PAGE + 0x123,
        2 => 500 * PAGE + 0x456,
        _ => 1000 * PAGE,
    };
    (start + position, region)
}

pub(crate) fn refused(status: Status) -> i64 {
    status.negated()
}
