// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a ring whose peer writes any words at any time.

use std::cell::{Cell, RefCell};

use uldma::ring::{layout, Inbound, Outbound};

/// Both segments of a ring, with a peer that breaks all rules.
///
/// Loads return the values of a function. Accesses outside of the ring panic, and so does an index of
/// this side that goes back.
pub(crate) struct HostileMemory<F> {
    capacity: u64,
    /// Returns the next word of the peer, given the indices that this side has published.
    words: RefCell<F>,
    /// Producer and consumer word that this side has published.
    published: Cell<(u64, u64)>,
}

impl<F: FnMut((u64, u64)) -> u64> HostileMemory<F> {
    /// Memory of rings with `capacity` bytes, whose loads return the values of `words`.
    pub(crate) fn new(capacity: u64, words: F) -> Self {
        Self {
            capacity,
            words: RefCell::new(words),
            published: Cell::new((0, 0)),
        }
    }

    /// Panics unless the range lies in the slot or in the data of the ring.
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

impl<F: FnMut((u64, u64)) -> u64> Inbound for HostileMemory<F> {
    fn load(&self, offset: usize) -> u64 {
        if offset >= layout::DATA {
            self.check(offset, 8);
        }
        assert_eq!(offset % 8, 0);
        (*self.words.borrow_mut())(self.published.get())
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

impl<F: FnMut((u64, u64)) -> u64> Outbound for HostileMemory<F> {
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
            offset => panic!("{offset:#x} is no word that is published"),
        }
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
    }
}
