// SPDX-License-Identifier: MIT OR Apache-2.0

//! The other side of a bridge for packets, which sends what it likes: `packets_peer VERSION MTU PORT NODE`
//! connects, sends standard input, and then disconnects. It writes to standard output what arrives.

#![allow(clippy::unwrap_used)]

use std::io;
use std::time::Duration;

use uldma::{
    ConnectOptions, ConnectionKind, Device, Offer, Peer, PrivateData, Sending, StreamOptions,
};

/// Longer than any part may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends standard input. The bridge may end before that does.
fn send(mut sending: Sending) {
    let _ = io::copy(&mut io::stdin(), &mut sending);
    let _ = io::Write::flush(&mut sending);
    let _ = sending.connection().disconnect();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [version, mtu, port, node] = arguments.as_slice() else {
        panic!("usage: packets_peer VERSION MTU PORT NODE");
    };
    let mtu: u16 = mtu.parse().unwrap();
    let options = ConnectOptions {
        retry: true,
        timeout: PATIENCE,
        offer: Offer {
            kind: ConnectionKind::PACKETS,
            version: version.parse().unwrap(),
            private: PrivateData::new(&mtu.to_be_bytes()).unwrap(),
            ..Default::default()
        },
        ..Default::default()
    };
    let device = Device::open(0).unwrap();
    let peer = Peer::node(node.parse().unwrap());
    let connection = match device.connect(peer, port.parse().unwrap(), options) {
        Ok(connection) => connection,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let stream = connection.into_stream(StreamOptions::default()).unwrap();
    let (mut receiving, sending) = stream.split();
    let sender = std::thread::spawn(|| send(sending));
    let _ = io::copy(&mut receiving, &mut io::stdout());
    sender.join().unwrap();
}
