// SPDX-License-Identifier: GPL-2.0

//! Trees of values by ranges, which may overlap.
//!
//! C header: `include/linux/interval_tree.h`.

use core::{
    marker::PhantomData,
    ops::RangeInclusive,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// A value with its range.
#[repr(C)]
struct Node<T> {
    /// First, so that its address is that of the node.
    node: Opaque<bindings::interval_tree_node>,
    value: T,
}

/// A value that is in no tree.
pub(crate) struct Single<T>(KBox<Node<T>>);

impl<T> Single<T> {
    /// Creates a value for `range`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(range: RangeInclusive<usize>, value: T) -> Result<Self> {
        let node = bindings::interval_tree_node {
            start: *range.start(),
            last: *range.end(),
            ..pin_init::zeroed()
        };
        let node = Node {
            node: Opaque::new(node),
            value,
        };
        Ok(Self(KBox::new(node, GFP_KERNEL_ACCOUNT)?))
    }
}

// SAFETY: A node that is in no tree is its range and its value.
unsafe impl<T: Send> Send for Single<T> {}

/// A tree of values by ranges.
///
/// # Invariants
///
/// `root` is a tree of nodes that come from boxes of `Node<T>`, and that it owns.
pub(crate) struct IntervalTree<T> {
    root: bindings::rb_root_cached,
    owned: PhantomData<KBox<Node<T>>>,
}

// SAFETY: The tree owns its values.
unsafe impl<T: Send> Send for IntervalTree<T> {}

impl<T> IntervalTree<T> {
    /// Creates a tree without values.
    pub(crate) const fn new() -> Self {
        Self {
            root: pin_init::zeroed(),
            owned: PhantomData,
        }
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, single: Single<T>) {
        let node: *mut Node<T> = KBox::into_raw(single.0);
        // INVARIANT: The node comes from a box, which the tree owns from here on.
        // SAFETY: The node is valid, and in no tree.
        unsafe { bindings::interval_tree_insert(node.cast(), &raw mut self.root) };
    }

    /// Returns the first node that overlaps `range`.
    fn first(&self, range: &RangeInclusive<usize>) -> Option<NonNull<Node<T>>> {
        let root = (&raw const self.root).cast_mut();
        // SAFETY: It is a valid tree, which this does not change.
        let node =
            unsafe { bindings::interval_tree_iter_first(root, *range.start(), *range.end()) };
        NonNull::new(node.cast())
    }

    /// Returns the values whose ranges overlap `range`.
    pub(crate) fn overlapping(&self, range: RangeInclusive<usize>) -> Overlapping<'_, T> {
        Overlapping {
            next: self.first(&range),
            range,
            tree: PhantomData,
        }
    }

    /// Takes out the first value of which `is_it` returns true, and whose range overlaps `range`.
    pub(crate) fn remove(
        &mut self,
        range: RangeInclusive<usize>,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<Single<T>> {
        let mut overlapping = self.overlapping(range);
        let node = loop {
            let node = overlapping.next_node()?;
            // SAFETY: The tree owns the node, and is not changed meanwhile.
            if is_it(unsafe { &node.as_ref().value }) {
                break node;
            }
        };
        Some(self.take(node))
    }

    fn take(&mut self, node: NonNull<Node<T>>) -> Single<T> {
        // SAFETY: The node is in the tree.
        unsafe { bindings::interval_tree_remove(node.cast().as_ptr(), &raw mut self.root) };
        // SAFETY: By the type invariant the node comes from a box, which the tree owned until now.
        Single(unsafe { KBox::from_raw(node.as_ptr()) })
    }
}

impl<T> Drop for IntervalTree<T> {
    fn drop(&mut self) {
        while let Some(node) = self.first(&(0..=usize::MAX)) {
            drop(self.take(node));
        }
    }
}

/// The values whose ranges overlap one.
pub(crate) struct Overlapping<'a, T> {
    next: Option<NonNull<Node<T>>>,
    range: RangeInclusive<usize>,
    tree: PhantomData<&'a IntervalTree<T>>,
}

impl<T> Overlapping<'_, T> {
    fn next_node(&mut self) -> Option<NonNull<Node<T>>> {
        let node = self.next?;
        let (start, last) = (*self.range.start(), *self.range.end());
        // SAFETY: The node is in the tree, which is not changed as long as this borrows it.
        let next = unsafe { bindings::interval_tree_iter_next(node.cast().as_ptr(), start, last) };
        self.next = NonNull::new(next.cast());
        Some(node)
    }
}

impl<'a, T> Iterator for Overlapping<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let node = self.next_node()?;
        // SAFETY: The tree owns the node, and is not changed as long as this borrows it.
        Some(unsafe { &(*node.as_ptr()).value })
    }
}

#[kunit_tests(uldma_interval_tree)]
mod tests {
    use super::*;
    use kernel::sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    };

    /// Returns the bits of the values that overlap `range`.
    fn overlapping(tree: &IntervalTree<u32>, range: RangeInclusive<usize>) -> u32 {
        tree.overlapping(range).map(|bit| 1 << bit).sum()
    }

    #[test]
    fn values_are_found_by_ranges() -> Result {
        let mut tree = IntervalTree::new();
        let ranges = [0..=9, 5..=14, 5..=14, 20..=usize::MAX];
        for (bit, range) in (0..).zip(ranges) {
            tree.insert(Single::new(range, bit)?);
        }
        assert_eq!(overlapping(&tree, 0..=4), 0b1);
        assert_eq!(overlapping(&tree, 9..=9), 0b111);
        assert_eq!(overlapping(&tree, 10..=30), 0b1110);
        assert_eq!(overlapping(&tree, 15..=19), 0);
        assert!(tree.remove(5..=14, |bit| *bit == 2).is_some());
        assert!(tree.remove(0..=usize::MAX, |bit| *bit == 2).is_none());
        assert!(tree.remove(0..=4, |bit| *bit == 1).is_none());
        assert_eq!(overlapping(&tree, 0..=usize::MAX), 0b1011);
        Ok(())
    }

    /// Counts its drops.
    struct Counted(Arc<Atomic<usize>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn values_are_dropped_once() -> Result {
        let drops = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut tree = IntervalTree::new();
        for start in 0..3 {
            tree.insert(Single::new(start..=start + 1, Counted(drops.clone()))?);
        }
        drop(tree.remove(0..=0, |_| true));
        assert_eq!(drops.load(Relaxed), 1);
        drop(tree);
        assert_eq!(drops.load(Relaxed), 3);
        Ok(())
    }
}
