// SPDX-License-Identifier: MIT OR Apache-2.0

//! The accesses of both ends of a ring, in order: where memory is write-combining, only published
//! and acquired words are in order.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::HashMap;

use uldma::ring::{layout, Duplex, Inbound, Outbound, Pushed};

use layout::{CONSUMER, DATA, PRODUCER, SLOT, SLOT_DATA};

const CAPACITY: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Load(usize),
    Acquire(usize),
    Store(usize),
    Publish(usize),
    Fence,
}

use Access::{Acquire, Fence, Load, Publish, Store};

/// The segment that one side writes and the other reads.
#[derive(Default)]
struct Segment(RefCell<HashMap<usize, u64>>);

/// One side, and its accesses.
struct TracedSide<'a> {
    inbound: &'a Segment,
    outbound: &'a Segment,
    seen: RefCell<Vec<Access>>,
}

impl<'a> TracedSide<'a> {
    fn new(inbound: &'a Segment, outbound: &'a Segment) -> Self {
        Self {
            inbound,
            outbound,
            seen: RefCell::default(),
        }
    }

    fn note(&self, access: Access) {
        self.seen.borrow_mut().push(access);
    }

    fn word(&self, offset: usize) -> u64 {
        let words = self.inbound.0.borrow();
        words.get(&offset).copied().unwrap_or(0)
    }

    /// Returns the accesses since the last call.
    fn seen(&self) -> Vec<Access> {
        self.seen.take()
    }
}

impl Inbound for TracedSide<'_> {
    fn load(&self, offset: usize) -> u64 {
        self.note(Load(offset));
        self.word(offset)
    }

    fn acquire(&self, offset: usize) -> u64 {
        self.note(Acquire(offset));
        self.word(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (number, chunk) in target.chunks_mut(8).enumerate() {
            let offset = offset + 8 * number;
            self.note(Load(offset));
            let bytes = self.word(offset).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }

    fn fence(&self) {
        self.note(Fence);
    }
}

impl Outbound for TracedSide<'_> {
    fn store(&self, offset: usize, value: u64) {
        self.note(Store(offset));
        self.outbound.0.borrow_mut().insert(offset, value);
    }

    fn publish(&self, offset: usize, value: u64) {
        self.note(Publish(offset));
        self.outbound.0.borrow_mut().insert(offset, value);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (number, chunk) in source.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let offset = offset + 8 * number;
            self.note(Store(offset));
            let word = u64::from_le_bytes(word);
            self.outbound.0.borrow_mut().insert(offset, word);
        }
    }
}

fn done(pushed: Pushed) {
    assert_eq!(pushed, Pushed::Done { wake: false });
}

#[test]
fn the_short_way_publishes_after_the_slot_and_acquires_before_it() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let (mut from, mut to) = (
        Duplex::new(CAPACITY).unwrap(),
        Duplex::new(CAPACITY).unwrap(),
    );
    assert_eq!(from.push_fast(&left, &left, b"eight by"), Some(Ok(false)));
    assert_eq!(
        left.seen(),
        [
            Load(CONSUMER),
            Store(SLOT_DATA),
            Store(SLOT),
            Publish(PRODUCER),
            Fence,
            Load(CONSUMER),
        ]
    );
    let mut target = [0; 8];
    assert_eq!(to.pop_fast(&right, &mut target, 1), Some(8));
    assert_eq!(&target, b"eight by");
    assert_eq!(
        right.seen(),
        [Acquire(PRODUCER), Load(SLOT), Load(SLOT_DATA)]
    );
    // The answer publishes the consumed index before its own index.
    assert_eq!(to.push_fast(&right, &right, &target), Some(Ok(false)));
    assert_eq!(
        right.seen(),
        [
            Load(CONSUMER),
            Store(SLOT_DATA),
            Store(SLOT),
            Publish(CONSUMER),
            Publish(PRODUCER),
            Fence,
            Load(CONSUMER),
            Load(PRODUCER),
        ]
    );
}

#[test]
fn the_general_way_publishes_after_the_record_and_acquires_before_it() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let (mut from, mut to) = (
        Duplex::new(CAPACITY).unwrap(),
        Duplex::new(CAPACITY).unwrap(),
    );
    let long = [7; 48];
    let mut target = [0; 64];

    done(from.push(&left, &left, &long).unwrap());
    let mut expected = vec![Store(DATA)];
    expected.extend((1..7).map(|word| Store(DATA + 8 * word)));
    expected.extend([Publish(PRODUCER), Fence, Load(CONSUMER)]);
    assert_eq!(left.seen(), expected);
    assert_eq!(
        to.pop(&right, &right, &mut target).unwrap(),
        (Some(48), false)
    );
    let mut expected = vec![Acquire(PRODUCER), Load(SLOT), Load(DATA)];
    expected.extend((1..7).map(|word| Load(DATA + 8 * word)));
    assert_eq!(right.seen(), expected);

    // The whole batch, after one poll.
    for _ in 0..2 {
        done(from.push(&left, &left, &long).unwrap());
    }
    assert_eq!(
        to.pop_batch(&right, &right, &mut target, 9, |_| {})
            .unwrap()
            .0,
        2
    );
    let looks = |access: &&Access| matches!(access, Acquire(PRODUCER) | Load(PRODUCER));
    let seen = right.seen();
    assert_eq!(
        seen.iter().filter(looks).collect::<Vec<_>>(),
        [&Acquire(PRODUCER)]
    );
    assert_eq!(seen[0], Acquire(PRODUCER));
}

/// The index read while checking for a sleeping peer is used without another poll.
#[test]
fn a_look_at_a_sleeper_acquires() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let (mut from, mut to) = (
        Duplex::new(CAPACITY).unwrap(),
        Duplex::new(CAPACITY).unwrap(),
    );
    let long = [7; 400];
    let mut target = [0; 512];
    for _ in 0..2 {
        done(from.push(&left, &left, &long).unwrap());
    }
    assert!(matches!(
        from.push(&left, &left, &long).unwrap(),
        Pushed::Full { .. }
    ));
    from.sleep_for_room(&left, &left);
    left.seen();
    let (length, wake) = to.pop(&right, &right, &mut target).unwrap();
    assert_eq!((length, wake), (Some(400), true));
    let seen = right.seen();
    let told = seen.iter().position(|access| *access == Publish(CONSUMER));
    assert_eq!(seen[told.unwrap() + 1..], [Fence, Acquire(PRODUCER)]);
}
