// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starting transfers: one call for all methods.

use std::time::Duration;

use super::{Context, Registers};
use crate::error::Result;
use crate::method::refusal::Refusal;
use crate::method::repeated::Accesses;
use crate::method::{extended_shadow, key, pal, repeated, shrimp_1, single_store, Method};
use crate::mmio::{Register, RegisterAddress};
use crate::region::shadow::ShadowAddress;
use crate::transfer::descriptor::Order;
use crate::transfer::size_word;
use crate::transfer::size_word::Operand;
use crate::transfer::status::Completion;
use crate::transfer::ticket::{KernelTicket, Ticket};
use crate::wait::spin::Spin;

/// A transfer that [`Context::dma`] started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Initiated {
    /// Method by which the transfer was started: the context's, or the kernel if that failed.
    pub via: Method,
    /// Number of restarts of the initiation.
    pub retries: u32,
    by: TicketKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketKind {
    Context(Ticket),
    Kernel(KernelTicket),
}

impl Initiated {
    /// Returns the context's ticket; none when the kernel started it.
    pub fn ticket(&self) -> Option<Ticket> {
        match self.by {
            TicketKind::Context(ticket) => Some(ticket),
            TicketKind::Kernel(_) => None,
        }
    }
}

impl Context {
    /// Starts a transfer of `size` bytes by the context's method.
    ///
    /// Without a context, or when others disturbed every attempt
    /// ([`crate::ContextOptions::retries`]), the kernel starts the transfer, which
    /// [`Initiated::via`] reports. Returns before the bytes have moved; neither side may be
    /// accessed until the transfer has ended ([`Context::dma_wait`]).
    ///
    /// # Errors
    ///
    /// [`crate::Error::Refused`]: what the device answered, or what the method cannot carry.
    /// [`crate::Error::System`] where the kernel was to start it.
    #[inline]
    pub fn dma(
        &self,
        source: ShadowAddress<'_>,
        destination: ShadowAddress<'_>,
        size: u64,
    ) -> Result<Initiated> {
        match self.begin(source, destination, size) {
            Ok((ticket, retries)) => Ok(Initiated {
                via: self.method,
                retries,
                by: TicketKind::Context(ticket),
            }),
            Err(Refusal::Contended) => {
                self.by_kernel(source, destination, size, self.options.retries)
            }
            Err(Refusal::NoContext) => self.by_kernel(source, destination, size, 0),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Waits until a transfer that [`Context::dma`] started has ended: as [`Context::wait`], or
    /// asleep in a system call where the kernel started it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::Transfer`] when the transfer failed, [`crate::Error::System`]: ENODEV
    /// when the device has been removed.
    pub fn dma_wait(
        &self,
        transfer: Initiated,
        spin: Spin,
        timeout: Duration,
    ) -> Result<Completion> {
        match transfer.by {
            TicketKind::Context(ticket) => self.wait(ticket, spin, timeout),
            TicketKind::Kernel(ticket) => self.device.dma_wait(ticket, timeout),
        }
    }

    /// Starts a transfer of `bytes` bytes by the context's method, without any system call.
    ///
    /// Returns before the bytes have moved; neither side may be touched until the transfer has
    /// ended ([`Context::wait`]).
    ///
    /// # Errors
    ///
    /// The device's refusal. Arguments that an initiation or the method cannot express are refused
    /// by the library: [`Refusal::BadSize`], [`Refusal::NoRight`], [`Refusal::NotAligned`] and
    /// others.
    #[inline]
    pub fn initiate(
        &self,
        source: ShadowAddress<'_>,
        destination: ShadowAddress<'_>,
        bytes: u64,
    ) -> std::result::Result<Ticket, Refusal> {
        self.begin(source, destination, bytes)
            .map(|(ticket, _)| ticket)
    }

    /// Atomically adds one to the word of eight bytes at `place`, and returns its old value. Takes
    /// one load (fn 3). For contexts with [`Method::FetchAdd`].
    ///
    /// The device returns all ones when it cannot do that, so an old value of all ones is not
    /// distinguishable from an error.
    ///
    /// # Errors
    ///
    /// [`Refusal::OtherMethod`] for other contexts, [`Refusal::NoRight`] for a region that is not
    /// both readable and writable, [`Refusal::NotAligned`].
    #[inline]
    pub fn fetch_add(&self, place: ShadowAddress<'_>) -> std::result::Result<u64, Refusal> {
        let Some(register) = place.address.filter(|_| self.method == Method::FetchAdd) else {
            return Err(Refusal::OtherMethod);
        };
        if !place.access.reads() || !place.access.writes() {
            return Err(Refusal::NoRight);
        }
        if register.low() != 0 {
            return Err(Refusal::NotAligned);
        }
        register.begin();
        Ok(register.load() as u64)
    }

    /// Starts a transfer by the context's method. Returns its ticket, and the number of restarts.
    #[inline]
    fn begin(
        &self,
        source: ShadowAddress<'_>,
        destination: ShadowAddress<'_>,
        bytes: u64,
    ) -> std::result::Result<(Ticket, u32), Refusal> {
        let registers = self.registers.as_ref().ok_or(Refusal::NoContext)?;
        if !source.access.reads() || !destination.access.writes() {
            return Err(Refusal::NoRight);
        }
        if self.method == Method::Queue {
            let queue = self.queue().ok_or(Refusal::OtherMethod)?;
            let ticket = queue.copy(source, destination, bytes, Order::NONE)?;
            queue.submit();
            return Ok((ticket, 0));
        }
        // These two name all the others' registers.
        let (Some(from), Some(to)) = (source.address, destination.address) else {
            return Err(Refusal::OtherMethod);
        };
        match self.method {
            Method::ExtendedShadow
            | Method::ExtendedShadowShared
            | Method::Shrimp2
            | Method::Shrimp2Abort
            | Method::Flash
            | Method::FlashSingle => {
                let word = size_word_of(source, from, destination, to, bytes)?;
                self.until_undisturbed(|| ticket(extended_shadow::initiate(to, from, word)))
            }
            Method::Repeated3 | Method::Repeated4 | Method::Repeated5 => {
                let word = size_word_of(source, from, destination, to, bytes)?;
                self.repeatedly(destination, to, from, word)
            }
            Method::Key => {
                if !source.access.writes() {
                    return Err(Refusal::SourceNotWritable);
                }
                let word = size_word_of(source, from, destination, to, bytes)?;
                self.by_key(registers, to, from, word)
            }
            Method::SingleStore => {
                let low = from.low() | to.low();
                let word =
                    single_store::encode(bytes, source.index, source.offset, destination.index)?;
                if low != 0 {
                    return Err(Refusal::NotAligned);
                }
                self.room_for(1, &registers.status)?;
                single_store::initiate(to, word);
                Ok((self.use_up(self.next_ticket()), 0))
            }
            Method::Shrimp1 => self.mapped_out(source, from, destination, to, bytes),
            Method::Pal => {
                let word = size_word_of(source, from, destination, to, bytes)?;
                let thread = registers.restartable.ok_or(Refusal::OtherMethod)?;
                self.until_undisturbed(|| {
                    let (answer, interrupted) = pal::initiate(thread, to, from, word)?;
                    self.count_disturbed(interrupted);
                    ticket(answer)
                })
            }
            Method::Kernel | Method::Queue | Method::FetchAdd => Err(Refusal::OtherMethod),
        }
    }

    /// Restarts the initiation while the device has lost its arguments, because the context's
    /// registers were lent to others or the process was preempted, or has mixed them with those of
    /// others.
    #[inline]
    fn until_undisturbed(
        &self,
        initiate: impl Fn() -> std::result::Result<Ticket, Refusal>,
    ) -> std::result::Result<(Ticket, u32), Refusal> {
        for retries in 0..=self.options.retries {
            match initiate() {
                Err(Refusal::NoArgs | Refusal::Mixed | Refusal::NotRunning) => {
                    self.count_disturbed(1);
                }
                answer => return answer.map(|ticket| (ticket, retries)),
            }
        }
        Err(Refusal::Contended)
    }

    #[inline]
    fn count_disturbed(&self, attempts: u32) {
        if attempts > 0 {
            let mut disturbed = self.disturbed.get();
            disturbed.attempts += u64::from(attempts);
            self.disturbed.set(disturbed);
        }
    }

    #[inline]
    fn repeatedly(
        &self,
        destination: ShadowAddress<'_>,
        to: RegisterAddress<'_>,
        from: RegisterAddress<'_>,
        word: u64,
    ) -> std::result::Result<(Ticket, u32), Refusal> {
        let accesses = match self.method {
            Method::Repeated3 => Accesses::Three,
            Method::Repeated4 => Accesses::Four,
            // The fifth access is a load from the destination's address.
            _ if !destination.access.reads() => return Err(Refusal::DestinationNotReadable),
            _ => Accesses::Five,
        };
        let mut disturbed = self.disturbed.get();
        let before = disturbed.attempts;
        let retries = self.options.retries;
        let begun = repeated::initiate(accesses, to, from, word, retries, &mut disturbed);
        self.disturbed.set(disturbed);
        let retries = (disturbed.attempts - before) as u32;
        begun.map(|ticket| (Ticket(ticket), retries))
    }

    #[inline]
    fn by_key(
        &self,
        registers: &Registers,
        to: RegisterAddress<'_>,
        from: RegisterAddress<'_>,
        word: u64,
    ) -> std::result::Result<(Ticket, u32), Refusal> {
        let page = registers.page.as_ref();
        let page = page.and_then(|page| RegisterAddress::new(page, 0));
        let page = page.ok_or(Refusal::OtherMethod)?;
        match key::initiate(to, from, page, registers.key, word) {
            // Transfers that are still pending; transfers are numbered in order.
            0.. => Ok((self.use_up(self.next_ticket()), 0)),
            refusal => Err(Refusal::from_answer(refusal)),
        }
    }

    #[inline]
    fn mapped_out(
        &self,
        source: ShadowAddress<'_>,
        from: RegisterAddress<'_>,
        destination: ShadowAddress<'_>,
        to: RegisterAddress<'_>,
        bytes: u64,
    ) -> std::result::Result<(Ticket, u32), Refusal> {
        let page_size = self.device.page_size();
        let place = shrimp_1::place(bytes, page_size)?;
        if from.in_page(page_size) != 0 || to.in_page(page_size) != 0 {
            return Err(Refusal::NotAligned);
        }
        // A region's first page is the one that it begins in, even if it begins inside of the page.
        let page =
            |place: ShadowAddress<'_>| (place.handle, place.offset.div_ceil(page_size.max(1)));
        if self.map_outs.borrow().get(page(source)) != Some(page(destination)) {
            return Err(Refusal::NotMappedOut);
        }
        let register = from.further(place).ok_or(Refusal::Bounds)?;
        Ok((ticket(shrimp_1::initiate(register))?, 0))
    }

    #[cold]
    fn by_kernel(
        &self,
        source: ShadowAddress<'_>,
        destination: ShadowAddress<'_>,
        size: u64,
        retries: u32,
    ) -> Result<Initiated> {
        let ticket = self.device.dma_by_handle(
            (source.handle, source.offset),
            (destination.handle, destination.offset),
            size,
        )?;
        Ok(Initiated {
            via: Method::Kernel,
            retries,
            by: TicketKind::Kernel(ticket),
        })
    }
}

/// Encodes the size word of a transfer.
#[inline]
fn size_word_of(
    source: ShadowAddress<'_>,
    from: RegisterAddress<'_>,
    destination: ShadowAddress<'_>,
    to: RegisterAddress<'_>,
    bytes: u64,
) -> std::result::Result<u64, Refusal> {
    let side = |place: ShadowAddress<'_>, address: RegisterAddress<'_>| Operand {
        low: address.low(),
        region: place.index,
    };
    size_word::encode(bytes, side(source, from), side(destination, to)).ok_or(Refusal::BadSize)
}

/// Decodes the value of the load that starts a transfer.
#[inline]
fn ticket(answer: i64) -> std::result::Result<Ticket, Refusal> {
    match answer {
        ticket @ 1.. => Ok(Ticket(ticket as u64)),
        refusal => Err(Refusal::from_answer(refusal)),
    }
}
