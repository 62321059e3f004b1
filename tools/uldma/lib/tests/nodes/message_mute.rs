// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers of a listener for messages that say nothing, or nonsense, before one that says what it has to:
//! `message_mute receive PORT` on one node, then `message_mute send PORT NODE` on another.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::connection::{ConnectionKind, Offer, PrivateData};
use uldma::{
    ConnectOptions, Connection, Device, MessageConnection, MessageListener, MessageOptions, Peer,
    ReceiveTechnique,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of what the two sides say, as in semantics.rst.
const VERSION: u16 = 6;
/// Bytes of the rings of a mute peer, and of its window.
const CAPACITY: u64 = 4096;
const RING: u64 = 64 * 1024;
const COPY_DMA: u32 = 2;

/// What a side says that has no endpoint: the capacity of its ring, its longest message, no memory, a
/// technique, its node, and that messages go through the window.
fn handshake(node: u32, receiving: u32) -> Vec<u8> {
    let words = [CAPACITY, 65536, 0, 0, 0];
    let halves = [0, receiving, node, 0, 1];
    let words = words.iter().flat_map(|word: &u64| word.to_le_bytes());
    let halves = halves.iter().flat_map(|half: &u32| half.to_le_bytes());
    words.chain(halves).collect()
}

/// Connects with a ring of so many bytes, and says nothing after `said`.
fn mute(device: &Device, node: u32, port: u32, ring_length: u64, said: &[u8]) -> Connection {
    let offer = Offer {
        kind: ConnectionKind::MESSAGE,
        version: VERSION,
        ring_length,
        private: PrivateData::new(said).unwrap(),
    };
    let options = ConnectOptions {
        offer,
        retry: true,
        timeout: PATIENCE,
        ..Default::default()
    };
    device.connect(Peer::node(node), port, options).unwrap()
}

/// Returns true if the device moves messages: techniques need that which the program's processor has no
/// part in.
fn has_engine(device: &Device) -> bool {
    device.query().unwrap().user.endpoints.1 > 0
}

/// Tells the peer that it was accepted.
fn go(connection: &mut MessageConnection) {
    connection.send(b"go", PATIENCE).unwrap();
    connection.flush(PATIENCE).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    let options = MessageOptions::default();
    match arguments.as_slice() {
        ["send", port, node] => {
            let (port, node): (u32, u32) = (port.parse().unwrap(), node.parse().unwrap());
            let own = device.query().unwrap().node;
            let silent = handshake(own, COPY_DMA);
            let peers = [
                &CAPACITY.to_le_bytes()[..],
                &handshake(own, 0),
                &handshake(own.wrapping_add(7), COPY_DMA),
                &silent[..silent.len() - 1],
                &silent,
            ];
            let peers = peers.map(|said| mute(&device, node, port, RING, said));
            let without_ring = mute(&device, node, port, 0, &silent);
            let connect = ConnectOptions {
                retry: true,
                timeout: PATIENCE,
                ..Default::default()
            };
            let connect = |port| {
                let connected = MessageConnection::connect(&device, node, port, options, connect);
                connected.unwrap().receive(&mut [0; 8], PATIENCE).unwrap();
            };
            connect(port);
            if has_engine(&device) {
                let without_engine = mute(&device, node, port + 1, RING, &silent);
                connect(port + 1);
                drop(without_engine);
            }
            drop((peers, without_ring));
        }
        ["receive", port] => {
            let listener = MessageListener::new(&device, port.parse().unwrap(), 16, options);
            let listener = listener.unwrap();
            // The mute peer that is understood has a connection, and delays nothing but calls on that.
            let (silent, _) = listener.accept(PATIENCE).unwrap();
            let (mut other, _) = listener.accept(PATIENCE).unwrap();
            go(&mut other);
            drop(silent);
            if has_engine(&device) {
                let options = MessageOptions {
                    receiving: ReceiveTechnique::V2pDma,
                    ..options
                };
                let port = port.parse::<u32>().unwrap() + 1;
                let listener = MessageListener::new(&device, port, 1, options).unwrap();
                go(&mut listener.accept(PATIENCE).unwrap().0);
            }
        }
        _ => panic!("usage: message_mute receive PORT | send PORT NODE"),
    }
}
