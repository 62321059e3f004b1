// SPDX-License-Identifier: MIT OR Apache-2.0

//! Classical semantics over techniques that do not have them: a layer of buffers over `V2P_DMA`
//! (C-042), and `DIRECT_DMA` from memory that is not registered (C-045). `message_buffered receive
//! PORT` on one node, then `message_buffered send PORT NODE` on another.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::message::{BufferedReceiver, BufferedSender};
use uldma::{
    ConnectOptions, Device, Error, MessageConnection, MessageListener, MessageOptions,
    ReceiveTechnique, SendTechnique,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// Of each message, in bytes: a page, less, more, nothing, and the longest.
const LENGTHS: [usize; 5] = [4096, 1, 5000, 0, LONGEST];
const LONGEST: usize = 65536;

/// The bytes of message `number`.
fn pattern(number: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8) ^ (number * 37)) as u8;
    (0..LENGTHS[number]).map(byte).collect()
}

/// Two connections: one for messages, and one that tells a side to go on.
type Ends = (MessageConnection, MessageConnection);

fn send((mut connection, mut signal): Ends) {
    signal.receive(&mut [0; 8], PATIENCE).unwrap();
    // Fewer in flight than there are messages, so that buffers are used again.
    let mut layer = BufferedSender::new(2);
    for number in 0..LENGTHS.len() {
        let mut message = pattern(number);
        layer.send(&mut connection, &message, PATIENCE).unwrap();
        // The message is the program's again, whether or not the device has read it.
        message.fill(0xff);
    }
    layer.finish(&mut connection, PATIENCE).unwrap();
    connection.set_sending(SendTechnique::DirectDma).unwrap();
    for number in 0..LENGTHS.len() {
        let mut message = pattern(number);
        connection.send(&message, PATIENCE).unwrap();
        message.fill(0xff);
    }
    connection.send(&[7; LONGEST], PATIENCE).unwrap();
    connection.flush(PATIENCE).unwrap();
    signal.send(b"go", PATIENCE).unwrap();
    signal.receive(&mut [0; 8], PATIENCE).unwrap();
}

fn receive((mut connection, mut signal): Ends) {
    // Room for all messages: they come before the first is received.
    let mut layer = BufferedReceiver::new(LONGEST, 2 * LENGTHS.len() + 1).unwrap();
    layer.post(&mut connection).unwrap();
    signal.send(b"go", PATIENCE).unwrap();
    signal.receive(&mut [0; 8], PATIENCE).unwrap();
    // Memory of any kind.
    let mut target = vec![0; LONGEST];
    for round in ["by the layer", "by DIRECT_DMA"] {
        for number in 0..LENGTHS.len() {
            let length = layer.receive(&mut connection, &mut target, PATIENCE);
            let length = length.unwrap();
            assert!(
                target[..length] == pattern(number),
                "message {number} {round}"
            );
        }
    }
    let short = layer.receive(&mut connection, &mut target[1..], PATIENCE);
    assert!(
        matches!(
            short,
            Err(Error::TooLong {
                length: LONGEST,
                ..
            })
        ),
        "{short:?}"
    );
    signal.send(b"end", PATIENCE).unwrap();
    signal.flush(PATIENCE).unwrap();
}

fn options(receiving: ReceiveTechnique) -> MessageOptions {
    MessageOptions {
        sending: SendTechnique::V2pDma,
        receiving,
        slot: LONGEST,
        slots: 2 * LENGTHS.len() as u8 + 1,
        ..Default::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    let (messages, signals) = (
        options(ReceiveTechnique::V2pDma),
        options(ReceiveTechnique::CopyDma),
    );
    match arguments.as_slice() {
        ["send", port, node] => {
            let (port, node): (u32, u32) = (port.parse().unwrap(), node.parse().unwrap());
            let connect = |port| {
                let wait = ConnectOptions {
                    retry: true,
                    timeout: PATIENCE,
                    ..Default::default()
                };
                MessageConnection::connect(&device, node, port, signals, wait).unwrap()
            };
            send((connect(port), connect(port + 1)));
        }
        ["receive", port] => {
            let port: u32 = port.parse().unwrap();
            let listen = |port, options| MessageListener::new(&device, port, 1, options).unwrap();
            let listeners = [listen(port, messages), listen(port + 1, signals)];
            let [connection, signal] = listeners.map(|it| it.accept(PATIENCE).unwrap().0);
            receive((connection, signal));
        }
        _ => panic!("usage: message_buffered receive PORT | send PORT NODE"),
    }
}
