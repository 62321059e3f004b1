// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections whose streams the devices match, beside connections where one side does not ask for
//! that: `matched_stream receive PORT` on one node, then `matched_stream send PORT NODE` on another.
//! With `lose` and `exit` the sender ends before all was received.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::connection::Wait;
use uldma::{Chunk, ConnectOptions, Connection, Device, Error, Offer, Peer};

const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a call that cannot end is given up.
const SHORT: Duration = Duration::from_millis(100);
/// Lengths of what is sent, and of what is received into; both have the same sum.
const SENT: &[usize] = &[1, 100_000, 4096, 3, 2 << 20, 77, 65536];
const RECEIVED: &[usize] = &[64, 1, 300_000, 4096, 1 << 20, 17];
/// A long send that the peer takes in small parts, and how many of these it takes.
const LONG: usize = 1 << 20;
const PARTS: usize = 100;
const PART: usize = 1000;

fn total() -> usize {
    SENT.iter().sum()
}

fn pattern(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// Memory that stays registered, or is not.
fn chunk(device: &Device, length: usize, pinned: bool) -> Chunk {
    match pinned {
        true => Chunk::pinned(device, length).unwrap(),
        false => Chunk::new(length).unwrap(),
    }
}

/// Sends all, and gets all memory back.
fn send_all(device: &Device, connection: &Connection, pinned: bool) {
    let mut at = 0;
    for &length in SENT {
        let mut memory = chunk(device, length, pinned);
        for (place, byte) in memory.iter_mut().enumerate() {
            *byte = pattern(at + place);
        }
        connection.send(memory).unwrap();
        at += length;
    }
    let mut back = 0;
    while back < at {
        let memory = connection.recycle(usize::MAX, PATIENCE).unwrap().unwrap();
        back += memory.len();
    }
    assert_eq!(back, at);
}

/// Receives all, into memory of other lengths.
fn receive_all(device: &Device, connection: &Connection, pinned: bool) {
    let (mut posted, mut received) = (0, 0);
    let mut lengths = RECEIVED.iter().cycle();
    while received < total() {
        while posted < total() && posted - received < 4 << 20 {
            let length = (*lengths.next().unwrap()).min(total() - posted);
            match connection.prepost(chunk(device, length, pinned)) {
                Ok(()) => posted += length,
                Err(rejected) => {
                    // As many as there can be.
                    assert_eq!(rejected.error.errno(), Some(nix::errno::Errno::ENOSPC));
                    break;
                }
            }
        }
        let memory = connection.recv(usize::MAX, PATIENCE).unwrap().unwrap();
        for (place, byte) in memory.iter().enumerate() {
            assert_eq!(
                *byte,
                pattern(received + place),
                "byte {}",
                received + place
            );
        }
        received += memory.len();
    }
}

/// A receiver sees parts of a send before its end, the sender gets parts back, and what was not
/// received stays the sender's until the end.
fn send_part(device: &Device, connection: &Connection) {
    connection.send(chunk(device, LONG, true)).unwrap();
    let mut back = 0;
    while back < PARTS * PART {
        let memory = connection.recycle(usize::MAX, PATIENCE).unwrap().unwrap();
        back += memory.len();
    }
    assert_eq!(back, PARTS * PART);
    let late = connection.recycle(1, SHORT);
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    assert_eq!(connection.query().unwrap().unsent, (LONG - back) as u64);
    // The other side waits for this, and then disconnects.
    connection.prepost(chunk(device, 8, true)).unwrap();
    assert_eq!(connection.recv(8, PATIENCE).unwrap().unwrap().len(), 8);
    assert!(connection.recycle(1, PATIENCE).unwrap().is_none());
    assert!(connection.recv(1, PATIENCE).unwrap().is_none());
    let refused = connection.send(chunk(device, 8, true));
    assert!(refused.is_err());
    let left: usize = connection
        .disconnect()
        .unwrap()
        .iter()
        .map(|it| it.len())
        .sum();
    assert_eq!(left, LONG - back);
}

fn receive_part(device: &Device, connection: &Connection) {
    for _ in 0..PARTS {
        connection.prepost(chunk(device, PART, true)).unwrap();
        let mut left = PART;
        while left > 0 {
            left -= connection.recv(left, PATIENCE).unwrap().unwrap().len();
        }
    }
    let ready = connection.wait(Wait::Receive, SHORT).unwrap();
    assert!(!ready.receive && !ready.closed);
    connection.send(chunk(device, 8, true)).unwrap();
    assert_eq!(connection.recycle(8, PATIENCE).unwrap().unwrap().len(), 8);
}

/// A sender whose file is closed before all was received loses its connection; the receiver gets what
/// came before.
fn receive_and_lose(device: &Device, connection: &Connection) {
    connection.prepost(chunk(device, PART, true)).unwrap();
    let mut left = PART;
    while left > 0 {
        left -= connection.recv(left, PATIENCE).unwrap().unwrap().len();
    }
    connection.prepost(chunk(device, 8, true)).unwrap();
    connection.send(chunk(device, 8, true)).unwrap();
    let lost = loop {
        // What the engine had begun to move may come before the reset.
        match connection.recv(8, PATIENCE) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end of a stream of which a part is missing"),
            Err(error) => break error,
        }
    };
    assert_eq!(lost.errno(), Some(nix::errno::Errno::ECONNRESET), "{lost}");
}

/// Sends more than the peer takes. The process ends without a disconnect when the peer has taken its part.
fn send_and_exit(device: &Device, connection: &Connection) -> ! {
    connection.send(chunk(device, LONG, true)).unwrap();
    connection.prepost(chunk(device, 8, true)).unwrap();
    assert_eq!(connection.recv(8, PATIENCE).unwrap().unwrap().len(), 8);
    // No destructor runs: the kernel closes the file.
    std::process::exit(0)
}

/// A round of each kind: which sides ask the devices to match, and whether memory is registered.
const ROUNDS: &[(bool, bool, bool)] = &[
    (true, true, true),
    (true, true, false),
    (true, false, true),
    (false, true, true),
    (false, false, true),
];

fn run(device: &Device, connection: &Connection, sends: bool, number: usize) {
    let (sender, receiver, pinned) = ROUNDS[number];
    let asks = if sends { sender } else { receiver };
    if asks {
        assert!(connection.match_streams().unwrap());
    }
    // Both directions, in turns.
    for turn in [sends, !sends] {
        if turn {
            send_all(device, connection, pinned);
        } else {
            receive_all(device, connection, pinned);
        }
    }
    let info = connection.query().unwrap();
    assert_eq!(info.matched, sender && receiver, "round {number}");
    assert_eq!((info.sent, info.received), (total() as u64, total() as u64));
    // Each side has moved what it sent.
    assert_eq!(info.copied, total() as u64);
    // A connection that is in use does not change.
    assert_eq!(connection.match_streams().unwrap(), info.matched);
}

fn connect(device: &Device, port: &str, node: &str) -> Connection {
    let wait = ConnectOptions {
        retry: true,
        timeout: PATIENCE,
        ..Default::default()
    };
    let peer = Peer::node(node.parse().unwrap());
    device.connect(peer, port.parse().unwrap(), wait).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    match arguments.as_slice() {
        ["send", port, node] => {
            let connect = || connect(&device, port, node);
            for number in 0..ROUNDS.len() {
                let connection = connect();
                run(&device, &connection, true, number);
                assert!(connection.recv(1, PATIENCE).unwrap().is_none());
            }
            let connection = connect();
            assert!(connection.match_streams().unwrap());
            send_part(&device, &connection);
        }
        ["exit", port, node] => {
            let connection = connect(&device, port, node);
            assert!(connection.match_streams().unwrap());
            send_and_exit(&device, &connection);
        }
        ["lose", port] => {
            let listener = device
                .listen(port.parse().unwrap(), 4, Offer::default())
                .unwrap();
            let (connection, _) = listener.accept(PATIENCE).unwrap();
            assert!(connection.match_streams().unwrap());
            receive_and_lose(&device, &connection);
        }
        ["receive", port] => {
            let port: u32 = port.parse().unwrap();
            let listener = device.listen(port, 4, Offer::default()).unwrap();
            for number in 0..ROUNDS.len() {
                let (connection, _) = listener.accept(PATIENCE).unwrap();
                run(&device, &connection, false, number);
                connection.disconnect().unwrap();
            }
            let (connection, _) = listener.accept(PATIENCE).unwrap();
            assert!(connection.match_streams().unwrap());
            receive_part(&device, &connection);
            connection.disconnect().unwrap();
        }
        _ => panic!(
            "usage: matched_stream receive PORT | send PORT NODE | lose PORT | exit PORT NODE"
        ),
    }
}
