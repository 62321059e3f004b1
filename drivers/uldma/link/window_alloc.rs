// SPDX-License-Identifier: GPL-2.0

//! The allocator of this node's section of the window, and the shares that are paid for it.

use kernel::{
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use super::area::CHANNEL_SIZE;
use crate::{
    hw::SegmentDoorbells,
    kernel_ext::{
        errno::eproto,
        range_alloc::RangeAllocator, //
    },
    user_abi::ledger::{
        Payer,
        Resource,
        Share, //
    }, //
};

/// Allocates ranges of the own section, behind the control channel.
#[pin_data]
pub(crate) struct WindowAllocator {
    pages: usize,
    used: Atomic<usize>,
    #[pin]
    pages_alloc: RangeAllocator,
    /// The shares of each allocated range, of a user and perhaps a peer, by its first page.
    #[pin]
    shares: Mutex<RBTree<usize, (Share, Option<Share>)>>,
}

/// A range of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowRange {
    /// First page.
    page: usize,
    pages: usize,
}

impl WindowRange {
    /// Checks a range that a peer names, in a section of `window_size` bytes.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the range is empty, not aligned to pages, outside of the section, or begins where
    /// the section has its channels.
    pub(crate) fn of_peer(offset: u64, length: u64, window_size: usize) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| eproto())?;
        let length = usize::try_from(length).map_err(|_| eproto())?;
        let end = offset.checked_add(length).ok_or_else(eproto)?;
        if length == 0
            || offset % PAGE_SIZE != 0
            || length % PAGE_SIZE != 0
            || offset < CHANNEL_SIZE
            || end > window_size
        {
            return Err(eproto());
        }
        Ok(Self {
            page: offset >> PAGE_SHIFT,
            pages: length >> PAGE_SHIFT,
        })
    }

    /// Returns the range of `length` bytes at `offset`, which are whole pages behind the channels.
    pub(super) fn new(offset: usize, length: usize) -> Option<Self> {
        let is_whole = offset % PAGE_SIZE == 0 && length % PAGE_SIZE == 0;
        (is_whole && length > 0 && offset >= CHANNEL_SIZE).then_some(Self {
            page: offset >> PAGE_SHIFT,
            pages: length >> PAGE_SHIFT,
        })
    }

    /// Returns the byte offset in the section.
    pub(crate) fn offset(&self) -> usize {
        self.page << PAGE_SHIFT
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.pages << PAGE_SHIFT
    }

    /// Pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the doorbell of a segment in the range.
    pub(crate) fn doorbell(&self) -> SegmentDoorbells {
        SegmentDoorbells::of_page(self.page)
    }
}

impl WindowAllocator {
    /// Creates an allocator for the first `size` bytes of a section.
    pub(crate) fn new(size: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            pages: size >> PAGE_SHIFT,
            used: Atomic::new(0),
            pages_alloc <- RangeAllocator::new(),
            shares <- new_mutex!(RBTree::new(), "uldma::WindowAllocator::shares"),
        })
    }

    /// Returns the allocatable bytes of the first `size` bytes of a section.
    pub(crate) fn capacity(size: usize) -> usize {
        size.saturating_sub(CHANNEL_SIZE)
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed) << PAGE_SHIFT
    }

    /// Allocates a range of at least `length` bytes, for which `payer` pays until it is freed, and
    /// `peer` too, if it has asked for that.
    ///
    /// # Errors
    ///
    /// `EINVAL` for zero bytes, `ENOSPC` without room, `ENOMEM`, `EDQUOT` beyond the limits of the
    /// user or the peer.
    pub(crate) fn alloc(
        &self,
        payer: &Arc<Payer>,
        peer: Option<&Arc<Payer>>,
        length: u64,
    ) -> Result<WindowRange> {
        let length = usize::try_from(length).map_err(|_| ENOSPC)?;
        let pages = length.div_ceil(PAGE_SIZE);
        if pages == 0 {
            return Err(EINVAL);
        }
        // A range that never fits is not a matter of limits.
        if pages > self.pages {
            return Err(ENOSPC);
        }
        let share = |payer| Share::new(payer, Resource::Window, pages << PAGE_SHIFT);
        let shares = (share(payer)?, peer.map(share).transpose()?);
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let first = CHANNEL_SIZE >> PAGE_SHIFT;
        let page = self.pages_alloc.take(pages, first..self.pages)?;
        self.used.fetch_add(pages, Relaxed);
        let node = reserved.into_node(page, shares);
        self.shares.lock().insert(node);
        Ok(WindowRange { page, pages })
    }

    /// Frees a range, which no peer writes any more.
    pub(crate) fn free(&self, range: WindowRange) {
        // Before the next range can begin there.
        let shares = self.shares.lock().remove(&range.page);
        if self.pages_alloc.give_back(range.page) {
            self.used.fetch_sub(range.pages, Relaxed);
        }
        drop(shares);
    }
}
