// SPDX-License-Identifier: MIT OR Apache-2.0

//! The accesses of both ends of a ring, in order: where memory is write-combining, only published
//! and acquired words are in order.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::HashMap;

use uldma::ring::layout::{HEAD, HEADS, LINE, OUT, TAKEN};
use uldma::ring::{Consumer, Geometry, Inbound, Outbound, Producer, Pushed, RingError};

/// Four heads, so that what was taken is published with each record.
fn ends() -> (Producer, Consumer) {
    ends_of(4, 8)
}

fn ends_of(heads: u64, lines: u64) -> (Producer, Consumer) {
    let ring = Geometry::new(heads, lines).unwrap();
    (Producer::new(ring), Consumer::new(ring))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Load(usize),
    Acquire(usize),
    Store(usize),
    Publish(usize),
    Release(usize),
    Fence,
}

use Access::{Acquire, Fence, Load, Publish, Release, Store};

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

    fn release(&self, offset: usize, value: u64) {
        self.note(Release(offset));
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
fn a_message_is_published_by_its_head_and_acquired_by_it() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    // One line: the message, then its head. The peer's word is loaded before and after.
    let pushed = producer.push_short(&left, &left, b"eight by");
    assert_eq!(pushed, Some(Ok(false)));
    let expected = [
        Load(TAKEN),
        Store(HEADS),
        Publish(HEADS + HEAD),
        Fence,
        Load(TAKEN),
    ];
    assert_eq!(left.seen(), expected);
    let mut target = [0; 128];
    let popped = consumer.pop(&right, &right, &mut target).unwrap();
    assert_eq!((popped.length, popped.wake), (Some(8), false));
    assert_eq!(&target[..8], b"eight by");
    let head = Acquire(HEADS + HEAD);
    let expected = [head, Load(HEADS), Release(TAKEN), Fence, Acquire(OUT)];
    assert_eq!(right.seen(), expected);

    // The longer one has 56 bytes in its line, and the rest in another one.
    done(producer.push(&left, &left, &[7; 72]).unwrap());
    let (line, data) = (HEADS + LINE, HEADS + 4 * LINE);
    let mut expected = vec![Load(TAKEN)];
    expected.extend((0..7).map(|word| Store(line + 8 * word)));
    expected.extend([Store(data), Store(data + 8)]);
    expected.extend([Publish(line + HEAD), Fence, Load(TAKEN)]);
    assert_eq!(left.seen(), expected);
    consumer.pop(&right, &right, &mut target).unwrap();
    let mut expected = vec![Acquire(line + HEAD)];
    expected.extend((0..7).map(|word| Load(line + 8 * word)));
    expected.extend([Load(data), Load(data + 8)]);
    expected.extend([Release(TAKEN), Fence, Acquire(OUT)]);
    assert_eq!(right.seen(), expected);
}

/// In a larger ring a short message takes two accesses, and nothing is told to the writer.
#[test]
fn a_short_message_is_taken_without_a_word() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ring = Geometry::of(1024).unwrap();
    let (mut producer, mut consumer) = (Producer::new(ring), Consumer::new(ring));
    done(producer.push(&left, &left, &[1; 8]).unwrap());
    assert_eq!(consumer.pop_short(&right, &mut [0; 8], 9), Some(8));
    assert_eq!(right.seen(), [Acquire(HEADS + HEAD), Load(HEADS)]);
}

/// What was taken is published once for a batch, and after all of it was loaded.
#[test]
fn a_batch_is_released_once() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    for _ in 0..3 {
        done(producer.push(&left, &left, &[7; 72]).unwrap());
    }
    let batch = consumer.pop_batch(&right, &right, &mut [0; 128], 9, |_| {});
    assert_eq!(batch, Ok((3, false)));
    let seen = right.seen();
    assert_eq!(
        seen[seen.len() - 3..],
        [Release(TAKEN), Fence, Acquire(OUT)]
    );
    let released = seen.iter().filter(|access| **access == Release(TAKEN));
    assert_eq!(released.count(), 1);
}

/// A writer that sleeps for room is found after room was released, and the other way round.
#[test]
fn a_sleeper_is_looked_for_behind_a_fence() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    for _ in 0..4 {
        done(producer.push(&left, &left, &[7; 8]).unwrap());
    }
    assert_eq!(producer.push(&left, &left, &[7; 8]), Ok(Pushed::Full));
    left.seen();
    producer.sleep(&left, &left);
    assert_eq!(left.seen(), [Publish(OUT), Fence]);
    let popped = consumer.pop(&right, &right, &mut [0; 8]).unwrap();
    assert_eq!((popped.length, popped.wake), (Some(8), true));
    let seen = right.seen();
    assert_eq!(
        seen[seen.len() - 3..],
        [Release(TAKEN), Fence, Acquire(OUT)]
    );
    consumer.sleep(&right, &right);
    assert_eq!(right.seen(), [Release(TAKEN), Fence]);
}

#[test]
fn a_look_leaves_the_message_and_finds_who_waits() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    let looks = |consumer: &mut Consumer| {
        let popped = consumer.peek(&right, &right).unwrap();
        (popped.length, popped.wake)
    };
    assert_eq!(looks(&mut consumer), (None, false));
    done(producer.push(&left, &left, &[7; 72]).unwrap());
    right.seen();
    for _ in 0..2 {
        assert_eq!(looks(&mut consumer), (Some(72), false));
        assert_eq!(right.seen(), [Acquire(HEADS + HEAD)]);
    }
    consumer.pop(&right, &right, &mut [0; 128]).unwrap();
    // The writer slept after that was published, and is rung once.
    producer.sleep(&left, &left);
    assert_eq!(looks(&mut consumer), (None, true));
    assert_eq!(looks(&mut consumer), (None, false));
    consumer.close(&right);
    assert!(consumer.peek(&right, &right).is_err());
}

#[test]
fn a_peer_is_idle_that_sleeps_and_has_taken_all() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    assert!(!producer.peer_is_idle(&left));
    consumer.sleep(&right, &right);
    assert!(consumer.is_asleep() && producer.peer_is_idle(&left));
    let pushed = producer.push(&left, &left, b"wake up");
    assert_eq!(pushed, Ok(Pushed::Done { wake: true }));
    assert!(!producer.peer_is_idle(&left));
    consumer.pop(&right, &right, &mut [0; 128]).unwrap();
    assert!(producer.peer_is_idle(&left));
    consumer.awake(&right);
    assert!(!consumer.is_asleep() && !producer.peer_is_idle(&left));
}

/// The driver's tick takes messages while its worker sleeps; the worker that the doorbell woke may find
/// nothing left, and sleep on.
#[test]
fn what_is_taken_by_a_side_that_has_said_it_sleeps_is_published_at_once() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let (mut producer, mut consumer) = ends_of(64, 64);
    let mut target = [0; 128];
    consumer.sleep(&right, &right);
    for message in [&[7; 8][..], &[7; 72]] {
        producer.push(&left, &left, message).unwrap();
        assert!(!producer.peer_is_idle(&left));
        assert_eq!(consumer.pop_short(&right, &mut target, 1), None);
        consumer.pop(&right, &right, &mut target).unwrap();
        assert!(producer.peer_is_idle(&left));
    }
    for _ in 0..2 {
        producer.push(&left, &left, &[7; 8]).unwrap();
    }
    consumer
        .pop_batch(&right, &right, &mut target, 2, |_| ())
        .unwrap();
    assert!(producer.peer_is_idle(&left));
    // One that is awake publishes when a quarter of the ring was taken.
    consumer.awake(&right);
    right.seen();
    producer.push(&left, &left, &[7; 8]).unwrap();
    assert_eq!(consumer.pop_short(&right, &mut target, 1), Some(8));
    producer.push(&left, &left, &[7; 72]).unwrap();
    consumer.pop(&right, &right, &mut target).unwrap();
    assert!(!right.seen().contains(&Release(TAKEN)));
}

#[test]
fn a_ring_that_begins_again_has_nothing_of_the_last_one() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    consumer.sleep(&right, &right);
    for _ in 0..4 {
        producer.push(&left, &left, &[7; 72]).unwrap();
    }
    producer.close(&left);
    for side in [&left, &right] {
        ends().0.clear(side);
    }
    let (mut producer, mut consumer) = ends();
    let popped = consumer.peek(&right, &right).unwrap();
    assert_eq!((popped.length, popped.wake), (None, false));
    assert!(!producer.peer_is_idle(&left) && !producer.peer_closed(&left));
    done(producer.push(&left, &left, b"anew").unwrap());
    let popped = consumer.pop(&right, &right, &mut [0; 8]).unwrap();
    assert_eq!(popped.length, Some(4));
}

#[test]
fn a_peer_that_has_closed_is_not_written() {
    let (a, b) = (Segment::default(), Segment::default());
    let (left, right) = (TracedSide::new(&a, &b), TracedSide::new(&b, &a));
    let ((mut producer, _), (_, mut consumer)) = (ends(), ends());
    consumer.close(&right);
    assert_eq!(producer.push_short(&left, &left, &[7; 8]), None);
    let pushed = producer.push(&left, &left, &[7; 8]);
    assert_eq!(pushed, Err(RingError::Closed));
    assert_eq!(left.seen(), [Load(TAKEN), Load(TAKEN)]);
}
