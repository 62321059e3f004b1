// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings of the library against a peer that writes whatever it likes.
//!
//! No write of the peer causes a panic, an access outside of the ring, a message longer than the
//! buffer, an index that goes back, or a ring that works again after it was found broken.

use std::cell::{Cell, RefCell};

use uldma::ring::{layout, Consumer, Duplex, Inbound, Outbound, Producer, RingError};

use crate::chance::Chance;
use crate::Outcomes;

const CAPACITIES: [u64; 4] = [64, 128, 256, 4096];

/// Memory that holds something else whenever it is read.
struct Hostile {
    capacity: u64,
    chance: RefCell<Chance>,
    /// The indices that this side has published.
    published: Cell<(u64, u64)>,
}

impl Hostile {
    fn check(&self, offset: usize, length: usize) {
        let capacity = usize::try_from(self.capacity).unwrap_or(0);
        let (start, end) = if offset < layout::DATA {
            (layout::SLOT_DATA, layout::SLOT_DATA + layout::SLOT_SIZE)
        } else {
            (layout::DATA, layout::DATA + capacity)
        };
        assert!(offset >= start && offset <= end && length <= end - offset);
    }
}

impl Inbound for Hostile {
    fn load(&self, offset: usize) -> u64 {
        if offset >= layout::DATA {
            self.check(offset, 8);
        }
        assert_eq!(offset % 8, 0);
        let mut chance = self.chance.borrow_mut();
        let (producer, consumer) = self.published.get();
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

    fn acquire(&self, offset: usize) -> u64 {
        self.load(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        target.fill(0xee);
    }

    fn fence(&self) {}
}

impl Outbound for Hostile {
    fn store(&self, offset: usize, _: u64) {
        match offset {
            layout::SLOT => {}
            offset => self.check(offset, 8),
        }
    }

    fn publish(&self, offset: usize, value: u64) {
        let (producer, consumer) = self.published.get();
        match offset {
            layout::PRODUCER => {
                assert!(value & !7 >= producer & !7, "the producer index went back");
                self.published.set((value, consumer));
            }
            layout::CONSUMER => {
                assert!(value & !7 >= consumer & !7, "the consumer index went back");
                self.published.set((producer, value));
            }
            offset => panic!("{offset:#x} is no word that tells anything"),
        }
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
    }
}

/// State of one side: once broken, a ring stays so.
#[derive(Default)]
struct Side {
    broken: Option<RingError>,
}

impl Side {
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
    let memory = Hostile {
        capacity: chance.pick(&CAPACITIES).unwrap_or(128),
        chance: RefCell::new(Chance::new(chance.any())),
        published: Cell::new((0, 0)),
    };
    if chance.one_in(3) {
        channel(chance, &memory, outcomes);
    } else {
        rings(chance, &memory, outcomes);
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

fn rings(chance: &mut Chance, memory: &Hostile, outcomes: &mut Outcomes) {
    let capacity = memory.capacity;
    let (Some(mut producer), Some(mut consumer)) =
        (Producer::new(capacity), Consumer::new(capacity))
    else {
        panic!("no ring of {capacity} bytes");
    };
    let (mut pushing, mut popping) = (Side::default(), Side::default());
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
                let pieces: Vec<_> = bytes.chunks(1 + chance.below(30)).collect();
                let pushed = producer.push_vectored(memory, memory, &pieces);
                pushing.note("push pieces", pushed, outcomes);
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

fn channel(chance: &mut Chance, memory: &Hostile, outcomes: &mut Outcomes) {
    let Some(mut rings) = Duplex::new(memory.capacity) else {
        panic!("no rings of {} bytes", memory.capacity);
    };
    let mut pushing = Side::default();
    for _ in 0..chance.below(40) {
        let mut bytes = vec![1; length(chance, memory.capacity)];
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
