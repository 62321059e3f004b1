// SPDX-License-Identifier: GPL-2.0

//! Who has which part of this node's section of the window, and what is paid for it.

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

use super::handshake::CHANNEL_SIZE;
use crate::{
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

/// Allocator of the own section, behind the areas of the control channel.
#[pin_data]
pub(crate) struct WindowAllocator {
    pages: usize,
    used: Atomic<usize>,
    #[pin]
    pages_alloc: RangeAllocator,
    /// What is paid for each part until it is given back, by its first page.
    #[pin]
    shares: Mutex<RBTree<usize, Share>>,
}

/// A part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowRange {
    /// First page.
    page: usize,
    pages: usize,
}

impl WindowRange {
    /// The part that a peer says it has, if it lies where a part of a section of `window_size` bytes
    /// can lie.
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

    /// Byte offset in the section.
    pub(crate) fn offset(&self) -> usize {
        self.page << PAGE_SHIFT
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.pages << PAGE_SHIFT
    }

    /// Pages.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// The doorbell bit of the part: the same on all nodes, shared with some other parts, and
    /// never the control channel's.
    pub(crate) fn doorbell(&self) -> u32 {
        // The remainder is less than 31.
        1 << (1 + (self.page % 31) as u32)
    }
}

impl WindowAllocator {
    /// Creates an allocator for a section of `size` bytes.
    pub(crate) fn new(size: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            pages: size >> PAGE_SHIFT,
            used: Atomic::new(0),
            pages_alloc <- RangeAllocator::new(),
            shares <- new_mutex!(RBTree::new(), "uldma::WindowAllocator::shares"),
        })
    }

    /// Bytes that parts can take of a section of `size` bytes.
    pub(crate) fn capacity(size: usize) -> usize {
        size.saturating_sub(CHANNEL_SIZE)
    }

    /// Bytes that parts take.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed) << PAGE_SHIFT
    }

    /// Takes a part of at least `length` bytes, for which `payer` pays until it is given back.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, `ENOSPC`, those of [`Share::new`].
    pub(crate) fn alloc(&self, payer: &Arc<Payer>, length: u64) -> Result<WindowRange> {
        let length = usize::try_from(length).map_err(|_| ENOSPC)?;
        let pages = length.div_ceil(PAGE_SIZE);
        if pages == 0 {
            return Err(EINVAL);
        }
        // What can never fit is nobody's limit.
        if pages > self.pages {
            return Err(ENOSPC);
        }
        let share = Share::new(payer, Resource::Window, pages << PAGE_SHIFT)?;
        let reserved = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let first = CHANNEL_SIZE >> PAGE_SHIFT;
        let page = self.pages_alloc.take(pages, first..self.pages)?;
        self.used.fetch_add(pages, Relaxed);
        let node = reserved.into_node(page, share);
        self.shares.lock().insert(node);
        Ok(WindowRange { page, pages })
    }

    /// Gives a part back, which no peer writes any more.
    pub(crate) fn free(&self, range: WindowRange) {
        // Before the next part can begin there.
        let share = self.shares.lock().remove(&range.page);
        if self.pages_alloc.give_back(range.page) {
            self.used.fetch_sub(range.pages, Relaxed);
        }
        drop(share);
    }
}
