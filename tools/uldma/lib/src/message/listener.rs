// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners for message connections.

use std::time::Duration;

use super::offer;
use crate::channel::Channel;
use crate::connection::Listener;
use crate::device::Device;
use crate::error::Result;
use crate::message::{MessageConnection, MessageOptions};
use crate::wait::deadline::Deadline;

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

    /// Waits for a connection. Returns it with the number of the node that connected.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`]; [`crate::Error::Closed`] when the peer disconnects; [`crate::Error::Violation`] when it
    /// breaks the rules; those of [`Device::endpoint`] and [`Device::context_with`].
    pub fn accept(&self, timeout: Duration) -> Result<(MessageConnection, u32)> {
        let deadline = Deadline::after(timeout);
        let (connection, node) = self.listener.accept(timeout)?;
        let channel = Channel::by(connection)?;
        let left = deadline.left();
        let connection = MessageConnection::over(&self.device, channel, node, self.options, left)?;
        Ok((connection, node))
    }
}
