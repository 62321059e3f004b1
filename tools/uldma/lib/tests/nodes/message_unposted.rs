// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages to a receiver that has called nothing yet, by each technique of sending (C-001, C-006):
//! `message_unposted receive TECHNIQUE PORT` on one node, then `message_unposted send TECHNIQUE PORT
//! NODE` on another. All techniques of receiving but `V2P_DMA` buffer what they get.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::method::Refusal;
use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, ExchangeBuffer, MessageConnection,
    MessageListener, MessageOptions, ReceiveTechnique, Region, SendTechnique,
};

const LENGTH: usize = 5000;
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a call that cannot end is given up.
const SHORT: Duration = Duration::from_millis(100);
/// No more than a receiver has slots.
const SENDING: &[SendTechnique] = &[
    SendTechnique::Pio,
    SendTechnique::CopyDma,
    SendTechnique::CopyDmaKernel,
    SendTechnique::DirectDma,
    SendTechnique::V2pDma,
    SendTechnique::PexDma,
];

/// A sender's memory of each kind.
struct Memory {
    bytes: Vec<u8>,
    exchangeable: ExchangeBuffer,
    region: Region,
}

impl Memory {
    fn new(device: &Device, connection: &MessageConnection) -> Self {
        let buffer = Buffer::new(LENGTH).unwrap();
        Self {
            bytes: vec![0; LENGTH],
            exchangeable: device.exchangeable(LENGTH).unwrap(),
            region: connection.device().register(buffer, Access::Read).unwrap(),
        }
    }

    /// Sends message `number` by a technique, and waits until it is in the peer's memory.
    fn send(
        &mut self,
        connection: &mut MessageConnection,
        technique: SendTechnique,
        number: usize,
        timeout: Duration,
    ) -> uldma::Result<()> {
        let bytes = pattern(number);
        connection.set_sending(technique)?;
        match technique {
            SendTechnique::DirectDma => {
                self.region.write(0, &bytes)?;
                let sent = connection.start(&self.region, 0..LENGTH as u64, timeout)?;
                connection.wait_sent(&sent, PATIENCE)?;
            }
            SendTechnique::PexDma => {
                self.exchangeable.copy_from_slice(&bytes);
                connection.send(&self.exchangeable, timeout)?;
            }
            _ => {
                self.bytes.copy_from_slice(&bytes);
                connection.send(&self.bytes, timeout)?;
            }
        }
        connection.flush(PATIENCE)
    }
}

/// The bytes of message `number`.
fn pattern(number: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8) ^ (number * 37)) as u8;
    (0..LENGTH).map(byte).collect()
}

/// The connections of a process, which connect in this order.
struct Ends {
    /// The sender waits for buffers of the receiver.
    waits: MessageConnection,
    /// The sender does not.
    fails: MessageConnection,
    /// Tells the receiver when it may call something, and the sender when all was received.
    signal: MessageConnection,
}

fn send(device: &Device, technique: ReceiveTechnique, mut ends: Ends) {
    let mut memory = Memory::new(device, &ends.waits);
    let mut other = Memory::new(device, &ends.fails);
    let is_buffered = technique != ReceiveTechnique::V2pDma;
    for (number, &sending) in SENDING.iter().enumerate() {
        let waited = memory.send(&mut ends.waits, sending, number, SHORT);
        let failed = other.send(&mut ends.fails, sending, number, PATIENCE);
        match (waited, failed) {
            (Ok(()), Ok(())) if is_buffered => {}
            (
                Err(Error::Timeout { .. }),
                Err(Error::Transfer {
                    status: Refusal::NotReady,
                    ..
                }),
            ) if !is_buffered => {}
            results => panic!("{sending} to {technique}: {results:?}"),
        }
    }
    ends.signal.send(b"go", PATIENCE).unwrap();
    if !is_buffered {
        for (number, &sending) in SENDING.iter().enumerate() {
            let sent = memory.send(&mut ends.waits, sending, number, PATIENCE);
            sent.unwrap();
        }
    }
    ends.signal.receive(&mut [0; 8], PATIENCE).unwrap();
}

/// Receives the message of each technique of sending.
fn receive_all(connection: &mut MessageConnection, posts: bool) {
    if posts {
        for _ in SENDING {
            connection.post(Buffer::new(LENGTH).unwrap()).unwrap();
        }
    }
    for (number, sending) in SENDING.iter().enumerate() {
        let bytes = if posts {
            let (buffer, length) = connection.receive_buffer(PATIENCE).unwrap();
            buffer[..length].to_vec()
        } else {
            let mut bytes = vec![0; LENGTH];
            let length = connection.receive(&mut bytes, PATIENCE).unwrap();
            bytes[..length].to_vec()
        };
        assert!(bytes == pattern(number), "{sending}: changed");
    }
}

fn receive(technique: ReceiveTechnique, mut ends: Ends) {
    // All messages that are buffered have been sent before this returns.
    ends.signal.receive(&mut [0; 8], PATIENCE).unwrap();
    let posts = technique == ReceiveTechnique::V2pDma;
    receive_all(&mut ends.waits, posts);
    if posts {
        ends.fails.post(Buffer::new(LENGTH).unwrap()).unwrap();
        let none = ends.fails.receive_buffer(SHORT);
        assert!(matches!(none, Err(Error::Timeout { .. })), "{none:?}");
    } else {
        receive_all(&mut ends.fails, false);
    }
    ends.signal.send(b"end", PATIENCE).unwrap();
    ends.signal.flush(PATIENCE).unwrap();
}

fn options(receiving: ReceiveTechnique, without_credits: bool) -> MessageOptions {
    MessageOptions {
        receiving,
        without_credits,
        exchange_from: 1,
        ..Default::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    match arguments.as_slice() {
        ["send", technique, port, node] => {
            let (port, node): (u32, u32) = (port.parse().unwrap(), node.parse().unwrap());
            let connect = |port, without_credits| {
                let wait = ConnectOptions {
                    retry: true,
                    timeout: PATIENCE,
                    ..Default::default()
                };
                let options = options(ReceiveTechnique::CopyDma, without_credits);
                MessageConnection::connect(&device, node, port, options, wait).unwrap()
            };
            let ends = Ends {
                waits: connect(port, false),
                fails: connect(port + 1, true),
                signal: connect(port + 2, false),
            };
            send(&device, technique.parse().unwrap(), ends);
        }
        ["receive", technique, port] => {
            let port: u32 = port.parse().unwrap();
            let technique = technique.parse().unwrap();
            let listen = |port, receiving| {
                MessageListener::new(&device, port, 1, options(receiving, false)).unwrap()
            };
            let listeners = [
                listen(port, technique),
                listen(port + 1, technique),
                listen(port + 2, ReceiveTechnique::CopyDma),
            ];
            let [waits, fails, signal] = listeners.map(|it| it.accept(PATIENCE).unwrap().0);
            let ends = Ends {
                waits,
                fails,
                signal,
            };
            receive(technique, ends);
        }
        _ => panic!("usage: message_unposted receive TECHNIQUE PORT | send TECHNIQUE PORT NODE"),
    }
}
