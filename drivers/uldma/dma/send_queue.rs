// SPDX-License-Identifier: GPL-2.0

//! The kernel's queue of packets, which the device sends as messages of endpoints.
//!
//! Unlike the other queues of the kernel it is used with bottom halves disabled, and nothing in it
//! waits: a message for which no buffer is posted fails at once. The queue owns each packet until the
//! device has reported the end of its message, or does no DMA any more.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    prelude::*, //
};

use super::{
    descriptor,
    method::Method, //
};
use crate::{
    hw::{
        layout::{
            DescriptorFlags,
            Segment, //
        },
        lists::Lists,
        ContextSetup,
        Hw, //
    },
    kernel_ext::{
        bh_lock::{
            new_bh_lock,
            BhLock, //
        },
        dma::{
            self,
            SharedPage, //
        },
        net::mapped_skb::{
            MappedSkb,
            MAX_PIECES, //
        },
        window, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    },
    user_abi::status_page::StatusPage, //
};

/// Number of descriptors in the page; the same as `ULDMA_STATUS_RECORDS`.
const DEPTH: usize = uapi::ULDMA_STATUS_RECORDS as usize;

/// The place of a ticket. `T` is the packet.
enum Slot<T> {
    Free,
    InFlight {
        packet: T,
        /// Nothing asks for the end.
        is_abandoned: bool,
    },
    /// The message has ended, successfully or not.
    Ended(bool),
}

/// Tickets and their places.
struct Slots<T> {
    /// By ticket modulo the depth.
    slots: KVec<Slot<T>>,
    /// Last submitted ticket.
    submitted: u64,
    /// Last reaped ticket.
    ended: u64,
}

fn place_of(ticket: u64) -> usize {
    // The remainder is less than the depth, which is a usize.
    (ticket % DEPTH as u64) as usize
}

impl<T> Slots<T> {
    fn new() -> Result<Self> {
        let mut slots = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        for _ in 0..DEPTH {
            slots.push(Slot::Free, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            submitted: 0,
            ended: 0,
        })
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot<T>> {
        self.slots.get_mut(place_of(ticket))
    }

    /// Returns the next ticket, if its place is free.
    fn next(&mut self) -> Option<u64> {
        let ticket = self.submitted + 1;
        matches!(self.slot(ticket), Some(Slot::Free)).then_some(ticket)
    }

    /// Keeps the packet of the next ticket.
    fn submit(&mut self, ticket: u64, packet: T) {
        if let Some(slot) = self.slot(ticket) {
            *slot = Slot::InFlight {
                packet,
                is_abandoned: false,
            };
            self.submitted = ticket;
        }
    }

    /// Reaps the next ticket up to `completed`; `has_sent` says how a message has ended.
    fn reap(&mut self, completed: u64, has_sent: impl FnOnce(u64) -> bool) -> Option<T> {
        // A device that reports wrong tickets cannot end messages that were not submitted.
        if self.ended >= completed.min(self.submitted) {
            return None;
        }
        let ticket = self.ended + 1;
        self.ended = ticket;
        let slot = self.slot(ticket)?;
        match core::mem::replace(slot, Slot::Free) {
            Slot::InFlight {
                packet,
                is_abandoned,
            } => {
                if !is_abandoned {
                    *slot = Slot::Ended(has_sent(ticket));
                }
                Some(packet)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Takes how the message of a ticket has ended; none before it has.
    fn take(&mut self, ticket: u64) -> Option<bool> {
        let slot = self.slot(ticket)?;
        let Slot::Ended(sent) = *slot else {
            return None;
        };
        *slot = Slot::Free;
        Some(sent)
    }

    /// Lets nothing ask for the end of a ticket any more.
    fn abandon(&mut self, ticket: u64) {
        match self.slot(ticket) {
            Some(Slot::InFlight { is_abandoned, .. }) => *is_abandoned = true,
            Some(slot) => *slot = Slot::Free,
            None => (),
        }
    }
}

/// What the device uses while the queue is enabled.
struct Enabled {
    status_page: DmaAddress,
    queue: DmaAddress,
    /// By ticket modulo the depth.
    lists: Lists,
}

struct State {
    slots: Slots<MappedSkb>,
    enabled: Option<Enabled>,
}

/// The queue of packets of a device.
#[pin_data]
pub(crate) struct SendQueue {
    context: u32,
    page: StatusPage,
    descriptors: SharedPage,
    #[pin]
    state: BhLock<State>,
}

impl SendQueue {
    /// Creates the queue of `context`, which works after [`SendQueue::enable`].
    pub(crate) fn new(context: u32) -> Result<impl PinInit<Self>> {
        let page = StatusPage::new()?;
        let descriptors = SharedPage::new()?;
        let state = State {
            slots: Slots::new()?,
            enabled: None,
        };
        Ok(pin_init!(Self {
            context,
            page,
            descriptors,
            state <- new_bh_lock!(state, "uldma::SendQueue::state"),
        }))
    }

    /// Enables the context of the queue.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        const PIECES: u32 = MAX_PIECES as u32;
        let lists = Lists::new(hw.dev(), DEPTH, PIECES)?;
        let status_page = self.page.map(hw.dev())?;
        let queue = self
            .descriptors
            .map(hw.dev())
            .inspect_err(|_| dma::unmap(hw.dev(), status_page))?;
        self.state.lock().enabled = Some(Enabled {
            status_page,
            queue,
            lists,
        });
        let setup = ContextSetup {
            status_page,
            queue,
            methods: Method::QUEUE.bit(),
            privileged: true,
            ..ContextSetup::default()
        };
        hw.enable_context(self.context, &setup)
    }

    /// Frees everything; the device does no DMA any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        let enabled = self.state.lock().enabled.take();
        if let Some(enabled) = enabled {
            dma::unmap(dev, enabled.status_page);
            dma::unmap(dev, enabled.queue);
        }
        while self.reap_one(dev, u64::MAX) {}
    }

    /// Takes a packet and submits it as a message of `endpoint`, an endpoint of the driver. Returns its
    /// ticket, which has to be [taken](SendQueue::take) or [abandoned](SendQueue::abandon).
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, `ENODEV` if it is not enabled, `EINVAL` without a packet. The packet
    /// was not taken then, and the device has not seen it.
    pub(crate) fn submit(
        &self,
        hw: Hw<'_>,
        endpoint: u32,
        packet: &mut Option<MappedSkb>,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let State { slots, enabled } = &mut *state;
        let Enabled { lists, .. } = enabled.as_ref().ok_or(ENODEV)?;
        let ticket = slots.next().ok_or(EBUSY)?;
        self.write(lists, ticket, endpoint, packet.as_ref().ok_or(EINVAL)?)?;
        slots.submit(ticket, packet.take().ok_or(EINVAL)?);
        window::full_fence();
        if self.page.is_asleep() {
            // The only error is a device that has left the bus, and its removal ends the ticket.
            let _ = hw.wake_context(self.context);
        }
        Ok(ticket)
    }

    /// Writes list and descriptor of `ticket`.
    fn write(&self, lists: &Lists, ticket: u64, endpoint: u32, packet: &MappedSkb) -> Result {
        let place = place_of(ticket);
        let mut length = 0u64;
        for (number, piece) in packet.pieces().iter().enumerate() {
            let segment = Segment {
                address: piece.address,
                bytes: piece.bytes,
            };
            lists.write(place, number, segment)?;
            length = length.checked_add(piece.bytes).ok_or(EINVAL)?;
        }
        let message = uldma_descriptor {
            ticket,
            op: uapi::ULDMA_OP_SEND,
            flags: DescriptorFlags::LIST.bits(),
            src: u32::try_from(packet.pieces().len())?,
            src_offset: lists.address(place)?,
            dst: endpoint,
            length,
            ..zerocopy::FromZeros::new_zeroed()
        };
        descriptor::write(&self.descriptors, &message)
    }

    /// Frees the packets whose messages have ended.
    pub(crate) fn reap(&self, dev: &Device<Bound>) {
        while self.reap_one(dev, self.page.completed()) {}
    }

    /// Frees the packet of the next ticket up to `completed`. Returns true if there was one.
    fn reap_one(&self, dev: &Device<Bound>, completed: u64) -> bool {
        let reaped = self.state.lock().slots.reap(completed, |ticket| {
            let outcome = self.page.record(ticket);
            outcome.is_some_and(|outcome| outcome.check().is_ok())
        });
        let Some(packet) = reaped else {
            return false;
        };
        // Without the lock, since the owner of the packet may send the next one.
        if let Some(skb) = packet.unmap(dev) {
            skb.consume();
        }
        true
    }

    /// Takes how the message of a ticket has ended: true if the peer has it. None before it has.
    pub(crate) fn take(&self, ticket: u64) -> Option<bool> {
        self.state.lock().slots.take(ticket)
    }

    /// Lets nothing ask for the end of the message of a ticket any more.
    pub(crate) fn abandon(&self, ticket: u64) {
        self.state.lock().slots.abandon(ticket);
    }
}

#[kunit_tests(uldma_send_queue)]
mod tests {
    use super::*;

    const ALL: u64 = DEPTH as u64;

    fn submit(slots: &mut Slots<u64>) -> Option<u64> {
        let ticket = slots.next()?;
        slots.submit(ticket, ticket * 10);
        Some(ticket)
    }

    #[test]
    fn packets_come_back_in_order_and_ends_wait() -> Result {
        let mut slots = Slots::new()?;
        assert_eq!((submit(&mut slots), submit(&mut slots)), (Some(1), Some(2)));
        assert_eq!(slots.reap(0, |_| true), None);
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.reap(2, |_| true), Some(10));
        assert_eq!(slots.reap(2, |_| false), Some(20));
        assert_eq!(slots.reap(2, |_| true), None);
        assert_eq!((slots.take(2), slots.take(1)), (Some(false), Some(true)));
        assert_eq!((slots.take(2), slots.take(1)), (None, None));
        Ok(())
    }

    #[test]
    fn a_place_is_free_when_its_end_was_taken() -> Result {
        let mut slots = Slots::new()?;
        for ticket in 1..=ALL {
            assert_eq!(submit(&mut slots), Some(ticket));
        }
        assert_eq!(submit(&mut slots), None);
        assert_eq!(slots.reap(1, |_| true), Some(10));
        assert_eq!(submit(&mut slots), None);
        assert_eq!(slots.take(1), Some(true));
        assert_eq!(submit(&mut slots), Some(ALL + 1));
        assert_eq!(submit(&mut slots), None);
        Ok(())
    }

    #[test]
    fn what_is_abandoned_is_kept_for_the_device_only() -> Result {
        let mut slots = Slots::new()?;
        for _ in 0..2 {
            submit(&mut slots);
        }
        slots.abandon(1);
        assert_eq!(slots.reap(2, |_| true), Some(10));
        assert_eq!(slots.take(1), None);
        assert_eq!(slots.reap(2, |_| true), Some(20));
        slots.abandon(2);
        assert_eq!(slots.take(2), None);
        for _ in 0..ALL {
            assert!(submit(&mut slots).is_some());
        }
        Ok(())
    }

    #[test]
    fn a_device_cannot_end_what_was_not_submitted() -> Result {
        let mut slots = Slots::new()?;
        submit(&mut slots);
        assert_eq!(slots.reap(u64::MAX, |_| true), Some(10));
        assert_eq!(slots.reap(u64::MAX, |_| true), None);
        assert_eq!(submit(&mut slots), Some(2));
        Ok(())
    }
}
