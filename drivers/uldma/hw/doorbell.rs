// SPDX-License-Identifier: GPL-2.0

//! Doorbell bits, each of which has one owner.
//!
//! Two belong to the kernel, which answers them in an interrupt. The others belong to window segments,
//! by the page at which a segment begins. The two are different types, and hardware rings one or the
//! other: what a program names never becomes a bit of the kernel.

use kernel::prelude::*;

/// Bits of segments: those between the kernel's two.
const OF_SEGMENTS: u32 = !(KernelDoorbell::Link.bit() | KernelDoorbell::Network.bit());
/// Classes of pages. All but the last have a bit of their own.
const CLASSES: usize = 31;

/// A doorbell bit of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KernelDoorbell {
    /// Asks a peer to poll its control ring.
    #[default]
    Link,
    /// Announces packets or room to the network interface, on hardware that gives this an interrupt of
    /// its own.
    Network,
}

impl KernelDoorbell {
    /// Returns the bit.
    pub(crate) const fn bit(self) -> u32 {
        match self {
            Self::Link => 1 << 0,
            Self::Network => 1 << 31,
        }
    }
}

/// A part of the driver that peers ring for. It makes passes, in each of which it does the work that it
/// finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// The control channel and connections.
    Link,
    /// The network interface.
    Network,
    /// The programs of segments.
    Segments,
}

/// A set of doorbell bits of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentDoorbells(u32);

impl SegmentDoorbells {
    /// All of them.
    pub(crate) const ALL: Self = Self(OF_SEGMENTS);

    /// Returns those of `bits` that belong to segments.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self(bits & OF_SEGMENTS)
    }

    /// Returns the bit of a segment that begins at `page` of a section: the same on all nodes, and
    /// shared with some other segments.
    ///
    /// The last class of pages shares the bit of the one before it, since a bit of its own would be the
    /// network's.
    pub(crate) const fn of_page(page: usize) -> Self {
        let class = page % CLASSES;
        let class = if class == CLASSES - 1 {
            class - 1
        } else {
            class
        };
        Self(1 << (class + 1))
    }

    /// Returns the bits.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if there are none.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A set of doorbell bits, of both owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doorbells(u32);

impl Doorbells {
    /// All bits, of hardware that does not say which rang.
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// Returns the set of `bits`.
    pub(crate) const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the set without a bit of the kernel.
    pub(crate) const fn without(self, doorbell: KernelDoorbell) -> Self {
        Self(self.0 & !doorbell.bit())
    }

    /// Returns the union of both sets.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if some are in both sets.
    pub(crate) const fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if a bit of the kernel may have rung.
    pub(crate) const fn has(self, doorbell: KernelDoorbell) -> bool {
        self.0 & doorbell.bit() != 0
    }

    /// Returns the bits of segments that may have rung.
    pub(crate) const fn segments(self) -> SegmentDoorbells {
        SegmentDoorbells::of_bits(self.0)
    }
}

impl From<KernelDoorbell> for Doorbells {
    fn from(doorbell: KernelDoorbell) -> Self {
        Self(doorbell.bit())
    }
}

impl From<SegmentDoorbells> for Doorbells {
    fn from(doorbells: SegmentDoorbells) -> Self {
        Self(doorbells.bits())
    }
}

#[kunit_tests(uldma_hw_doorbell)]
mod tests {
    use super::*;

    /// Pages of the largest window, in which each class occurs many times.
    const PAGES: usize = 1 << 16;

    #[test]
    fn every_page_has_one_bit_that_is_not_the_kernels() {
        let mut used = 0;
        for page in 0..PAGES {
            let bits = SegmentDoorbells::of_page(page).bits();
            assert_eq!(bits.count_ones(), 1);
            for kernel in [KernelDoorbell::Link, KernelDoorbell::Network] {
                assert_eq!(bits & kernel.bit(), 0);
            }
            used |= bits;
        }
        assert_eq!(used, SegmentDoorbells::ALL.bits());
    }

    #[test]
    fn segments_do_not_hear_the_kernels() {
        for kernel in [KernelDoorbell::Link, KernelDoorbell::Network] {
            assert!(Doorbells::from(kernel).segments().is_empty());
            assert!(Doorbells::ALL.has(kernel) && !Doorbells::ALL.without(kernel).has(kernel));
        }
        assert_eq!(Doorbells::ALL.segments(), SegmentDoorbells::ALL);
    }
}
