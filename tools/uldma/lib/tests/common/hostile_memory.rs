// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a ring whose peer writes any words at any time.

use std::cell::{Cell, RefCell};

use uldma::ring::{layout, Geometry, Inbound, Outbound};

/// What this side has published.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    /// The head of its last record.
    pub(crate) head: u64,
    /// How much it has taken.
    pub(crate) taken: u64,
}

/// Both halves of a ring, with a peer that breaks all rules.
///
/// Loads return the values of a function. Accesses outside of the ring panic, and so does a count of
/// this side that goes back, or a head that is not the next one.
pub(crate) struct HostileMemory<F> {
    geometry: Geometry,
    /// Returns the next word of the peer at an offset.
    words: RefCell<F>,
    said: Cell<Said>,
}

impl<F: FnMut(usize, Said) -> u64> HostileMemory<F> {
    /// Memory of a ring whose loads return the values of `words`.
    pub(crate) fn new(geometry: Geometry, words: F) -> Self {
        Self {
            geometry,
            words: RefCell::new(words),
            said: Cell::default(),
        }
    }

    /// Panics unless the range lies in the lines of the ring.
    fn check(&self, offset: usize, length: usize) {
        let end = usize::try_from(self.geometry.length()).unwrap_or(0);
        assert!(offset >= layout::HEADS && offset <= end && length <= end - offset);
    }
}

impl<F: FnMut(usize, Said) -> u64> Inbound for HostileMemory<F> {
    fn load(&self, offset: usize) -> u64 {
        assert_eq!(offset % 8, 0);
        if ![layout::TAKEN, layout::OUT].contains(&offset) {
            self.check(offset, 8);
        }
        (*self.words.borrow_mut())(offset, self.said.get())
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

impl<F: FnMut(usize, Said) -> u64> Outbound for HostileMemory<F> {
    fn store(&self, offset: usize, _: u64) {
        if offset != layout::OUT {
            self.check(offset, 8);
            assert_ne!(offset % layout::LINE, layout::HEAD, "a head is published");
        }
    }

    fn publish(&self, offset: usize, value: u64) {
        if offset == layout::OUT {
            assert!(value <= 7, "{value:#x} are no flags");
            return;
        }
        self.check(offset, 8);
        assert_eq!(offset % layout::LINE, layout::HEAD);
        let mut said = self.said.get();
        assert_eq!(value >> 32, (said.head >> 32) + 1, "records have numbers");
        said.head = value;
        self.said.set(said);
    }

    fn release(&self, offset: usize, value: u64) {
        assert_eq!(offset, layout::TAKEN);
        let mut said = self.said.get();
        assert!(value >> 24 >= said.taken >> 24, "a count went back");
        said.taken = value;
        self.said.set(said);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        let data = self.geometry.length() - self.geometry.capacity();
        let is_head_line = u64::try_from(offset).is_ok_and(|offset| offset < data);
        assert!(!is_head_line || offset % layout::LINE + source.len() <= layout::HEAD);
    }
}
