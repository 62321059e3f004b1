// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections: messages between two endpoints, by the technique of the program's choice.
//!
//! A channel, which is two rings in the window, carries what the two sides have to know: first the
//! names of the endpoints, then *credits*, the number of buffers that the receiver has posted so
//! far. It also notifies each side of the other one's end. The devices move the messages.

mod handshake;
mod listener;
mod options;
mod receiving;
mod sending;
mod technique;

use std::ops::Range;
use std::time::{Duration, Instant};

use self::handshake::Handshake;
pub use self::listener::MessageListener;
pub use self::options::MessageOptions;
use self::receiving::Receiver;
use self::sending::{too_late, Piece, Sender};
pub use self::sending::{Sent, SentBuffer};
pub use self::technique::{ReceiveTechnique, SendTechnique};
use crate::region::Registered;
use crate::ring::Violation;
use crate::wakeup::LONGEST_SLEEP;
use crate::{
    Access, Buffer, Channel, ConnectOptions, Context, ContextOptions, Device, Endpoint, Error,
    Method, Peer, Reception, Refusal, Result, Spin, Ticket,
};

/// Bytes of each ring of the channel.
const CONTROL: u64 = 4096;

/// One side of a message connection: messages with boundaries, in order, to and from one process at
/// a peer. The peer is not trusted: it can end or disturb the connection, and reach nothing but what
/// is posted.
///
/// | to | use |
/// | --- | --- |
/// | send bytes, which may be changed on return | [`MessageConnection::send`] |
/// | send from memory that is registered already (`DIRECT_DMA`) | [`MessageConnection::start`], [`MessageConnection::wait_sent`] |
/// | send a buffer, pinned for the message (`V2P_DMA`) | [`MessageConnection::send_buffer`], [`MessageConnection::reclaim`] |
/// | receive into any memory (`COPY_DMA`) | [`MessageConnection::receive`] |
/// | receive into posted buffers (`V2P_DMA`) | [`MessageConnection::post`], [`MessageConnection::receive_buffer`] |
///
/// Dropping the connection may cut off messages that were not sent yet: call
/// [`MessageConnection::flush`] before.
#[derive(Debug)]
pub struct MessageConnection {
    // Fields drop in this order: the device reaches no memory that is freed, and the peer learns of
    // the end last.
    endpoint: Endpoint,
    context: Context,
    sender: Sender,
    receiver: Receiver,
    /// Buffers that the peer has posted.
    credits: u64,
    options: MessageOptions,
    spin: Spin,
    device: Device,
    channel: Channel,
}

impl MessageConnection {
    /// Connects to a [`MessageListener`] at that port of a peer.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNREFUSED when no process listens or the backlog is full, ENOTCONN when
    /// the link is down, EOPNOTSUPP when the device does not match messages; [`Error::Timeout`];
    /// [`Error::Closed`] when the other side ends; [`Error::Violation`] when it has another
    /// protocol; [`Error::Technique`] for a technique that cannot be used.
    pub fn connect(
        device: &Device,
        node: u32,
        port: u32,
        options: MessageOptions,
        connect: ConnectOptions,
    ) -> Result<Self> {
        options.check()?;
        let deadline = Instant::now() + connect.timeout;
        let channel = Channel::connect(device, Peer::node(node), port, CONTROL, connect)?;
        let left = deadline.saturating_duration_since(Instant::now());
        Self::over(device, channel, node, options, left)
    }

    /// Makes the connection over a channel to `node`.
    fn over(
        device: &Device,
        mut channel: Channel,
        node: u32,
        options: MessageOptions,
        timeout: Duration,
    ) -> Result<Self> {
        let device = device.reopen()?;
        let most = device.query()?.max_transfer;
        // With credits, no message has to wait for its buffer.
        let endpoint = device.endpoint(most, Duration::ZERO)?;
        let context = device.context_with(Method::Queue, ContextOptions::default())?;
        let slot = options.slot as u64;
        let (receiver, piece) = match options.receiving {
            ReceiveTechnique::V2pDma => (Receiver::with_buffers(), most),
            _ => {
                let region = options.register(&device, Access::ReadWrite)?;
                (Receiver::with_slots(region, slot), slot)
            }
        };
        let own = Handshake {
            receiving: options.receiving,
            piece,
            endpoint: endpoint.name(),
        };
        channel.send(&own.encode(), timeout)?;
        let mut bytes = [0; Handshake::SIZE];
        let length = channel.receive(&mut bytes, timeout)?;
        let peer = Handshake::decode(bytes.get(..length).unwrap_or_default())?;
        if peer.endpoint.node != node {
            return Err(Violation::Handshake.into());
        }
        endpoint.connect(peer.endpoint)?;
        let whole = peer.receiving == ReceiveTechnique::V2pDma;
        let slots = options.register(&device, Access::ReadWrite)?;
        let mut connection = Self {
            sender: Sender::new(slots, slot, peer.piece.min(most), whole),
            receiver,
            endpoint,
            context,
            credits: 0,
            options,
            spin: Spin::Adaptive,
            device,
            channel,
        };
        connection.post_slots()?;
        connection.tell_credits()?;
        Ok(connection)
    }

    /// Returns the open file that memory for this connection can be registered with.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Changes the technique of [`MessageConnection::send`].
    ///
    /// # Errors
    ///
    /// [`Error::Technique`] for a technique that cannot be used.
    pub fn set_sending(&mut self, technique: SendTechnique) -> Result<()> {
        self.options.sending = technique.check()?;
        Ok(())
    }

    /// Sets how long calls poll before they sleep; [`Spin::Adaptive`] at first.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
        self.channel.set_spin(spin);
    }

    /// Sends a message, whose bytes may be changed when this returns. By `COPY_DMA` this returns
    /// when they are copied, and a later call reports an error of the transfer; by `V2P_DMA` when
    /// the device has read them.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the peer has posted no buffer in time, [`Error::Transfer`],
    /// [`Error::TooLong`] when the peer receives into posted buffers and the message is longer than
    /// a slot; [`Error::Closed`], [`Error::LinkDown`], [`Error::Technique`] for a technique that needs
    /// memory of another kind, [`Error::System`]: those of registering.
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        self.harvest()?;
        self.sender.check()?;
        match self.options.sending {
            SendTechnique::CopyDma => self.send_copy(message, timeout),
            // There is nothing to be pinned.
            SendTechnique::V2pDma if message.is_empty() => self.send_copy(message, timeout),
            SendTechnique::V2pDma => self.send_pinned(message, timeout),
            other => Err(other.refused("it needs registered memory: use MessageConnection::start")),
        }
    }

    fn send_copy(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        for piece in self.sender.copied_pieces(message.len() as u64)? {
            if let Some(ticket) = self.sender.blocked_by() {
                self.wait_ended(ticket, deadline, timeout)?;
            }
            self.wait_room(deadline, timeout)?;
            let bytes = part(message, piece).ok_or(Refusal::Bounds)?;
            self.sender
                .push_copy(&self.context, &self.endpoint, bytes, piece.more)?;
        }
        Ok(())
    }

    fn send_pinned(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let device = self.device.clone();
        device.with_readable(message, |region| {
            let sent = self.start_from(region, 0, message.len() as u64, timeout)?;
            self.wait_sent(&sent, timeout)
        })?
    }

    /// Sends a part of registered memory by `DIRECT_DMA`, and returns before the device has read it:
    /// what is written there before [`MessageConnection::wait_sent`] may be sent instead.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when the peer has posted no buffer in time, [`Error::Range`],
    /// [`Error::Refused`] when the region is not readable, [`Error::Closed`], [`Error::LinkDown`].
    pub fn start(
        &mut self,
        region: &impl Registered,
        part: Range<u64>,
        timeout: Duration,
    ) -> Result<Sent> {
        let length = part.end.saturating_sub(part.start);
        if part.start > part.end || part.end > region.length() {
            return Err(Error::Range {
                offset: part.start,
                length,
                size: region.length(),
            });
        }
        self.start_from(region, part.start, length, timeout)
    }

    fn start_from(
        &mut self,
        region: &impl Registered,
        start: u64,
        length: u64,
        timeout: Duration,
    ) -> Result<Sent> {
        let deadline = Instant::now() + timeout;
        let mut sent = None;
        for piece in self.sender.pieces(length)? {
            self.wait_room(deadline, timeout)?;
            let place = (region, start);
            sent =
                Some(
                    self.sender
                        .push_from(&self.context, &self.endpoint, place, piece, sent)?,
                );
        }
        sent.ok_or(Refusal::BadSize.into())
    }

    /// Returns true if the device has read a message, so that its memory may be changed.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] when the message failed.
    pub fn is_sent(&mut self, sent: &Sent) -> Result<bool> {
        self.harvest()?;
        sent.check()?;
        let pending = self.sender.oldest();
        Ok(pending.is_none_or(|oldest| oldest > sent.last))
    }

    /// Waits until the device has read a message.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Transfer`] when the message failed.
    pub fn wait_sent(&mut self, sent: &Sent, timeout: Duration) -> Result<()> {
        self.wait_ended(sent.last, Instant::now() + timeout, timeout)?;
        sent.check()
    }

    /// Sends a buffer by `V2P_DMA`: pins it, or finds it pinned in the pin cache, and returns before
    /// the device has read it.
    ///
    /// # Errors
    ///
    /// Those of [`Device::register`]; [`Error::Timeout`] when the peer has posted no buffer in time,
    /// [`Error::Closed`], [`Error::LinkDown`]. The buffer is freed.
    pub fn send_buffer(&mut self, buffer: Buffer, timeout: Duration) -> Result<SentBuffer> {
        let region = self.device.register(buffer, Access::Read)?;
        let sent = self.start_from(&region, 0, region.length(), timeout)?;
        Ok(SentBuffer { sent, region })
    }

    /// Waits until the device has read a buffer, and returns it.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Transfer`] when the message failed. The buffer is freed.
    pub fn reclaim(&mut self, message: SentBuffer, timeout: Duration) -> Result<Buffer> {
        self.wait_sent(&message.sent, timeout)?;
        message.into_buffer()
    }

    /// Waits until all messages are in the peer's memory.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Transfer`] of a message by `COPY_DMA` that failed and was not
    /// reported.
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        if let Some(last) = self.sender.newest() {
            self.wait_ended(last, Instant::now() + timeout, timeout)?;
        }
        self.sender.check()
    }

    /// Posts a buffer for one message, by `V2P_DMA`. It is pinned until it is received.
    ///
    /// # Errors
    ///
    /// [`Error::Technique`] when slots receive the messages; [`Error::Refused`] while 64 buffers are
    /// posted; those of [`Device::register`]. The buffer is freed.
    pub fn post(&mut self, buffer: Buffer) -> Result<()> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        self.receiver
            .post(&self.device, &self.endpoint, &self.context, buffer)?;
        self.tell_credits()
    }

    /// Receives the next message into the oldest posted buffer. Returns the buffer, and the length
    /// of the message.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Transfer`] when the message failed, [`Error::Closed`] after the
    /// last message, [`Error::LinkDown`], [`Error::Technique`] when slots receive the messages.
    pub fn receive_buffer(&mut self, timeout: Duration) -> Result<(Buffer, usize)> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        let reception = self.wait_reception(timeout)?;
        let buffer = self.receiver.take_buffer(&reception)?;
        check(&reception)?;
        let length = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
        Ok((buffer, length))
    }

    /// Receives the next message into the start of `target`, and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::TooLong`] when `target` is too short (the message is discarded),
    /// [`Error::Transfer`] when the message failed, [`Error::Closed`] after the last message,
    /// [`Error::LinkDown`], [`Error::Technique`] when buffers have to be posted.
    pub fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        if !self.receiver.has_slots() {
            let technique = self.options.receiving;
            return Err(technique.refused("messages arrive in posted buffers"));
        }
        while self.receiver.discards {
            let reception = self.take_piece(&mut [], timeout)?;
            self.receiver.discards = reception.more;
        }
        let mut length = 0;
        loop {
            let rest = target.get_mut(length..).unwrap_or_default();
            let reception = self.take_piece(rest, timeout).inspect_err(|_| {
                // What comes is the rest of a message of which the beginning is taken.
                self.receiver.discards = length > 0;
            })?;
            self.receiver.discards = reception.more;
            check(&reception)?;
            let bytes = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
            length = length.saturating_add(bytes);
            if !reception.more {
                break;
            }
        }
        if length > target.len() {
            let limit = target.len();
            return Err(Error::TooLong { length, limit });
        }
        Ok(length)
    }

    /// Takes the next message of the device, and posts its slot again.
    fn take_piece(&mut self, target: &mut [u8], timeout: Duration) -> Result<Reception> {
        let reception = self.wait_reception(timeout)?;
        self.receiver.take_copy(&reception, target)?;
        self.post_slots()?;
        let untold = self.endpoint.posted() - self.receiver.told;
        // A sender that has half of the slots left need not know yet.
        if untold * 2 >= u64::from(self.options.slots) {
            self.tell_credits()?;
        }
        Ok(reception)
    }

    fn post_slots(&self) -> Result<()> {
        self.receiver.post_slots(&self.endpoint, &self.context)
    }

    /// Waits for the next message of the device.
    fn wait_reception(&mut self, timeout: Duration) -> Result<Reception> {
        let number = self.receiver.next();
        let polled = self
            .context
            .poll(self.spin, || self.endpoint.ended(number).transpose());
        if let Some(reception) = polled {
            return reception;
        }
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self
                .tell_credits()
                .and_then(|()| self.collect_credits())
                .and_then(|()| self.channel.check_peer());
            // The peer's last messages come before its end.
            if let Some(reception) = self.endpoint.ended(number)? {
                return Ok(reception);
            }
            ended?;
            if Instant::now() >= deadline {
                return Err(too_late("message from the peer", timeout));
            }
            let slice = deadline.min(Instant::now() + LONGEST_SLEEP);
            self.endpoint.wait(number, slice)?;
        }
    }

    /// Tells the peer how many buffers are posted, unless it knows, or has not read what it was told
    /// before.
    fn tell_credits(&mut self) -> Result<()> {
        let posted = self.endpoint.posted();
        if posted != self.receiver.told && self.channel.try_send(&posted.to_le_bytes())? {
            self.receiver.told = posted;
        }
        Ok(())
    }

    /// Takes all credits that the peer has sent.
    fn collect_credits(&mut self) -> Result<()> {
        let mut bytes = [0; 8];
        while let Some(length) = self.channel.try_receive(&mut bytes)? {
            self.credits = credits(self.credits, &bytes, length)?;
        }
        Ok(())
    }

    /// Waits until one more piece can be sent: until the peer has a buffer for it, and the queue
    /// room.
    fn wait_room(&mut self, deadline: Instant, timeout: Duration) -> Result<()> {
        while !self.options.without_credits && self.credits <= self.sender.sent {
            self.collect_credits()?;
            if self.credits > self.sender.sent {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let mut bytes = [0; 8];
            let received = self.channel.receive(&mut bytes, left);
            let length = received.map_err(|error| match error {
                Error::Timeout { .. } => too_late("buffer of the peer", timeout),
                other => other,
            })?;
            self.credits = credits(self.credits, &bytes, length)?;
        }
        self.harvest()?;
        while self.context.queue().is_none_or(|queue| queue.room() == 0) {
            let oldest = self.sender.oldest().ok_or(Refusal::OtherMethod)?;
            self.wait_ended(oldest, deadline, timeout)?;
        }
        Ok(())
    }

    /// Waits until a send has ended, well or not.
    fn wait_ended(&mut self, ticket: Ticket, deadline: Instant, timeout: Duration) -> Result<()> {
        let is_over = |oldest: Option<Ticket>| oldest.is_none_or(|oldest| oldest > ticket);
        self.harvest()?;
        while !is_over(self.sender.oldest()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.context.wait(ticket, self.spin, left) {
                Err(Error::Timeout { .. }) => return Err(too_late("end of a message", timeout)),
                // The result is that of the message.
                Ok(_) | Err(Error::Transfer { .. }) => {}
                Err(error) => return Err(error),
            }
            self.harvest()?;
        }
        Ok(())
    }

    fn harvest(&mut self) -> Result<()> {
        self.sender.harvest(&self.context)
    }
}

/// Returns the bytes of a piece.
fn part(message: &[u8], piece: Piece) -> Option<&[u8]> {
    let start = usize::try_from(piece.offset).ok()?;
    let length = usize::try_from(piece.bytes).ok()?;
    message.get(start..)?.get(..length)
}

/// Decodes a credit message; `known` is what the peer said before, which cannot become less.
fn credits(known: u64, bytes: &[u8; 8], length: usize) -> Result<u64> {
    let credits = u64::from_le_bytes(*bytes);
    if length != bytes.len() || credits < known {
        return Err(Violation::Handshake.into());
    }
    Ok(credits)
}

/// Turns a failed reception into an error.
fn check(reception: &Reception) -> Result<()> {
    reception.failure.map_or(Ok(()), |status| {
        Err(Error::Transfer {
            ticket: reception.number,
            bytes: reception.bytes,
            status,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_never_become_fewer() {
        let told = |known, credits: u64| super::credits(known, &credits.to_le_bytes(), 8);
        assert_eq!(told(0, 8).unwrap(), 8);
        assert_eq!(told(8, 8).unwrap(), 8);
        assert!(matches!(told(8, 7), Err(Error::Violation(_))));
        assert!(super::credits(0, &[1; 8], 7).is_err());
    }
}
