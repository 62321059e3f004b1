// SPDX-License-Identifier: MIT OR Apache-2.0

//! One node's function: its registers and what hangs off them, as far as no other node matters.

use crate::config::{BarSizes, Config};
use crate::context::Context;
use crate::doorbell::Doorbell;
use crate::fault::{Fault, Faults};
use crate::irq::Vectors;
use crate::layout::{ctx, event, SCRATCHPADS, VECTOR_EVENT};
use crate::shadow::Geometry;
use crate::stats::{ContextReport, NodeCounters, NodeReport};
use crate::tpt::Tables;

/// log2 of the smallest page, and of the page after a reset.
pub const SMALLEST_PAGE_SHIFT: u32 = 12;
/// log2 of the largest page.
pub const LARGEST_PAGE_SHIFT: u32 = 16;

/// What does not change while the device runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Contexts of each node.
    pub contexts: u32,
    /// log2 of the bytes of shadow space.
    pub shadow_bits: u32,
    /// Bytes of the window.
    pub window_size: u64,
}

impl Shape {
    /// Sizes of the BARs.
    pub fn bar_sizes(&self) -> BarSizes {
        BarSizes::new(self.contexts, self.shadow_bits, self.window_size)
    }
}

/// Registers of a node that do nothing but keep their value.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The driver is there.
    pub enabled: bool,
    /// Pending causes of the event vector.
    pub event: u32,
    /// Places of the tables, and the page shift.
    pub tables: Tables,
    /// Kernel-initiated transfer: source.
    pub dma_source: u64,
    /// Kernel-initiated transfer: destination.
    pub dma_destination: u64,
    /// Kernel-initiated transfer: ticket or negated status.
    pub dma_status: i64,
    /// What this node tells the peer.
    pub scratchpad: [u32; SCRATCHPADS],
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            enabled: false,
            event: 0,
            tables: Tables {
                page_shift: SMALLEST_PAGE_SHIFT,
                ..Tables::default()
            },
            dma_source: 0,
            dma_destination: 0,
            dma_status: 0,
            scratchpad: [0; SCRATCHPADS],
        }
    }
}

/// One node.
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
    /// Doorbells from the peer.
    pub doorbell: Doorbell,
    /// Register contexts; the first is the kernel's.
    pub contexts: Vec<Context>,
    /// Invalidations that have not ended.
    pub invalidations: u32,
    /// A reset has not ended.
    pub resetting: bool,
    /// Misbehaviour that is on.
    pub faults: Faults,
    /// What happened here.
    pub counters: NodeCounters,
}

impl Node {
    /// A node that no client is connected to.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            attached: false,
            config: Config::new(&shape.bar_sizes()),
            vectors: Vectors::default(),
            registers: Registers::default(),
            doorbell: Doorbell::default(),
            contexts: Self::fresh_contexts(shape),
            invalidations: 0,
            resetting: false,
            faults: Faults::default(),
            counters: NodeCounters::default(),
        }
    }

    fn fresh_contexts(shape: Shape) -> Vec<Context> {
        (0..shape.contexts).map(|_| Context::default()).collect()
    }

    /// Back to the reset values; transfers vanish without a completion.
    pub fn reset(&mut self) {
        self.registers = Registers::default();
        self.doorbell = Doorbell::default();
        self.contexts = Self::fresh_contexts(self.shape);
        self.invalidations = 0;
        self.counters.resets += 1;
    }

    /// How the shadow space is cut up now.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            shadow_bits: self.shape.shadow_bits,
            contexts: self.shape.contexts,
            page_shift: self.registers.tables.page_shift,
        }
    }

    /// Whether the function answers in its BARs.
    pub fn answers(&self) -> bool {
        self.config.decodes_memory() && !self.faults.has(Fault::Gone)
    }

    /// Whether the driver is there and the device is ready for it.
    pub fn is_enabled(&self) -> bool {
        self.attached && self.registers.enabled && !self.resetting && !self.faults.has(Fault::Gone)
    }

    /// Whether the engine works for this node.
    pub fn engine_runs(&self) -> bool {
        !self.faults.has(Fault::Stall) && !self.faults.has(Fault::Gone)
    }

    /// Sends an interrupt.
    pub fn interrupt(&mut self, vector: u16) {
        if !self.faults.has(Fault::DropInterrupt) && !self.faults.has(Fault::Gone) {
            self.vectors.raise(vector);
        }
    }

    /// Sets causes of the event vector and interrupts, also if they were set already.
    pub fn raise_event(&mut self, causes: u32) {
        self.registers.event |= causes;
        self.interrupt(VECTOR_EVENT);
    }

    /// A context register's value.
    pub fn context_load(&self, context: usize, offset: usize) -> u64 {
        let Some(context) = self.contexts.get(context) else {
            return 0;
        };
        let counters = &context.counters;
        match offset {
            ctx::CONTROL => context.control().into(),
            ctx::SPACE => context.space.into(),
            ctx::STATUS_PAGE => context.status_page,
            ctx::METHODS => context.methods.into(),
            ctx::SHADOW_STORES => counters.shadow_stores,
            ctx::SHADOW_LOADS => counters.shadow_loads,
            ctx::PAGE_STORES => counters.page_stores,
            ctx::PAGE_LOADS => counters.page_loads,
            ctx::INITIATIONS => counters.initiations,
            ctx::REFUSED => counters.refused,
            ctx::BYTES => counters.bytes,
            ctx::TICKET => context.ticket(),
            _ => 0,
        }
    }

    /// A store to a context register.
    pub fn context_store(&mut self, index: usize, offset: usize, value: u64) {
        let Some(context) = self.contexts.get_mut(index) else {
            return;
        };
        match offset {
            ctx::CONTROL => context.set_control(value as u32),
            ctx::SPACE => context.space = value as u32,
            ctx::STATUS_PAGE => context.status_page = value,
            ctx::METHODS => context.methods = value as u32,
            ctx::ARM if context.arm(value) => self.raise_event(event::COMPLETION),
            _ => {}
        }
    }

    /// What a report shows of this node.
    pub fn report(&self, node: usize) -> NodeReport {
        let contexts = self
            .contexts
            .iter()
            .enumerate()
            .filter(|(_, context)| context.is_enabled() || context.ticket() > 0)
            .map(|(number, context)| ContextReport {
                context: number,
                enabled: context.is_enabled(),
                space: context.space,
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
            faults: self.faults.clone(),
            interrupts: self.vectors.raised().to_vec(),
            counters: self.counters.clone(),
            contexts,
        }
    }
}
