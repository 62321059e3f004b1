// SPDX-License-Identifier: GPL-2.0

//! Ranges of a section of the window: whole pages, which a lane holds.

use core::ops::Range;

use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

use super::area::AREA_SIZE;
use crate::{
    hw::SegmentDoorbells,
    kernel_ext::errno::eproto, //
};

/// A range of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowRange {
    /// First page.
    page: usize,
    pages: usize,
}

impl WindowRange {
    /// Checks a range that a peer names in its section, where this node has `lane`.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the range is empty, not aligned to pages, outside of the lane, or begins where the
    /// lane has its area of the control channel.
    pub(crate) fn of_peer(offset: u64, length: u64, lane: &Range<usize>) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| eproto())?;
        let length = usize::try_from(length).map_err(|_| eproto())?;
        let end = offset.checked_add(length).ok_or_else(eproto)?;
        if length == 0
            || offset % PAGE_SIZE != 0
            || length % PAGE_SIZE != 0
            || offset < lane.start + AREA_SIZE
            || end > lane.end
        {
            return Err(eproto());
        }
        Ok(Self {
            page: offset >> PAGE_SHIFT,
            pages: length >> PAGE_SHIFT,
        })
    }

    /// Returns the range of `pages` pages from page `page` on.
    pub(super) fn of_pages(page: usize, pages: usize) -> Self {
        Self { page, pages }
    }

    /// Returns the range of `length` bytes at `offset`, which are whole pages.
    pub(super) fn new(offset: usize, length: usize) -> Option<Self> {
        let is_whole = offset % PAGE_SIZE == 0 && length % PAGE_SIZE == 0;
        (is_whole && length > 0).then_some(Self {
            page: offset >> PAGE_SHIFT,
            pages: length >> PAGE_SHIFT,
        })
    }

    /// Returns the number of the first page in the section.
    pub(super) fn first_page(&self) -> usize {
        self.page
    }

    /// Returns the byte offset in the section.
    pub(crate) fn offset(&self) -> usize {
        self.page << PAGE_SHIFT
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.pages << PAGE_SHIFT
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the doorbell of a segment in the range.
    pub(crate) fn doorbell(&self) -> SegmentDoorbells {
        SegmentDoorbells::of_page(self.page)
    }
}

#[kunit_tests(uldma_window_range)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_names_ranges_of_the_lane_only() {
        let lane = 65536..131072;
        let of_peer = |offset, length| WindowRange::of_peer(offset, length, &lane).is_ok();
        assert!(of_peer(81920, 49152) && of_peer(126976, 4096));
        for (offset, length) in [
            (0, 4096),
            (65536, 4096),
            (77824, 8192),
            (126976, 8192),
            (131072, 4096),
            (81920, 0),
            (81920, 4095),
            (81921, 4096),
            (u64::MAX - 4095, 4096),
            (81920, u64::MAX - 4095),
        ] {
            assert!(!of_peer(offset, length));
        }
    }
}
