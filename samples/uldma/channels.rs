// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program that exchanges messages without system calls, with many at once.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example channels`: on one
//! node with `7` (a port to listen at), on the other twice with `7 NODE`; with `ULDMA_DEVICE` set if the
//! device is not `/dev/uldma0`.

use std::time::Duration;
use uldma::{Channel, ChannelListener, ConnectOptions, Device, Error, Peer, Selector};

/// Bytes of each ring.
const CAPACITY: u64 = 64 * 1024;
const CLIENTS: u32 = 2;
const MESSAGES: u64 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> uldma::Result<()> {
    let arguments: Vec<u32> = std::env::args()
        .skip(1)
        .flat_map(|arg| arg.parse())
        .collect();
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    match arguments[..] {
        [port] => answer(&device, port),
        [port, node] => ask(&device, port, node),
        _ => panic!("usage: channels PORT [NODE]"),
    }
}

/// Echoes the messages of all channels, in round-robin order.
fn answer(device: &Device, port: u32) -> uldma::Result<()> {
    let listener = ChannelListener::new(device, port, CLIENTS, CAPACITY)?;
    eprintln!("listening");
    let mut channels = Selector::new();
    for _ in 0..CLIENTS {
        channels.add(listener.accept(TIMEOUT)?.0)?;
    }
    let (mut message, mut left, mut answered) = ([0; 8], CLIENTS, 0);
    while left > 0 {
        let (place, received) = channels.receive(&mut message, TIMEOUT)?;
        match (received, channels.get_mut(place)) {
            (Ok(length), Some(channel)) => {
                channel.send(&message[..length], TIMEOUT)?;
                answered += 1;
            }
            (Err(Error::Closed), _) => {
                channels.remove(place);
                left -= 1;
            }
            (Err(error), _) => return Err(error),
            (Ok(_), None) => unreachable!("no other code removes channels"),
        }
    }
    println!("answered {answered} messages");
    Ok(())
}

fn ask(device: &Device, port: u32, node: u32) -> uldma::Result<()> {
    let options = ConnectOptions::default();
    let mut channel = Channel::connect(device, Peer::node(node), port, CAPACITY, options)?;
    // The first answer arrives when all have connected.
    let (mut answer, mut calls) = ([0; 8], 0);
    for number in 0..=MESSAGES {
        channel.send(&number.to_ne_bytes(), TIMEOUT)?;
        channel.receive(&mut answer, TIMEOUT)?;
        assert_eq!(u64::from_ne_bytes(answer), number);
        if number == 0 {
            calls = uldma::measure::calls();
        }
    }
    let calls = uldma::measure::calls() - calls;
    println!("{MESSAGES} round trips with {calls} system calls");
    Ok(())
}
