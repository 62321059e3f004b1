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
    method::Method,
    queue::tickets::{
        place_of,
        Tickets,
        DEPTH, //
    }, //
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
    user_abi::status_page::{
        Outcome,
        StatusPage, //
    }, //
};

/// What the device uses while the queue is enabled.
struct Enabled {
    status_page: DmaAddress,
    queue: DmaAddress,
    /// By ticket modulo the depth.
    lists: Lists,
}

struct State {
    tickets: Tickets<MappedSkb>,
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
            tickets: Tickets::new()?,
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
        let State { tickets, enabled } = &mut *state;
        let Enabled { lists, .. } = enabled.as_ref().ok_or(ENODEV)?;
        let ticket = tickets.next().ok_or(EBUSY)?;
        self.write(lists, ticket, endpoint, packet.as_ref().ok_or(EINVAL)?)?;
        tickets.submit(packet.take(), true);
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
        let mut state = self.state.lock();
        let reaped = state.tickets.reap(completed, |ticket| self.outcome(ticket));
        drop(state);
        let Some((Some(packet), _)) = reaped else {
            return false;
        };
        // Without the lock, since the owner of the packet may send the next one.
        if let Some(skb) = packet.unmap(dev) {
            skb.consume();
        }
        true
    }

    /// Returns the outcome of a message that has ended.
    fn outcome(&self, ticket: u64) -> Outcome {
        const WITHOUT_RECORD: Outcome = Outcome {
            bytes: 0,
            status: uapi::ULDMA_DMA_ABORTED,
        };
        self.page.record(ticket).unwrap_or(WITHOUT_RECORD)
    }

    /// Takes how the message of a ticket has ended: true if the peer has it. None before it has.
    pub(crate) fn take(&self, ticket: u64) -> Option<bool> {
        let completed = self.page.completed();
        let mut state = self.state.lock();
        let outcome = state
            .tickets
            .take(ticket, completed, |ticket| self.outcome(ticket))?;
        Some(outcome.check().is_ok())
    }

    /// Lets nothing ask for the end of the message of a ticket any more.
    pub(crate) fn abandon(&self, ticket: u64) {
        self.state.lock().tickets.abandon(ticket);
    }
}
