// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation: from shadow accesses and the kernel's registers to a queued transfer or a refusal.

use crate::abi::{Method, Status, REPEATED_FAIL};
use crate::atomic::Atomic;
use crate::check::{self, AccessCheck, Needs};
use crate::completion::StatusPage;
use crate::engine::{Resolver, Scratch};
use crate::fault::Fault;
use crate::layout::{EventCauses, PageWord};
use crate::location::CheckedSide;
use crate::memory::GuestMemory;
use crate::method::{self, Reply, Request, ShadowRef};
use crate::model::{Model, ONES};
use crate::shadow::ShadowAddress;
use crate::transfer::{Outcome, Transfer, Work};

impl Model {
    /// Stores to shadow space.
    pub(crate) fn shadow_store(
        &mut self,
        node: usize,
        address: u64,
        width: usize,
        value: u64,
        memories: &[&GuestMemory],
    ) -> Option<()> {
        let own = self.nodes.get_mut(node)?;
        own.counters.shadow_stores += 1;
        let at = own.geometry().decode(address);
        let number = at.context as usize;
        own.contexts.get_mut(number)?.counters.shadow_stores += 1;
        let Some(method) = own.method_of(number) else {
            self.refuse(node, number, Status::Disabled, memories);
            return Some(());
        };
        own.counters.method(method).stores += 1;
        let target = self.name(node, at, method, memories);
        let word = method::well_formed(address, width).then_some(value);
        let own = self.nodes.get_mut(node)?;
        let bad_keys = own.bad_keys(number);
        let reply = match own.machines.get(method) {
            Some(machine) => machine.store(at.context, target, word),
            None => Reply::Refused(Status::Disabled),
        };
        if own.bad_keys(number) != bad_keys {
            own.raise_event(EventCauses::KEY);
        }
        let result = match reply {
            Reply::Nothing | Reply::Code(_) => Ok(0),
            Reply::Refused(status) => Err(status),
            Reply::Start(request) => self.begin((node, number), method, request, memories),
        };
        let result = match result {
            // A store reads no answer, so the status page reports the refusal.
            Err(status) if method == Method::SingleStore && status != Status::QueueFull => {
                let ended = Transfer::ended(status, self.schedule.ready());
                self.start(node, number, ended, memories)
            }
            other => other,
        };
        if let Err(status) = result {
            self.refuse(node, number, status, memories);
        }
        Some(())
    }

    /// Loads from shadow space: starts a transfer if the arguments are complete. Returns the ticket
    /// or a negative status; `None` if there is no such context.
    pub(crate) fn shadow_load(
        &mut self,
        node: usize,
        address: u64,
        width: usize,
        memories: &[&GuestMemory],
    ) -> Option<u64> {
        let own = self.nodes.get_mut(node)?;
        own.counters.shadow_loads += 1;
        let at = own.geometry().decode(address);
        let number = at.context as usize;
        let context = own.contexts.get_mut(number)?;
        context.counters.shadow_loads += 1;
        let adds = context.method() == Some(Method::FetchAdd);
        let well_formed = method::well_formed(address, width);
        let result = match own.method_of(number) {
            Some(method) => {
                own.counters.method(method).loads += 1;
                let target = self.name(node, at, method, memories);
                self.load_by(method, (node, number), target, well_formed, memories)
            }
            None if well_formed => Err(Status::Disabled),
            None => Err(Status::BadAccess),
        };
        Some(result.unwrap_or_else(|status| {
            self.refuse(node, number, status, memories);
            if adds {
                ONES
            } else {
                status.negated() as u64
            }
        }))
    }

    fn load_by(
        &mut self,
        method: Method,
        (node, number): (usize, usize),
        target: ShadowRef,
        well_formed: bool,
        memories: &[&GuestMemory],
    ) -> Result<u64, Status> {
        let own = self.nodes.get_mut(node).ok_or(Status::Disabled)?;
        let context = u32::try_from(number).map_err(|_| Status::Disabled)?;
        let machine = own.machines.get(method).ok_or(Status::Disabled)?;
        match machine.load(context, target, well_formed) {
            Reply::Nothing => Err(Status::NoArgs),
            Reply::Refused(status) => Err(status),
            Reply::Code(code) => {
                own.counters.method(method).fails += u64::from(code == REPEATED_FAIL);
                Ok(code)
            }
            Reply::Start(request) => {
                let answer = self.begin((node, number), method, request, memories)?;
                let own = self.nodes.get_mut(node).ok_or(Status::Disabled)?;
                let machine = own.machines.get(method).ok_or(Status::Disabled)?;
                Ok(machine.started(answer))
            }
        }
    }

    /// Decodes a shadow address. An invalid page entry is detected later, when a transfer starts
    /// with it.
    fn name(
        &self,
        node: usize,
        at: ShadowAddress,
        method: Method,
        memories: &[&GuestMemory],
    ) -> ShadowRef {
        let entry = ShadowRef::of_entry(at.entry, at.offset);
        if !method.compares_addresses() {
            return entry;
        }
        let page = self.resolve(node, memories, |resolver| {
            Ok(resolver.access_check().own.page(at.entry)?)
        });
        let has_address = |word: PageWord| {
            !word.contains(PageWord::REMOTE) && !word.contains(PageWord::OPTIMISTIC)
        };
        match page {
            Ok(page) if has_address(page.word) => {
                let address = page.word.address();
                ShadowRef::of_page(at.entry, at.offset, address)
            }
            _ => entry,
        }
    }

    /// Executes the request of a state machine. Returns the ticket, or the word's old value.
    pub(crate) fn begin(
        &mut self,
        (node, number): (usize, usize),
        method: Method,
        request: Request,
        memories: &[&GuestMemory],
    ) -> Result<u64, Status> {
        let own = self.nodes.get(node).ok_or(Status::Disabled)?;
        let context = own.contexts.get(number).ok_or(Status::Disabled)?;
        let space = context.setup.space;
        let needs = Needs {
            space: (!method.mixes_contexts()).then_some(space),
            source_is_stored: method == Method::Key,
            destination_is_loaded: method == Method::Repeated5,
        };
        let checked = self.check(node, memories, |access_check| match request {
            Request::Copy(arguments) => {
                check::user_initiation(access_check, needs, &arguments).map(Work::Copy)
            }
            Request::MappedOut { source, bytes } => {
                check::mapped_out(access_check, space, source, bytes).map(Work::Copy)
            }
            Request::Put { destination, word } => {
                check::put(access_check, space, destination, word).map(Work::Copy)
            }
            Request::FetchAdd { at } => Ok(Work::Atomic {
                at: check::word(access_check, space, at)?,
                operation: Atomic::Add(1),
            }),
        })?;
        let answer = match checked {
            Work::Atomic { at, operation } => {
                self.change_now((node, number), &at, operation, memories)
            }
            work => {
                let transfer = Transfer::new(work, self.schedule.ready());
                self.start(node, number, transfer, memories)
            }
        }?;
        if let Some(own) = self.nodes.get_mut(node) {
            own.counters.method(method).initiations += 1;
        }
        Ok(answer)
    }

    /// Applies an atomic operation at once, while the load that requested it is pending.
    fn change_now(
        &mut self,
        (node, number): (usize, usize),
        at: &CheckedSide,
        operation: Atomic,
        memories: &[&GuestMemory],
    ) -> Result<u64, Status> {
        let own = self.nodes.get(node).ok_or(Status::Disabled)?;
        let context = own.contexts.get(number).ok_or(Status::Disabled)?;
        let word = if context.moves_nothing() {
            0
        } else if !own.engine_runs() || own.faults.has(Fault::BusError) {
            return Err(Status::BusError);
        } else {
            let peers = at.peer().map(|peer| peer as usize);
            let bracket = self.begin_bracket(node, peers.into_iter(), memories);
            let work = Work::Atomic { at: *at, operation };
            let outcome = self.resolve(node, memories, |resolver| {
                Ok(resolver.perform(&work, 0, &mut Scratch::default()))
            });
            self.end_bracket(&bracket, memories);
            let Outcome {
                word, error, lacks, ..
            } = outcome?;
            self.hint_pages((node, number), lacks, memories);
            word.ok_or(error.unwrap_or(Status::BusError))?
        };
        let own = self.nodes.get_mut(node).ok_or(Status::Disabled)?;
        own.counters.initiations += 1;
        if let Some(context) = own.contexts.get_mut(number) {
            context.counters.initiations += 1;
        }
        Ok(word)
    }

    /// Stores to the register that starts a kernel-initiated transfer.
    pub(crate) fn kernel_start(&mut self, node: usize, bytes: u64, memories: &[&GuestMemory]) {
        let Some(own) = self.nodes.get(node) else {
            return;
        };
        let (source, destination) = (own.registers.dma_source, own.registers.dma_destination);
        let enabled = own.is_enabled() && own.contexts.first().is_some_and(|c| c.is_enabled());
        let result = if enabled {
            self.check(node, memories, |access_check| {
                check::kernel_initiation(access_check, source, destination, bytes)
            })
            .and_then(|checked| {
                let transfer = Transfer::new(Work::Copy(checked), self.schedule.ready());
                self.start(node, 0, transfer, memories)
            })
        } else {
            Err(Status::Disabled)
        };
        if let Err(status) = result {
            self.refuse(node, 0, status, memories);
        }
        if let Some(own) = self.nodes.get_mut(node) {
            own.counters.kernel_initiations += u64::from(result.is_ok());
            own.registers.dma_status = match result {
                Ok(ticket) => i64::try_from(ticket).unwrap_or(i64::MAX),
                Err(status) => status.negated(),
            };
        }
    }

    /// Runs `act` with a resolver for the node's memory, if the function may do DMA.
    fn resolve<T>(
        &self,
        node: usize,
        memories: &[&GuestMemory],
        resolve: impl FnOnce(&Resolver<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let own = self.nodes.get(node).ok_or(Status::BusError)?;
        if !own.config.is_bus_master() {
            return Err(Status::BusError);
        }
        let table_view = self.table_view(node).ok_or(Status::BusError)?;
        resolve(&Resolver::new(&table_view, node, memories).ok_or(Status::BusError)?)
    }

    fn check<T>(
        &self,
        node: usize,
        memories: &[&GuestMemory],
        check: impl FnOnce(&AccessCheck<'_, GuestMemory>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.resolve(node, memories, |resolver| check(resolver.access_check()))
    }

    /// Queues a transfer, and ends it if there is nothing to do.
    fn start(
        &mut self,
        node: usize,
        number: usize,
        transfer: Transfer,
        memories: &[&GuestMemory],
    ) -> Result<u64, Status> {
        let own = self.nodes.get_mut(node).ok_or(Status::Disabled)?;
        let context = own.contexts.get_mut(number).ok_or(Status::Disabled)?;
        let ticket = context.push(transfer)?;
        own.counters.initiations += 1;
        self.wake = true;
        if context.head().is_some_and(|head| head.ending.is_some()) {
            self.settle(memories);
        }
        Ok(ticket)
    }

    /// Counts an initiation that gets no ticket, or an access that passes no arguments.
    pub(crate) fn refuse(
        &mut self,
        node: usize,
        number: usize,
        status: Status,
        memories: &[&GuestMemory],
    ) {
        let Some(own) = self.nodes.get_mut(node) else {
            return;
        };
        *own.counters.refused.entry(status).or_default() += 1;
        if let Some(method) = own.method_of(number) {
            own.counters.method(method).refused += 1;
        }
        if status == Status::BusError {
            own.raise_event(EventCauses::ERROR);
        }
        let writes = own.is_enabled() && own.config.is_bus_master();
        let Some(context) = own.contexts.get_mut(number) else {
            return;
        };
        context.refuse(status);
        let (page, count) = (context.setup.status_page, context.refused());
        let writes = writes && context.is_enabled() && page != 0;
        if let Some(memory) = memories.get(node).filter(|_| writes) {
            let written = StatusPage::new(memory, page).and_then(|page| page.refused(count));
            if written.is_err() {
                own.raise_event(EventCauses::ERROR);
            }
        }
    }
}
