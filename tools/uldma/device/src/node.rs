// SPDX-License-Identifier: MIT OR Apache-2.0

//! The function of one node: its registers and state, as far as they do not depend on other nodes.

use std::ops::Range;

use crate::abi::Method;
use crate::completion::StatusPage;
use crate::config::{BarSizes, Config};
use crate::context::{Context, ControlChange};
use crate::doorbell::Doorbell;
use crate::fault::{Fault, Faults};
use crate::irq::Vectors;
use crate::layout::{
    ContextControl, ContextRegister as Reg, EventCauses, KernelAddress, Key, Lanes, Running, Word,
    SCRATCHPADS, VECTOR_CONTROL, VECTOR_EVENT, VECTOR_NETWORK,
};
use crate::memory::GuestMemory;
use crate::method::Compare;
use crate::methods::Machines;
use crate::shadow::Geometry;
use crate::stats::{ContextReport, HeldReport, NodeCounters, NodeReport};
use crate::tpt::Tables;
use crate::transfer::Work;

/// log2 of the smallest page, and of the page after a reset.
pub const SMALLEST_PAGE_SHIFT: u32 = 12;
/// log2 of the largest page.
pub const LARGEST_PAGE_SHIFT: u32 = 16;

/// Parameters that do not change while the device runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Contexts of each node.
    pub contexts: u32,
    /// log2 of the bytes of shadow space.
    pub shadow_bits: u32,
    /// Bytes of the window.
    pub window_size: u64,
    /// Mask of the initiation methods that contexts can have.
    pub methods: u32,
    /// Bits of two addresses that repeated passing compares.
    pub compare: Compare,
}

/// Number of CPUs of a node that the device distinguishes.
pub const CPUS: u32 = 64;

impl Shape {
    /// Sizes of the BARs.
    pub fn bar_sizes(&self) -> BarSizes {
        BarSizes::new(self.contexts, self.shadow_bits, self.window_size)
    }

    /// Returns the bytes of the section of the window that each of `nodes` nodes has.
    pub fn section_size(&self, nodes: usize) -> u64 {
        self.window_size / nodes.next_power_of_two() as u64
    }

    /// Returns the parts of the window that `node` reaches, one of `nodes`: its own section, and of each
    /// other section the lane that it writes. They are sorted, and no two of them touch.
    pub fn areas(&self, node: usize, nodes: usize) -> Vec<Range<u64>> {
        let size = self.section_size(nodes);
        let lanes = Lanes::new(nodes as u32, size);
        let mut areas: Vec<Range<u64>> = Vec::new();
        for owner in 0..nodes {
            let start = owner as u64 * size;
            let lane = match owner == node {
                true => Some(0..size),
                false => lanes.and_then(|lanes| lanes.lane(owner as u32, node as u32)),
            };
            let Some(lane) = lane else { continue };
            let area = start + lane.start..start + lane.end;
            match areas.last_mut() {
                Some(last) if last.end == area.start => last.end = area.end,
                _ => areas.push(area),
            }
        }
        areas
    }
}

/// Registers of a node that only keep their value.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The driver is there.
    pub enabled: bool,
    /// Pending causes of the event vector.
    pub event: EventCauses,
    /// Locations of the tables, and the page shift.
    pub tables: Tables,
    /// Kernel-initiated transfer: source.
    pub dma_source: KernelAddress,
    /// Kernel-initiated transfer: destination.
    pub dma_destination: KernelAddress,
    /// Kernel-initiated transfer: ticket or negated status.
    pub dma_status: i64,
    /// Scratchpads that the peers read.
    pub scratchpad: [u32; SCRATCHPADS],
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            enabled: false,
            event: EventCauses::NONE,
            tables: Tables {
                page_shift: SMALLEST_PAGE_SHIFT,
                ..Tables::default()
            },
            dma_source: KernelAddress::NONE,
            dma_destination: KernelAddress::NONE,
            dma_status: 0,
            scratchpad: [0; SCRATCHPADS],
        }
    }
}

/// The function of one node.
#[derive(Debug)]
pub struct Node {
    shape: Shape,
    /// A client is connected.
    pub attached: bool,
    /// Configuration space.
    pub config: Config,
    /// Interrupts.
    pub vectors: Vectors,
    /// Plain registers.
    pub registers: Registers,
    /// Doorbells from peers.
    pub doorbell: Doorbell,
    /// Register contexts; the first is the kernel's.
    pub contexts: Vec<Context>,
    /// The state machines of the methods, with the arguments passed so far.
    pub machines: Machines,
    /// Invalidations that have not ended.
    pub invalidations: u32,
    /// A reset has not ended.
    pub resetting: bool,
    /// The node has made the model fail, and is disabled until a reset.
    pub is_broken: bool,
    /// Misbehaviour that is on.
    pub faults: Faults,
    /// The only context whose chunks are held while that fault is on; `None` for all contexts.
    pub held_context: Option<usize>,
    /// Counters.
    pub counters: NodeCounters,
}

impl Node {
    /// Creates a node without a client.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            attached: false,
            config: Config::new(&shape.bar_sizes()),
            vectors: Vectors::default(),
            registers: Registers::default(),
            doorbell: Doorbell::default(),
            contexts: Self::fresh_contexts(shape),
            machines: Machines::new(shape.compare),
            invalidations: 0,
            resetting: false,
            is_broken: false,
            faults: Faults::default(),
            held_context: None,
            counters: NodeCounters::default(),
        }
    }

    fn fresh_contexts(shape: Shape) -> Vec<Context> {
        (0..shape.contexts).map(|_| Context::default()).collect()
    }

    /// Restores the reset values; transfers are dropped without a completion.
    pub fn reset(&mut self) {
        self.registers = Registers::default();
        self.doorbell = Doorbell::default();
        self.contexts = Self::fresh_contexts(self.shape);
        self.machines = Machines::new(self.shape.compare);
        self.invalidations = 0;
        self.counters.resets += 1;
    }

    /// Returns the current layout of the shadow space.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            shadow_bits: self.shape.shadow_bits,
            contexts: self.shape.contexts,
            page_shift: self.registers.tables.page_shift,
        }
    }

    /// Returns true if the function is on the bus and not broken.
    fn is_there(&self) -> bool {
        !self.is_broken && !self.faults.has(Fault::Gone)
    }

    /// Returns true if the function answers in its BARs.
    pub fn answers(&self) -> bool {
        self.config.decodes_memory() && self.is_there()
    }

    /// Returns true if the driver has enabled the device and the device is ready.
    pub fn is_enabled(&self) -> bool {
        self.attached && self.registers.enabled && !self.resetting && self.is_there()
    }

    /// Returns true if the engine serves this node.
    pub fn engine_runs(&self) -> bool {
        !self.faults.has(Fault::Stall) && self.is_there()
    }

    /// Returns true if chunks of the context are held before their access.
    pub fn holds(&self, context: usize) -> bool {
        self.faults.has(Fault::Hold) && self.held_context.is_none_or(|only| only == context)
    }

    /// Returns true if the engine may access memory on behalf of this node.
    pub fn dma_works(&self) -> bool {
        self.config.is_bus_master() && !self.faults.has(Fault::BusError)
    }

    /// Returns the current method of the context, if it can initiate at all.
    pub fn method_of(&self, context: usize) -> Option<Method> {
        let enabled = context != 0 && self.is_enabled();
        let context = self.contexts.get(context).filter(|_| enabled)?;
        let method = context.method().filter(|_| context.is_enabled())?;
        (self.shape.methods & method.bit() != 0).then_some(method)
    }

    /// Stores to the register by which the driver reports the running context.
    pub fn set_running(&mut self, running: Running) {
        let (cpu, context) = (running.get(Running::CPU), running.get(Running::CONTEXT));
        if cpu < CPUS {
            self.machines
                .running(cpu, (context != 0).then_some(context));
        }
    }

    /// Sends an interrupt.
    pub fn interrupt(&mut self, vector: u16) {
        if !self.faults.has(Fault::DropInterrupt) && self.is_there() {
            self.vectors.raise(vector);
        }
    }

    /// Sets doorbell bits.
    pub fn ring(&mut self, bits: u32) {
        let bits = self.doorbell.ring(bits);
        self.doorbells_interrupt(bits);
    }

    /// Masks doorbell bits.
    pub fn mask_doorbells(&mut self, mask: u32) {
        let bits = self.doorbell.set_mask(mask);
        self.doorbells_interrupt(bits);
    }

    fn doorbells_interrupt(&mut self, bits: u32) {
        const NETWORK: u32 = 1 << 31;
        if bits & 1 != 0 {
            self.interrupt(VECTOR_CONTROL);
        }
        if bits & NETWORK != 0 {
            self.interrupt(VECTOR_NETWORK);
        }
        if bits & !(1 | NETWORK) != 0 {
            self.raise_event(EventCauses::DOORBELL);
        }
    }

    /// Sets causes of the event vector and interrupts, also if they were set already.
    pub fn raise_event(&mut self, causes: EventCauses) {
        self.registers.event |= causes;
        self.interrupt(VECTOR_EVENT);
    }

    /// A context register's value.
    pub fn context_load(&self, index: usize, register: Reg) -> u64 {
        let Some(context) = self.contexts.get(index) else {
            return 0;
        };
        let (setup, counters) = (&context.setup, &context.counters);
        match register {
            Reg::CONTROL => context.control().to_raw(),
            Reg::SPACE => setup.space.into(),
            Reg::STATUS_PAGE => setup.status_page,
            Reg::METHODS => setup.methods.into(),
            Reg::BAD_KEYS => self.bad_keys(index).into(),
            Reg::SHADOW_STORES => counters.shadow_stores,
            Reg::SHADOW_LOADS => counters.shadow_loads,
            Reg::PAGE_STORES => counters.page_stores,
            Reg::PAGE_LOADS => counters.page_loads,
            Reg::INITIATIONS => counters.initiations,
            Reg::REFUSED => counters.refused,
            Reg::BYTES => counters.bytes,
            Reg::TICKET => context.ticket(),
            Reg::QUEUE => setup.descriptors,
            Reg::KEY | Reg::ARM => 0,
        }
    }

    /// Stores to a context register. A context that is enabled continues the counts of its status
    /// page.
    pub fn context_store(
        &mut self,
        index: usize,
        register: Reg,
        value: u64,
        memory: Option<&GuestMemory>,
    ) {
        let memory = memory.filter(|_| self.config.is_bus_master());
        let Some(context) = self.contexts.get_mut(index) else {
            return;
        };
        let setup = &mut context.setup;
        match register {
            Reg::CONTROL => {
                let change = context.set_control(ContextControl::from_raw(value));
                if change == ControlChange::Enabled {
                    let page = memory.and_then(|memory| {
                        let page = StatusPage::new(memory, context.setup.status_page).ok()?;
                        page.counts().ok()
                    });
                    context.resume(&page.unwrap_or_default());
                }
                self.follow(index, change);
            }
            Reg::SPACE => setup.space = value as u32,
            Reg::STATUS_PAGE => setup.status_page = value,
            Reg::KEY => setup.key = Key::from_raw(value),
            Reg::METHODS => setup.methods = value as u32,
            Reg::QUEUE => setup.descriptors = value,
            Reg::ARM => {
                if context.arm(value) {
                    self.raise_event(EventCauses::COMPLETION);
                }
            }
            Reg::BAD_KEYS
            | Reg::SHADOW_STORES
            | Reg::SHADOW_LOADS
            | Reg::PAGE_STORES
            | Reg::PAGE_LOADS
            | Reg::INITIATIONS
            | Reg::REFUSED
            | Reg::BYTES
            | Reg::TICKET => {}
        }
    }

    /// Handles the enabling or disabling of a context.
    fn follow(&mut self, index: usize, change: ControlChange) {
        let (Ok(number), true) = (u32::try_from(index), change != ControlChange::None) else {
            return;
        };
        self.machines.forget(number);
        if let Some(context) = self.contexts.get(index).filter(|it| it.is_enabled()) {
            if context.method() == Some(Method::Key) {
                self.machines.key.assign(number, context.setup.key);
            }
        }
    }

    /// Returns the number of wrong keys that were passed through a context's shadow space.
    pub fn bad_keys(&self, context: usize) -> u32 {
        u32::try_from(context).map_or(0, |number| self.machines.key.bad_keys(number))
    }

    /// Returns the report of this node, with its held chunks.
    pub fn report(&self, node: usize, held: Vec<HeldReport>) -> NodeReport {
        let waits = |context: &&Context| {
            let head = context.head().map(|head| head.work);
            matches!(head, Some(Work::Invalidate { .. }))
        };
        let queued = self.contexts.iter().filter(waits).count();
        let contexts = self
            .contexts
            .iter()
            .enumerate()
            .filter(|(_, context)| context.is_enabled() || context.ticket() > 0)
            .map(|(number, context)| ContextReport {
                context: number,
                enabled: context.is_enabled(),
                method: context.method(),
                space: context.setup.space,
                bad_keys: self.bad_keys(number),
                ticket: context.ticket(),
                completed: context.completed(),
                failed: context.failed(),
                counters: context.counters,
            })
            .collect();
        NodeReport {
            node,
            attached: self.attached,
            enabled: self.registers.enabled,
            is_broken: self.is_broken,
            faults: self.faults.clone(),
            held,
            invalidations_pending: self.invalidations,
            invalidations_queued: queued,
            interrupts: self.vectors.raised().to_vec(),
            counters: self.counters.clone(),
            tlb: None,
            contexts,
        }
    }
}
