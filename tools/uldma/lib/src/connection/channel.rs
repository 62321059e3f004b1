// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels by connections: found by a port, and ended by the kernel when the other side is.
//!
//! The connection carries no data. Its number that only the two sides know names the two segments,
//! and its end tells each side that the other has gone.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{kind, until, ConnectOptions, Connection, ConnectionState, Listener};
use crate::{handshake, Channel, Device, Error, Peer, Result};

impl Channel {
    /// Connects to a [`ChannelListener`] at that port of a peer, with rings of `capacity` bytes (a
    /// power of two, the same on both sides) in each direction.
    ///
    /// # Errors
    ///
    /// As [`Device::connect`] and [`Device::channel_to`]; [`Error::OtherKind`] when the process that
    /// listens there makes its side a [`Stream`](crate::Stream), [`Error::Timeout`] when it makes it
    /// nothing, [`Error::Closed`] when it disconnects.
    pub fn connect(
        device: &Device,
        peer: Peer,
        port: u32,
        capacity: u64,
        options: ConnectOptions,
    ) -> Result<Self> {
        let deadline = Instant::now().checked_add(options.timeout);
        let connection = device.connect(peer, port, options)?;
        Self::by(connection, capacity, deadline)
    }

    /// Makes a connection that has carried no data a channel.
    fn by(connection: Connection, capacity: u64, deadline: Option<Instant>) -> Result<Self> {
        /// How long to wait for the other side where the caller would for ever.
        const LONGEST: Duration = Duration::from_secs(3600);
        let info = connection.query()?;
        let name = info
            .name
            .ok_or_else(|| Error::connection("find the other side", Errno::ENOTCONN))?;
        let left = until(deadline).unwrap_or(LONGEST);
        let end = Instant::now() + left;
        let peer = Peer::node(info.node);
        let device = connection.device();
        let may_come = || match connection.query()?.state {
            ConnectionState::Connected => kind::refuse_stream(device, peer, name),
            _ => Err(Error::Closed),
        };
        let met = handshake::establish(device, (peer, name), capacity, left, may_come);
        let (link, first) = met.map_err(|error| match error {
            // A user knows the port, and not this name.
            Error::Timeout { after, .. } => Error::Timeout {
                what: format!("ring at {peer} on the connection by port {}", info.port),
                after,
            },
            other => other,
        })?;
        Channel::met((link.with(connection), first), capacity, end)
    }
}

/// A port at which peers connect to have a channel, see [`Channel::connect`].
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
    /// As [`Device::listen`].
    pub fn new(device: &Device, port: u32, backlog: u32, capacity: u64) -> Result<Self> {
        Ok(Self {
            listener: device.listen(port, backlog)?,
            capacity,
        })
    }

    /// Waits for a peer, and says who connected.
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`] and [`Device::channel_to`]. Whoever connects and then says nothing
    /// costs the time that is left.
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
