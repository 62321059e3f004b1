// SPDX-License-Identifier: MIT OR Apache-2.0

//! All interleavings of two sides of a ring, under the memory model, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uldma --test loom_ring`

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use uldma::ring::{layout, Consumer, Inbound, Outbound, Producer, Pushed};

/// The smallest ring there is: eight words.
const CAPACITY: u64 = layout::MIN_CAPACITY;
const WORDS: usize = CAPACITY as usize / 8;

/// What one side writes and the other reads, as far as one ring needs it.
struct Half {
    producer: AtomicU64,
    consumer: AtomicU64,
    data: Vec<AtomicU64>,
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Half {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU64::new(0),
            consumer: AtomicU64::new(0),
            data: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            rings: Mutex::new(0),
            rung: Condvar::new(),
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        match offset {
            layout::PRODUCER => &self.producer,
            layout::CONSUMER => &self.consumer,
            _ => &self.data[(offset - layout::DATA) / 8],
        }
    }
}

/// One side. `fences` is what the rules ask for; without them the model must find the lost wake-up.
#[derive(Clone)]
struct Side {
    inbound: Arc<Half>,
    outbound: Arc<Half>,
    fences: bool,
}

impl Side {
    fn pair(fences: bool) -> (Self, Self) {
        let (left, right) = (Half::new(), Half::new());
        (
            Self {
                inbound: left.clone(),
                outbound: right.clone(),
                fences,
            },
            Self {
                inbound: right,
                outbound: left,
                fences,
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

impl Inbound for Side {
    fn load(&self, offset: usize) -> u64 {
        self.inbound.word(offset).load(Ordering::Acquire)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (index, chunk) in target.chunks_exact_mut(8).enumerate() {
            let word = self
                .inbound
                .word(offset + 8 * index)
                .load(Ordering::Relaxed);
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
    }

    fn fence(&self) {
        if self.fences {
            fence(Ordering::SeqCst);
        }
    }
}

impl Outbound for Side {
    fn store(&self, offset: usize, value: u64) {
        self.outbound.word(offset).store(value, Ordering::Release);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (index, chunk) in source.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(chunk.try_into().unwrap());
            self.outbound
                .word(offset + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }
}

/// Sends messages of `words` words each, as [`uldma::Channel`] does without spinning.
fn send(side: &Side, messages: u64, words: usize) {
    let mut producer = Producer::new(CAPACITY).unwrap();
    for message in 1..=messages {
        let bytes: Vec<u8> = (0..words).flat_map(|_| message.to_ne_bytes()).collect();
        let mut push = |producer: &mut Producer| match producer.push(side, side, &bytes).unwrap() {
            Pushed::Done { wake } => {
                if wake {
                    side.ring();
                }
                true
            }
            Pushed::Full => false,
        };
        let mut sent = push(&mut producer);
        while !sent {
            let seen = side.rings();
            producer.sleep(side, side);
            if push(&mut producer) {
                break;
            }
            side.wait(seen);
            producer.awake(side);
            sent = push(&mut producer);
        }
    }
}

/// Receives them, and checks that they are whole and in order.
fn receive(side: &Side, messages: u64, words: usize) {
    let mut consumer = Consumer::new(CAPACITY).unwrap();
    let mut target = [0; CAPACITY as usize];
    for message in 1..=messages {
        let mut pop = |consumer: &mut Consumer| {
            let popped = consumer.pop(side, side, &mut target).unwrap();
            let wake = match popped {
                Some(popped) => popped.wake,
                None => consumer.feed(side, side).unwrap(),
            };
            if wake {
                side.ring();
            }
            popped
        };
        let mut popped = pop(&mut consumer);
        while popped.is_none() {
            let seen = side.rings();
            consumer.sleep(side, side);
            popped = pop(&mut consumer);
            if popped.is_none() {
                side.wait(seen);
            }
            consumer.awake(side);
            if popped.is_none() {
                popped = pop(&mut consumer);
            }
        }
        assert_eq!(popped.unwrap().length, 8 * words);
        for chunk in target[..8 * words].chunks_exact(8) {
            assert_eq!(u64::from_ne_bytes(chunk.try_into().unwrap()), message);
        }
    }
}

fn check(messages: u64, words: usize, fences: bool, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(move || {
        let (left, right) = Side::pair(fences);
        let receiver = thread::spawn(move || receive(&right, messages, words));
        send(&left, messages, words);
        receiver.join().unwrap();
    });
}

/// Messages are seen whole once their index is, and a sleeping receiver is always woken.
#[test]
fn small_messages_arrive() {
    check(3, 1, true, 4);
}

/// Several messages fill the ring, so that the sender sleeps for room now and then.
#[test]
fn a_ring_that_fills_up_goes_on() {
    check(4, 3, true, 3);
}

/// Each message fills the ring, so that the sender sleeps for room and memory is written again.
#[test]
fn a_full_ring_goes_on() {
    check(3, 7, true, 3);
}

/// The model sees what the fences are for: without them, both sides sleep. Loom cannot unwind from
/// a deadlock, so that one ends a process of its own.
#[test]
fn without_fences_a_wake_up_is_lost() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "without_fences", "--nocapture"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("deadlock"));
}

#[test]
#[ignore = "ends the process; run by the test above"]
fn without_fences() {
    check(1, 1, false, 3);
}
