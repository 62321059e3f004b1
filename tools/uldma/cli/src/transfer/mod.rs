// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files from node to node: the protocol of both sides.
//!
//! The sender offers a file, the receiver sends its destination, the offered method moves the
//! bytes, the sender reports the end, and the receiver answers with the digest of the received
//! bytes. Control messages are JSON; with `window`, the messages between `Ready` and `Done` are the
//! bytes themselves.

pub(crate) mod recv;
pub(crate) mod send;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uldma::connection::Link;
use uldma::Channel;

use crate::args::Method;
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::{Progress, Style};

/// Bytes of each ring: as much as a window transfer has in flight.
pub(crate) const CAPACITY: u64 = 1 << 20;
/// Bytes of one message of a window transfer: several fit in the ring, so that both sides work at
/// the same time.
pub(crate) const CHUNK: usize = 128 * 1024;
/// Version of these messages.
pub(crate) const VERSION: u32 = 1;
/// Longest control message.
const LONGEST: usize = 4096;

/// A control message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(crate) enum Message {
    /// The sender offers a file.
    Offer {
        version: u32,
        method: Method,
        bytes: u64,
    },
    /// The receiver is ready, with the name of its exported region or its address, if the method
    /// needs one.
    Ready {
        region: Option<u64>,
        tcp: Option<Listening>,
    },
    /// All bytes have been moved.
    Done,
    /// The digest of the received bytes.
    Digest { bytes: u64, sha256: String },
    /// The sender of this message has failed.
    Failed { message: String },
}

/// Address at which the receiver listens.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// First bytes that the sender writes, so that the receiver can reject other connections.
    pub(crate) token: u64,
}

/// Sends a control message.
pub(crate) fn send_message(
    channel: &mut Channel<impl Link>,
    message: &Message,
    timeout: Duration,
) -> Result<()> {
    let text = serde_json::to_vec(message).map_err(|error| Failure::io("JSON", &error.into()))?;
    Ok(channel.send(&text, timeout)?)
}

/// Receives a control message; what the peer could not do is a failure here, too.
pub(crate) fn receive_message(
    channel: &mut Channel<impl Link>,
    timeout: Duration,
) -> Result<Message> {
    let mut text = [0; LONGEST];
    let length = channel.receive(&mut text, timeout)?;
    match serde_json::from_slice(&text[..length]) {
        Ok(Message::Failed { message }) => {
            let printable: String = message
                .chars()
                .filter(|c| !c.is_control())
                .take(200)
                .collect();
            Err(Failure::new(
                Kind::Peer,
                format!("the other side failed: {printable}"),
            ))
        }
        Ok(message) => Ok(message),
        Err(_) => Err(protocol_error("no valid message")),
    }
}

/// Builds the failure for a message that is not allowed in this state.
pub(crate) fn protocol_error(what: impl std::fmt::Debug) -> Failure {
    Failure {
        hint: Some("the programs on both nodes must be of the same release".into()),
        ..Failure::new(Kind::Peer, format!("the peer sent {what:?} out of order"))
    }
}

/// Returns the digest of the bytes, and shows progress.
pub(crate) fn digest(bytes: &[u8], style: Style) -> String {
    let progress = Progress::new(style, "digest", Some(bytes.len() as u64));
    let mut hasher = Sha256::new();
    for chunk in bytes.chunks(1 << 20) {
        hasher.update(chunk);
        progress.inc(chunk.len());
    }
    progress.finish();
    output::hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use uldma::connection::loopback::{self, Loopback};

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn channels() -> (Channel<Loopback>, Channel<Loopback>) {
        let (left, right) = loopback::pair(CAPACITY);
        (
            Channel::over(left, CAPACITY).unwrap(),
            Channel::over(right, CAPACITY).unwrap(),
        )
    }

    /// Sends bytes from side to side by a method that needs no device.
    fn cross(method: &str, bytes: Vec<u8>) {
        let sender = [
            "uldma",
            "send-file",
            "-",
            "--port",
            "7",
            "--peer-addr",
            "127.0.0.1",
        ];
        let sender = Cli::parse_from([&sender[..], &["--method", method]].concat());
        let receiver = ["uldma", "recv-file", "--port", "7", "--json"];
        let receiver = Cli::parse_from([&receiver[..], &["--tcp-port", "0"]].concat());
        let (mut left, mut right) = channels();
        let (length, by_tcp) = (bytes.len(), method == "tcp");
        let expected = bytes.clone();
        let thread = std::thread::spawn(move || {
            let Command::RecvFile(args) = &receiver.command else {
                unreachable!()
            };
            let arrived = if by_tcp {
                recv::by_tcp(&receiver.common, args, &mut right, length)
            } else {
                recv::by_window(&receiver.common, args, &mut right, length)
            };
            assert!(arrived.unwrap()[..] == expected[..]);
        });
        let Command::SendFile(args) = &sender.command else {
            unreachable!()
        };
        let target = match receive_message(&mut left, TIMEOUT).unwrap() {
            Message::Ready { tcp, .. } => send::Target { region: None, tcp },
            other => panic!("{other:?}"),
        };
        let moved = match args.method {
            Method::Tcp => send::by_tcp(&sender.common, args, &target, &bytes),
            _ => send::by_window(&sender.common, args, &mut left, &bytes),
        };
        assert!(moved.unwrap().0 > 0.0);
        send_message(&mut left, &Message::Done, TIMEOUT).unwrap();
        thread.join().unwrap();
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index / 7 % 251) as u8).collect()
    }

    #[test]
    fn bytes_cross_the_window() {
        // More than the ring holds, and not a multiple of anything.
        cross("window", pattern(3_000_002));
    }

    #[test]
    fn bytes_cross_tcp() {
        cross("tcp", pattern(1_000_001));
    }

    #[test]
    fn the_peers_failure_is_ours() {
        let (mut left, mut right) = channels();
        let message = "no\nroom".to_owned();
        send_message(&mut left, &Message::Failed { message }, TIMEOUT).unwrap();
        let failure = receive_message(&mut right, TIMEOUT).unwrap_err();
        assert_eq!(failure.kind, Kind::Peer);
        assert_eq!(failure.message, "the other side failed: noroom");
    }

    #[test]
    fn nonsense_is_no_message() {
        let (mut left, mut right) = channels();
        for nonsense in [&b"x"[..], b"{}", br#"{"type":"offer"}"#, &[0xff; 100], b""] {
            left.send(nonsense, TIMEOUT).unwrap();
            assert_eq!(
                receive_message(&mut right, TIMEOUT).unwrap_err().kind,
                Kind::Peer
            );
        }
        left.send(&[b' '; LONGEST + 1], TIMEOUT).unwrap();
        assert!(receive_message(&mut right, TIMEOUT).is_err());
    }

    #[test]
    fn the_digest_is_sha_256() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc", Style::Hidden), abc);
    }
}
