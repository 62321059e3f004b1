// SPDX-License-Identifier: MIT OR Apache-2.0

//! Accesses to context pages.

use crate::abi::Method;
use crate::completion::StatusPage;
use crate::layout::{context_page, EventCauses, PageRegister};
use crate::memory::GuestMemory;
use crate::method::{self, Machine, Reply};
use crate::model::Model;

impl Model {
    /// Decodes an offset in BAR1: the context, and the byte in its page.
    fn in_context_page(&self, node: usize, address: u64) -> Option<(usize, usize)> {
        let node = self.nodes.get(node)?;
        let shift = node.registers.tables.page_shift;
        let context = usize::try_from(address >> shift).ok()?;
        let offset = usize::try_from(address & ((1 << shift) - 1)).ok()?;
        (context < node.contexts.len()).then_some((context, offset))
    }

    /// Loads from the context pages; `None` for an access that is not served. The key-based method
    /// starts transfers by this load.
    pub(crate) fn page_load(
        &mut self,
        node: usize,
        address: u64,
        width: usize,
        memories: &[&GuestMemory],
    ) -> Option<u64> {
        let (number, offset) = self.in_context_page(node, address)?;
        let own = self.nodes.get_mut(node)?;
        own.counters.page_loads += 1;
        own.contexts.get_mut(number)?.counters.page_loads += 1;
        let method = own.method_of(number);
        if let Some(method) = method {
            own.counters.method(method).page_loads += 1;
        }
        if !matches!(width, 4 | 8) || address % width as u64 != 0 {
            return None;
        }
        if method == Some(Method::Key) && offset == context_page::REMAINING.offset() {
            let reply = own.machines.key.page_load(u32::try_from(number).ok()?);
            let result = match reply {
                Reply::Start(request) => self.begin((node, number), Method::Key, request, memories),
                Reply::Refused(status) => Err(status),
                Reply::Nothing | Reply::Code(_) => Ok(0),
            };
            if let Err(status) = result {
                self.refuse(node, number, status, memories);
            }
        }
        let context = self.nodes.get(node)?.contexts.get(number)?;
        let value = match PageRegister::decode(offset & !7) {
            Some(PageRegister::REMAINING) => context.remaining() as u64,
            Some(PageRegister::TICKET) => context.ticket(),
            None => 0,
        };
        Some(value >> (offset % 8 * 8))
    }

    /// Stores to the context pages: the size word of the key-based method, or a wake-up for a
    /// queue; `None` if there is no such page.
    pub(crate) fn page_store(
        &mut self,
        node: usize,
        address: u64,
        width: usize,
        value: u64,
        memories: &[&GuestMemory],
    ) -> Option<()> {
        let own = self.nodes.get_mut(node)?;
        own.counters.page_stores += 1;
        let (number, _) = self.in_context_page(node, address)?;
        let own = self.nodes.get_mut(node)?;
        own.contexts.get_mut(number)?.counters.page_stores += 1;
        let method = own.method_of(number);
        if let Some(method) = method {
            own.counters.method(method).page_stores += 1;
        }
        match method {
            Some(Method::Key) => {
                let word = method::well_formed(address, width).then_some(value);
                let reply = own
                    .machines
                    .key
                    .page_store(u32::try_from(number).ok()?, word);
                if let Reply::Refused(status) = reply {
                    self.refuse(node, number, status, memories);
                }
            }
            Some(Method::Queue) => {
                self.wake_queue(node, number, memories);
                self.wake_senders(|wait| wait.node == node);
            }
            _ => {}
        }
        Some(())
    }

    /// Makes the device poll a queue again.
    fn wake_queue(&mut self, node: usize, number: usize, memories: &[&GuestMemory]) {
        let Some(own) = self.nodes.get_mut(node) else {
            return;
        };
        let master = own.config.is_bus_master();
        let Some(context) = own.contexts.get_mut(number) else {
            return;
        };
        context.wake();
        self.wake_poller = true;
        let page = context.setup.status_page;
        let memory = memories.get(node).filter(|_| master);
        let written = memory.map(|memory| StatusPage::new(memory, page)?.wakeup(false));
        if written.is_some_and(|written| written.is_err()) {
            own.raise_event(EventCauses::ERROR);
        }
    }
}
