// SPDX-License-Identifier: MIT OR Apache-2.0

//! All interleavings of two sides of a ring, under the memory model, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p uldma --test loom_ring`

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use loom::sync::atomic::{fence, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use uldma::ring::{layout, Duplex, Inbound, Outbound, Pushed};

/// The smallest ring there is: eight words.
const CAPACITY: u64 = layout::MIN_CAPACITY;
const WORDS: usize = CAPACITY as usize / 8;
/// Words of the state line.
const STATE: usize = 8;

/// The words that one side writes and the other reads, for one ring.
struct Half {
    /// The state line and the ring's bytes, in this order.
    words: Vec<AtomicU64>,
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Half {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: (0..STATE + WORDS).map(|_| AtomicU64::new(0)).collect(),
            rings: Mutex::new(0),
            rung: Condvar::new(),
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        if offset < layout::DATA {
            &self.words[(offset - layout::PRODUCER) / 8]
        } else {
            &self.words[STATE + (offset - layout::DATA) / 8]
        }
    }
}

/// One side. `fences` switches the required fences; without them the model must find the lost
/// wake-up.
#[derive(Clone)]
struct ModelSide {
    inbound: Arc<Half>,
    outbound: Arc<Half>,
    fences: bool,
}

impl ModelSide {
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

impl Inbound for ModelSide {
    fn load(&self, offset: usize) -> u64 {
        self.inbound.word(offset).load(Ordering::Acquire)
    }

    fn acquire(&self, offset: usize) -> u64 {
        self.load(offset)
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
        if self.fences {
            fence(Ordering::SeqCst);
        }
    }
}

impl Outbound for ModelSide {
    fn store(&self, offset: usize, value: u64) {
        self.outbound.word(offset).store(value, Ordering::Relaxed);
    }

    fn publish(&self, offset: usize, value: u64) {
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
    rings: Duplex,
}

impl Ends {
    fn new(side: ModelSide) -> Self {
        Self {
            side,
            rings: Duplex::new(CAPACITY).unwrap(),
        }
    }

    fn try_send(&mut self, bytes: &[u8]) -> bool {
        if let Some(wake) = self.rings.push_fast(&self.side, &self.side, bytes) {
            if wake.unwrap() {
                self.side.ring();
            }
            return true;
        }
        let (sent, wake) = match self.rings.push(&self.side, &self.side, bytes).unwrap() {
            Pushed::Done { wake } => (true, wake),
            Pushed::Full { wake } => (false, wake),
        };
        if wake {
            self.side.ring();
        }
        sent
    }

    fn send(&mut self, message: u64, words: usize) {
        let bytes: Vec<u8> = (0..words).flat_map(|_| message.to_le_bytes()).collect();
        let mut sent = self.try_send(&bytes);
        while !sent {
            let seen = self.side.rings();
            self.rings.sleep_for_room(&self.side, &self.side);
            sent = self.try_send(&bytes);
            if !sent {
                self.side.wait(seen);
            }
            self.rings.awake(&self.side);
            sent = sent || self.try_send(&bytes);
        }
    }

    fn try_receive(&mut self, target: &mut [u8]) -> Option<usize> {
        if let Some(length) = self.rings.pop_fast(&self.side, target, 1) {
            return Some(length);
        }
        let (length, wake) = self.rings.pop(&self.side, &self.side, target).unwrap();
        if wake {
            self.side.ring();
        }
        length
    }

    /// Receives a message, and checks that it is whole and the right one.
    fn receive(&mut self, message: u64, words: usize) {
        let mut target = [0; CAPACITY as usize];
        let mut length = self.try_receive(&mut target);
        while length.is_none() {
            let seen = self.side.rings();
            self.rings.sleep_for_message(&self.side, &self.side);
            length = self.try_receive(&mut target);
            if length.is_none() {
                self.side.wait(seen);
            }
            self.rings.awake(&self.side);
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
fn one_way(messages: u64, words: usize, fences: bool, preemptions: usize) {
    explore(preemptions, move || {
        let (left, right) = ModelSide::pair(fences);
        let receiver = thread::spawn(move || {
            let mut right = Ends::new(right);
            (1..=messages).for_each(|message| right.receive(message, words));
        });
        let mut left = Ends::new(left);
        (1..=messages).for_each(|message| left.send(message, words));
        receiver.join().unwrap();
    });
}

/// Messages are seen whole once their index is, in the slot or in the ring, and a sleeping
/// receiver is always woken.
#[test]
fn small_messages_arrive() {
    one_way(2, 1, true, 3);
}

/// Several messages fill the ring, so that the sender sleeps for room now and then.
#[test]
fn a_ring_that_fills_up_goes_on() {
    one_way(4, 3, true, 2);
}

/// Each message fills the ring, so that the sender sleeps for room and memory is written again.
#[test]
fn a_full_ring_goes_on() {
    one_way(2, 7, true, 3);
}

/// Requests and answers: the consumed index is published along with messages.
#[test]
fn round_trips_come_back() {
    explore(3, || {
        let (left, right) = ModelSide::pair(true);
        let peer = thread::spawn(move || {
            let mut right = Ends::new(right);
            for message in 1..=2 {
                right.receive(message, 1);
                right.send(message, 1);
            }
        });
        let mut left = Ends::new(left);
        for message in 1..=2 {
            left.send(message, 1);
            left.receive(message, 1);
        }
        peer.join().unwrap();
    });
}

/// Both sides fill their rings before they consume anything: room is made, and published, while
/// both sleep for it or for messages.
#[test]
fn both_directions_at_once() {
    explore(2, || {
        let (left, right) = ModelSide::pair(true);
        let peer = thread::spawn(move || {
            let mut right = Ends::new(right);
            right.receive(1, 7);
            right.send(1, 7);
            right.receive(2, 7);
            right.send(2, 7);
        });
        let mut left = Ends::new(left);
        left.send(1, 7);
        left.send(2, 7);
        left.receive(1, 7);
        left.receive(2, 7);
        peer.join().unwrap();
    });
}

/// The model shows the need for the fences: without them, both sides sleep. Loom cannot unwind from
/// a deadlock, so this runs in a process of its own.
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
    one_way(1, 1, false, 3);
}
