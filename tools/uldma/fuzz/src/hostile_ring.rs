// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings of the library against a peer that writes any words.
//!
//! No write of the peer causes a panic, an access outside of the ring, a message longer than the
//! buffer, a count that goes back, or a ring that works again after it was found broken.

use uldma::ring::layout::{HEAD, LINE, OUT, TAKEN};
use uldma::ring::{Consumer, Geometry, Inbound, Outbound, Producer, RingError};

use crate::chance::Chance;
use crate::hostile_memory::{HostileMemory, Said};
use crate::outcomes::Outcomes;

/// Heads and data lines.
const RINGS: [(u64, u64); 4] = [(1, 1), (2, 2), (16, 4), (4, 64)];

/// Returns a word of the peer at `offset`, which is plausible now and then: this side has `said` so much.
fn word(chance: &mut Chance, offset: usize, said: Said) -> u64 {
    if chance.one_in(8) {
        return chance.word();
    }
    let few = chance.any() % 4;
    let flags = if chance.one_in(4) {
        chance.any() % 8
    } else {
        0
    };
    match offset {
        OUT => flags,
        TAKEN => {
            let records = (said.head >> 32).wrapping_sub(few);
            (records << 48) | ((chance.any() % 8) << 24) | flags
        }
        _ if offset % LINE == HEAD => {
            let next = (said.taken >> 48) + 1 + few;
            (next << 32) | (chance.any() % 300)
        }
        _ => few,
    }
}

/// State of one side: once broken, a ring stays so.
#[derive(Default)]
struct RingSide {
    broken: Option<RingError>,
}

impl RingSide {
    fn note<T>(&mut self, what: &str, result: Result<T, RingError>, out: &mut Outcomes) {
        match result {
            Ok(_) => {
                assert!(
                    self.broken.is_none(),
                    "{what} works after {:?}",
                    self.broken
                );
                out.add(what);
            }
            Err(RingError::TooLong { .. }) => out.add(format!("{what}: too long")),
            Err(error) => {
                out.add(format!("{what}: {error:?}"));
                self.broken = Some(error);
            }
        }
    }
}

/// Tests both ends of a ring.
pub(crate) fn case(chance: &mut Chance, outcomes: &mut Outcomes) {
    let (heads, lines) = chance.pick(&RINGS).unwrap_or((2, 2));
    let Some(ring) = Geometry::new(heads, lines) else {
        panic!("no ring of {heads} heads and {lines} lines");
    };
    let mut words = Chance::new(chance.any());
    let memory = HostileMemory::new(ring, |offset, said| word(&mut words, offset, said));
    ends(chance, ring, &memory, outcomes);
}

fn length(chance: &mut Chance, ring: Geometry) -> usize {
    match chance.below(3) {
        0 => 8,
        1 => chance.below(57),
        _ => chance.below(ring.max_message() + 16),
    }
}

fn ends(
    chance: &mut Chance,
    ring: Geometry,
    memory: &(impl Inbound + Outbound),
    outcomes: &mut Outcomes,
) {
    let (mut producer, mut consumer) = (Producer::new(ring), Consumer::new(ring));
    let (mut pushing, mut popping) = (RingSide::default(), RingSide::default());
    for _ in 0..chance.below(40) {
        let mut bytes = vec![1; length(chance, ring)];
        match chance.below(5) {
            0 => match producer.push_short(memory, memory, &bytes) {
                Some(pushed) => pushing.note("push short", pushed, outcomes),
                None => pushing.note("push", producer.push(memory, memory, &bytes), outcomes),
            },
            1 if consumer.pop_short(memory, &mut bytes, 3).is_some() => {
                assert!(popping.broken.is_none());
                outcomes.add("pop short");
            }
            1 => {
                let popped = consumer.pop(memory, memory, &mut bytes);
                if let Ok(popped) = &popped {
                    assert!(popped.length.unwrap_or(0) <= bytes.len());
                }
                popping.note("pop", popped, outcomes);
            }
            2 => {
                let parts: Vec<_> = bytes.chunks(1 + chance.below(30)).collect();
                let pushed = producer.push_vectored(memory, memory, &parts);
                pushing.note("push parts", pushed, outcomes);
            }
            3 => {
                let (limit, mut seen) = (bytes.len(), 0);
                let taken = |message: &[u8]| {
                    assert!(message.len() <= limit);
                    seen += 1;
                };
                let popped = consumer.pop_batch(memory, memory, &mut bytes, 5, taken);
                if let Ok((count, _)) = popped {
                    assert!(count == seen && count <= 5);
                }
                // A batch that ends in a broken record has returned the earlier messages.
                if popped.is_err() || popping.broken.is_none() {
                    popping.note("pop a batch", popped, outcomes);
                }
            }
            _ => {
                producer.sleep(memory, memory);
                consumer.sleep(memory, memory);
                producer.awake(memory);
                consumer.awake(memory);
            }
        }
    }
}
