// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors in memory: operations that the device finds without being told.
//!
//! To push a descriptor is a few stores to memory that both share; only when the device has gone to
//! sleep does it take a store to a register to wake it.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::mmio::{full_barrier, Register, RegisterAddress};
use crate::status::{StatusPage, RECORDS};
use crate::sys::Mapping;
use crate::{uapi, Completion, Context, Error, Refusal, Result, ShadowAddress, Spin, Ticket};

/// Where fields of a descriptor are; those of four bytes are stored in pairs.
mod field {
    use super::{offset_of, uapi};

    pub(super) const TICKET: usize = offset_of!(uapi::uldma_descriptor, ticket);
    /// And the flags.
    pub(super) const OP: usize = offset_of!(uapi::uldma_descriptor, op);
    /// And the destination.
    pub(super) const SRC: usize = offset_of!(uapi::uldma_descriptor, src);
    pub(super) const SRC_OFFSET: usize = offset_of!(uapi::uldma_descriptor, src_offset);
    pub(super) const DST_OFFSET: usize = offset_of!(uapi::uldma_descriptor, dst_offset);
    pub(super) const LENGTH: usize = offset_of!(uapi::uldma_descriptor, length);
    pub(super) const OPERAND: usize = offset_of!(uapi::uldma_descriptor, operand);
    pub(super) const COMPARE: usize = offset_of!(uapi::uldma_descriptor, compare);
}

/// How an operation stands to those around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// It begins only after all before it have ended.
    pub fence: bool,
    /// If it ends badly, the next one ends as [`Refusal::Aborted`].
    pub link: bool,
}

impl Order {
    /// It stands for itself.
    pub const NONE: Self = Self {
        fence: false,
        link: false,
    };
    /// It waits for those before it.
    pub const FENCE: Self = Self {
        fence: true,
        link: false,
    };
    /// The next one depends on it.
    pub const LINK: Self = Self {
        fence: false,
        link: true,
    };

    fn flags(self) -> u32 {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        flag(self.fence, uapi::ULDMA_DESC_FENCE) | flag(self.link, uapi::ULDMA_DESC_LINK)
    }
}

/// The page of descriptors.
#[derive(Debug)]
pub(crate) struct Ring {
    mapping: Mapping,
}

impl Ring {
    pub(crate) fn new(mapping: Mapping) -> Result<Self> {
        let needed = size_of::<uapi::uldma_descriptor>() * RECORDS as usize;
        if mapping.length() < needed {
            return Err(Error::Range {
                offset: 0,
                length: needed as u64,
                size: mapping.length() as u64,
            });
        }
        Ok(Self { mapping })
    }

    /// Writes a descriptor at its place, where the one before has ended; its ticket comes last.
    #[inline]
    fn write(&self, descriptor: &uapi::uldma_descriptor) {
        let place = (descriptor.ticket % RECORDS) as usize * size_of::<uapi::uldma_descriptor>();
        for (field, value) in [
            (field::OP, pair(descriptor.op, descriptor.flags)),
            (field::SRC, pair(descriptor.src, descriptor.dst)),
            (field::SRC_OFFSET, descriptor.src_offset),
            (field::DST_OFFSET, descriptor.dst_offset),
            (field::LENGTH, descriptor.length),
            (field::OPERAND, descriptor.operand),
            (field::COMPARE, descriptor.compare),
        ] {
            self.mapping
                .word(place + field)
                .store(value, Ordering::Relaxed);
        }
        let ticket = self.mapping.word(place + field::TICKET);
        ticket.store(descriptor.ticket, Ordering::Release);
    }
}

/// Two fields of four bytes that lie in one word.
#[inline]
fn pair(first: u32, second: u32) -> u64 {
    let (first, second) = (u64::from(first), u64::from(second));
    if cfg!(target_endian = "little") {
        first | (second << 32)
    } else {
        (first << 32) | second
    }
}

/// The queue of a context for [`crate::Method::Queue`].
///
/// Operations are numbered as they are pushed, and end in this order. What is pushed is only sure to
/// be seen after [`Queue::submit`]: call it once for many.
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
    /// The queue; none for contexts of other methods.
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
    /// How many operations can be pushed now.
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
        self.push(uapi::uldma_descriptor {
            op: uapi::ULDMA_OP_COPY,
            flags: order.flags(),
            src: source.index,
            src_offset: source.offset,
            dst: destination.index,
            dst_offset: destination.offset,
            length: bytes,
            ..Default::default()
        })
    }

    /// Pushes an addition of `operand` to the word of eight bytes at `word`; what it was before is
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

    /// Pushes a store of `new` to the word of eight bytes at `word`, if that is `expected`; what it
    /// was before is [`Completion::bytes`].
    ///
    /// # Errors
    ///
    /// As [`Queue::fetch_add`].
    pub fn compare_swap(
        &self,
        word: ShadowAddress<'_>,
        expected: u64,
        new: u64,
        order: Order,
    ) -> std::result::Result<Ticket, Refusal> {
        self.atomic(uapi::ULDMA_OP_COMPARE_SWAP, word, new, expected, order)
    }

    /// Pushes an operation that does nothing, and ends after all before it.
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

    /// Gathers or scatters: copies all pieces (source, destination, bytes), in order and each only
    /// if those before it ended well, and submits them. Pushes all or none.
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

    /// Has the device look, if it does not by itself: a store to a register then, and none mostly.
    #[inline]
    pub fn submit(&self) {
        // The device says that it will sleep, and then looks once more; this is the other half.
        full_barrier();
        if self.status.wants_wakeup() {
            self.page.begin();
            self.page.store(1);
        }
    }

    /// Waits until all of a batch have ended, as [`Context::wait`] does.
    ///
    /// # Errors
    ///
    /// That of the first one that failed: [`Error::Transfer`]; [`Error::Timeout`],
    /// [`Error::RecordLost`].
    pub fn wait(&self, batch: Batch, spin: Spin, timeout: Duration) -> Result<Completion> {
        match self.context.wait(batch.last, spin, timeout) {
            Err(Error::Transfer { .. }) => {}
            ended => return ended,
        }
        // They end in order, so all have; the last one may only say that it was aborted.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the device reads, written a second time on purpose: eight words.
    fn words(mapping: &Mapping, place: usize) -> [u64; 8] {
        std::array::from_fn(|index| mapping.word(64 * place + 8 * index).load(Ordering::Relaxed))
    }

    #[test]
    fn a_descriptor_lies_where_the_device_looks() {
        let ring = Ring::new(Mapping::anonymous(4096).unwrap()).unwrap();
        let mut descriptor = uapi::uldma_descriptor {
            ticket: 65,
            op: 2,
            flags: 3,
            src: 0x11,
            dst: 0x22,
            src_offset: 0x33,
            dst_offset: 0x44,
            length: 0x55,
            operand: 0x66,
            compare: 0x77,
        };
        ring.write(&descriptor);
        assert_eq!(
            words(&ring.mapping, 1),
            [
                65,
                0x3_0000_0002,
                0x22_0000_0011,
                0x33,
                0x44,
                0x55,
                0x66,
                0x77
            ]
        );
        descriptor.ticket = 128;
        ring.write(&descriptor);
        assert_eq!(words(&ring.mapping, 0)[0], 128);
        assert_eq!(words(&ring.mapping, 2), [0; 8]);
    }

    #[test]
    fn the_header_and_this_file_agree() {
        assert_eq!(size_of::<uapi::uldma_descriptor>(), 64);
        assert_eq!(offset_of!(uapi::uldma_descriptor, flags), field::OP + 4);
        assert_eq!(offset_of!(uapi::uldma_descriptor, dst), field::SRC + 4);
        assert!(Ring::new(Mapping::anonymous(2048).unwrap()).is_err());
        let both = Order {
            fence: true,
            link: true,
        };
        assert_eq!(
            [Order::NONE, Order::FENCE, Order::LINK, both].map(Order::flags),
            [0, 1, 2, 3]
        );
    }
}
