// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams that the two programs carry through rings: `ring_stream HOW KIND BYTES DEVICE PORT` listens,
//! and with `NODE` behind that connects. KIND is `calls`, `matched`, `ring`, `matched+ring`, or
//! `ring+full`, which leaves the window no room for a ring; BYTES are those of a buffer.
//!
//! HOW is `both`: each side sends and receives all; `pour`: sends without an end; `drain`: receives
//! until the end; `idle`: waits for data that does not come. Each prints the way of the stream, and
//! how it has ended.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::time::Duration;

use uldma::{
    ConnectOptions, Connection, Device, Error, InboundSegment, Name, Offer, Peer, Receiving,
    Sending, StreamOptions,
};

/// Longer than any part may take.
const PATIENCE: Duration = Duration::from_secs(120);
const BUFFERS: usize = 8;
/// Bytes of each direction; no multiple of a record.
const TOTAL: usize = (4 << 20) + 13;
/// Bytes after which a stream has begun.
const BEGUN: usize = 1 << 20;
/// Bytes that [`fill_window`] leaves: fewer than [`BUFFERS`] buffers have.
const LEFT: u64 = 256 << 10;
/// Lengths of what is written, and of what is read.
const WRITTEN: &[usize] = &[1, 100_000, 4096, 77, 65536];
const READ: &[usize] = &[64, 300_000, 1, 4096, 17];

fn pattern(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

fn send_all(mut sending: Sending) -> Sending {
    let mut at = 0;
    for &length in WRITTEN.iter().cycle() {
        let end = TOTAL.min(at + length);
        let bytes: Vec<u8> = (at..end).map(pattern).collect();
        sending.write_all(&bytes).unwrap();
        at = end;
        if at == TOTAL {
            break;
        }
    }
    sending.flush().unwrap();
    sending
}

fn receive_all(receiving: &mut Receiving) {
    let mut at = 0;
    for &length in READ.iter().cycle() {
        let mut bytes = vec![0; length.min(TOTAL - at)];
        let length = receiving.read(&mut bytes).unwrap();
        assert!(length > 0, "the end after {at} bytes");
        for (place, &byte) in bytes.iter().take(length).enumerate() {
            assert_eq!(byte, pattern(at + place), "byte {}", at + place);
        }
        at += length;
        if at == TOTAL {
            return;
        }
    }
}

/// Says which way a stream goes.
fn tell_way(connection: &Connection) {
    let info = connection.query().unwrap();
    println!(
        "{}",
        match (info.ring, info.matched) {
            (true, false) => "ring",
            (false, true) => "matched",
            (false, false) => "calls",
            (true, true) => panic!("both ways at once"),
        }
    );
}

/// Sends and receives at the same time. The side that listens disconnects, and the other one finds the
/// end.
fn both((mut receiving, sending): (Receiving, Sending), listens: bool) -> String {
    let sender = std::thread::spawn(|| send_all(sending));
    receive_all(&mut receiving);
    let _sending = sender.join().unwrap();
    // By now both sides have decided.
    tell_way(receiving.connection());
    if listens {
        receiving.connection().disconnect().unwrap();
    } else {
        assert_eq!(receiving.read(&mut [0]).unwrap(), 0);
    }
    "end".into()
}

/// Moves bytes until the stream ends; says once that much was moved.
fn until_the_end(mut step: impl FnMut() -> std::io::Result<usize>) -> String {
    let mut moved = 0;
    loop {
        match step() {
            Ok(0) => return "end".into(),
            Ok(length) => {
                let before = moved < BEGUN;
                moved += length;
                if before && moved >= BEGUN {
                    println!("begun");
                }
            }
            Err(error) => {
                let inner = error.get_ref().and_then(|it| it.downcast_ref());
                return inner.map_or_else(|| panic!("{error}"), name);
            }
        }
    }
}

/// Names an error of a stream.
fn name(error: &Error) -> String {
    match (error, error.errno()) {
        (Error::Violation(_), _) => "refused".into(),
        (_, Some(errno)) => format!("{errno:?}"),
        (_, None) => panic!("{error}"),
    }
}

fn connection(device: &Device, port: u32, node: Option<&str>, offer: Offer) -> Connection {
    let Some(node) = node else {
        let listener = device.listen(port, 1, offer).unwrap();
        println!("listening");
        return listener.accept(PATIENCE).unwrap().0;
    };
    let options = ConnectOptions {
        timeout: PATIENCE,
        offer,
        ..Default::default()
    };
    let peer = Peer::node(node.parse().unwrap());
    device.connect(peer, port, options).unwrap()
}

/// Takes the peer's part of the window, but for less than a ring takes, and as much as a connection does.
fn fill_window(device: &Device) -> Vec<InboundSegment> {
    let mut names = (1..).filter_map(Name::new);
    let mut take = |length| device.create_segment(names.next().unwrap(), length);
    let spare = take(LEFT).unwrap();
    let mut taken = Vec::new();
    for length in (12..30).rev().map(|bit| 1 << bit) {
        taken.extend(std::iter::from_fn(|| take(length).ok()));
    }
    drop(spare);
    taken
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [how, kind, bytes, device, port, ref node @ ..] = arguments[..] else {
        panic!("usage: ring_stream HOW KIND BYTES DEVICE PORT [NODE]");
    };
    let device = Device::open(device.parse().unwrap()).unwrap();
    let node = node.first().copied();
    let options = StreamOptions {
        buffers: BUFFERS,
        bytes: bytes.parse().unwrap(),
        matched: kind.contains("matched"),
        ring: kind.contains("ring"),
    };
    let offer = options.offer().unwrap();
    let _taken = match kind.contains("full") {
        true => fill_window(&device),
        false => Vec::new(),
    };
    let connection = connection(&device, port.parse().unwrap(), node, offer);
    let mut stream = match connection.into_stream(options) {
        Ok(stream) => stream,
        Err(error) => return println!("{}", name(&error)),
    };
    let mut bytes = vec![0; 64 << 10];
    if how != "idle" {
        stream.set_timeout(PATIENCE);
    }
    if how != "both" {
        tell_way(stream.connection());
    }
    let ended = match how {
        "both" => both(stream.split(), node.is_none()),
        "pour" => until_the_end(|| stream.write(&bytes)),
        "drain" | "idle" => until_the_end(|| stream.read(&mut bytes)),
        _ => panic!("no such thing to do: {how}"),
    };
    println!("{ended}");
}
