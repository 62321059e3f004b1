// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections whose devices move the messages, between two endpoints: what both directions
//! need, and the waits for the device and the peer. The techniques are in files of their own.

mod exchange;
mod put;
mod receive;
mod redirect;
mod send;

use super::control::Control;
use super::copied::Copied;
use super::driver_slots::DriverSlots;
use super::exchange::Exchanges;
use super::handshake::Handshake;
use super::notice::Put;
use super::options::MessageOptions;
use super::put_memory::{Inbound, Outbound};
use super::receiving::{Receiver, Redirections};
use super::sending::{Destination, Sender, Target};
use super::window_slots::{Pio, WindowSlots};
use crate::channel::Channel;
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::message::{ReceiveTechnique, SendTechnique};
use crate::method::refusal::Refusal;
use crate::method::Method;
use crate::region::entry::Access;
use crate::ring::Violation;
use crate::transfer::context::{Context, ContextOptions};
use crate::transfer::endpoint::Endpoint;
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::Deadline;
use crate::wait::spin::Spin;

/// The reason for which `PIO` is refused.
const NO_WINDOW: &str = "the device cannot reach the window";

/// One side of a message connection between two endpoints.
#[derive(Debug)]
pub(super) struct Engine {
    // Fields drop in this order: the device reaches no memory that is freed, and the peer learns of
    // the end last.
    endpoint: Endpoint,
    context: Context,
    sender: Sender,
    receiver: Receiver,
    inbound: Option<Inbound>,
    outbound: Option<Outbound>,
    exchanges: Exchanges,
    redirections: Redirections,
    options: MessageOptions,
    spin: Spin,
    device: Device,
    peer: Peer,
    control: Control,
}

impl Engine {
    /// Makes the connection between `endpoint` and that of the peer, whose sides have told each
    /// other `own` and `peer`. What it needs of the window is in `pio`. Nothing is sent before the first
    /// credits, so that this need not wait for the peer's program.
    ///
    /// # Errors
    ///
    /// Those of [`Device::context_with`], [`Device::register`] and [`Endpoint::connect`];
    /// [`Error::Violation`] when the peer names no memory, and receives into it.
    pub(super) fn new(
        device: Device,
        (exchanges, inbound): (Exchanges, Option<Inbound>),
        (endpoint, pio, channel): (Endpoint, Pio, Channel),
        (own, peer): (&Handshake, &Handshake),
        options: MessageOptions,
    ) -> Result<Self> {
        let most = device.query()?.max_transfer;
        let context = device.context_with(Method::Queue, ContextOptions::default())?;
        let receiver = match options.receiving {
            ReceiveTechnique::V2pDma => Receiver::with_buffers(),
            ReceiveTechnique::PexDma => {
                let slots = exchanges.slots(own.piece, options.slots)?;
                Receiver::with_slots(slots.into(), own.piece)
            }
            ReceiveTechnique::CopyDmaKernel => {
                let slots = DriverSlots::receiving(&device, &endpoint, &options)?;
                Receiver::with_slots(slots.into(), own.piece)
            }
            ReceiveTechnique::Pio => {
                let slots = pio.receiving;
                let slots = slots.ok_or_else(|| ReceiveTechnique::Pio.refused(NO_WINDOW))?;
                Receiver::with_slots(slots.into(), own.piece)
            }
            ReceiveTechnique::DirectDma => {
                let notices = Buffer::new(Put::NOTICE.saturating_mul(options.slots.into()))?;
                let region = device.register(notices, Access::ReadWrite)?;
                Receiver::with_slots(region.into(), own.piece)
            }
            technique => {
                let region = options.register(&device, Access::ReadWrite)?;
                let receiver = Receiver::with_slots(region.into(), own.piece);
                match technique {
                    ReceiveTechnique::Redirect => receiver.with_redirection(),
                    _ => receiver,
                }
            }
        };
        endpoint.connect(peer.endpoint)?;
        let whole = peer.receiving == ReceiveTechnique::V2pDma;
        if peer.receiving == ReceiveTechnique::DirectDma && peer.inbound.is_none() {
            return Err(Violation::Handshake.into());
        }
        let outbound = peer.inbound.map(|named| Outbound::new(&device, named));
        let outbound = outbound.transpose()?;
        let piece = match outbound {
            Some(_) => most,
            None => peer.piece.min(most),
        };
        let slots = options.register(&device, Access::ReadWrite)?;
        let slot = options.slot as u64;
        let mut connection = Self {
            sender: Sender::new(slots, slot, piece, whole),
            receiver,
            inbound,
            outbound,
            exchanges,
            redirections: Redirections::default(),
            endpoint,
            context,
            options,
            spin: Spin::Adaptive,
            device,
            peer: Peer::node(peer.endpoint.node),
            control: Control::new(channel),
        };
        if let Some(slots) = pio.sending {
            connection.sender.set_window_slots(slots);
        }
        connection.post_slots()?;
        connection.control.tell(connection.endpoint.posted())?;
        Ok(connection)
    }

    /// Returns the open file that memory for this connection can be registered with.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Changes the technique of [`Engine::send`].
    pub(super) fn set_sending(&mut self, technique: SendTechnique) -> Result<()> {
        if technique == SendTechnique::Pio && !self.sender.has_window_slots() {
            let slots = WindowSlots::new(&self.device, self.peer, &self.options, Access::Read)?;
            let slots = slots.ok_or_else(|| technique.refused(NO_WINDOW))?;
            self.sender.set_window_slots(slots);
        }
        self.options.sending = technique;
        Ok(())
    }

    /// Sets how long calls poll before they sleep; [`Spin::Adaptive`] at first.
    pub(super) fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
        self.control.set_spin(spin);
    }

    /// Returns how many bytes of messages were copied so far, of both directions.
    pub(super) fn copied(&self) -> Copied {
        self.sender.copied.with(self.receiver.copied)
    }

    /// Reports what has failed before.
    fn begin_message(&mut self) -> Result<()> {
        self.harvest()?;
        let before = self.sender.check();
        before.map_err(|error| self.reason_of(error))
    }

    /// Returns the error for a failed transfer: the end of the peer, if that is the reason.
    fn reason_of(&mut self, error: Error) -> Error {
        match error {
            Error::Transfer {
                status: Refusal::Remote | Refusal::Revoked | Refusal::LinkDown | Refusal::Aborted,
                ..
            } => self.control.check_peer().err().unwrap_or(error),
            _ => error,
        }
    }

    /// Waits until one more piece can be sent there.
    fn wait_for(&mut self, target: Target, deadline: Deadline) -> Result<()> {
        match target {
            Target::Posted => self.wait_room(deadline),
            // The put has a credit for its notice.
            Target::Place(..) => self.wait_queue(deadline),
        }
    }

    /// Waits until one more piece can be sent: until the peer has a buffer for it, and the queue
    /// room.
    fn wait_room(&mut self, deadline: Deadline) -> Result<()> {
        self.harvest()?;
        self.sender.check_torn()?;
        // The first credits also say that the peer's endpoint is connected. Slots are posted before;
        // buffers when the peer's program does.
        let needed = match self.options.without_credits {
            true if self.sender.is_whole() => None,
            true => Some(0),
            false => Some(self.sender.sent),
        };
        while needed.is_some_and(|needed| self.control.credits() <= needed) {
            self.control.wait(deadline)?;
        }
        self.wait_queue(deadline)
    }

    /// Waits until the queue has room for one more piece.
    fn wait_queue(&mut self, deadline: Deadline) -> Result<()> {
        self.harvest()?;
        self.sender.check_torn()?;
        while let Some(oldest) = self.sender.blocked_by_queue() {
            self.wait_half(oldest, deadline)?;
        }
        Ok(())
    }

    /// Waits until a send has ended, well or not.
    fn wait_ended(&mut self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        self.wait_while_pending(ticket, deadline, |_| ticket)
    }

    /// Waits until a send has ended, whose memory the next message needs. If that takes a sleep, it
    /// lasts until half of all sends have ended; the device is busy with the other half meanwhile.
    fn wait_half(&mut self, ticket: Ticket, deadline: Deadline) -> Result<()> {
        self.wait_while_pending(ticket, deadline, |sender| sender.half(ticket))
    }

    /// Waits until `ticket` has ended: by polling, or asleep until the later ticket `until` has.
    fn wait_while_pending(
        &mut self,
        ticket: Ticket,
        deadline: Deadline,
        until: impl Fn(&Sender) -> Ticket,
    ) -> Result<()> {
        let is_over = |oldest: Option<Ticket>| oldest.is_none_or(|oldest| oldest > ticket);
        self.harvest()?;
        while !is_over(self.sender.oldest()) {
            let ended = || self.context.ended(ticket).transpose();
            let polled = self.context.poll(self.spin, ended);
            if polled.transpose()?.is_none() {
                if deadline.is_over() {
                    return Err(deadline.missed("end of a message"));
                }
                self.context.sleep(until(&self.sender), deadline)?;
            }
            self.harvest()?;
        }
        Ok(())
    }

    fn harvest(&mut self) -> Result<()> {
        let counted = !self.options.without_credits;
        self.sender.harvest(&self.context, counted)?;
        self.exchanges.release(self.sender.oldest())
    }
}

/// Returns where a message to `target` goes.
fn destination(endpoint: &Endpoint, target: Target) -> Destination<'_> {
    match target {
        Target::Place(region, offset) => Destination::Place(region, offset),
        Target::Posted => Destination::Posted(endpoint),
    }
}
