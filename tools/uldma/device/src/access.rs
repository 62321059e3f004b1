// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses to the BARs: decodes bar, offset and width, and calls the model.

use crate::fault::Fault;
use crate::layout::{
    control, reg, status, BAR_CONTEXT, BAR_CONTROL, BAR_SHADOW, ID_MAGIC, MAX_NODES,
    MSIX_TABLE_OFFSET, SCRATCHPADS, VERSION,
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

    /// Counts a trapped access to the window. Returns true if the window answers.
    pub fn window_access(&mut self, node: usize) -> bool {
        let Some(node) = self.nodes.get_mut(node) else {
            return false;
        };
        node.counters.window_accesses += 1;
        node.answers()
    }

    /// Bytes of each node's section of the window.
    fn window_section(&self) -> u64 {
        self.shape.window_size / self.nodes.len().next_power_of_two() as u64
    }
}

/// BAR0 of one node.
struct ControlFile<'a> {
    model: &'a mut Model,
    node: usize,
    memories: &'a [&'a GuestMemory],
}

/// Number of a register of 4 bytes in an array of `count` of them that starts at `first`.
fn element(offset: usize, first: usize, count: usize) -> Option<usize> {
    let index = offset.checked_sub(first)? / 4;
    (index < count).then_some(index)
}

impl ControlFile<'_> {
    fn load_control(&self, offset: usize) -> Option<u64> {
        let model = &*self.model;
        let node = model.nodes.get(self.node)?;
        let registers = &node.registers;
        let links = model.links.mask(self.node);
        Some(match offset {
            reg::ID if node.faults.has(Fault::BadId) => (!ID_MAGIC).into(),
            reg::ID => ID_MAGIC.into(),
            reg::VERSION => VERSION.into(),
            reg::CONTEXTS => model.shape.contexts.into(),
            reg::NODE => self.node as u64,
            reg::PAGE_SHIFT => registers.tables.page_shift.into(),
            reg::SHADOW_SHIFT => node.geometry().shadow_shift().into(),
            reg::CONTROL if registers.enabled => control::ENABLE.into(),
            reg::STATUS => {
                let ready = if node.resetting { 0 } else { status::READY };
                let link = if links == 0 { 0 } else { status::LINK_UP };
                (ready | link).into()
            }
            reg::NODES => model.nodes.len() as u64,
            reg::LINKS => links.into(),
            reg::EVENT => registers.event.into(),
            reg::METHODS => model.shape.methods.into(),
            reg::CPUS => CPUS.into(),
            reg::PAGE_DIRECTORY => registers.tables.page_directory,
            reg::REGION_DIRECTORY => registers.tables.region_directory,
            reg::PAGE_CAPACITY => registers.tables.page_capacity.into(),
            reg::REGION_CAPACITY => registers.tables.region_capacity.into(),
            reg::INVALIDATE_PENDING => node.invalidations.into(),
            reg::DMA_SOURCE => registers.dma_source,
            reg::DMA_DESTINATION => registers.dma_destination,
            reg::DMA_STATUS => registers.dma_status as u64,
            reg::WINDOW_SIZE => model.window_section(),
            reg::DOORBELL => node.doorbell.bits().into(),
            reg::DOORBELL_MASK => node.doorbell.mask().into(),
            _ => self.load_element(offset)?.into(),
        })
    }

    /// A register of those that there are several of.
    fn load_element(&self, offset: usize) -> Option<u32> {
        let (nodes, links) = (&self.model.nodes, &self.model.links);
        if let Some(index) = element(offset, reg::SCRATCHPAD, SCRATCHPADS) {
            nodes
                .get(self.node)?
                .registers
                .scratchpad
                .get(index)
                .copied()
        } else if let Some(peer) = element(offset, reg::LINK_GENERATION, MAX_NODES) {
            Some(links.generation(self.node, peer))
        } else {
            let index = element(offset, reg::PEER_SCRATCHPAD, MAX_NODES * SCRATCHPADS)?;
            let peer = index / SCRATCHPADS;
            let reached = nodes.get(peer).filter(|_| links.is_up(self.node, peer));
            let pads = reached.map(|peer| peer.registers.scratchpad);
            Some(pads.map_or(u32::MAX, |pads| pads[index % SCRATCHPADS]))
        }
    }

    /// Registers that only keep their value, of a node that is not being reset.
    fn store_plain(&mut self, offset: usize, value: u64) {
        let Some(node) = self.model.nodes.get_mut(self.node) else {
            return;
        };
        let word = value as u32;
        let registers = &mut node.registers;
        match offset {
            reg::PAGE_SHIFT
                if !registers.enabled
                    && (SMALLEST_PAGE_SHIFT..=LARGEST_PAGE_SHIFT).contains(&word) =>
            {
                registers.tables.page_shift = word;
            }
            reg::EVENT => registers.event &= !word,
            reg::PAGE_DIRECTORY => registers.tables.page_directory = value,
            reg::REGION_DIRECTORY => registers.tables.region_directory = value,
            reg::PAGE_CAPACITY => registers.tables.page_capacity = word,
            reg::REGION_CAPACITY => registers.tables.region_capacity = word,
            reg::DMA_SOURCE => registers.dma_source = value,
            reg::DMA_DESTINATION => registers.dma_destination = value,
            reg::RUNNING => node.set_running(value),
            reg::DOORBELL => node.doorbell.clear(word),
            reg::DOORBELL_MASK => node.mask_doorbells(word),
            _ => {
                let scratchpad = element(offset, reg::SCRATCHPAD, SCRATCHPADS)
                    .and_then(|index| registers.scratchpad.get_mut(index));
                if let Some(scratchpad) = scratchpad {
                    *scratchpad = word;
                }
            }
        }
    }

    fn store_control(&mut self, offset: usize, value: u64) {
        match offset {
            reg::CONTROL if value as u32 & control::RESET != 0 => {
                self.model.reset_registers(self.node, self.memories);
            }
            reg::CONTROL => {
                let enabled = value as u32 & control::ENABLE != 0;
                self.model.set_enabled(self.node, enabled, self.memories);
            }
            reg::INVALIDATE => self.model.invalidate(self.node, value, self.memories),
            reg::DMA_SIZE => self.model.kernel_start(self.node, value, self.memories),
            _ => match element(offset, reg::PEER_DOORBELL, MAX_NODES) {
                Some(peer) => self.model.ring_peer(self.node, peer, value as u32),
                None => self.store_plain(offset, value),
            },
        }
    }
}

impl RegisterFile for ControlFile<'_> {
    fn load(&mut self, register: Register) -> u64 {
        match register {
            // The client of a vfio-user server keeps the MSI-X table and the pending bits.
            Register::Control(offset) if offset >= MSIX_TABLE_OFFSET => 0,
            Register::Control(offset) => self.load_control(offset).unwrap_or(0),
            Register::Context { context, offset } => {
                let node = self.model.nodes.get(self.node);
                node.map_or(0, |node| node.context_load(context, offset))
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
            Register::Control(offset) if offset >= MSIX_TABLE_OFFSET => {}
            Register::Control(offset) => self.store_control(offset, value),
            Register::Context { context, offset } => {
                let memory = self.memories.get(self.node).copied();
                node.context_store(context, offset, value, memory);
                self.model.wake_poller = true;
                self.model.settle(self.memories);
            }
        }
    }
}
