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

use nix::errno::Errno;

pub(crate) use self::area::{Area, Part};
use self::pages::Pages;
use crate::error::Result;

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
    /// Parts whose send has ended, but that could not be released.
    unreleased: Vec<Unreleased>,
}

/// A part of an area, of which a connection that is gone has begun a send.
#[derive(Debug)]
struct Unreleased {
    area: Arc<Area>,
    offset: u64,
    length: u64,
}

impl Unreleased {
    /// Returns false if this has to be repeated.
    fn release(&self, fd: BorrowedFd<'_>) -> bool {
        let part = Part {
            area: &self.area,
            offset: self.offset,
            length: self.length,
        };
        // The memory has ended with the device, or its send was ended otherwise.
        const GONE: [Errno; 3] = [Errno::ENODEV, Errno::ENOENT, Errno::EINVAL];
        part.release(fd)
            .map_or_else(|errno| GONE.contains(&errno), |_| true)
    }
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

    /// Releases a part of an area whose send has ended, now or by a later call.
    pub(crate) fn release(&self, fd: BorrowedFd<'_>, area: &Arc<Area>, offset: u64, length: u64) {
        let part = Unreleased {
            area: Arc::clone(area),
            offset,
            length,
        };
        if !part.release(fd) {
            self.lock().unreleased.push(part);
        }
    }

    /// Repeats what could not be released before.
    pub(crate) fn release_again(&self, fd: BorrowedFd<'_>) {
        let mut parts = std::mem::take(&mut self.lock().unreleased);
        if parts.is_empty() {
            return;
        }
        // Without the lock, as this may wait for the device.
        parts.retain(|part| !part.release(fd));
        self.lock().unreleased.append(&mut parts);
    }

    /// Allocates `count` pages, not zero, of `page_size` bytes.
    pub(crate) fn allocate(&self, fd: BorrowedFd<'_>, count: u64, page_size: u64) -> Result<Block> {
        self.release_again(fd);
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
        self.release_again(fd);
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// A send ends with its connection. If the driver cannot end it then, it has to be ended later,
    /// or its pages could never be sent again.
    #[test]
    fn what_cannot_be_released_is_released_later() {
        let heap = Heap::default();
        let area = Arc::new(Area::of_no_device(4096).unwrap());
        let file = File::open("/dev/null").unwrap();
        heap.release(file.as_fd(), &area, 0, 4096);
        for _ in 0..2 {
            assert_eq!(heap.lock().unreleased.len(), 1);
            // The area stays as long, so that its memory is not mapped anew meanwhile.
            assert_eq!(Arc::strong_count(&area), 2);
            heap.release_again(file.as_fd());
        }
    }
}
