// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program puts bytes into the memory of another one (`DIRECT_DMA` at the receiver), by each
//! technique of sending: `message_put receive PORT` on one node, then `message_put send PORT NODE`
//! on another.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::message::Put;
use uldma::region::Registered;
use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, MessageConnection, MessageListener,
    MessageOptions, ReceiveTechnique, SendTechnique,
};

const SLOT: usize = 4 * 4096;
const SLOTS: u8 = 4;
const AREA: u64 = 4 * SLOT as u64;
/// Bytes that a technique has to send in several pieces, from slots of half that size.
const LONG: usize = SLOT + SLOT / 2 + 7;
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a call that cannot end is given up.
const SHORT: Duration = Duration::from_millis(100);
/// Puts of each technique: length and place. As many as can arrive have places of their own.
const PLAN: &[(usize, u64); SLOTS as usize] = &[
    (1, 0),
    (100, 4095),
    (LONG, 8195),
    (SLOT, AREA - SLOT as u64),
];
const SENDING: &[SendTechnique] = &[
    SendTechnique::Pio,
    SendTechnique::CopyDma,
    SendTechnique::V2pDma,
    SendTechnique::PexDma,
    SendTechnique::DirectDma,
];

/// The bytes of put `number`, none of which is zero.
fn pattern(number: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at ^ (at >> 8) ^ (number * 37)) as u8 | 1;
    (0..length).map(byte).collect()
}

fn options(receiving: ReceiveTechnique) -> MessageOptions {
    MessageOptions {
        receiving,
        slot: SLOT,
        slots: SLOTS,
        exchange_from: 1,
        ..Default::default()
    }
}

fn is_refused<T: std::fmt::Debug>(result: uldma::Result<T>) -> bool {
    matches!(result, Err(Error::Technique { .. }))
}

/// Puts by each technique; `other` is a connection whose receiver takes messages.
fn send(device: &Device, mut put: MessageConnection, mut other: MessageConnection) {
    let area = put.outbound().unwrap();
    assert_eq!((area.bytes, area.puts), (AREA, SLOTS.into()));
    assert_eq!(other.outbound(), None);

    let region = put
        .device()
        .register(Buffer::new(LONG).unwrap(), Access::Read);
    let region = region.unwrap();
    assert!(is_refused(put.send(b"x", PATIENCE)));
    assert!(is_refused(put.start(&region, 0..1, PATIENCE)));
    assert!(is_refused(
        put.send_buffer(Buffer::new(1).unwrap(), PATIENCE)
    ));
    assert!(is_refused(other.put(b"x", 0, PATIENCE)));
    assert!(is_refused(other.start_put(&region, 0..1, 0, PATIENCE)));
    for (length, offset) in [(2, AREA - 1), (1, AREA), (0, AREA + 1), (1, u64::MAX)] {
        let refused = put.put(&vec![0; length], offset, PATIENCE);
        assert!(matches!(refused, Err(Error::Range { .. })), "{refused:?}");
    }
    assert!(put.start_put(&region, 0..0, 0, PATIENCE).is_err());

    let mut exchangeable = device.exchangeable(LONG).unwrap();
    let mut ordinary = vec![0; LONG];
    let mut number = 0;
    for &technique in SENDING {
        put.set_sending(technique).unwrap();
        for &(length, offset) in PLAN {
            let bytes = pattern(number, length);
            number += 1;
            if technique == SendTechnique::DirectDma {
                region.write(0, &bytes).unwrap();
                let sent = put.start_put(&region, 0..length as u64, offset, PATIENCE);
                put.wait_sent(&sent.unwrap(), PATIENCE).unwrap();
                continue;
            }
            // Exchangeable memory is not pinned.
            let source = match technique {
                SendTechnique::PexDma => &mut exchangeable[..length],
                _ => &mut ordinary[..length],
            };
            source.copy_from_slice(&bytes);
            put.put(source, offset, PATIENCE).unwrap();
            // The put has the bytes that were here when it was called.
            source.fill(0xdd);
        }
    }
    assert!(put.exchange_stats().sent >= PLAN.len() as u64);

    // A receiver that asks for nothing takes as many puts as it has slots. What was tried and not
    // sent leaves the connection as it was.
    put.set_sending(SendTechnique::CopyDma).unwrap();
    other.send(b"wait", PATIENCE).unwrap();
    other.receive(&mut [0; 8], PATIENCE).unwrap();
    for place in 0..u64::from(SLOTS) {
        put.put(&[place as u8 + 1; 16], place * 16, PATIENCE)
            .unwrap();
    }
    let refused = put.put(&[0xee; 16], 0, SHORT);
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    put.flush(PATIENCE).unwrap();
    other.send(b"go", PATIENCE).unwrap();
    put.put(&[], AREA, PATIENCE).unwrap();
    // The other side may end now.
    other.receive(&mut [0; 8], PATIENCE).unwrap();
}

fn receive(mut put: MessageConnection, mut other: MessageConnection) {
    assert_eq!(put.inbound().unwrap().length(), AREA);
    assert!(is_refused(put.receive(&mut [0; 8], PATIENCE)));
    assert!(is_refused(other.receive_put(PATIENCE)));
    assert!(other.inbound().is_none());

    let mut number = 0;
    for technique in SENDING {
        for &(length, offset) in PLAN {
            let arrived = put.receive_put(PATIENCE).unwrap();
            let length = length as u64;
            assert_eq!(arrived, Put { offset, length }, "{technique}");
            let mut bytes = vec![0; length as usize];
            put.inbound().unwrap().read(offset, &mut bytes).unwrap();
            let expected = pattern(number, bytes.len());
            assert!(bytes == expected, "put {number} has changed");
            number += 1;
        }
    }

    other.receive(&mut [0; 8], PATIENCE).unwrap();
    // The last put was received, so now its place is given back.
    let refused = put.receive_put(SHORT);
    assert!(matches!(refused, Err(Error::Timeout { .. })), "{refused:?}");
    other.send(b"ready", PATIENCE).unwrap();
    other.receive(&mut [0; 8], PATIENCE).unwrap();
    let mut bytes = [0; SLOTS as usize * 16];
    put.inbound().unwrap().read(0, &mut bytes).unwrap();
    let expected: Vec<u8> = (1..=SLOTS).flat_map(|place| [place; 16]).collect();
    assert!(bytes == *expected, "{bytes:?}");
    for place in 0..u64::from(SLOTS) {
        let arrived = put.receive_put(PATIENCE).unwrap();
        let expected = Put {
            offset: place * 16,
            length: 16,
        };
        assert_eq!(arrived, expected);
    }
    let end = Put {
        offset: AREA,
        length: 0,
    };
    assert_eq!(put.receive_put(PATIENCE).unwrap(), end);
    other.send(b"end", PATIENCE).unwrap();
    other.flush(PATIENCE).unwrap();
    let ended = put.receive_put(PATIENCE);
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    match arguments.as_slice() {
        ["send", port, node] => {
            let (port, node): (u32, u32) = (port.parse().unwrap(), node.parse().unwrap());
            let connect = |port| {
                let wait = ConnectOptions {
                    retry: true,
                    timeout: PATIENCE,
                    ..Default::default()
                };
                let options = options(ReceiveTechnique::CopyDma);
                MessageConnection::connect(&device, node, port, options, wait).unwrap()
            };
            send(&device, connect(port), connect(port + 1));
        }
        ["receive", port] => {
            let port: u32 = port.parse().unwrap();
            let places = options(ReceiveTechnique::DirectDma);
            let first = MessageListener::new(&device, port, 1, places).unwrap();
            let messages = options(ReceiveTechnique::CopyDma);
            let second = MessageListener::new(&device, port + 1, 1, messages).unwrap();
            let (first, _) = first.accept(PATIENCE).unwrap();
            let (second, _) = second.accept(PATIENCE).unwrap();
            receive(first, second);
        }
        _ => panic!("usage: message_put receive PORT | send PORT NODE"),
    }
}
