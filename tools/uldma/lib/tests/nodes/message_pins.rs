// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages by `V2P_DMA` pin their memory for each message, or find it in the pin cache (C-013, C-014),
//! as the counters of the locked memory manager tell: `message_pins receive PORT` on one node, then
//! `message_pins send PORT NODE` on another.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::region::LockedMemory;
use uldma::{
    Buffer, ConnectOptions, Device, MessageConnection, MessageListener, MessageOptions,
    ReceiveTechnique, SendTechnique,
};

const PAGES: u64 = 5;
const LENGTH: usize = PAGES as usize * 4096;
const ROUNDS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// The bytes of message `number`.
fn pattern(number: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64 ^ (at as u64 >> 8) ^ (number * 37)) as u8;
    (0..LENGTH).map(byte).collect()
}

/// The pages that rounds have pinned, and the registrations that had to pin any, or none.
fn work(before: &LockedMemory, after: &LockedMemory) -> (u64, u64, u64) {
    (
        after.pins - before.pins,
        after.cache_misses - before.cache_misses,
        after.cache_hits - before.cache_hits,
    )
}

/// Does the rounds with the pin cache off, and then with it on. Each round registers the same memory
/// once.
fn both(
    connection: &mut MessageConnection,
    what: &str,
    mut round: impl FnMut(&mut MessageConnection, u64),
) {
    for cached in [false, true] {
        let before = connection.device().set_pin_cache(cached).unwrap();
        for number in 0..ROUNDS {
            round(connection, number);
        }
        let after = connection.device().locked_memory().unwrap();
        let expected = if cached {
            // The addresses were looked up for the first message alone.
            (PAGES, 1, ROUNDS - 1)
        } else {
            (PAGES * ROUNDS, ROUNDS, 0)
        };
        assert_eq!(work(&before, &after), expected, "{what}, cached: {cached}");
    }
}

fn send(mut connection: MessageConnection) {
    let mut free = Some(Buffer::new(LENGTH).unwrap());
    both(&mut connection, "send_buffer", |connection, number| {
        let mut buffer = free.take().unwrap();
        buffer.copy_from_slice(&pattern(number));
        let sent = connection.send_buffer(buffer, PATIENCE).unwrap();
        free = Some(connection.reclaim(sent, PATIENCE).unwrap());
    });
    let mut bytes = Buffer::new(LENGTH).unwrap();
    both(&mut connection, "send", |connection, number| {
        bytes.copy_from_slice(&pattern(number));
        connection.send(&bytes, PATIENCE).unwrap();
    });
    // The receiver has received all.
    connection.receive(&mut [], PATIENCE).unwrap();
}

fn receive(mut connection: MessageConnection) {
    let mut used = Vec::new();
    for what in ["of buffers", "of bytes"] {
        // What is pinned of the first one stays there.
        let mut free = Some(Buffer::new(LENGTH).unwrap());
        both(&mut connection, what, |connection, number| {
            connection.post(free.take().unwrap()).unwrap();
            let (buffer, length) = connection.receive_buffer(PATIENCE).unwrap();
            assert_eq!(length, LENGTH);
            assert!(*buffer == pattern(number), "message {number} has changed");
            free = Some(buffer);
        });
        used.push(free);
    }
    connection.set_sending(SendTechnique::CopyDma).unwrap();
    connection.send(&[], PATIENCE).unwrap();
    connection.flush(PATIENCE).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    let options = |receiving| MessageOptions {
        sending: SendTechnique::V2pDma,
        receiving,
        ..Default::default()
    };
    match arguments.as_slice() {
        ["send", port, node] => {
            let connect = ConnectOptions {
                retry: true,
                timeout: PATIENCE,
                ..Default::default()
            };
            let (node, port) = (node.parse().unwrap(), port.parse().unwrap());
            let options = options(ReceiveTechnique::CopyDma);
            send(MessageConnection::connect(&device, node, port, options, connect).unwrap());
        }
        ["receive", port] => {
            let port = port.parse().unwrap();
            let options = options(ReceiveTechnique::V2pDma);
            let listener = MessageListener::new(&device, port, 1, options).unwrap();
            receive(listener.accept(PATIENCE).unwrap().0);
        }
        _ => panic!("usage: message_pins receive PORT | send PORT NODE"),
    }
}
