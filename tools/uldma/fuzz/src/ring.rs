// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings of the library against a peer that writes any words.
//!
//! No write of the peer causes a panic, an access outside of the ring, a message longer than the
//! buffer, an index that goes back, or a ring that works again after it was found broken.

use uldma::ring::{Consumer, Duplex, Inbound, Outbound, Producer, RingError};

use crate::chance::Chance;
use crate::hostile_memory::HostileMemory;
use crate::outcomes::Outcomes;

const CAPACITIES: [u64; 4] = [64, 128, 256, 4096];

/// Returns a word of the peer, which is plausible now and then: this side has published the words
/// `producer` and `consumer`.
fn word(chance: &mut Chance, (producer, consumer): (u64, u64)) -> u64 {
    let few = chance.any() % 20 * 8
        + if chance.one_in(4) {
            chance.any() % 8
        } else {
            0
        };
    match chance.below(8) {
        0 => chance.word(),
        1 => chance.any() % 300,
        2 | 3 => (consumer & !7).wrapping_add(few),
        4 | 5 => (producer & !7).wrapping_sub(few),
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

/// Tests one ring of each direction, or both as one channel.
pub(crate) fn case(chance: &mut Chance, outcomes: &mut Outcomes) {
    let capacity = chance.pick(&CAPACITIES).unwrap_or(128);
    let mut words = Chance::new(chance.any());
    let memory = HostileMemory::new(capacity, |published| word(&mut words, published));
    if chance.one_in(3) {
        channel(chance, capacity, &memory, outcomes);
    } else {
        rings(chance, capacity, &memory, outcomes);
    }
}

fn length(chance: &mut Chance, capacity: u64) -> usize {
    let capacity = usize::try_from(capacity).unwrap_or(0);
    match chance.below(3) {
        0 => 8,
        1 => chance.below(40),
        _ => chance.below(capacity + 16),
    }
}

fn rings(
    chance: &mut Chance,
    capacity: u64,
    memory: &(impl Inbound + Outbound),
    outcomes: &mut Outcomes,
) {
    let (Some(mut producer), Some(mut consumer)) =
        (Producer::new(capacity), Consumer::new(capacity))
    else {
        panic!("no ring of {capacity} bytes");
    };
    let (mut pushing, mut popping) = (RingSide::default(), RingSide::default());
    for _ in 0..chance.below(40) {
        let mut bytes = vec![1; length(chance, capacity)];
        match chance.below(6) {
            0 => pushing.note("push", producer.push(memory, memory, &bytes), outcomes),
            1 => {
                let popped = consumer.pop(memory, memory, &mut bytes);
                if let Ok(Some(popped)) = &popped {
                    assert!(popped.length <= bytes.len());
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
            // A broken ring has nothing to publish, which is no error.
            4 => match consumer.notify_room(memory, memory) {
                Ok(_) => outcomes.add("notify room"),
                failed => popping.note("notify room", failed, outcomes),
            },
            _ => {
                producer.sleep(memory, memory);
                consumer.sleep(memory, memory);
                producer.awake(memory);
                consumer.awake(memory);
            }
        }
    }
}

fn channel(
    chance: &mut Chance,
    capacity: u64,
    memory: &(impl Inbound + Outbound),
    outcomes: &mut Outcomes,
) {
    let Some(mut rings) = Duplex::new(capacity) else {
        panic!("no rings of {capacity} bytes");
    };
    let mut pushing = RingSide::default();
    for _ in 0..chance.below(40) {
        let mut bytes = vec![1; length(chance, capacity)];
        if chance.one_in(2) {
            match rings.push_fast(memory, memory, &bytes) {
                Some(pushed) => pushing.note("push fast", pushed, outcomes),
                None => {
                    let pushed = rings.push(memory, memory, &bytes);
                    outcomes.add(match pushed {
                        Ok(_) => "push both ways".into(),
                        Err(RingError::TooLong { .. }) => "push both ways: too long".into(),
                        Err(error) => format!("push both ways: {error:?}"),
                    });
                }
            }
        } else if rings.pop_fast(memory, &mut bytes, 3).is_some() {
            outcomes.add("pop fast");
        } else {
            match rings.pop(memory, memory, &mut bytes) {
                Ok((popped, _)) => assert!(popped.unwrap_or(0) <= bytes.len()),
                Err(RingError::TooLong { length, limit }) => assert!(length > limit),
                Err(error) => outcomes.add(format!("pop: {error:?}")),
            }
        }
    }
}
