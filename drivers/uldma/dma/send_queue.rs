// SPDX-License-Identifier: GPL-2.0

//! The kernel's queue of packets, which the device sends as messages of endpoints.
//!
//! Nothing waits for the end of a message in it: one for which no buffer is posted fails at once. The
//! queue owns each packet until the device has reported the end of its message, or does no DMA any more.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

use super::{
    descriptor::{
        place_of,
        DEPTH, //
    },
    queue::Queue, //
};
use crate::{
    hw::{
        layout::{
            DescriptorFlags,
            Segment, //
        },
        lists::Lists,
        Hw, //
    },
    kernel_ext::net::mapped_skb::{
        MappedSkb,
        MAX_PIECES, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    }, //
};

/// The queue of packets of a device, with the list of pieces of each.
#[pin_data]
pub(crate) struct SendQueue {
    #[pin]
    queue: Queue<MappedSkb, Lists>,
}

impl SendQueue {
    /// Creates the queue of `context`, which works after [`SendQueue::enable`].
    pub(crate) fn new(context: u32) -> Result<impl PinInit<Self>> {
        let queue = Queue::new(context)?;
        Ok(pin_init!(Self { queue <- queue }))
    }

    /// Enables the context of the queue.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        const PIECES: u32 = MAX_PIECES as u32;
        self.queue
            .enable_with(hw, Lists::new(hw.dev(), DEPTH, PIECES)?)
    }

    /// Frees everything; the device does no DMA any more.
    pub(crate) fn tear_down(&self, dev: &Device<Bound>) {
        self.queue.tear_down(dev, |packet| free(dev, packet));
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
        self.queue
            .submit_with(hw, packet, true, |lists, ticket, packet| {
                describe(lists, ticket, endpoint, packet.ok_or(EINVAL)?)
            })
    }

    /// Frees the packets whose messages have ended.
    pub(crate) fn reap(&self, dev: &Device<Bound>) {
        self.queue.reap(|packet, _| free(dev, packet));
    }

    /// Takes how the message of a ticket has ended: true if the peer has it. None before it has.
    pub(crate) fn take(&self, ticket: u64) -> Option<bool> {
        let outcome = self.queue.take(ticket)?;
        Some(outcome.check().is_ok())
    }

    /// Lets nothing ask for the end of the message of a ticket any more.
    pub(crate) fn abandon(&self, ticket: u64) {
        self.queue.abandon(ticket);
    }
}

fn free(dev: &Device<Bound>, packet: MappedSkb) {
    if let Some(skb) = packet.unmap(dev) {
        skb.consume();
    }
}

/// Writes the list of a packet. Returns the descriptor of its message.
fn describe(
    lists: &Lists,
    ticket: u64,
    endpoint: u32,
    packet: &MappedSkb,
) -> Result<uldma_descriptor> {
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
    Ok(uldma_descriptor {
        ticket,
        op: uapi::ULDMA_OP_SEND,
        flags: DescriptorFlags::LIST.bits(),
        src: u32::try_from(packet.pieces().len())?,
        src_offset: lists.address(place)?,
        dst: endpoint,
        length,
        ..zerocopy::FromZeros::new_zeroed()
    })
}
