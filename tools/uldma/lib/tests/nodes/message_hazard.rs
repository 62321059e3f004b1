// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends a message and changes its memory before the device has read it, for a test that holds the
//! device: `message_hazard NODE PORT TECHNIQUE`. Says "changed" when it has, and sends an empty
//! message when the device has read the first one. By `V2P_DMA`, whose calls wait for the device, it
//! gives the call up before.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, MessageConnection, MessageOptions, SendTechnique,
};

const BYTES: usize = 4096;
const BEFORE: [u8; BYTES] = [b'1'; BYTES];
const AFTER: [u8; BYTES] = [b'2'; BYTES];
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [node, port, technique] = arguments.as_slice() else {
        panic!("usage: message_hazard NODE PORT TECHNIQUE");
    };
    let technique: SendTechnique = technique.parse().unwrap();
    let options = MessageOptions {
        sending: technique,
        exchange_from: BYTES,
        ..Default::default()
    };
    let connect = ConnectOptions {
        retry: true,
        timeout: PATIENCE,
        ..Default::default()
    };
    let (node, port) = (node.parse().unwrap(), port.parse().unwrap());
    let device = Device::open(0).unwrap();
    let mut connection = MessageConnection::connect(&device, node, port, options, connect).unwrap();
    println!("connected");
    // The test holds the device now.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    match technique {
        SendTechnique::DirectDma => {
            let mut buffer = Buffer::new(BYTES).unwrap();
            buffer.copy_from_slice(&BEFORE);
            let region = device.register(buffer, Access::Read).unwrap();
            let sent = connection
                .start(&region, 0..BYTES as u64, PATIENCE)
                .unwrap();
            region.write(0, &AFTER).unwrap();
            println!("changed");
            connection.wait_sent(&sent, PATIENCE).unwrap();
        }
        SendTechnique::V2pDma => {
            let mut buffer = Buffer::new(BYTES).unwrap();
            buffer.copy_from_slice(&BEFORE);
            let result = connection.send(&buffer, Duration::ZERO);
            assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
            // It stays pinned until the device has read it.
            buffer.copy_from_slice(&AFTER);
            println!("changed");
            connection.flush(PATIENCE).unwrap();
            assert_eq!(*buffer, AFTER);
        }
        SendTechnique::PexDma => {
            let mut buffer = device.exchangeable(BYTES).unwrap();
            buffer.copy_from_slice(&BEFORE);
            connection.send(&buffer, PATIENCE).unwrap();
            buffer.copy_from_slice(&AFTER);
            assert_eq!(*buffer, AFTER);
            println!("changed");
            connection.flush(PATIENCE).unwrap();
            let stats = connection.exchange_stats();
            assert_eq!((stats.sent, stats.pages_copied), (1, 1));
            assert_eq!(*buffer, AFTER);
        }
        _ => {
            let mut bytes = BEFORE;
            connection.send(&bytes, PATIENCE).unwrap();
            bytes = AFTER;
            std::hint::black_box(&bytes);
            println!("changed");
        }
    }
    connection.set_sending(SendTechnique::CopyDma).unwrap();
    connection.send(&[], PATIENCE).unwrap();
    connection.flush(PATIENCE).unwrap();
}
