// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of descriptors: operations that the device finds by polling.
//!
//! Pushing a descriptor takes a few stores to shared memory. Only when the device has stopped
//! polling does it take a store to a register to wake it.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::mmio::{full_barrier, Register, RegisterAddress};
use crate::region::shadow::ShadowAddress;
use crate::region::Registered;
use crate::sys::uapi;
use crate::transfer::context::Context;
use crate::transfer::descriptor::{Order, Ring};
use crate::transfer::endpoint::Endpoint;
use crate::transfer::status::{Completion, StatusPage, RECORDS};
use crate::transfer::ticket::Ticket;
use crate::wait::spin::Spin;

/// The queue of a context for [`crate::Method::Queue`].
///
/// Operations are numbered in the order of pushing, and end in this order. The device surely sees
/// them only after [`Queue::submit`]: call it once for many.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Access, Buffer, ContextOptions, Device, Method, Spin};
///
/// let device = Device::open(0)?;
/// let region = device.register(Buffer::new(1 << 20)?, Access::ReadWrite)?;
/// let context = device.context_with(Method::Queue, ContextOptions::default())?;
/// let shadow = context.shadow(&region)?;
/// let Some(queue) = context.queue() else {
///     return Ok(());
/// };
/// let mut copies = Vec::new();
/// for at in (0..8).map(|page| page * 4096) {
///     copies.push((shadow.at(at)?, shadow.at((1 << 19) + at)?, 4096));
/// }
/// // Eight copies, for which the device is woken once.
/// let batch = queue.copy_vectored(&copies)?;
/// queue.submit();
/// queue.wait(batch, Spin::Adaptive, Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Queue<'context> {
    context: &'context Context,
    ring: &'context Ring,
    status: &'context StatusPage,
    page: RegisterAddress<'context>,
}

/// Operations that were pushed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Of the first one.
    pub first: Ticket,
    /// Of the last one.
    pub last: Ticket,
}

impl Context {
    /// Returns the queue; none for contexts of other methods.
    pub fn queue(&self) -> Option<Queue<'_>> {
        let registers = self.registers()?;
        Some(Queue {
            context: self,
            ring: registers.ring.as_ref()?,
            status: &registers.status,
            page: RegisterAddress::new(registers.page.as_ref()?, 0)?,
        })
    }
}

impl Queue<'_> {
    /// Returns the number of operations that can be pushed now.
    pub fn room(&self) -> u64 {
        RECORDS.saturating_sub(self.context.under_way(self.status))
    }

    /// Pushes a copy of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`] while 64 operations are under way, [`Refusal::NoRight`] when the
    /// source is not readable or the destination not writable.
    #[inline]
    pub fn copy(
        &self,
        source: ShadowAddress<'_>,
        destination: ShadowAddress<'_>,
        bytes: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        if !source.access.reads() || !destination.access.writes() {
            return Err(Refusal::NoRight);
        }
        let (from, to) = (
            (source.index, source.offset),
            (destination.index, destination.offset),
        );
        self.copy_at(from, to, bytes, order)
    }

    /// Pushes a copy between regions by their indexes in the device's table.
    #[inline]
    pub(crate) fn copy_at(
        &self,
        (src, src_offset): (u32, u64),
        (dst, dst_offset): (u32, u64),
        bytes: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        self.push(uapi::uldma_descriptor {
            op: uapi::ULDMA_OP_COPY,
            flags: order.flags(),
            src,
            src_offset,
            dst,
            dst_offset,
            length: bytes,
            ..Default::default()
        })
    }

    /// Pushes an addition of `operand` to the word of eight bytes at `word`. Its old value is
    /// [`Completion::bytes`].
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`]; [`Refusal::NoRight`] when the region is not both readable and
    /// writable.
    pub fn fetch_add(
        &self,
        word: ShadowAddress<'_>,
        operand: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        self.atomic(uapi::ULDMA_OP_FETCH_ADD, word, operand, 0, order)
    }

    /// Pushes a store of `new` to the word of eight bytes at `word`, on condition that it equals
    /// `expected`. Its old value is [`Completion::bytes`].
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`], [`Refusal::NoRight`], [`Refusal::NotAligned`], as for
    /// [`Queue::fetch_add`].
    pub fn compare_swap(
        &self,
        word: ShadowAddress<'_>,
        expected: u64,
        new: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        self.atomic(uapi::ULDMA_OP_COMPARE_SWAP, word, new, expected, order)
    }

    /// Pushes an operation without effect, which ends after all earlier ones.
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`].
    pub fn nop(&self, order: Order) -> std::result::Result<Ticket, Refusal> {
        self.push(uapi::uldma_descriptor {
            op: uapi::ULDMA_OP_NOP,
            flags: order.flags(),
            ..Default::default()
        })
    }

    /// Pushes a message of `bytes` bytes, from `offset` of a region on, to the endpoint that
    /// `endpoint` is connected to. With `more`, the next message continues it.
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`] while 64 operations are under way, [`Refusal::NoRight`] when the
    /// region is not readable.
    #[inline]
    pub fn send(
        &self,
        (region, offset): (&impl Registered, u64),
        bytes: u64,
        endpoint: &Endpoint,
        more: bool,
    ) -> std::result::Result<Ticket, Refusal> {
        if !region.access().reads() {
            return Err(Refusal::NoRight);
        }
        self.send_at((region.index(), offset), bytes, endpoint, more)
    }

    /// Pushes a message from a region by its index in the device's table.
    #[inline]
    pub(crate) fn send_at(
        &self,
        (region, offset): (u32, u64),
        bytes: u64,
        endpoint: &Endpoint,
        more: bool,
    ) -> std::result::Result<Ticket, Refusal> {
        self.push(uapi::uldma_descriptor {
            op: uapi::ULDMA_OP_SEND,
            flags: if more { uapi::ULDMA_DESC_MORE } else { 0 },
            src: region,
            src_offset: offset,
            dst: endpoint.name().index,
            length: bytes,
            ..Default::default()
        })
    }

    /// Pushes bytes of a stream from a region, both by their indexes in the device's tables.
    #[inline]
    pub(crate) fn send_to(
        &self,
        endpoint: u32,
        (region, offset): (u32, u64),
        bytes: u64,
    ) -> std::result::Result<Ticket, Refusal> {
        self.push(uapi::uldma_descriptor {
            op: uapi::ULDMA_OP_SEND,
            src: region,
            src_offset: offset,
            dst: endpoint,
            length: bytes,
            ..Default::default()
        })
    }

    /// Lets the driver push an operation, by the ticket that it gets.
    pub(crate) fn push_by_driver(&self, push: impl FnOnce(Ticket) -> Result<()>) -> Result<Ticket> {
        self.context.room_for(1, self.status)?;
        let ticket = self.context.next_ticket();
        push(ticket)?;
        Ok(self.context.use_up(ticket))
    }

    /// Gathers or scatters: copies all entries (source, destination, bytes) in order, each only if
    /// the earlier ones succeeded, and submits them. Pushes all or none.
    ///
    /// # Errors
    ///
    /// [`Refusal::QueueFull`] when there is no room for all of them, [`Refusal::BadSize`] when there
    /// are none, [`Refusal::NoRight`].
    pub fn copy_vectored(
        &self,
        copies: &[(ShadowAddress<'_>, ShadowAddress<'_>, u64)],
    ) -> std::result::Result<Batch, Refusal> {
        let count = copies.len() as u64;
        let allowed = |copy: &(ShadowAddress<'_>, ShadowAddress<'_>, u64)| {
            copy.0.access.reads() && copy.1.access.writes()
        };
        if count == 0 {
            return Err(Refusal::BadSize);
        }
        if !copies.iter().all(allowed) {
            return Err(Refusal::NoRight);
        }
        self.context.room_for(count, self.status)?;
        let first = self.context.next_ticket();
        let mut last = first;
        for (number, &(source, destination, bytes)) in copies.iter().enumerate() {
            let link = number + 1 < copies.len();
            let order = Order { fence: false, link };
            last = self.copy(source, destination, bytes, order)?;
        }
        self.submit();
        Ok(Batch { first, last })
    }

    /// Makes the device poll the queue, if it has stopped: by a store to a register, which is
    /// rarely needed.
    #[inline]
    pub fn submit(&self) {
        self.wake_if_wanted(self.status);
    }

    /// Wakes the device, if it waits for the ring that `status` belongs to.
    #[inline]
    pub(crate) fn wake_if_wanted(&self, status: &StatusPage) {
        // The device publishes that it stops polling, and then polls once more; this barrier is the
        // counterpart.
        full_barrier();
        if status.wants_wakeup() {
            self.page.begin();
            self.page.store(1);
        }
    }

    /// Waits until all of a batch have ended, as [`Context::wait`] does.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] of the first operation that failed; [`Error::Timeout`],
    /// [`Error::RecordLost`].
    pub fn wait(&self, batch: Batch, spin: Spin, timeout: Duration) -> Result<Completion> {
        match self.context.wait(batch.last, spin, timeout) {
            Err(Error::Transfer { .. }) => {}
            ended => return ended,
        }
        // They end in order, so all have ended; the last one may only report that it was aborted.
        for ticket in batch.first.0..batch.last.0 {
            let ended = self.context.ended(Ticket(ticket))?;
            ended.map(Completion::check).transpose()?;
        }
        self.context.wait(batch.last, spin, timeout)
    }

    #[inline]
    fn atomic(
        &self,
        op: u32,
        word: ShadowAddress<'_>,
        operand: u64,
        compare: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        if !word.access.reads() || !word.access.writes() {
            return Err(Refusal::NoRight);
        }
        self.push(uapi::uldma_descriptor {
            op,
            flags: order.flags(),
            dst: word.index,
            dst_offset: word.offset,
            length: 8,
            operand,
            compare,
            ..Default::default()
        })
    }

    #[inline]
    fn push(&self, mut descriptor: uapi::uldma_descriptor) -> std::result::Result<Ticket, Refusal> {
        self.context.room_for(1, self.status)?;
        let ticket = self.context.next_ticket();
        descriptor.ticket = ticket.0;
        self.ring.write(&descriptor);
        Ok(self.context.use_up(ticket))
    }
}
