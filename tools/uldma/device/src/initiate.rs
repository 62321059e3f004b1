// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation: from shadow accesses and the kernel's registers to a queued transfer or a refusal.

use crate::abi::Status;
use crate::check::{self, Checked};
use crate::engine::scene;
use crate::layout::event;
use crate::memory::GuestMemory;
use crate::method::{self, Machine, Named, Reply, Request};
use crate::model::{Model, ONES};

impl Model {
    /// A store to shadow space.
    pub(crate) fn shadow_store(&mut self, node: usize, address: u64, width: usize, value: u64) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        node.counters.shadow_stores += 1;
        let at = node.geometry().decode(address);
        let enabled = node.is_enabled();
        let Some(context) = node.contexts.get_mut(at.context as usize) else {
            node.counters.bad_accesses += 1;
            return;
        };
        context.counters.shadow_stores += 1;
        let named = Named::of_entry(at.entry, at.offset);
        let word = method::well_formed(address, width).then_some(value);
        let result = if at.context == 0 || !enabled || !context.takes_shadow() {
            context.latch.forget(0);
            Reply::Refused(Status::Disabled)
        } else {
            context.latch.store(0, named, word)
        };
        if let Reply::Refused(status) = result {
            context.refuse(status);
            *node.counters.refused.entry(status).or_default() += 1;
        }
    }

    /// A load from shadow space: starts a transfer if it can, and says so.
    pub(crate) fn shadow_load(
        &mut self,
        node: usize,
        address: u64,
        width: usize,
        memories: &[&GuestMemory],
    ) -> u64 {
        let Some(own) = self.nodes.get_mut(node) else {
            return ONES;
        };
        own.counters.shadow_loads += 1;
        let at = own.geometry().decode(address);
        let enabled = own.is_enabled();
        let number = at.context as usize;
        let Some(context) = own.contexts.get_mut(number) else {
            own.counters.bad_accesses += 1;
            return Status::Disabled.negated() as u64;
        };
        context.counters.shadow_loads += 1;
        let named = Named::of_entry(at.entry, at.offset);
        let passed = context
            .latch
            .load(0, named, method::well_formed(address, width));
        let (takes, space) = (context.takes_shadow(), context.space);
        let result = match passed {
            Reply::Refused(Status::BadAccess) => Err(Status::BadAccess),
            _ if number == 0 || !enabled || !takes => Err(Status::Disabled),
            Reply::Refused(status) => Err(status),
            Reply::Start(Request::Copy(arguments)) => self
                .checked(node, memories, |scene| {
                    check::user_initiation(scene, space, &arguments)
                })
                .and_then(|checked| self.start(node, number, checked)),
            _ => Err(Status::NoArgs),
        };
        self.answer(node, number, result) as u64
    }

    /// A store to the register that starts a kernel-initiated transfer.
    pub(crate) fn kernel_start(&mut self, node: usize, bytes: u64, memories: &[&GuestMemory]) {
        let Some(own) = self.nodes.get_mut(node) else {
            return;
        };
        let (source, destination) = (own.registers.dma_source, own.registers.dma_destination);
        let enabled = own.is_enabled() && own.contexts.first().is_some_and(|c| c.is_enabled());
        let result = if enabled {
            self.checked(node, memories, |scene| {
                check::kernel_initiation(scene, source, destination, bytes)
            })
            .and_then(|checked| self.start(node, 0, checked))
        } else {
            Err(Status::Disabled)
        };
        let answer = self.answer(node, 0, result);
        if let Some(own) = self.nodes.get_mut(node) {
            own.registers.dma_status = answer;
            own.counters.kernel_initiations += u64::from(answer > 0);
        }
    }

    fn checked(
        &self,
        node: usize,
        memories: &[&GuestMemory],
        check: impl FnOnce(&check::Scene<'_, GuestMemory>) -> Result<Checked, Status>,
    ) -> Result<Checked, Status> {
        let own = self.nodes.get(node).ok_or(Status::BusError)?;
        if !own.config.is_bus_master() {
            return Err(Status::BusError);
        }
        let vantage = self.vantage(node).ok_or(Status::BusError)?;
        check(&scene(&vantage, node, memories).ok_or(Status::BusError)?)
    }

    fn start(&mut self, node: usize, context: usize, checked: Checked) -> Result<u64, Status> {
        let ready = self.schedule.ready();
        let ticket = self
            .nodes
            .get_mut(node)
            .and_then(|node| node.contexts.get_mut(context))
            .ok_or(Status::Disabled)?
            .push(checked, ready)?;
        self.wake = true;
        Ok(ticket)
    }

    /// Counts the result of an initiation and makes the number that the initiator reads.
    fn answer(&mut self, node: usize, context: usize, result: Result<u64, Status>) -> i64 {
        let Some(node) = self.nodes.get_mut(node) else {
            return Status::Disabled.negated();
        };
        match result {
            Ok(ticket) => {
                node.counters.initiations += 1;
                i64::try_from(ticket).unwrap_or(i64::MAX)
            }
            Err(status) => {
                if let Some(context) = node.contexts.get_mut(context) {
                    context.refuse(status);
                }
                *node.counters.refused.entry(status).or_default() += 1;
                if status == Status::BusError {
                    node.raise_event(event::ERROR);
                }
                status.negated()
            }
        }
    }
}
