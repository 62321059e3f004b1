// SPDX-License-Identifier: MIT OR Apache-2.0

//! Register contexts: transfers that a process starts without the kernel.

mod initiate;
mod map_out;
mod stats;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::method::repeated::Disturbances;
use crate::method::shrimp_1::MapOuts;
use crate::method::{single_store, Method};
use crate::mmio::RestartableThread;
use crate::region::shadow::Shadow;
use crate::region::Registered;
use crate::sys;
use crate::sys::{uapi, Mapping};
use crate::transfer::descriptor::Ring;
use crate::transfer::size_word::MAX_TRANSFER;
use crate::transfer::status::{Completion, StatusPage, RECORDS};
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::{nanoseconds, Deadline};
use crate::wait::spin::{repeat, Poller, Spin};

pub use initiate::Initiated;
pub use stats::ContextStats;

/// Options of a context, see [`Device::context_with`].
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use uldma::{ContextOptions, Device, Method};
///
/// let device = Device::open(0)?;
/// // A process that finds no register context free still has its transfers, by system calls.
/// let or_kernel = ContextOptions {
///     or_kernel: true,
///     ..ContextOptions::default()
/// };
/// let context = device.context_with(Method::Queue, or_kernel)?;
/// println!("transfers start by {}", context.method());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextOptions {
    /// Transfers end well at once and move nothing: to measure initiation alone.
    pub no_data: bool,
    /// Limit of restarts of a disturbed initiation; after that the kernel starts the transfer
    /// ([`Context::dma`]).
    pub retries: u32,
    /// If no context is free, the kernel starts all transfers; otherwise creating the context
    /// fails.
    pub or_kernel: bool,
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self {
            no_data: false,
            retries: 32,
            or_kernel: false,
        }
    }
}

/// The starter of an open file's transfers: its register context, or the kernel.
///
/// It can be sent to another thread but not shared: an initiation has several steps, which must not
/// be interleaved. For transfers from several threads, open the device once for each.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Access, Buffer, Device, Spin};
///
/// let device = Device::open(0)?;
/// let source = device.register(Buffer::new(4096)?, Access::Read)?;
/// let target = device.register(Buffer::new(4096)?, Access::Write)?;
/// let context = device.context()?;
/// let (from, to) = (context.shadow(&source)?, context.shadow(&target)?);
/// let ticket = context.initiate(from.at(0)?, to.at(0)?, 4096)?;
/// let completion = context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;
/// assert_eq!((completion.ticket, completion.bytes), (ticket, 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Context {
    /// None where the kernel starts all transfers.
    registers: Option<Registers>,
    method: Method,
    number: u32,
    max_transfer: u64,
    options: ContextOptions,
    disturbed: Cell<Disturbances>,
    /// Last ticket, for the methods whose loads do not return it.
    last: Cell<u64>,
    /// Highest ticket of which is known that it has ended.
    seen: Cell<u64>,
    /// Of calls that wait with [`Spin::Adaptive`].
    poller: Cell<Option<Poller>>,
    /// TicketKind [`Method::Shrimp1`].
    map_outs: RefCell<MapOuts>,
    device: Device,
}

/// The mappings of a register context.
#[derive(Debug)]
pub(crate) struct Registers {
    pub(crate) status: StatusPage,
    /// The context page, for the methods that use it.
    pub(crate) page: Option<Mapping>,
    /// The key for [`Method::Key`].
    key: u64,
    /// TicketKind [`Method::Queue`].
    pub(crate) ring: Option<Ring>,
    /// TicketKind [`Method::Pal`].
    restartable: Option<RestartableThread>,
}

impl Registers {
    fn map(device: &Device, method: Method, answer: &uapi::uldma_context_create) -> Result<Self> {
        let map = |what: &str, offset, prot| {
            let length = u64::from(answer.out_page_length);
            Mapping::shared(device.as_fd(), offset, length, prot)
                .map_err(|errno| Error::system(format!("map the {what}"), errno))
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let status = map(
            "status page",
            answer.out_status_offset,
            ProtFlags::PROT_READ,
        )?;
        let page = || map("context page", answer.out_page_offset, both);
        let ring = || Ring::new(map("queue", answer.out_queue_offset, both)?);
        Ok(Self {
            status: StatusPage::new(status)?,
            page: method.uses_context_page().then(page).transpose()?,
            key: answer.out_key,
            ring: (method == Method::Queue).then(ring).transpose()?,
            restartable: None,
        })
    }
}

impl Device {
    /// Takes a register context for extended shadow addressing; an open file can have one.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EBUSY when this open file has one or all are taken; transfers through the
    /// kernel ([`Device::dma`]) work without.
    pub fn context(&self) -> Result<Context> {
        self.context_with(Method::ExtendedShadow, ContextOptions::default())
    }

    /// Takes a register context for an initiation method; an open file can have one.
    /// [`Method::Kernel`] takes none, but its transfers are started by the same calls.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EBUSY when all contexts are in use, and for a second context of this
    /// address space whose method [`Method::needs_sched_notify`]; EPERM for a method that is not
    /// secure if the module does not offer these; EOPNOTSUPP for a method that the device lacks.
    /// [`Error::Method`] for a method that this system lacks.
    pub fn context_with(&self, method: Method, options: ContextOptions) -> Result<Context> {
        let max_transfer = self.query()?.max_transfer.min(MAX_TRANSFER);
        let mut context = Context {
            registers: None,
            method: Method::Kernel,
            number: 0,
            max_transfer,
            options,
            disturbed: Cell::default(),
            last: Cell::new(0),
            seen: Cell::new(0),
            poller: Cell::new(None),
            map_outs: RefCell::default(),
            device: self.clone(),
        };
        let Some(number) = method.number() else {
            return Ok(context);
        };
        let restartable = restartable(method)?;
        let argument = uapi::uldma_context_create {
            flags: options
                .no_data
                .then_some(uapi::ULDMA_CONTEXT_NO_DATA)
                .unwrap_or_default(),
            method: number,
            ..Default::default()
        };
        let answer = match sys::context_create(self.as_fd(), argument) {
            Ok(answer) => answer,
            Err(Errno::EBUSY) if options.or_kernel => return Ok(context),
            Err(errno) => return Err(Error::context(method, errno)),
        };
        match Registers::map(self, method, &answer) {
            Ok(registers) => {
                context.registers = Some(Registers {
                    restartable,
                    ..registers
                });
                context.method = method;
                context.number = answer.out_context;
                context.max_transfer = match method {
                    Method::SingleStore => max_transfer.min(single_store::MAX_TRANSFER),
                    Method::Shrimp1 => max_transfer.min(self.page_size()),
                    _ => max_transfer,
                };
                Ok(context)
            }
            Err(error) => {
                let _ = sys::context_destroy(self.as_fd(), sys::handle(0));
                Err(error)
            }
        }
    }
}

/// Finds the C library's registration that [`Method::Pal`] needs.
fn restartable(method: Method) -> Result<Option<RestartableThread>> {
    if method != Method::Pal {
        return Ok(None);
    }
    let why = "the C library registers no restartable sequences (rseq)";
    RestartableThread::find()
        .map(Some)
        .ok_or(Error::Method { method, why })
}

impl Context {
    /// The context's number at the device; zero, which is the kernel's, when it has none.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the method that starts transfers; [`Method::Kernel`] if no context was free.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Bytes that one initiation can move.
    pub fn max_transfer(&self) -> u64 {
        self.max_transfer
    }

    /// Attempts to initiate so far that others disturbed; most were followed by another one.
    pub fn disturbances(&self) -> Disturbances {
        self.disturbed.get()
    }

    /// Initiations so far that got no ticket, as the device counts them.
    pub fn refused(&self) -> u64 {
        self.registers
            .as_ref()
            .map_or(0, |registers| registers.status.refused())
    }

    /// Maps the shadow pages of a region or an import of the same open file, if the method needs them.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the kernel refuses the mapping.
    pub fn shadow<'region>(&self, region: &'region impl Registered) -> Result<Shadow<'region>> {
        Shadow::new(region, self.method.uses_shadow_pages())
    }

    /// Returns the result of the transfer; none while it has not ended.
    ///
    /// # Errors
    ///
    /// [`Error::RecordLost`] when 64 later transfers have ended since, or when there is no context.
    #[inline]
    pub fn ended(&self, ticket: Ticket) -> Result<Option<Completion>> {
        match &self.registers {
            Some(registers) => registers.status.ended(ticket),
            None => Err(Error::RecordLost(ticket.0)),
        }
    }

    /// Waits until the transfer has ended: polls the status page for as long as `spin` says, then
    /// sleeps in the kernel, in one system call.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] when it failed, [`Error::Timeout`], [`Error::RecordLost`],
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait(&self, ticket: Ticket, spin: Spin, timeout: Duration) -> Result<Completion> {
        if let Some(ended) = self.poll(spin, || self.ended(ticket).transpose()) {
            return ended?.check();
        }
        let deadline = Deadline::after(timeout);
        loop {
            self.sleep(ticket, deadline)?;
            if let Some(completion) = self.ended(ticket)? {
                return completion.check();
            }
            if deadline.is_over() {
                return Err(deadline.missed(format!("end of transfer {}", ticket.get())));
            }
        }
    }

    /// Sleeps until the transfer has ended. Returns at the deadline, too, and when a signal was
    /// handled.
    ///
    /// # Errors
    ///
    /// [`Error::RecordLost`] when 64 later transfers have ended; [`Error::System`]: ENODEV when the
    /// device has been removed.
    pub(crate) fn sleep(&self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        let argument = uapi::uldma_dma_wait {
            flags: uapi::ULDMA_WAIT_CONTEXT,
            ticket: ticket.0,
            timeout_ns: nanoseconds(deadline.left()),
            ..Default::default()
        };
        match sys::dma_wait(self.device.as_fd(), argument) {
            Ok(_) | Err(Errno::ETIMEDOUT | Errno::EINTR) => Ok(()),
            Err(Errno::ENOENT) => Err(Error::RecordLost(ticket.0)),
            Err(errno) => Err(Error::system("wait for a transfer", errno)),
        }
    }

    /// Attempts for as long as `spin` says; a caller that gets none sleeps.
    pub(crate) fn poll<T>(&self, spin: Spin, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let known = self.poller.get().filter(|_| spin == Spin::Adaptive);
        let mut poller = known.unwrap_or_else(|| self.device.poller(spin));
        let found = poller.until(|attempts| repeat(attempts, &mut attempt));
        if found.is_none() {
            poller.slept();
        }
        if spin == Spin::Adaptive {
            self.poller.set(Some(poller));
        }
        found
    }

    pub(crate) fn registers(&self) -> Option<&Registers> {
        self.registers.as_ref()
    }

    /// The next ticket, for the methods whose loads do not return it; not used up until
    /// [`Context::use_up`].
    #[inline]
    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket(self.last.get() + 1)
    }

    /// The ticket belongs to a transfer now.
    #[inline]
    pub(crate) fn use_up(&self, ticket: Ticket) -> Ticket {
        self.last.set(ticket.0);
        ticket
    }

    /// Operations that were given a ticket here and have not ended.
    #[inline]
    pub(crate) fn under_way(&self, status: &StatusPage) -> u64 {
        self.seen.set(status.completed());
        self.last.get().saturating_sub(self.seen.get())
    }

    /// Makes sure that with `more` others no more than [`RECORDS`] are under way: those the device
    /// would lose, or find where it does not expect them.
    #[inline]
    pub(crate) fn room_for(
        &self,
        more: u64,
        status: &StatusPage,
    ) -> std::result::Result<(), Refusal> {
        // The device writes to that memory, so it is read only when needed.
        let known = self.last.get().saturating_sub(self.seen.get());
        if known + more <= RECORDS || self.under_way(status) + more <= RECORDS {
            Ok(())
        } else {
            Err(Refusal::QueueFull)
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.registers.is_some() {
            // This fails only after the device has been removed.
            let _ = sys::context_destroy(self.device.as_fd(), sys::handle(0));
        }
    }
}
