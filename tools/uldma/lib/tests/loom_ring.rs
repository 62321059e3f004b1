// SPDX-License-Identifier: MIT OR Apache-2.0

//! All interleavings of two sides of a ring, under the memory model, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uldma --test loom_ring`

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use uldma::ring::{Consumer, Geometry, Inbound, Outbound, Producer, Pushed};

/// The words of a message that has all data lines of [`tiny`].
const FULL: usize = 7 + 8;

/// The smallest ring there is: one head, and one data line.
fn tiny() -> Geometry {
    Geometry::new(1, 1).unwrap()
}

/// A ring that wraps around between its two heads.
fn small() -> Geometry {
    Geometry::new(2, 2).unwrap()
}

/// The words that one side writes and the other reads, for one ring.
struct Half {
    words: Vec<AtomicU64>,
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Half {
    fn new(ring: Geometry) -> Arc<Self> {
        let words = ring.length() / 8;
        Arc::new(Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            rings: Mutex::new(0),
            rung: Condvar::new(),
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }
}

/// The orders that a ring requires: without any of them the model has to find what goes wrong.
#[derive(Clone, Copy)]
struct Orders {
    /// A message is stored before its head.
    publish: bool,
    /// A message is loaded after its head.
    acquire: bool,
    /// A head, or a count, is stored before the other side's word is loaded.
    fence: bool,
}

const ALL: Orders = Orders {
    publish: true,
    acquire: true,
    fence: true,
};

/// One side.
#[derive(Clone)]
struct ModelSide {
    inbound: Arc<Half>,
    outbound: Arc<Half>,
    orders: Orders,
}

impl ModelSide {
    fn pair(ring: Geometry, orders: Orders) -> (Self, Self) {
        let (left, right) = (Half::new(ring), Half::new(ring));
        (
            Self {
                inbound: left.clone(),
                outbound: right.clone(),
                orders,
            },
            Self {
                inbound: right,
                outbound: left,
                orders,
            },
        )
    }

    fn ring(&self) {
        *self.outbound.rings.lock().unwrap() += 1;
        self.outbound.rung.notify_one();
    }

    fn rings(&self) -> u64 {
        *self.inbound.rings.lock().unwrap()
    }

    /// Sleeps for as long as it takes: a lost wake-up is a deadlock, which loom reports.
    fn wait(&self, seen: u64) {
        let mut rings = self.inbound.rings.lock().unwrap();
        while *rings == seen {
            rings = self.inbound.rung.wait(rings).unwrap();
        }
    }
}

impl Inbound for ModelSide {
    fn load(&self, offset: usize) -> u64 {
        self.inbound.word(offset).load(Ordering::Acquire)
    }

    fn acquire(&self, offset: usize) -> u64 {
        match self.orders.acquire {
            true => self.load(offset),
            false => self.inbound.word(offset).load(Ordering::Relaxed),
        }
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (index, chunk) in target.chunks_exact_mut(8).enumerate() {
            let word = self
                .inbound
                .word(offset + 8 * index)
                .load(Ordering::Relaxed);
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn fence(&self) {
        if self.orders.fence {
            fence(Ordering::SeqCst);
        }
    }
}

impl Outbound for ModelSide {
    fn store(&self, offset: usize, value: u64) {
        self.outbound.word(offset).store(value, Ordering::Relaxed);
    }

    fn publish(&self, offset: usize, value: u64) {
        match self.orders.publish {
            true => self.release(offset, value),
            false => self.store(offset, value),
        }
    }

    fn release(&self, offset: usize, value: u64) {
        self.outbound.word(offset).store(value, Ordering::Release);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (index, chunk) in source.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().unwrap());
            self.outbound
                .word(offset + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }
}

/// Both ends of one side, waiting as [`uldma::Channel`] does, but without spinning.
struct Ends {
    side: ModelSide,
    producer: Producer,
    consumer: Consumer,
}

impl Ends {
    fn new(side: ModelSide, ring: Geometry) -> Self {
        Self {
            side,
            producer: Producer::new(ring),
            consumer: Consumer::new(ring),
        }
    }

    fn try_send(&mut self, bytes: &[u8]) -> bool {
        if let Some(wake) = self.producer.push_short(&self.side, &self.side, bytes) {
            if wake.unwrap() {
                self.side.ring();
            }
            return true;
        }
        match self.producer.push(&self.side, &self.side, bytes).unwrap() {
            Pushed::Done { wake } => {
                if wake {
                    self.side.ring();
                }
                true
            }
            Pushed::Full => false,
        }
    }

    fn send(&mut self, message: u64, words: usize) {
        let bytes: Vec<u8> = (0..words).flat_map(|_| message.to_le_bytes()).collect();
        let mut sent = self.try_send(&bytes);
        while !sent {
            let seen = self.side.rings();
            self.producer.sleep(&self.side, &self.side);
            sent = self.try_send(&bytes);
            if !sent {
                self.side.wait(seen);
            }
            self.producer.awake(&self.side);
            sent = sent || self.try_send(&bytes);
        }
    }

    fn try_receive(&mut self, target: &mut [u8]) -> Option<usize> {
        if let Some(length) = self.consumer.pop_short(&self.side, target, 1) {
            return Some(length);
        }
        let popped = self.consumer.pop(&self.side, &self.side, target);
        let popped = popped.unwrap();
        if popped.wake {
            self.side.ring();
        }
        popped.length
    }

    /// Receives a message, and checks that it is whole and the right one.
    fn receive(&mut self, message: u64, words: usize) {
        let mut target = [0; 8 * FULL];
        let mut length = self.try_receive(&mut target);
        while length.is_none() {
            let seen = self.side.rings();
            self.consumer.sleep(&self.side, &self.side);
            length = self.try_receive(&mut target);
            if length.is_none() {
                self.side.wait(seen);
            }
            self.consumer.awake(&self.side);
            length = length.or_else(|| self.try_receive(&mut target));
        }
        assert_eq!(length, Some(8 * words));
        for chunk in target[..8 * words].chunks_exact(8) {
            assert_eq!(u64::from_le_bytes(chunk.try_into().unwrap()), message);
        }
    }
}

fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// One side sends, the other receives.
fn one_way(ring: Geometry, messages: u64, words: usize, orders: Orders, preemptions: usize) {
    explore(preemptions, move || {
        let (left, right) = ModelSide::pair(ring, orders);
        let receiver = thread::spawn(move || {
            let mut right = Ends::new(right, ring);
            (1..=messages).for_each(|message| right.receive(message, words));
        });
        let mut left = Ends::new(left, ring);
        (1..=messages).for_each(|message| left.send(message, words));
        receiver.join().unwrap();
    });
}

/// Messages are seen whole once their head is, and a sleeping receiver is always woken.
#[test]
fn small_messages_arrive() {
    one_way(small(), 3, 1, ALL, 2);
}

/// Several messages fill the ring, so that the sender sleeps for room now and then.
#[test]
fn a_ring_that_fills_up_goes_on() {
    one_way(small(), 3, 8, ALL, 2);
}

/// Each message fills the ring, so that the sender sleeps for room and memory is written again.
#[test]
fn a_full_ring_goes_on() {
    one_way(tiny(), 2, FULL, ALL, 3);
}

/// A reader that waits for nothing after a message wakes the writer that waits for its room all the
/// same: nothing but the fence behind its count can tell them of each other.
#[test]
fn a_reader_that_stops_has_made_room() {
    explore(3, || {
        let ring = tiny();
        let (left, right) = ModelSide::pair(ring, ALL);
        let reader = thread::spawn(move || Ends::new(right, ring).receive(1, FULL));
        let mut left = Ends::new(left, ring);
        left.send(1, FULL);
        left.send(2, FULL);
        reader.join().unwrap();
    });
}

/// Requests and answers.
#[test]
fn round_trips_come_back() {
    explore(3, || {
        let ring = tiny();
        let (left, right) = ModelSide::pair(ring, ALL);
        let peer = thread::spawn(move || {
            let mut right = Ends::new(right, ring);
            for message in 1..=2 {
                right.receive(message, 1);
                right.send(message, 1);
            }
        });
        let mut left = Ends::new(left, ring);
        for message in 1..=2 {
            left.send(message, 1);
            left.receive(message, 1);
        }
        peer.join().unwrap();
    });
}

/// Both sides fill their rings before they take anything: room is made, and published, while both
/// sleep for it or for messages.
#[test]
fn both_directions_at_once() {
    explore(2, || {
        let ring = tiny();
        let (left, right) = ModelSide::pair(ring, ALL);
        let peer = thread::spawn(move || {
            let mut right = Ends::new(right, ring);
            right.receive(1, FULL);
            right.send(1, FULL);
            right.receive(2, FULL);
            right.send(2, FULL);
        });
        let mut left = Ends::new(left, ring);
        left.send(1, FULL);
        left.send(2, FULL);
        left.receive(1, FULL);
        left.receive(2, FULL);
        peer.join().unwrap();
    });
}

/// Runs an ignored test, which has to fail with `why`. Loom cannot unwind from a deadlock, so the test
/// runs in a process of its own.
fn finds(test: &str, why: &str) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", test, "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(why), "{text}");
}

#[test]
fn without_fences_a_wake_up_is_lost() {
    finds("without_fences", "deadlock");
}

#[test]
fn without_publishing_a_message_is_torn() {
    finds("without_publishing", "left == right");
}

#[test]
fn without_acquiring_a_message_is_torn() {
    finds("without_acquiring", "left == right");
}

fn without(change: impl Fn(&mut Orders)) {
    let mut orders = ALL;
    change(&mut orders);
    one_way(tiny(), 1, 1, orders, 3);
}

#[test]
#[ignore = "ends the process; run by the tests above"]
fn without_fences() {
    without(|orders| orders.fence = false);
}

#[test]
#[ignore = "fails; run by the tests above"]
fn without_publishing() {
    without(|orders| orders.publish = false);
}

#[test]
#[ignore = "fails; run by the tests above"]
fn without_acquiring() {
    without(|orders| orders.acquire = false);
}
