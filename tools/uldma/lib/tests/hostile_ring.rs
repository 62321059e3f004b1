// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings against a peer that writes any words, and against a simple model.

#![allow(clippy::unwrap_used)]

#[path = "common/hostile_memory.rs"]
mod hostile_memory;

use std::cell::RefCell;
use std::collections::VecDeque;

use self::hostile_memory::{HostileMemory, Said};
use proptest::prelude::*;
use uldma::ring::layout::{HEAD, HEADS, LINE, OUT, TAKEN};
use uldma::ring::{Consumer, Geometry, Inbound, Outbound, Producer, Pushed, RingError};

/// Two data lines, and two heads: most records of the tests wrap around.
const LONGEST: usize = 56 + 2 * 64;

fn geometry() -> Geometry {
    Geometry::new(2, 2).unwrap()
}

fn ends() -> (Producer, Consumer) {
    (Producer::new(geometry()), Consumer::new(geometry()))
}

/// A word of the peer.
#[derive(Clone, Copy, Debug)]
enum Word {
    Any(u64),
    /// One that fits to its place, and to what was said by this side.
    Plausible(u8),
}

impl Word {
    fn at(self, offset: usize, said: Said) -> u64 {
        let number = match self {
            Self::Any(word) => return word,
            Self::Plausible(number) => u64::from(number),
        };
        match offset {
            OUT => number & 7,
            TAKEN => {
                let records = (said.head >> 32).wrapping_sub(number >> 6);
                (records << 48) | (((number >> 2) & 3) << 24) | (number & 3)
            }
            _ if offset % LINE == HEAD => {
                let next = (said.taken >> 48) + 1 + (number >> 7);
                (next << 32) | (number & 127)
            }
            _ => number,
        }
    }
}

/// Memory whose loads return the words of the peer's script, and zeroes after it.
fn hostile(script: Vec<Word>) -> HostileMemory<impl FnMut(usize, Said) -> u64> {
    let mut script = script.into_iter();
    HostileMemory::new(geometry(), move |offset, said| {
        script.next().map_or(0, |word| word.at(offset, said))
    })
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        8 => any::<u8>().prop_map(Word::Plausible),
        1 => any::<u64>().prop_map(Word::Any),
        1 => Just(Word::Any(u64::MAX)),
    ]
}

fn is_done(pushed: Pushed) -> bool {
    matches!(pushed, Pushed::Done { .. })
}

#[derive(Clone, Debug)]
enum Action {
    Push(usize),
    Pop(usize),
    /// Parts of a message.
    Gather(Vec<usize>),
    Batch(usize),
    Sleep,
    Awake,
}

/// Short messages, which have a way of their own, and others.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(8), 0..LONGEST + 20]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        length().prop_map(Action::Push),
        length().prop_map(Action::Pop),
        proptest::collection::vec(0..70usize, 0..5).prop_map(Action::Gather),
        length().prop_map(Action::Batch),
        Just(Action::Sleep),
        Just(Action::Awake),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Nothing that the peer writes makes a panic, an access outside of the ring, a message longer
    /// than the buffer, or a ring that works again after it was found broken.
    #[test]
    fn a_hostile_peer_costs_itself_the_ring(
        script in proptest::collection::vec(word(), 0..60),
        actions in proptest::collection::vec(action(), 1..40),
    ) {
        let memory = hostile(script);
        let (mut producer, mut consumer) = ends();
        let (mut push_failed, mut pop_failed) = (false, false);
        for action in actions {
            match action {
                Action::Push(length) => {
                    let message = vec![1; length];
                    if let Some(pushed) = producer.push_short(&memory, &memory, &message) {
                        prop_assert!(!push_failed && length == 8);
                        push_failed = pushed.is_err();
                        continue;
                    }
                    match producer.push(&memory, &memory, &message) {
                        Ok(_) => prop_assert!(!push_failed),
                        Err(RingError::TooLong { .. }) => prop_assert!(length > LONGEST),
                        Err(_) => push_failed = true,
                    }
                }
                Action::Pop(length) => {
                    let mut target = vec![0; length];
                    if let Some(short) = consumer.pop_short(&memory, &mut target, 3) {
                        prop_assert!(!pop_failed && short <= length);
                        continue;
                    }
                    match consumer.pop(&memory, &memory, &mut target) {
                        Ok(popped) => {
                            prop_assert!(!pop_failed && popped.length.unwrap_or(0) <= length);
                        }
                        Err(RingError::TooLong { length: claimed, limit }) => {
                            prop_assert!(claimed > limit && claimed <= LONGEST);
                        }
                        Err(_) => pop_failed = true,
                    }
                }
                Action::Gather(lengths) => {
                    let length: usize = lengths.iter().sum();
                    let parts: Vec<Vec<u8>> = lengths.iter().map(|&l| vec![1; l]).collect();
                    match producer.push_vectored(&memory, &memory, &parts) {
                        Ok(_) => prop_assert!(!push_failed),
                        Err(RingError::TooLong { .. }) => prop_assert!(length > LONGEST),
                        Err(_) => push_failed = true,
                    }
                }
                Action::Batch(length) => {
                    let mut target = vec![0; length];
                    let mut seen = 0;
                    let taken = |message: &[u8]| {
                        assert!(message.len() <= length);
                        seen += 1;
                    };
                    match consumer.pop_batch(&memory, &memory, &mut target, 5, taken) {
                        Ok((count, _)) => prop_assert!(count == seen && count <= 5),
                        Err(RingError::TooLong { length: claimed, limit }) => {
                            prop_assert!(claimed > limit && claimed <= LONGEST);
                        }
                        Err(_) => pop_failed = true,
                    }
                }
                Action::Sleep => {
                    producer.sleep(&memory, &memory);
                    consumer.sleep(&memory, &memory);
                }
                Action::Awake => {
                    producer.awake(&memory);
                    consumer.awake(&memory);
                }
            }
        }
    }
}

/// Honest memory: what one side stores, the other loads.
struct Honest {
    bytes: RefCell<Vec<u8>>,
}

impl Honest {
    fn new() -> Self {
        Self {
            bytes: RefCell::new(vec![0; geometry().length() as usize]),
        }
    }
}

impl Inbound for Honest {
    fn load(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes.borrow()[offset..offset + 8].try_into().unwrap())
    }

    fn acquire(&self, offset: usize) -> u64 {
        self.load(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        target.copy_from_slice(&self.bytes.borrow()[offset..offset + target.len()]);
    }

    fn fence(&self) {}
}

impl Outbound for Honest {
    fn store(&self, offset: usize, value: u64) {
        self.bytes.borrow_mut()[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn publish(&self, offset: usize, value: u64) {
        self.store(offset, value);
    }

    fn release(&self, offset: usize, value: u64) {
        self.store(offset, value);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.bytes.borrow_mut()[offset..offset + source.len()].copy_from_slice(source);
    }
}

/// Nodes of both byte orders find the same bytes: words have their lowest byte first, and messages are
/// in the order in which they were sent, also those that are stored as words.
#[test]
fn the_segment_has_the_documented_bytes() {
    let (left, right) = (Honest::new(), Honest::new());
    let (mut producer, mut consumer) = ends();
    let at = |half: &Honest, offset: usize, length: usize| {
        half.bytes.borrow()[offset..offset + length].to_vec()
    };
    // Record 0: twelve bytes.
    producer.push(&left, &right, b"twelve bytes").unwrap();
    assert_eq!(at(&right, HEADS, 16), *b"twelve bytes\0\0\0\0");
    assert_eq!(at(&right, HEADS + HEAD, 8), [12, 0, 0, 0, 1, 0, 0, 0]);
    // Record 1, in pieces: 56 bytes in its head line, and ten in the first data line.
    producer
        .push_vectored(&left, &right, &[&[7; 50][..], b"sixteen: 16bytes"])
        .unwrap();
    assert_eq!(at(&right, HEADS + LINE + 50, 6), *b"sixtee");
    assert_eq!(
        at(&right, HEADS + LINE + HEAD, 8),
        [66, 0, 0, 0, 2, 0, 0, 0]
    );
    assert_eq!(at(&right, HEADS + 2 * LINE, 10), *b"n: 16bytes");
    // No head is left.
    assert_eq!(producer.push(&left, &right, &[]), Ok(Pushed::Full));
    assert_eq!(at(&right, OUT, 8), [4, 0, 0, 0, 0, 0, 0, 0]);
    let mut target = [0; LONGEST];
    for length in [12, 66] {
        let popped = consumer.pop(&right, &left, &mut target).unwrap();
        assert_eq!(popped.length, Some(length));
    }
    // Two records were taken, with one data line.
    assert_eq!(at(&left, TAKEN, 8), [0, 0, 0, 1, 0, 0, 2, 0]);
}

fn pop(
    consumer: &mut Consumer,
    inbound: &Honest,
    outbound: &Honest,
    target: &mut [u8],
) -> Option<usize> {
    let short = consumer.pop_short(inbound, target, 1);
    short.or_else(|| consumer.pop(inbound, outbound, target).unwrap().length)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// A ring is a queue: for any order of calls, messages come out whole and in order, and the
    /// ring is full only when its records leave no room.
    #[test]
    fn a_ring_is_a_queue(
        actions in proptest::collection::vec((any::<bool>(), 0..=LONGEST, any::<u8>()), 1..400),
    ) {
        let (left, right) = (Honest::new(), Honest::new());
        let (mut producer, mut consumer) = ends();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (push, length, fill) in actions {
            if push {
                let message = vec![fill; length];
                match producer.push(&left, &right, &message).unwrap() {
                    Pushed::Done { .. } => model.push_back(message),
                    Pushed::Full => {
                        // What was taken is published at the latest when the ring is found empty.
                        let mut target = [0; LONGEST];
                        while let Some(length) = pop(&mut consumer, &right, &left, &mut target) {
                            let expected = model.pop_front().unwrap();
                            prop_assert_eq!(&target[..length], &expected[..]);
                        }
                        let pushed = producer.push(&left, &right, &message).unwrap();
                        prop_assert!(is_done(pushed));
                        model.push_back(message);
                    }
                }
            } else {
                let mut target = [0; LONGEST];
                let length = pop(&mut consumer, &right, &left, &mut target);
                let found = length.map(|length| target[..length].to_vec());
                prop_assert_eq!(found, model.pop_front());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Vectored messages arrive whole, in batches, and the reader publishes its index once per
    /// batch.
    #[test]
    fn what_is_gathered_arrives_in_batches(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..70), 0..4), 1..9usize),
            1..200,
        ),
    ) {
        let (left, right) = (Honest::new(), Honest::new());
        let (mut producer, mut consumer) = ends();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (pieces, most) in rounds {
            let message = pieces.concat();
            if message.len() > producer.max_message() {
                let error = producer.push_vectored(&left, &right, &pieces).unwrap_err();
                prop_assert_eq!(error, RingError::TooLong { length: message.len(), limit: LONGEST });
                continue;
            }
            if is_done(producer.push_vectored(&left, &right, &pieces).unwrap()) {
                model.push_back(message);
                continue;
            }
            let before = left.load(TAKEN);
            let mut words = vec![before];
            let there = model.len();
            let mut batch = Vec::new();
            let (count, _) = consumer
                .pop_batch(&right, &left, &mut [0; LONGEST], most, |message| {
                    batch.push(message.to_vec());
                    words.push(left.load(TAKEN));
                })
                .unwrap();
            prop_assert_eq!(count, there.min(most));
            prop_assert!(words.iter().all(|&word| word == before));
            for message in batch {
                prop_assert_eq!(message, model.pop_front().unwrap());
            }
            let rest = pop(&mut consumer, &right, &left, &mut [0; LONGEST]);
            prop_assert_eq!(rest, model.pop_front().map(|message| message.len()));
        }
    }
}
