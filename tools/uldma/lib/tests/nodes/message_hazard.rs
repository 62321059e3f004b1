// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends a message and changes its memory before the device has read it, for a test that holds the
//! device: `message_hazard NODE PORT TECHNIQUE`. Says "changed" when it has, and sends an empty
//! message when the device has read the first one. With `V2P_DMA:timeout` it gives the message up
//! instead, and does not change it.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, Kind, Memory, MessageConnection, MessageOptions,
    SendTechnique,
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
    let given_up = technique.strip_suffix(":timeout");
    let technique: SendTechnique = given_up.unwrap_or(technique).parse().unwrap();
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
        _ if given_up.is_some() => {
            let result = connection.send(&BEFORE, Duration::ZERO);
            assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
            println!("changed");
            connection.flush(PATIENCE).unwrap();
        }
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
            let memory = Memory::new(Kind::Private, BYTES as u64).unwrap();
            memory.write(0, &BEFORE).unwrap();
            let part = 0..BYTES as u64;
            let pinned = device.register_memory(&memory, part.clone(), Access::Read);
            let pinned = pinned.unwrap();
            let sent = connection.start(&pinned, part, PATIENCE).unwrap();
            memory.write(0, &AFTER).unwrap();
            println!("changed");
            connection.wait_sent(&sent, PATIENCE).unwrap();
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
