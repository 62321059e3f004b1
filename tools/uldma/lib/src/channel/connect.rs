// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels over connections: addressed by a port, and ended by the kernel with the other side. The messages
//! go through the rings of the connection.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::channel::Channel;
use crate::connection::link::{Pollable, WindowLink};
use crate::connection::{ConnectOptions, Connection, ConnectionKind, Listener, Offer};
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::ring::{Geometry, VERSION};

/// Returns the offer of a connection that becomes a channel with a ring of so many bytes here.
fn offer(capacity: u64) -> Result<Offer> {
    let ring = Geometry::of(capacity).ok_or_else(|| Error::capacity(capacity))?;
    Ok(Offer::of_ring(ConnectionKind::CHANNEL, VERSION, ring))
}

impl Channel {
    /// Connects to a [`ChannelListener`] at that port of a peer. The peer's messages come through a ring of
    /// `capacity` bytes (a power of two); those of this side have the ring of the listener. The
    /// channel can be used at once: the peer finds what was sent when it accepts.
    /// [`ConnectOptions::offer`] is not used.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNREFUSED when no process listens or the backlog is full, ENOTCONN
    /// when the link is down, ETIMEDOUT when the peer does not answer, EOPNOTSUPP when receivers
    /// cannot move data here, ENOSPC when one of the windows, or a share of it, is used up, EDQUOT when
    /// this user has as many connections or objects as it may; [`Error::Timeout`] instead of the
    /// first two, with [`ConnectOptions::retry`]; [`Error::OtherKind`] when the process listens for
    /// other connections; [`Error::Range`] for another capacity; [`Error::Violation`] when that of the
    /// peer's ring cannot be; [`Error::NoPeer`], [`Error::NoDevice`], [`Error::Permission`].
    pub fn connect(
        device: &Device,
        peer: Peer,
        port: u32,
        capacity: u64,
        options: ConnectOptions,
    ) -> Result<Self> {
        let offer = offer(capacity)?;
        let options = ConnectOptions { offer, ..options };
        Self::by(device.connect(peer, port, options)?)
    }

    /// Turns a connection whose offer has a ring into a channel.
    pub(crate) fn by(connection: Connection) -> Result<Self> {
        let none = || Error::System {
            action: "make a channel".into(),
            errno: Errno::ENOSPC,
            hint: Some(
                "the window of one of the nodes, or a share of it, is used up: see uldma info"
                    .into(),
            ),
        };
        Self::made_of(connection)?.ok_or_else(none)
    }

    /// The same; none for a connection without rings, since the window of a node is used up, or the other
    /// side has offered none.
    pub(crate) fn made_of(connection: Connection) -> Result<Option<Self>> {
        let made = WindowLink::of_connection(&connection)?;
        Ok(made.map(|(link, rings)| Self::of(link.with(connection), rings)))
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
}

impl ChannelListener {
    /// Listens at a port for channels, with a ring of `capacity` bytes (a power of two) for what each of them
    /// receives.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for another capacity; [`Error::System`]: EADDRINUSE when a process listens at the
    /// port already, EINVAL for an invalid port or backlog, EDQUOT when this user has as many listeners
    /// as it may; [`Error::NoDevice`], [`Error::Permission`].
    pub fn new(device: &Device, port: u32, backlog: u32, capacity: u64) -> Result<Self> {
        Ok(Self {
            listener: device.listen(port, backlog, offer(capacity)?)?,
        })
    }

    /// Waits for a connection that has rings; one without is ended, and the side that made it finds out by
    /// itself. Returns its channel and the number of the node that connected.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::System`]: EDQUOT when this user has as many objects as it may, ENODEV
    /// when the device has been removed; [`Error::NoDevice`], [`Error::Permission`].
    pub fn accept(&self, timeout: Duration) -> Result<(Channel, u32)> {
        self.listener
            .accept_as(timeout, |connection, _| Channel::made_of(connection))
    }

    /// The listener.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }
}
