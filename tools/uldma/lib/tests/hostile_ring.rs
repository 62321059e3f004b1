// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings against a peer that writes any words, and against a simple model.

#![allow(clippy::unwrap_used)]

#[path = "common/hostile_memory.rs"]
mod hostile_memory;

use std::cell::RefCell;
use std::collections::VecDeque;

use self::hostile_memory::HostileMemory;
use proptest::prelude::*;
use uldma::ring::{layout, Consumer, Duplex, Inbound, Outbound, Producer, Pushed, RingError};

const CAPACITY: u64 = 128;

/// Memory whose loads return the values of the peer's script, and zeroes after it.
fn hostile(script: Vec<u64>) -> HostileMemory<impl FnMut((u64, u64)) -> u64> {
    let mut script = script.into_iter();
    HostileMemory::new(CAPACITY, move |_| script.next().unwrap_or(0))
}

/// Words that are now and then plausible.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => (0..64u64).prop_map(|index| index * 8),
        3 => (0..64u64, 0..8u64).prop_map(|(index, flags)| (index * 8) | flags),
        2 => 0..300u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => (0..16u64).prop_map(|low| u64::MAX - 7 - low * 8),
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
    NotifyRoom,
    Sleep,
    Awake,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..140usize).prop_map(Action::Push),
        (0..140usize).prop_map(Action::Pop),
        proptest::collection::vec(0..50usize, 0..5).prop_map(Action::Gather),
        (0..140usize).prop_map(Action::Batch),
        Just(Action::NotifyRoom),
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
        let mut producer = Producer::new(CAPACITY).unwrap();
        let mut consumer = Consumer::new(CAPACITY).unwrap();
        let (mut push_failed, mut pop_failed) = (false, false);
        for action in actions {
            match action {
                Action::Push(length) => {
                    match producer.push(&memory, &memory, &vec![1; length]) {
                        Ok(_) => prop_assert!(!push_failed),
                        Err(RingError::TooLong { .. }) => prop_assert!(length > 120),
                        Err(_) => push_failed = true,
                    }
                }
                Action::Pop(length) => {
                    let mut target = vec![0; length];
                    match consumer.pop(&memory, &memory, &mut target) {
                        Ok(Some(popped)) => {
                            prop_assert!(!pop_failed && popped.length <= length);
                        }
                        Ok(None) => prop_assert!(!pop_failed),
                        Err(RingError::TooLong { length: claimed, limit }) => {
                            prop_assert!(claimed > limit && claimed <= CAPACITY as usize);
                        }
                        Err(_) => pop_failed = true,
                    }
                }
                Action::Gather(lengths) => {
                    let length: usize = lengths.iter().sum();
                    let parts: Vec<Vec<u8>> = lengths.iter().map(|&l| vec![1; l]).collect();
                    match producer.push_vectored(&memory, &memory, &parts) {
                        Ok(_) => prop_assert!(!push_failed),
                        Err(RingError::TooLong { .. }) => prop_assert!(length > 120),
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
                            prop_assert!(claimed > limit && claimed <= CAPACITY as usize);
                        }
                        Err(_) => pop_failed = true,
                    }
                }
                Action::NotifyRoom => {
                    if consumer.notify_room(&memory, &memory).is_err() {
                        pop_failed = true;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Both directions together, the fast path included.
    #[test]
    fn a_hostile_peer_costs_itself_the_channel(
        script in proptest::collection::vec(word(), 0..60),
        actions in proptest::collection::vec((any::<bool>(), prop_oneof![Just(8), 0..140usize]), 1..40),
    ) {
        let memory = hostile(script);
        let mut rings = Duplex::new(CAPACITY).unwrap();
        let (mut push_failed, mut pop_failed) = (false, false);
        for (push, length) in actions {
            let mut bytes = vec![1; length];
            if push {
                match rings.push_fast(&memory, &memory, &bytes) {
                    Some(Ok(_)) => prop_assert!(!push_failed && length == 8),
                    Some(Err(_)) => push_failed = true,
                    None => match rings.push(&memory, &memory, &bytes) {
                        Ok(_) => prop_assert!(!push_failed),
                        Err(RingError::TooLong { .. }) => prop_assert!(length > 120),
                        Err(_) => {}
                    },
                }
            } else if let Some(popped) = rings.pop_fast(&memory, &mut bytes, 3) {
                prop_assert!(!pop_failed && popped == 8);
            } else {
                match rings.pop(&memory, &memory, &mut bytes) {
                    Ok((popped, _)) => prop_assert!(popped.unwrap_or(0) <= length),
                    Err(RingError::TooLong { length: claimed, limit }) => {
                        prop_assert!(claimed > limit && claimed <= CAPACITY as usize);
                    }
                    Err(_) => pop_failed = true,
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
            bytes: RefCell::new(vec![0; layout::DATA + CAPACITY as usize]),
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

    fn write(&self, offset: usize, source: &[u8]) {
        self.bytes.borrow_mut()[offset..offset + source.len()].copy_from_slice(source);
    }
}

/// Nodes of both byte orders find the same bytes: words have their lowest byte first, and messages are
/// in the order in which they were sent, also those that are stored as words.
#[test]
fn the_segment_has_the_documented_bytes() {
    let (left, right) = (Honest::new(), Honest::new());
    let mut rings = Duplex::new(CAPACITY).unwrap();
    let mut found = |message: &[u8], offset: usize, length: usize| {
        if let Some(pushed) = rings.push_fast(&left, &right, message) {
            pushed.unwrap();
        } else {
            rings.push(&left, &right, message).unwrap();
        }
        right.bytes.borrow()[offset..offset + length].to_vec()
    };
    let (in_slot, fast) = (b"twelve bytes", b"12345678");
    // Index 0, and 12 bytes.
    assert_eq!(found(in_slot, layout::SLOT, 8), [13, 0, 0, 0, 0, 0, 0, 0]);
    let bytes = right.bytes.borrow()[layout::SLOT_DATA..][..in_slot.len()].to_vec();
    assert_eq!(bytes, in_slot);
    // All of it has been consumed.
    left.store(layout::CONSUMER, 24);
    assert_eq!(found(fast, layout::SLOT_DATA, fast.len()), fast);
    // None of it has, so the next one is in the ring, behind 24 and 16 bytes.
    let record = *b"\x04\0\0\0\0\0\0\0ring";
    let place = layout::DATA + 24 + 16;
    assert_eq!(found(b"ring", place, record.len()), record);
    assert_eq!(
        right.bytes.borrow()[layout::PRODUCER..][..8],
        [24 + 16 + 16, 0, 0, 0, 0, 0, 0, 0]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// A ring is a queue: for any order of calls, messages come out whole and in order, and the
    /// ring is full only when its records leave no room.
    #[test]
    fn a_ring_is_a_queue(
        actions in proptest::collection::vec((any::<bool>(), 0..121usize, any::<u8>()), 1..400),
    ) {
        let (left, right) = (Honest::new(), Honest::new());
        let mut producer = Producer::new(CAPACITY).unwrap();
        let mut consumer = Consumer::new(CAPACITY).unwrap();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (push, length, fill) in actions {
            if push {
                let message = vec![fill; length];
                match producer.push(&left, &right, &message).unwrap() {
                    Pushed::Done { .. } => model.push_back(message),
                    Pushed::Full { .. } => {
                        // The consumed index is published at the latest when the ring is found
                        // empty.
                        let mut target = [0; 128];
                        while let Some(popped) = consumer.pop(&right, &left, &mut target).unwrap() {
                            let expected = model.pop_front().unwrap();
                            prop_assert_eq!(&target[..popped.length], &expected[..]);
                        }
                        consumer.notify_room(&right, &left).unwrap();
                        let pushed = producer.push(&left, &right, &message).unwrap();
                        prop_assert!(is_done(pushed));
                        model.push_back(message);
                    }
                }
            } else {
                let mut target = [0; 128];
                let popped = consumer.pop(&right, &left, &mut target).unwrap();
                match (popped, model.pop_front()) {
                    (Some(popped), Some(expected)) => {
                        prop_assert_eq!(&target[..popped.length], &expected[..]);
                    }
                    (None, None) => {}
                    (popped, expected) => prop_assert!(false, "{popped:?}, {expected:?}"),
                }
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
            (proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..4), 1..9usize),
            1..200,
        ),
    ) {
        let (left, right) = (Honest::new(), Honest::new());
        let mut producer = Producer::new(CAPACITY).unwrap();
        let mut consumer = Consumer::new(CAPACITY).unwrap();
        let mut model: VecDeque<Vec<u8>> = VecDeque::new();
        for (pieces, most) in rounds {
            let message = pieces.concat();
            if message.len() > producer.max_message() {
                let error = producer.push_vectored(&left, &right, &pieces).unwrap_err();
                prop_assert_eq!(error, RingError::TooLong { length: message.len(), limit: 120 });
                continue;
            }
            if is_done(producer.push_vectored(&left, &right, &pieces).unwrap()) {
                model.push_back(message);
                continue;
            }
            let before = left.load(layout::CONSUMER);
            let mut words = vec![before];
            let there = model.len();
            let mut batch = Vec::new();
            let (count, _) = consumer
                .pop_batch(&right, &left, &mut [0; 128], most, |message| {
                    batch.push(message.to_vec());
                    words.push(left.load(layout::CONSUMER));
                })
                .unwrap();
            prop_assert_eq!(count, there.min(most));
            prop_assert!(words.iter().all(|&word| word == before));
            for message in batch {
                prop_assert_eq!(message, model.pop_front().unwrap());
            }
            consumer.notify_room(&right, &left).unwrap();
        }
    }
}
