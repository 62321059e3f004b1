// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages between the process that measures and the process that answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uldma::{Channel, ConnectOptions, Device, Peer};

use crate::failure::Failure;

/// Bytes of each ring.
pub(crate) const CAPACITY: u64 = 64 * 1024;
/// Version of these messages.
pub(crate) const VERSION: u32 = 6;
const LONGEST: usize = 4096;

/// A request of the process that measures.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Check the version, before all else.
    Handshake { version: u32 },
    /// Serve `link`, which has messages of its own, to its end.
    Link,
    /// Serve `broadcast`, which has messages of its own, too. It makes the names of its regions of this.
    Broadcast { name: u64 },
    /// Serve `optimistic`, likewise.
    Optimistic,
    /// End.
    Quit,
}

/// An answer of the other process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Ready,
    Failed { message: String },
}

/// The process that answers, as seen by the process that measures.
pub(crate) struct RemoteProcess {
    pub(crate) channel: Channel,
    /// The port at which it has listened. Those that follow are free.
    pub(crate) port: u32,
    pub(crate) timeout: Duration,
}

impl RemoteProcess {
    /// Opens a channel to it.
    pub(crate) fn meet(device: &Device, port: u32, timeout: Duration) -> Result<Self, Failure> {
        let mut peer = Self {
            channel: connect(device, port, CAPACITY, timeout)?,
            port,
            timeout,
        };
        peer.ask(&Request::Handshake { version: VERSION })?;
        Ok(peer)
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<(), Failure> {
        send(&mut self.channel, request, self.timeout)?;
        match receive(&mut self.channel, self.timeout)? {
            Answer::Ready => Ok(()),
            Answer::Failed { message } => Err(Failure::Peer(format!("failed: {message}"))),
        }
    }

    /// Ends the peer's `serve`.
    pub(crate) fn quit(&mut self) -> Result<(), Failure> {
        self.ask(&Request::Quit)
    }
}

/// Opens a channel to the process at the peer that listens at the port, or will.
pub(crate) fn connect(
    device: &Device,
    port: u32,
    capacity: u64,
    timeout: Duration,
) -> uldma::Result<Channel> {
    let options = ConnectOptions {
        retry: true,
        timeout,
        ..ConnectOptions::default()
    };
    Channel::connect(device, Peer::OTHER, port, capacity, options)
}

/// Sends a message.
pub(crate) fn send(
    channel: &mut Channel,
    message: &impl Serialize,
    timeout: Duration,
) -> Result<(), Failure> {
    let text = serde_json::to_vec(message).map_err(|error| Failure::Io("JSON", error.into()))?;
    Ok(channel.send(&text, timeout)?)
}

/// Receives a message.
pub(crate) fn receive<T: for<'a> Deserialize<'a>>(
    channel: &mut Channel,
    timeout: Duration,
) -> Result<T, Failure> {
    let mut text = [0; LONGEST];
    let length = channel.receive(&mut text, timeout)?;
    serde_json::from_slice(&text[..length])
        .map_err(|_| Failure::Peer("said something that is no message".into()))
}
