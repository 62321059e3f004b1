// SPDX-License-Identifier: GPL-2.0

//! Allocation of ranges of numbers.

use core::ops::Range;

use kernel::{
    maple_tree::MapleTreeAlloc,
    prelude::*, //
};

/// An allocator of disjoint ranges, that brings its own lock.
#[pin_data]
pub(crate) struct RangeAllocator {
    #[pin]
    tree: MapleTreeAlloc<()>,
}

// SAFETY: A maple tree may be used from any thread, and `()` is `Send`.
unsafe impl Send for RangeAllocator {}
// SAFETY: All methods used here take the tree's own lock, and `()` is `Sync`.
unsafe impl Sync for RangeAllocator {}

impl RangeAllocator {
    /// Creates an allocator of which everything is free.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- MapleTreeAlloc::new(),
        })
    }

    /// Takes `count` consecutive numbers out of `range`; returns the first. The memory is charged to
    /// no caller, since callers hold locks; it grows with the shares of those that have the numbers.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when no gap is large enough, `ENOMEM`.
    pub(crate) fn take(&self, count: usize, range: Range<usize>) -> Result<usize> {
        if count == 0 || count > range.len() {
            return Err(ENOSPC);
        }
        self.tree
            .alloc_range(count, (), range, GFP_KERNEL)
            .map_err(|err| match Error::from(err) {
                EBUSY => ENOSPC,
                err => err,
            })
    }

    /// Gives the range that starts at `first` back; returns whether there was one.
    pub(crate) fn give_back(&self, first: usize) -> bool {
        self.tree.erase(first).is_some()
    }
}
