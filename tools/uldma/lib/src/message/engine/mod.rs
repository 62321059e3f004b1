// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections whose devices move the messages, between two endpoints.

mod exchange;
mod put;
mod redirect;
mod send;

use std::ops::Range;
use std::time::Duration;

use super::control::Control;
use super::deadline::Deadline;
use super::driver_slots::DriverSlots;
use super::exchange::Exchanges;
use super::handshake::Handshake;
use super::notice::Put;
use super::options::MessageOptions;
use super::put_memory::{Inbound, Outbound};
use super::receiving::{check, Receiver, Redirections};
use super::sending::{
    length_of, part, Destination, Kept, Piece, Sender, Sent, SentBuffer, Target, Via,
};
use super::window_slots::{Pio, WindowSlots};
use crate::region::{Borrowed, Registered};
use crate::ring::Violation;
use crate::wakeup::LONGEST_SLEEP;
use crate::{
    Access, Buffer, Context, ContextOptions, Device, Endpoint, Error, Method, ReceiveTechnique,
    Reception, Refusal, Result, SendTechnique, Spin, Ticket,
};

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
    control: Control,
}

impl Engine {
    /// Makes the connection between `endpoint` and that of the peer, whose sides have told each
    /// other `own` and `peer`. What it needs of the window is in `pio`.
    ///
    /// # Errors
    ///
    /// Those of [`Device::context_with`], [`Device::register`] and [`Endpoint::connect`];
    /// [`Error::Timeout`]; [`Error::Closed`] when the peer ends.
    pub(super) fn new(
        device: Device,
        exchanges: Exchanges,
        inbound: Option<Inbound>,
        (endpoint, pio, control): (Endpoint, Pio, Control),
        (own, peer): (&Handshake, &Handshake),
        options: MessageOptions,
        deadline: Deadline,
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
        let outbound = match (peer.receiving, peer.inbound) {
            (ReceiveTechnique::DirectDma, None) => return Err(Violation::Handshake.into()),
            (_, area) => area
                .map(|area| Outbound::new(&device, peer.endpoint.node, area, deadline))
                .transpose()?,
        };
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
            control,
        };
        if let Some(slots) = pio.sending {
            connection.sender.set_window_slots(slots);
        }
        connection.post_slots()?;
        connection.control.tell(connection.endpoint.posted())?;
        // Slots are posted before the first credits; buffers when the peer's program does.
        while !whole && connection.control.credits() == 0 {
            connection.control.wait(deadline)?;
        }
        Ok(connection)
    }

    /// Returns the open file that memory for this connection can be registered with.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Changes the technique of [`Engine::send`].
    pub(super) fn set_sending(&mut self, technique: SendTechnique) -> Result<()> {
        if technique == SendTechnique::Pio && !self.sender.has_window_slots() {
            let slots = WindowSlots::new(&self.device, &self.options, Access::Read)?;
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

    /// Sends a message, whose bytes may be changed when this returns. By `PIO` and `COPY_DMA` this
    /// returns when they are copied, by `PEX_DMA` when they are protected, and a later call reports an error
    /// of the transfer; by `V2P_DMA` when the device has read them.
    pub(super) fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        self.check_takes_messages()?;
        self.begin_message()?;
        self.send_to(message, Target::Posted, Deadline::after(timeout))
    }

    fn send_to(&mut self, message: &[u8], target: Target, deadline: Deadline) -> Result<()> {
        match self.options.sending {
            SendTechnique::CopyDma => self.send_copy(message, target, deadline),
            SendTechnique::Pio => self.send_via(Via::Window, message, target, deadline),
            SendTechnique::CopyDmaKernel => self.send_by_driver(message, target, deadline),
            // There is nothing to be pinned.
            SendTechnique::V2pDma if message.is_empty() => {
                self.send_copy(message, target, deadline)
            }
            SendTechnique::V2pDma => self.send_pinned(message, target, deadline),
            SendTechnique::PexDma => self.send_exchanged(message, target, deadline),
            SendTechnique::DirectDma => Err(self
                .options
                .sending
                .refused("it needs registered memory: use MessageConnection::start")),
        }
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
                status: Refusal::Remote | Refusal::LinkDown | Refusal::Aborted,
                ..
            } => self.control.check_peer().err().unwrap_or(error),
            _ => error,
        }
    }

    fn send_copy(&mut self, message: &[u8], target: Target, deadline: Deadline) -> Result<()> {
        self.send_via(Via::Memory, message, target, deadline)
    }

    fn send_via(
        &mut self,
        via: Via,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        let length = message.len() as u64;
        for piece in self.sender.copied_pieces(length)? {
            let pushed = self.push_copy(via, message, target, piece, deadline);
            pushed.inspect_err(|_| self.sender.tear(piece))?;
        }
        self.end_put(target, length, None, deadline).map(drop)
    }

    fn push_copy(
        &mut self,
        via: Via,
        message: &[u8],
        target: Target,
        piece: Piece,
        deadline: Deadline,
    ) -> Result<()> {
        if let Some(ticket) = self.sender.blocked_by(via) {
            self.wait_half(ticket, deadline)?;
        }
        self.wait_for(target, deadline)?;
        let bytes = part(message, piece).ok_or(Refusal::Bounds)?;
        let to = destination(&self.endpoint, self.outbound.as_ref(), target);
        self.sender
            .push_copy(&self.context, to, (bytes, via), piece)
    }

    fn send_pinned(&mut self, message: &[u8], target: Target, deadline: Deadline) -> Result<()> {
        let region = self.device.register_readable(message)?;
        self.send_registered(region, message.len() as u64, target, deadline)
    }

    /// Sends a message that was registered for it. If time is over, the registration ends when the
    /// device has read what it was given.
    fn send_registered(
        &mut self,
        region: Borrowed,
        length: u64,
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        let before = self.sender.newest();
        let started = self.start_from(&region, 0, length, target, deadline);
        let sent = started.and_then(|sent| self.finish(&sent, deadline));
        if sent.is_err() {
            self.sender
                .keep_since(before, Kept::Borrowed { _region: region });
        }
        sent
    }

    /// Sends a part of registered memory by `DIRECT_DMA`, and returns before the device has read it:
    /// what is written there before [`Engine::wait_sent`] may be sent instead.
    pub(super) fn start(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        timeout: Duration,
    ) -> Result<Sent> {
        let length = length_of(region, &part)?;
        self.check_takes_messages()?;
        self.begin_message()?;
        let deadline = Deadline::after(timeout);
        self.start_from(region, part.start, length, Target::Posted, deadline)
    }

    fn start_from(
        &mut self,
        region: &impl Registered,
        start: u64,
        length: u64,
        target: Target,
        deadline: Deadline,
    ) -> Result<Sent> {
        let mut sent = None;
        for piece in self.sender.pieces(length)? {
            let pushed = self.wait_for(target, deadline).and_then(|()| {
                let place = (region, start);
                let to = destination(&self.endpoint, self.outbound.as_ref(), target);
                self.sender
                    .push_from(&self.context, to, place, piece, sent.take())
            });
            sent = Some(pushed.inspect_err(|_| self.sender.tear(piece))?);
        }
        let sent = self.end_put(target, length, sent, deadline)?;
        sent.ok_or(Refusal::BadSize.into())
    }

    /// Waits until one more piece can be sent there.
    fn wait_for(&mut self, target: Target, deadline: Deadline) -> Result<()> {
        match target {
            Target::Posted => self.wait_room(deadline),
            // The put has a credit for its notice.
            Target::Place(_) => self.wait_queue(deadline),
        }
    }

    /// Returns true if the device has read a message, so that its memory may be changed.
    pub(super) fn is_sent(&mut self, sent: &Sent) -> Result<bool> {
        self.harvest()?;
        let pending = self.sender.oldest();
        if pending.is_some_and(|oldest| oldest <= sent.last) {
            return Ok(false);
        }
        sent.check().map(|()| true)
    }

    /// Waits until the device has read a message.
    pub(super) fn wait_sent(&mut self, sent: &Sent, timeout: Duration) -> Result<()> {
        self.finish(sent, Deadline::after(timeout))
    }

    fn finish(&mut self, sent: &Sent, deadline: Deadline) -> Result<()> {
        self.wait_ended(sent.last, deadline)?;
        sent.check().map_err(|error| self.reason_of(error))
    }

    /// Sends a buffer by `V2P_DMA`: pins it, or finds it pinned in the pin cache, and returns before
    /// the device has read it.
    pub(super) fn send_buffer(&mut self, buffer: Buffer, timeout: Duration) -> Result<SentBuffer> {
        self.check_takes_messages()?;
        self.begin_message()?;
        let region = self.device.register(buffer, Access::Read)?;
        let deadline = Deadline::after(timeout);
        let before = self.sender.newest();
        match self.start_from(&region, 0, region.length(), Target::Posted, deadline) {
            Ok(sent) => Ok(SentBuffer { sent, region }),
            Err(error) => {
                self.sender
                    .keep_since(before, Kept::Owned { _region: region });
                Err(error)
            }
        }
    }

    /// Waits until the device has read a buffer, and returns it.
    pub(super) fn reclaim(&mut self, message: SentBuffer, timeout: Duration) -> Result<Buffer> {
        match self.wait_sent(&message.sent, timeout) {
            Ok(()) => message.into_buffer(),
            Err(error) => {
                let SentBuffer { sent, region } = message;
                self.sender
                    .keep_until(sent.last, Kept::Owned { _region: region });
                Err(error)
            }
        }
    }

    /// Waits until all messages are in the peer's memory.
    pub(super) fn flush(&mut self, timeout: Duration) -> Result<()> {
        if let Some(last) = self.sender.newest() {
            self.wait_ended(last, Deadline::after(timeout))?;
        }
        self.begin_message()
    }

    /// Posts a buffer for one message, by `V2P_DMA`. It is pinned until it is received.
    pub(super) fn post(&mut self, buffer: Buffer) -> Result<()> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        self.receiver
            .post(&self.device, &self.endpoint, &self.context, buffer)?;
        self.tell_credits();
        Ok(())
    }

    /// Receives the next message into the oldest posted buffer. Returns the buffer, and the length
    /// of the message.
    pub(super) fn receive_buffer(&mut self, timeout: Duration) -> Result<(Buffer, usize)> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        let reception = self.wait_reception(Deadline::after(timeout))?;
        let buffer = self.receiver.take_buffer(&reception)?;
        check(&reception)?;
        let length = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
        Ok((buffer, length))
    }

    /// Receives the next message into the start of `target`, and returns its length. If the time is
    /// over in the middle of a message, the next call goes on with it.
    pub(super) fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        self.check_receives_messages()?;
        if !self.receiver.has_slots() {
            let technique = self.options.receiving;
            return Err(technique.refused("messages arrive in posted buffers"));
        }
        let deadline = Deadline::after(timeout);
        let mut length = self.receiver.begun.resume(target);
        let mut has_begun = length > 0;
        loop {
            // A message without end must not keep the caller here.
            let waited = if has_begun && deadline.is_over() {
                Err(deadline.missed("end of the message"))
            } else if self.options.receiving == ReceiveTechnique::Redirect {
                let rest = target.get_mut(length..).unwrap_or_default();
                self.wait_redirected(rest, deadline)
            } else {
                self.wait_reception(deadline)
            };
            let reception =
                waited.inspect_err(|_| self.receiver.begun.interrupted(target, length))?;
            if self.exchanges.are_sending() {
                // Pages whose send has ended can be exchanged.
                let harvested = self.harvest();
                harvested.inspect_err(|_| self.receiver.begun.interrupted(target, length))?;
            }
            let rest = target.get_mut(length..).unwrap_or_default();
            // The rest of a message that failed must not be taken for another message.
            let taken = self
                .receiver
                .take_piece(&reception, rest, &mut self.exchanges);
            self.receiver.note(&reception, taken);
            self.post_slots()?;
            let bytes = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
            length = length.saturating_add(bytes);
            has_begun = true;
            if !reception.more {
                break;
            }
        }
        let failure = self.receiver.take_failure();
        failure.map_err(|error| self.reason_of(error))?;
        if length > target.len() {
            let limit = target.len();
            return Err(Error::TooLong { length, limit });
        }
        Ok(length)
    }

    /// Posts the slots that are free, and tells the peer before it has to wait for them.
    fn post_slots(&mut self) -> Result<()> {
        self.receiver.post_slots(&self.endpoint, &self.context)?;
        let untold = self.control.untold(self.endpoint.posted());
        if untold * 2 >= u64::from(self.options.slots) {
            self.tell_credits();
        }
        Ok(())
    }

    /// Tells the peer what is posted. If the peer has ended, the next wait reports that, after the
    /// last message.
    fn tell_credits(&mut self) {
        let _ = self.control.tell(self.endpoint.posted());
    }

    /// Waits for the next message of the device.
    fn wait_reception(&mut self, deadline: Deadline) -> Result<Reception> {
        let number = self.receiver.next();
        let polled = self
            .context
            .poll(self.spin, || self.endpoint.ended(number).transpose());
        if let Some(reception) = polled {
            return reception;
        }
        loop {
            let posted = self.endpoint.posted();
            let ended = self
                .control
                .tell(posted)
                .and_then(|()| self.control.collect())
                .and_then(|()| self.control.check_peer());
            // The peer's last messages come before its end.
            if let Some(reception) = self.endpoint.ended(number)? {
                return Ok(reception);
            }
            ended?;
            if deadline.is_over() {
                return Err(deadline.missed("message from the peer"));
            }
            self.endpoint
                .wait(number, deadline.or_after(LONGEST_SLEEP))?;
        }
    }

    /// Waits until one more piece can be sent: until the peer has a buffer for it, and the queue
    /// room.
    fn wait_room(&mut self, deadline: Deadline) -> Result<()> {
        self.harvest()?;
        self.sender.check_torn()?;
        if !self.options.without_credits {
            while self.control.credits() <= self.sender.sent {
                self.control.wait(deadline)?;
            }
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
                self.context.sleep(until(&self.sender), deadline.end())?;
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

/// Names the objects of the device for `target`.
fn destination<'engine>(
    endpoint: &'engine Endpoint,
    outbound: Option<&Outbound>,
    target: Target,
) -> Destination<'engine> {
    match (target, outbound) {
        (Target::Place(offset), Some(outbound)) => Destination::Place(outbound.index(), offset),
        _ => Destination::Posted(endpoint),
    }
}
