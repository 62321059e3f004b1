// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receives by `REDIRECT` in calls whose time is over while messages arrive: `message_redirect receive
//! PORT` on one node, then `message_redirect send PORT NODE` on another. No message is lost or
//! changed, and none is written to memory of a call that has returned.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::{
    ConnectOptions, Device, Error, MessageConnection, MessageListener, MessageOptions,
    ReceiveTechnique,
};

const MESSAGES: u64 = 400;
const LENGTH: usize = 60_000;
const PATIENCE: Duration = Duration::from_secs(120);

/// The bytes of message `number`.
fn pattern(number: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64 ^ (at as u64 >> 8) ^ (number * 37)) as u8;
    (0..LENGTH).map(byte).collect()
}

fn send(mut connection: MessageConnection) {
    for number in 0..MESSAGES {
        connection.send(&pattern(number), PATIENCE).unwrap();
        // The receiver has it, and may be about to receive the next one.
        assert_eq!(connection.receive(&mut [], PATIENCE).unwrap(), 0);
    }
}

fn receive(mut connection: MessageConnection) {
    const FREE: u8 = 0xee;
    let (mut target, mut late) = (vec![FREE; LENGTH], 0u64);
    for number in 0..MESSAGES {
        let expected = pattern(number);
        let mut attempts = 0u32;
        loop {
            // From no time to about that of a message, whatever that is here.
            let timeout = Duration::from_micros(1 << (number % 14)) * attempts.min(4);
            attempts += 1;
            match connection.receive(&mut target, timeout) {
                Ok(length) => {
                    assert_eq!(length, LENGTH);
                    assert!(target == expected, "message {number} has changed");
                    break;
                }
                Err(Error::Timeout { .. }) => late += 1,
                Err(error) => panic!("message {number}: {error}"),
            }
            target.fill(FREE);
            std::thread::yield_now();
            assert!(target.iter().all(|&byte| byte == FREE), "written late");
        }
        connection.send(&[], PATIENCE).unwrap();
    }
    connection.flush(PATIENCE).unwrap();
    let counts = connection.redirections();
    println!("{counts:?}, {late} calls without a message");
    assert_eq!(counts.redirected + counts.from_slots, MESSAGES);
    assert!(counts.redirected > 0, "{counts:?}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    let options = MessageOptions {
        receiving: ReceiveTechnique::Redirect,
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
            send(MessageConnection::connect(&device, node, port, options, connect).unwrap());
        }
        ["receive", port] => {
            let port = port.parse().unwrap();
            let listener = MessageListener::new(&device, port, 1, options).unwrap();
            receive(listener.accept(PATIENCE).unwrap().0);
        }
        _ => panic!("usage: message_redirect receive PORT | send PORT NODE"),
    }
}
