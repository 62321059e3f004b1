// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses to the BARs: decodes bar, offset and width, and calls the model.

use std::ops::Range;

use crate::fault::Fault;
use crate::layout::{
    Control, ControlRegister as Reg, DeviceStatus, EventCauses, Invalidation, KernelAddress,
    Running, Word, BAR_CONTEXT, BAR_CONTROL, BAR_SHADOW, ID_MAGIC, SCRATCHPADS, VERSION,
};
use crate::memory::GuestMemory;
use crate::model::{Model, ONES};
use crate::node::{CPUS, LARGEST_PAGE_SHIFT, SMALLEST_PAGE_SHIFT};
use crate::registers::{self, Register, RegisterFile};

impl Model {
    /// Loads from a BAR, for the host of a node. Fills all of `data`, with ones where no register
    /// is.
    pub fn load(
        &mut self,
        node: usize,
        bar: u32,
        offset: u64,
        data: &mut [u8],
        memories: &[&GuestMemory],
    ) {
        let value = self.load_value(node, bar, offset, data.len(), memories);
        if value.is_none() {
            self.count_bad(node);
        }
        let bytes = value.unwrap_or(ONES).to_le_bytes();
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = bytes.get(index).copied().unwrap_or(0xff);
        }
    }

    fn load_value(
        &mut self,
        node: usize,
        bar: u32,
        offset: u64,
        width: usize,
        memories: &[&GuestMemory],
    ) -> Option<u64> {
        if !self.in_bar(node, bar, offset) {
            return None;
        }
        match bar {
            BAR_CONTROL => {
                let own = self.nodes.get_mut(node)?;
                own.counters.control_loads += 1;
                if own.faults.has(Fault::Ones) {
                    return Some(ONES);
                }
                let mut file = ControlFile {
                    model: self,
                    node,
                    memories,
                };
                registers::load(&mut file, offset as usize, width)
            }
            BAR_CONTEXT => self.page_load(node, offset, width, memories),
            BAR_SHADOW => self.shadow_load(node, offset, width, memories),
            _ => None,
        }
    }

    /// Stores to a BAR, for the host of a node.
    pub fn store(
        &mut self,
        node: usize,
        bar: u32,
        offset: u64,
        data: &[u8],
        memories: &[&GuestMemory],
    ) {
        if self
            .store_value(node, bar, offset, data, memories)
            .is_none()
        {
            self.count_bad(node);
        }
    }

    fn store_value(
        &mut self,
        node: usize,
        bar: u32,
        offset: u64,
        data: &[u8],
        memories: &[&GuestMemory],
    ) -> Option<()> {
        if !self.in_bar(node, bar, offset) {
            return None;
        }
        let width = data.len();
        let mut bytes = [0; 8];
        for (byte, new) in bytes.iter_mut().zip(data) {
            *byte = *new;
        }
        let value = u64::from_le_bytes(bytes);
        match bar {
            BAR_CONTROL => {
                self.nodes.get_mut(node)?.counters.control_stores += 1;
                let mut file = ControlFile {
                    model: self,
                    node,
                    memories,
                };
                registers::store(&mut file, offset as usize, width, value)?;
            }
            BAR_CONTEXT => self.page_store(node, offset, width, value, memories)?,
            BAR_SHADOW => self.shadow_store(node, offset, width, value, memories)?,
            _ => return None,
        }
        Some(())
    }

    fn in_bar(&self, node: usize, bar: u32, offset: u64) -> bool {
        let size = self.shape.bar_sizes().bytes.get(bar as usize).copied();
        self.nodes.get(node).is_some_and(|node| node.answers())
            && size.is_some_and(|size| offset < size)
    }

    /// Counts an access that the device does not serve.
    fn count_bad(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.counters.bad_accesses += 1;
        }
    }

    /// Counts a trapped access of `node` to bytes of the window. Returns true if the window answers,
    /// which it does only where the node reaches it.
    pub fn window_access(&mut self, node: usize, bytes: &Range<u64>) -> bool {
        let areas = self.shape.areas(node, self.nodes.len());
        let Some(node) = self.nodes.get_mut(node) else {
            return false;
        };
        node.counters.window_accesses += 1;
        let reaches = |area: &Range<u64>| area.start <= bytes.start && bytes.end <= area.end;
        let is_own = areas.iter().any(reaches);
        node.counters.window_foreign += u64::from(!is_own);
        is_own && node.answers()
    }

    /// Bytes of each node's section of the window.
    fn window_section(&self) -> u64 {
        self.shape.section_size(self.nodes.len())
    }
}

/// BAR0 of one node.
struct ControlFile<'a> {
    model: &'a mut Model,
    node: usize,
    memories: &'a [&'a GuestMemory],
}

impl ControlFile<'_> {
    fn load_control(&self, register: Reg) -> Option<u64> {
        let model = &*self.model;
        let node = model.nodes.get(self.node)?;
        let registers = &node.registers;
        let links = model.links.mask(self.node);
        Some(match register {
            Reg::ID if node.faults.has(Fault::BadId) => (!ID_MAGIC).into(),
            Reg::ID => ID_MAGIC.into(),
            Reg::VERSION => VERSION.to_raw(),
            Reg::CONTEXTS => model.shape.contexts.into(),
            Reg::NODE => self.node as u64,
            Reg::PAGE_SHIFT => registers.tables.page_shift.into(),
            Reg::SHADOW_SHIFT => node.geometry().shadow_shift().into(),
            Reg::CONTROL => Control::ENABLE.when(registers.enabled).to_raw(),
            Reg::STATUS => {
                let ready = DeviceStatus::READY.when(!node.resetting);
                (ready | DeviceStatus::LINK_UP.when(links != 0)).to_raw()
            }
            Reg::NODES => model.nodes.len() as u64,
            Reg::LINKS => links.into(),
            Reg::EVENT => registers.event.to_raw(),
            Reg::METHODS => model.shape.methods.into(),
            Reg::CPUS => CPUS.into(),
            Reg::PAGE_DIRECTORY => registers.tables.page_directory,
            Reg::REGION_DIRECTORY => registers.tables.region_directory,
            Reg::PAGE_CAPACITY => registers.tables.page_capacity.into(),
            Reg::REGION_CAPACITY => registers.tables.region_capacity.into(),
            Reg::ENDPOINT_DIRECTORY => registers.tables.endpoint_directory,
            Reg::ENDPOINT_CAPACITY => registers.tables.endpoint_capacity.into(),
            Reg::INVALIDATE_PENDING => node.invalidations.into(),
            Reg::DMA_SOURCE => registers.dma_source.to_raw(),
            Reg::DMA_DESTINATION => registers.dma_destination.to_raw(),
            Reg::DMA_STATUS => registers.dma_status as u64,
            Reg::WINDOW_SIZE => model.window_section(),
            Reg::TOUCH_PAGE => model.brackets.page(self.node),
            Reg::PAGE_REQUESTS => model.page_requests.page(self.node),
            Reg::DOORBELL => node.doorbell.bits().into(),
            Reg::DOORBELL_MASK => node.doorbell.mask().into(),
            Reg::SCRATCHPAD(index) => registers.scratchpad.get(index).copied()?.into(),
            Reg::LINK_GENERATION(peer) => model.links.generation(self.node, peer).into(),
            Reg::PEER_SCRATCHPAD(index) => self.peer_scratchpad(index).into(),
            Reg::INVALIDATE | Reg::DMA_SIZE | Reg::RUNNING | Reg::PEER_DOORBELL(_) => 0,
        })
    }

    /// Returns a scratchpad of a peer, or ones if the peer cannot be reached.
    fn peer_scratchpad(&self, index: usize) -> u32 {
        let peer = index / SCRATCHPADS;
        let is_up = self.model.links.is_up(self.node, peer);
        let reached = self.model.nodes.get(peer).filter(|_| is_up);
        reached.map_or(u32::MAX, |peer| {
            peer.registers.scratchpad[index % SCRATCHPADS]
        })
    }

    /// Stores to a register of a node that is not being reset.
    fn store_control(&mut self, register: Reg, value: u64) {
        let Some(node) = self.model.nodes.get_mut(self.node) else {
            return;
        };
        let word = value as u32;
        let registers = &mut node.registers;
        match register {
            Reg::PAGE_SHIFT => {
                let fits = (SMALLEST_PAGE_SHIFT..=LARGEST_PAGE_SHIFT).contains(&word);
                if fits && !registers.enabled {
                    registers.tables.page_shift = word;
                }
            }
            Reg::CONTROL => {
                let control = Control::from_raw(value);
                if control.contains(Control::RESET) {
                    self.model.reset_registers(self.node, self.memories);
                } else {
                    let enabled = control.contains(Control::ENABLE);
                    self.model.set_enabled(self.node, enabled, self.memories);
                }
            }
            Reg::EVENT => registers.event = registers.event.without(EventCauses::from_raw(value)),
            Reg::PAGE_DIRECTORY => registers.tables.page_directory = value,
            Reg::REGION_DIRECTORY => registers.tables.region_directory = value,
            Reg::PAGE_CAPACITY => registers.tables.page_capacity = word,
            Reg::REGION_CAPACITY => registers.tables.region_capacity = word,
            Reg::ENDPOINT_DIRECTORY => registers.tables.endpoint_directory = value,
            Reg::ENDPOINT_CAPACITY => registers.tables.endpoint_capacity = word,
            Reg::INVALIDATE => {
                let what = Invalidation::from_raw(value);
                self.model.invalidate(self.node, what, self.memories);
            }
            Reg::DMA_SOURCE => registers.dma_source = KernelAddress::from_raw(value),
            Reg::DMA_DESTINATION => registers.dma_destination = KernelAddress::from_raw(value),
            Reg::DMA_SIZE => self.model.kernel_start(self.node, value, self.memories),
            Reg::RUNNING => node.set_running(Running::from_raw(value)),
            Reg::TOUCH_PAGE => {
                let memory = self.model.reached(self.node, self.memories);
                self.model.brackets.set_page(self.node, value, memory);
            }
            Reg::PAGE_REQUESTS => self.model.page_requests.set_page(self.node, value),
            Reg::DOORBELL => node.doorbell.clear(word),
            Reg::DOORBELL_MASK => node.mask_doorbells(word),
            Reg::SCRATCHPAD(index) => {
                if let Some(scratchpad) = registers.scratchpad.get_mut(index) {
                    *scratchpad = word;
                }
            }
            Reg::PEER_DOORBELL(peer) => self.model.ring_peer(self.node, peer, word),
            Reg::ID
            | Reg::VERSION
            | Reg::CONTEXTS
            | Reg::NODE
            | Reg::SHADOW_SHIFT
            | Reg::STATUS
            | Reg::NODES
            | Reg::METHODS
            | Reg::CPUS
            | Reg::LINKS
            | Reg::INVALIDATE_PENDING
            | Reg::DMA_STATUS
            | Reg::WINDOW_SIZE
            | Reg::LINK_GENERATION(_)
            | Reg::PEER_SCRATCHPAD(_) => {}
        }
    }
}

impl RegisterFile for ControlFile<'_> {
    fn load(&mut self, register: Register) -> u64 {
        match register {
            Register::Control(register) => self.load_control(register).unwrap_or(0),
            Register::Context { context, register } => {
                let node = self.model.nodes.get(self.node);
                node.map_or(0, |node| node.context_load(context, register))
            }
        }
    }

    fn store(&mut self, register: Register, value: u64) {
        let Some(node) = self.model.nodes.get_mut(self.node) else {
            return;
        };
        if node.resetting {
            return;
        }
        match register {
            Register::Control(register) => self.store_control(register, value),
            Register::Context { context, register } => {
                let memory = self.memories.get(self.node).copied();
                node.context_store(context, register, value, memory);
                self.model.wake_poller = true;
                self.model.settle(self.memories);
            }
        }
    }
}
