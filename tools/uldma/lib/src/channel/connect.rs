// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels over connections: addressed by a port, and ended by the kernel with the other side.
//!
//! The connection carries no data. In its offers the two sides name the capacity of their rings. Its name,
//! which only the two sides know, names the two segments; its end notifies each side that the other has
//! ended.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::connection::{opening, until};
use crate::link::Pollable;
use crate::ring::Violation;
use crate::{
    handshake, Channel, ConnectOptions, Connection, ConnectionKind, ConnectionState, Device, Error,
    Listener, Offer, Peer, Result,
};

/// The offer of a connection that becomes a channel with such rings.
fn offer(capacity: u64) -> Offer {
    Offer::of_rings(ConnectionKind::CHANNEL, handshake::VERSION, capacity)
}

impl Channel {
    /// Connects to a [`ChannelListener`] at that port of a peer, with rings of `capacity` bytes (a
    /// power of two, the same on both sides) in each direction. [`ConnectOptions::offer`] is not used.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNREFUSED when no process listens or the backlog is full, ENOTCONN
    /// when the link is down, ETIMEDOUT when the peer does not answer, EOPNOTSUPP when receivers
    /// cannot move data here, ENOSPC when the window is full, EDQUOT when this user's share of it or
    /// of connections is used up; [`Error::Timeout`] instead of the
    /// first two, with [`ConnectOptions::retry`], and when the process that listens does not accept
    /// the channel; [`Error::OtherKind`] when it listens for other connections;
    /// [`Error::Closed`] when it disconnects; [`Error::Violation`] when it has another capacity;
    /// [`Error::NoPeer`], [`Error::NoDevice`], [`Error::Permission`].
    pub fn connect(
        device: &Device,
        peer: Peer,
        port: u32,
        capacity: u64,
        options: ConnectOptions,
    ) -> Result<Self> {
        let deadline = Instant::now().checked_add(options.timeout);
        let offer = offer(capacity);
        let options = ConnectOptions { offer, ..options };
        let connection = device.connect(peer, port, options)?;
        Self::by(connection, capacity, deadline)
    }

    /// Turns a connection that has carried no data, and whose offer names these rings, into a channel.
    pub(crate) fn by(
        connection: Connection,
        capacity: u64,
        deadline: Option<Instant>,
    ) -> Result<Self> {
        /// Limit of the handshake where the caller sets none.
        const LONGEST: Duration = Duration::from_secs(3600);
        let info = connection.query()?;
        let name = info
            .name
            .ok_or_else(|| Error::connection("find the other side", Errno::ENOTCONN))?;
        let is_connected = info.state == ConnectionState::Connected;
        if is_connected && info.offer.capacity() != Some(capacity) {
            return Err(Violation::Handshake.into());
        }
        let left = until(deadline).unwrap_or(LONGEST);
        let end = Instant::now() + left;
        let names = (Peer::node(info.node), name);
        let inbound = handshake::create(connection.device(), names, capacity)?;
        let met = opening::meet(&connection, inbound, names, capacity, left, "ring")?;
        let (link, first) = met.ok_or(Violation::Handshake)?;
        Channel::met((link.with(connection), first), capacity, end)
    }
}

impl<L: Pollable> Channel<L> {
    /// Finds out if the peer has ended, without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::LinkDown`], [`Error::Closed`], [`Error::System`] of the device.
    pub(crate) fn check_peer(&mut self) -> Result<()> {
        // A wait that has no time does not read what is pending.
        let checked = self.link.collect().and_then(|()| {
            let seen = self.link.rings();
            self.link.wait(seen, Instant::now()).map(drop)
        });
        if let Err(error) = checked {
            self.abandon(error);
        }
        self.reason().map_or(Ok(()), Err)
    }
}

/// A listener for channels, see [`Channel::connect`].
#[derive(Debug)]
pub struct ChannelListener {
    listener: Listener,
    capacity: u64,
}

impl ChannelListener {
    /// Listens at a port for channels with rings of `capacity` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EADDRINUSE when a process listens at the port already, EINVAL for an
    /// invalid port or backlog, EDQUOT when this user has as many listeners as it may;
    /// [`Error::NoDevice`], [`Error::Permission`].
    pub fn new(device: &Device, port: u32, backlog: u32, capacity: u64) -> Result<Self> {
        Ok(Self {
            listener: device.listen(port, backlog, offer(capacity))?,
            capacity,
        })
    }

    /// Waits for a connection. Returns its channel and the number of the node that connected.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: a peer that connects and does not complete the handshake uses up the
    /// remaining time; [`Error::System`]: ENOSPC when the window is full, ENOTCONN when the link
    /// went down, ENODEV when the device has been removed; [`Error::Closed`] when the peer disconnects;
    /// [`Error::Violation`] when it has another capacity; [`Error::NoDevice`], [`Error::Permission`].
    pub fn accept(&self, timeout: Duration) -> Result<(Channel, u32)> {
        let deadline = Instant::now().checked_add(timeout);
        let (connection, node) = self.listener.accept(timeout)?;
        Ok((Channel::by(connection, self.capacity, deadline)?, node))
    }

    /// The listener.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }
}
