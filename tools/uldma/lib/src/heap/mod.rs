// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exchangeable memory of an open file: areas of the driver, from which buffers are allocated in
//! whole pages.
//!
//! An area takes several system calls to make, and an entry of the device's region table. So small
//! buffers share areas, and the last free area of the usual size is kept.

mod area;
mod pages;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::area::{Area, Part};
use self::pages::Pages;
use crate::Result;

/// Pages of an area that buffers share.
const USUAL: u64 = 64;

/// The exchangeable memory of one open file.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Areas that buffers are allocated from.
    areas: Vec<(Arc<Area>, Pages)>,
    /// Number of areas that messages arrive in.
    slots: usize,
}

/// Pages of an area.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) area: Arc<Area>,
    pub(crate) pages: Range<u64>,
}

impl Heap {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No call panics while it changes the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `count` pages, not zero, of `page_size` bytes.
    pub(crate) fn allocate(&self, fd: BorrowedFd<'_>, count: u64, page_size: u64) -> Result<Block> {
        let areas = &mut self.lock().areas;
        for (area, free) in areas.iter_mut() {
            if let Some(pages) = free.take(count) {
                let area = Arc::clone(area);
                return Ok(Block { area, pages });
            }
        }
        let total = count.max(USUAL);
        let area = Arc::new(Area::create(fd, total.saturating_mul(page_size))?);
        let mut free = Pages::new(total);
        let pages = free.take(count).unwrap_or(0..0);
        areas.push((Arc::clone(&area), free));
        Ok(Block { area, pages })
    }

    /// Frees the pages of a block, and ends areas that nothing uses.
    pub(crate) fn free(&self, fd: BorrowedFd<'_>, block: &mut Block, page_size: u64) {
        let areas = &mut self.lock().areas;
        let pages = std::mem::replace(&mut block.pages, 0..0);
        let found = areas
            .iter_mut()
            .find(|(area, _)| Arc::ptr_eq(area, &block.area));
        if let Some((_, free)) = found {
            free.give(pages);
        }
        let mut kept = false;
        areas.retain(|(area, free)| {
            // The block, and messages that are being sent, hold an area, too. New holders come by
            // calls that take the lock.
            let own = usize::from(Arc::ptr_eq(area, &block.area));
            let is_used = !free.are_free() || Arc::strong_count(area) > 1 + own;
            let keep = is_used || (!kept && area.length() == USUAL.saturating_mul(page_size));
            kept |= keep && !is_used;
            if !keep {
                area.end(fd);
            }
            keep
        });
    }

    /// Returns the area that memory of this process lies in, and its offset there.
    pub(crate) fn locate(&self, address: usize, length: usize) -> Option<(Arc<Area>, u64)> {
        let areas = &self.lock().areas;
        areas.iter().find_map(|(area, _)| {
            let offset = area.offset_of(address, length)?;
            Some((Arc::clone(area), offset))
        })
    }

    /// Counts an area that messages arrive in.
    pub(crate) fn add_slots(&self) {
        self.lock().slots += 1;
    }

    /// Uncounts one, which has ended.
    pub(crate) fn remove_slots(&self) {
        self.lock().slots -= 1;
    }

    /// Does what ends all memory of the open file, if no buffers or slots would end with it.
    /// Meanwhile none can be made.
    pub(crate) fn while_unused<T>(
        &self,
        fd: BorrowedFd<'_>,
        action: impl FnOnce() -> Result<T>,
    ) -> Option<Result<T>> {
        let mut state = self.lock();
        state.areas.retain(|(area, free)| {
            let is_used = !free.are_free() || Arc::strong_count(area) > 1;
            if !is_used {
                area.end(fd);
            }
            is_used
        });
        (state.areas.is_empty() && state.slots == 0).then(action)
    }
}
