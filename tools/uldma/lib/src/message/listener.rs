// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners for message connections.

use std::time::Duration;

use super::handshake::Handshake;
use super::side::{offer, Side};
use crate::channel::Channel;
use crate::connection::Listener;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::message::{MessageConnection, MessageOptions};

/// A listener for message connections.
#[derive(Debug)]
pub struct MessageListener {
    listener: Listener,
    options: MessageOptions,
    device: Device,
}

impl MessageListener {
    /// Listens at a port.
    ///
    /// # Errors
    ///
    /// [`crate::Error::System`]: EADDRINUSE when a process listens at the port already, EINVAL for an
    /// invalid port or backlog, EDQUOT when this user has as many listeners as it may;
    /// [`crate::Error::Technique`] for a technique that cannot be used.
    pub fn new(device: &Device, port: u32, backlog: u32, options: MessageOptions) -> Result<Self> {
        options.check()?;
        Ok(Self {
            listener: device.listen(port, backlog, offer(device, &options)?)?,
            options,
            device: device.clone(),
        })
    }

    /// Waits for a connection, and for nothing else that its peer does. Returns it with the number of the
    /// node that connected. A connection whose peer breaks the rules, has left, or has no engine where a
    /// technique needs one, is ended, and the next one is waited for.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`]; those of [`crate::connection::Listener::accept`], [`Device::endpoint`] and
    /// [`Device::context_with`].
    pub fn accept(&self, timeout: Duration) -> Result<(MessageConnection, u32)> {
        self.listener.accept_as(timeout, |connection, node| {
            let peer = Handshake::decode(connection.query()?.offer.data())?;
            let Some(mut channel) = Channel::made_of(connection)? else {
                return Ok(None);
            };
            let side = Side::new(&self.device, node, self.options)?;
            let has_engine = side.has_engine();
            // There is room, as it is the first message.
            channel.send(&side.handshake().encode(), Duration::ZERO)?;
            match side.connection(channel, node, peer) {
                // It is the peer that has none.
                Err(Error::Technique { .. }) if has_engine => Ok(None),
                made => made.map(Some),
            }
        })
    }
}
