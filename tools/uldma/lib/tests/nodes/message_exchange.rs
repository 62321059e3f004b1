// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two programs exchange messages by `PEX_DMA`, from and into all kinds of memory, and check what
//! was exchanged and what was copied for which reason: `message_exchange receive PORT` on one node,
//! then `message_exchange send PORT NODE` on another.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use uldma::{
    ConnectOptions, Device, ExchangeBuffer, MessageConnection, MessageListener, MessageOptions,
    ReceiveTechnique, SendTechnique,
};

const PAGE: usize = 4096;
const SLOT: usize = 16 * PAGE;
const LONGEST: usize = 40 * PAGE;
const REPEATED: u64 = 300;
const SHARED: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a message is, or goes to.
#[derive(Clone, Copy)]
enum Place {
    /// The beginning of exchangeable memory.
    Whole,
    /// Exchangeable memory, not at a page.
    Unaligned,
    /// Memory of the allocator.
    Ordinary,
}
use Place::{Ordinary, Unaligned, Whole};

const PLAN: &[(usize, Place, Place)] = &[
    (3 * PAGE, Whole, Whole),
    (3 * PAGE + 1, Unaligned, Whole),
    (3 * PAGE - 1, Whole, Whole),
    (3 * PAGE, Whole, Unaligned),
    (PAGE, Whole, Whole),
    (3 * PAGE, Ordinary, Ordinary),
    (LONGEST, Ordinary, Whole),
    (LONGEST, Whole, Whole),
];

/// Memory of each kind.
struct Memory {
    exchangeable: ExchangeBuffer,
    ordinary: Vec<u8>,
}

impl Memory {
    fn new(device: &Device) -> Self {
        Self {
            exchangeable: device.exchangeable(LONGEST + PAGE).unwrap(),
            ordinary: vec![0; LONGEST],
        }
    }

    fn at(&mut self, place: Place, length: usize) -> &mut [u8] {
        match place {
            Whole => &mut self.exchangeable[..length],
            Unaligned => &mut self.exchangeable[100..100 + length],
            Ordinary => &mut self.ordinary[..length],
        }
    }
}

/// The bytes of message `number`.
fn pattern(number: u64, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u64 ^ (at as u64 >> 8) ^ (number * 37)) as u8;
    (0..length).map(byte).collect()
}

fn options(receiving: ReceiveTechnique) -> MessageOptions {
    MessageOptions {
        sending: SendTechnique::PexDma,
        receiving,
        slot: SLOT,
        slots: 4,
        exchange_from: 2 * PAGE,
        ..Default::default()
    }
}

fn expect(connection: &mut MessageConnection, target: &mut [u8], number: u64, length: usize) {
    target.fill(0xee);
    assert_eq!(connection.receive(target, PATIENCE).unwrap(), length);
    assert!(
        target[..length] == pattern(number, length),
        "message {number} has changed"
    );
    assert!(target[length..].iter().all(|&byte| byte == 0xee));
}

fn send(device: &Device, mut first: MessageConnection, mut second: MessageConnection) {
    let mut memory = Memory::new(device);
    for (&(length, from, _), number) in PLAN.iter().zip(0..) {
        let source = memory.at(from, length);
        source.copy_from_slice(&pattern(number, length));
        first.send(source, PATIENCE).unwrap();
        // The pages that the message shares with other data, and the message itself.
        memory.exchangeable.fill(0xdd);
        memory.ordinary.fill(0xdd);
    }
    first.flush(PATIENCE).unwrap();
    let stats = first.exchange_stats();
    assert_eq!(stats.sent, 5, "{stats:?}");
    let not = stats.not_sent;
    assert_eq!(
        (not.small, not.ordinary, not.pinned, not.busy, not.limit),
        (1, 2, 1, 0, 0),
        "{stats:?}"
    );

    // What the receiver sends from pages that it receives into, and again by the other connection.
    let target = &mut memory.exchangeable[..3 * PAGE];
    first.send(&pattern(50, 3 * PAGE), PATIENCE).unwrap();
    expect(&mut second, target, 51, 3 * PAGE);
    expect(&mut first, target, 50, 3 * PAGE);

    // A message of three pieces that has arrived before it is received.
    first.send(&pattern(60, LONGEST), PATIENCE).unwrap();
    first.flush(PATIENCE).unwrap();
    second.send(&[], PATIENCE).unwrap();

    for number in 0..REPEATED {
        let source = memory.at(Whole, 4 * PAGE);
        source.copy_from_slice(&pattern(number, source.len()));
        first.send(source, PATIENCE).unwrap();
    }
    // Memory that is freed while it is sent, and allocated again.
    for number in 0..REPEATED {
        let mut buffer = device.exchangeable(4 * PAGE).unwrap();
        buffer.copy_from_slice(&pattern(number, 4 * PAGE));
        first.send(&buffer, PATIENCE).unwrap();
    }

    // Two threads send from one memory, with a page that has bytes of both.
    let half = 4 * PAGE + PAGE / 2;
    let (left, right) = memory.exchangeable[..2 * half].split_at_mut(half);
    std::thread::scope(|scope| {
        for (connection, source) in [(&mut first, left), (&mut second, right)] {
            scope.spawn(move || {
                for number in 0..SHARED {
                    source.copy_from_slice(&pattern(number, half));
                    connection.send(source, PATIENCE).unwrap();
                }
                connection.flush(PATIENCE).unwrap();
            });
        }
    });
    let stats = first.exchange_stats();
    assert!(stats.pages_clean + stats.pages_copied > 0, "{stats:?}");
    println!("{stats:?}");
    // The other side may end now.
    assert_eq!(first.receive(&mut [], PATIENCE).unwrap(), 0);
}

fn receive(device: &Device, mut first: MessageConnection, mut second: MessageConnection) {
    let mut memory = Memory::new(device);
    for (&(length, _, to), number) in PLAN.iter().zip(0..) {
        expect(&mut first, memory.at(to, length), number, length);
    }
    let stats = first.exchange_stats();
    let not = stats.not_exchanged;
    assert_eq!((stats.pages_exchanged, stats.tail_bytes), (88, PAGE as u64));
    assert_eq!(
        (not.small, not.ordinary, not.unaligned, not.busy),
        (1, 1, 1, 0),
        "{stats:?}"
    );

    // Pages that the other connection sends are not exchanged, and not sent again once written.
    let target = &mut memory.exchangeable[..3 * PAGE];
    target.copy_from_slice(&pattern(51, 3 * PAGE));
    second.send(target, PATIENCE).unwrap();
    expect(&mut first, target, 50, 3 * PAGE);
    first.send(target, PATIENCE).unwrap();
    let stats = first.exchange_stats();
    assert_eq!((stats.not_exchanged.busy, stats.not_sent.busy), (1, 1));
    second.flush(PATIENCE).unwrap();

    // Two of three pieces are in adjacent slots, wherever the first one is.
    assert_eq!(second.receive(&mut [], PATIENCE).unwrap(), 0);
    let exchanges = first.exchange_stats().exchanges;
    expect(&mut first, memory.at(Whole, LONGEST), 60, LONGEST);
    assert_eq!(first.exchange_stats().exchanges - exchanges, 2);
    let stats = first.exchange_stats();

    let before = device.query().unwrap();
    for _ in 0..2 {
        for number in 0..REPEATED {
            expect(&mut first, memory.at(Whole, 4 * PAGE), number, 4 * PAGE);
        }
    }
    let after = device.query().unwrap();
    assert_eq!(
        (after.pages, after.regions, after.mm_pinned),
        (before.pages, before.regions, before.mm_pinned)
    );
    let exchanged = first.exchange_stats().pages_exchanged - stats.pages_exchanged;
    assert_eq!(exchanged, 2 * REPEATED * 4);

    let half = 4 * PAGE + PAGE / 2;
    std::thread::scope(|scope| {
        for connection in [&mut first, &mut second] {
            let mut target = device.exchangeable(half).unwrap();
            scope.spawn(move || {
                for number in 0..SHARED {
                    expect(connection, &mut target, number, half);
                }
            });
        }
    });
    println!("{:?}", first.exchange_stats());
    first.send(&[], PATIENCE).unwrap();
    first.flush(PATIENCE).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    let regions = device.query().unwrap().regions;
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
            let options = options(ReceiveTechnique::PexDma);
            let [first, second] = [port, port + 1]
                .map(|port| MessageListener::new(&device, port, 1, options).unwrap());
            let (first, _) = first.accept(PATIENCE).unwrap();
            let (second, _) = second.accept(PATIENCE).unwrap();
            receive(&device, first, second);
        }
        _ => panic!("usage: message_exchange receive PORT | send PORT NODE"),
    }
    // One area of the usual size is kept, for the next buffer.
    assert!(device.query().unwrap().regions <= regions + 1);
}
