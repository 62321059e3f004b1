// SPDX-License-Identifier: MIT OR Apache-2.0

//! Doorbell bits that peers set and this node clears.

/// Doorbell and mask registers of one node. The methods that change them return whether to
/// interrupt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doorbell {
    bits: u32,
    mask: u32,
}

impl Doorbell {
    /// Sets bits for a peer; returns the bits that interrupt.
    #[must_use]
    pub fn ring(&mut self, bits: u32) -> u32 {
        self.bits |= bits;
        bits & !self.mask
    }

    /// Acknowledges bits.
    pub fn clear(&mut self, bits: u32) {
        self.bits &= !bits;
    }

    /// Changes the mask; returns the bits that interrupt: those that are pending and were masked.
    #[must_use]
    pub fn set_mask(&mut self, mask: u32) -> u32 {
        let uncovered = self.mask & !mask;
        self.mask = mask;
        self.bits & uncovered
    }

    /// Returns the pending bits, masked or not.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the bits that do not interrupt.
    pub fn mask(&self) -> u32 {
        self.mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masked_bits_wait() {
        let mut doorbell = Doorbell::default();
        assert_eq!(doorbell.set_mask(0b10), 0);
        assert_eq!(doorbell.ring(0b10), 0);
        assert_eq!(doorbell.ring(0b11), 0b01);
        assert_eq!(doorbell.ring(0b01), 0b01, "it is pending already");
        doorbell.clear(0b01);
        assert_eq!(doorbell.set_mask(0), 0b10);
        assert_eq!(doorbell.bits(), 0b10);
        assert_eq!(doorbell.set_mask(0), 0, "nothing was uncovered");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ring(u32),
        /// The handler: acknowledges what it reads, then handles it.
        Handle,
        Mask(u32),
    }

    proptest! {
        /// A handler that runs once per interrupt never leaves an unmasked bit unseen.
        #[test]
        fn no_ring_is_lost(steps in prop::collection::vec(
            prop_oneof![
                (0u32..8).prop_map(Step::Ring),
                Just(Step::Handle),
                (0u32..8).prop_map(Step::Mask),
            ],
            0..50,
        )) {
            let mut doorbell = Doorbell::default();
            let mut interrupt = false;
            for step in steps {
                match step {
                    Step::Ring(bits) => interrupt |= doorbell.ring(bits) != 0,
                    Step::Mask(mask) => interrupt |= doorbell.set_mask(mask) != 0,
                    Step::Handle => if std::mem::take(&mut interrupt) {
                        doorbell.clear(doorbell.bits() & !doorbell.mask());
                    },
                }
                prop_assert!(interrupt || doorbell.bits() & !doorbell.mask() == 0);
            }
        }
    }
}
