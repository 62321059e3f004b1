// SPDX-License-Identifier: GPL-2.0

//! Ranges of pages, and what is left of one when others are taken out.

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// The pages `[start, end)` of an address space, by page number; not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl PageRange {
    /// The pages that `length` bytes from address `addr` on touch.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, `EOVERFLOW` when the range wraps around.
    pub(crate) fn of_bytes(addr: u64, length: u64) -> Result<Self> {
        if length == 0 {
            return Err(EINVAL);
        }
        let last = addr.checked_add(length - 1).ok_or(EOVERFLOW)?;
        // The page after the last one needs an address too.
        let last = usize::try_from(last)?;
        last.checked_add(PAGE_SIZE).ok_or(EOVERFLOW)?;
        Ok(Self {
            start: usize::try_from(addr)? >> PAGE_SHIFT,
            end: (last >> PAGE_SHIFT) + 1,
        })
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.start << PAGE_SHIFT
    }

    /// The pages that are in both, if any.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(Self { start, end })
    }

    /// The least range that contains both.
    pub(crate) fn hull(&self, other: Option<Self>) -> Self {
        other.map_or(*self, |other| Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        })
    }

    /// Returns what is left without `other`, if anything; all, if it would be two parts.
    pub(crate) fn without(&self, other: &Self) -> Option<Self> {
        let mut left = *self;
        if other.start <= left.start {
            left.start = left.start.max(other.end);
        }
        if other.end >= left.end {
            left.end = left.end.min(other.start);
        }
        (left.start < left.end).then_some(left)
    }
}

/// Bytes of `pages` pages.
pub(crate) fn pages_to_bytes(pages: usize) -> u64 {
    // A usize has 64 bits where this driver can be built.
    (pages as u64) << PAGE_SHIFT
}

/// Bytes from the start of the page to `addr`.
pub(crate) fn offset_in_page(addr: u64) -> Result<usize> {
    Ok(usize::try_from(addr)? & !PAGE_MASK)
}

/// Iterates over the parts of `range` that none of `taken` covers.
///
/// `taken` has to be sorted and disjoint; what of it lies outside of `range` does not matter.
pub(crate) fn gaps<'a>(
    range: PageRange,
    taken: impl Iterator<Item = PageRange> + 'a,
) -> impl Iterator<Item = PageRange> + 'a {
    let mut next = range.start;
    let parts = taken.filter_map(move |other| other.intersection(&range));
    let end = PageRange {
        start: range.end,
        end: range.end,
    };
    // By its path, since pinned initializers have a `chain` too.
    Iterator::chain(parts, core::iter::once(end)).filter_map(move |part| {
        let gap = PageRange {
            start: next,
            end: part.start,
        };
        next = part.end;
        (gap.start < gap.end).then_some(gap)
    })
}

#[kunit_tests(uldma_lmm_range)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE as u64;

    #[test]
    fn bytes_to_pages() {
        assert_eq!(PageRange::of_bytes(0, 0), Err(EINVAL));
        assert_eq!(PageRange::of_bytes(u64::MAX, 2), Err(EOVERFLOW));
        assert_eq!(
            PageRange::of_bytes(u64::MAX - PAGE + 1, PAGE),
            Err(EOVERFLOW)
        );
        assert_eq!(
            PageRange::of_bytes(0, 1),
            Ok(PageRange { start: 0, end: 1 })
        );
        assert_eq!(
            PageRange::of_bytes(PAGE - 1, 2),
            Ok(PageRange { start: 0, end: 2 })
        );
        assert_eq!(
            PageRange::of_bytes(PAGE, PAGE),
            Ok(PageRange { start: 1, end: 2 })
        );
    }

    fn check(range: (usize, usize), taken: &[(usize, usize)], want: &[(usize, usize)]) {
        let range = PageRange {
            start: range.0,
            end: range.1,
        };
        let taken = taken.iter().map(|&(start, end)| PageRange { start, end });
        let mut want = want.iter();
        for gap in gaps(range, taken) {
            assert_eq!(Some(&(gap.start, gap.end)), want.next());
        }
        assert_eq!(None, want.next());
    }

    fn check_without(range: (usize, usize), other: (usize, usize), want: Option<(usize, usize)>) {
        let range = PageRange {
            start: range.0,
            end: range.1,
        };
        let other = PageRange {
            start: other.0,
            end: other.1,
        };
        let left = range.without(&other).map(|left| (left.start, left.end));
        assert_eq!(left, want);
    }

    #[test]
    fn what_is_left() {
        check_without((2, 8), (0, 2), Some((2, 8)));
        check_without((2, 8), (8, 9), Some((2, 8)));
        check_without((2, 8), (0, 5), Some((5, 8)));
        check_without((2, 8), (5, 9), Some((2, 5)));
        check_without((2, 8), (4, 5), Some((2, 8)));
        check_without((2, 8), (2, 8), None);
        check_without((2, 8), (0, 9), None);
    }

    #[test]
    fn gaps_between_areas() {
        check((2, 8), &[], &[(2, 8)]);
        check((2, 8), &[(2, 8)], &[]);
        check((2, 8), &[(0, 10)], &[]);
        check((2, 8), &[(0, 2), (8, 9)], &[(2, 8)]);
        check((2, 8), &[(0, 3), (7, 9)], &[(3, 7)]);
        check((2, 8), &[(3, 4), (5, 6)], &[(2, 3), (4, 5), (6, 8)]);
        check((2, 8), &[(3, 5), (5, 7)], &[(2, 3), (7, 8)]);
    }
}
