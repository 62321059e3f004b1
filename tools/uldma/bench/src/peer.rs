// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one who measures and the one who answers: what they say to each other.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uldma::{Channel, Device, Name};

use crate::failure::Failure;

/// Bytes of each ring.
pub(crate) const CAPACITY: u64 = 64 * 1024;
/// Version of these messages.
pub(crate) const VERSION: u32 = 2;
const LONGEST: usize = 4096;

/// What the one who measures asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// First of all.
    Hello { version: u32 },
    /// Answer this many bare words.
    Raw { count: u32 },
    /// Answer this many messages of this size.
    Ping { size: u32, count: u32 },
    /// Export a region to be written, in place of the one before.
    Region { bytes: u64 },
    /// Create a segment, in place of the one before.
    Segment { bytes: u64 },
    /// Accept one TCP connection and serve it to its end.
    Tcp,
    /// Serve `link` to its end, which has messages of its own.
    Link,
    /// That was all.
    Quit,
}

/// What the other answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Ready,
    /// The name of what was exported or created.
    Named {
        name: u64,
    },
    /// Where to connect, and what to say there first.
    Listening {
        addresses: Vec<IpAddr>,
        port: u16,
        token: u64,
    },
    Failed {
        message: String,
    },
}

/// The side that answers, as the side that measures sees it.
pub(crate) struct Peer {
    pub(crate) channel: Channel,
    pub(crate) timeout: Duration,
}

impl Peer {
    /// Finds it.
    pub(crate) fn meet(device: &Device, name: Name, timeout: Duration) -> Result<Self, Failure> {
        let channel = device.channel(name, CAPACITY, timeout)?;
        let mut peer = Self { channel, timeout };
        match peer.ask(&Request::Hello { version: VERSION })? {
            Answer::Ready => Ok(peer),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks and hears the answer.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        say(&mut self.channel, request, self.timeout)?;
        match hear(&mut self.channel, self.timeout)? {
            Answer::Failed { message } => Err(Failure::Peer(format!("failed: {message}"))),
            answer => Ok(answer),
        }
    }

    /// Asks for something with a name.
    pub(crate) fn ask_name(&mut self, request: &Request) -> Result<Name, Failure> {
        match self.ask(request)? {
            Answer::Named { name } => {
                Name::new(name).ok_or_else(|| Failure::Peer("gave the name zero".into()))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Says that this was all.
    pub(crate) fn quit(&mut self) -> Result<(), Failure> {
        self.ask(&Request::Quit).map(drop)
    }
}

/// Sends a message.
pub(crate) fn say(
    channel: &mut Channel,
    message: &impl Serialize,
    timeout: Duration,
) -> Result<(), Failure> {
    let text = serde_json::to_vec(message).map_err(|error| Failure::Io("JSON", error.into()))?;
    Ok(channel.send(&text, timeout)?)
}

/// Receives a message.
pub(crate) fn hear<T: for<'a> Deserialize<'a>>(
    channel: &mut Channel,
    timeout: Duration,
) -> Result<T, Failure> {
    let mut text = [0; LONGEST];
    let length = channel.receive(&mut text, timeout)?;
    serde_json::from_slice(&text[..length])
        .map_err(|_| Failure::Peer("said something that is no message".into()))
}

/// An answer to another question.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    Failure::Peer(format!("answered {answer:?}"))
}
