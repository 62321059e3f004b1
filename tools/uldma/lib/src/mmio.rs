// SPDX-License-Identifier: MIT OR Apache-2.0

//! All volatile accesses, fences and pointer arithmetic of this crate.
//!
//! A [`Mapping`] is one of two kinds of memory: *registers* (shadow pages, context pages), where
//! each access is a command to the device, and *shared memory* (status page, window, registered
//! buffers), which the device or another process may change at any time. Registers are in
//! `mmio/register.rs`, a pair of accesses that restarts after a preemption is in `mmio/rseq.rs`,
//! and the barriers for shared memory are in `mmio/barrier.rs`.

mod barrier;
mod register;
mod rseq;

use std::sync::atomic::AtomicU64;

use crate::sys::Mapping;

pub(crate) use barrier::{acquire_barrier, full_barrier, publish_barrier, release_barrier};
#[cfg(test)]
pub(crate) use register::fake;
pub(crate) use register::{Register, RegisterAddress};
pub(crate) use rseq::RestartableThread;

/// Bytes of Linux's smallest page, which is the minimum size of a mapping.
const PAGE: usize = 4096;

impl Mapping {
    /// The word of shared memory at `offset`, which must be a multiple of eight.
    ///
    /// # Panics
    ///
    /// When the word does not lie in the mapping or is not aligned.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        // If the offset is a constant in the first page, this check needs no code at run time.
        let there = offset <= PAGE - 8 || offset <= self.length() - 8;
        assert!(offset % 8 == 0 && there);
        // SAFETY: the word lies in the mapping, which consists of whole pages, and is aligned, as
        // pages are; it stays mapped while `self` is borrowed. Others reach it by hardware accesses only, or
        // through this function, hence atomically.
        unsafe { AtomicU64::from_ptr(self.base().as_ptr().add(offset).cast()) }
    }

    /// Copies shared memory at `offset` into `target`, once, in no particular order.
    ///
    /// # Panics
    ///
    /// When the range does not lie in the mapping.
    #[inline]
    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) {
        assert!(self.holds(offset, target.len()));
        // SAFETY: the source lies in the mapping, and the target is an exclusive borrow, so they do
        // not overlap. The bytes may change while they are copied; any value of them is a valid u8,
        // and callers check what they read.
        unsafe {
            copy(
                self.base().as_ptr().add(offset),
                target.as_mut_ptr(),
                target.len(),
            )
        };
    }

    /// Copies `source` to shared memory at `offset`, in no particular order.
    ///
    /// # Panics
    ///
    /// When the range does not lie in the mapping.
    #[inline]
    pub(crate) fn write(&self, offset: usize, source: &[u8]) {
        assert!(self.holds(offset, source.len()));
        // SAFETY: the target lies in the mapping, which no reference in this process overlaps
        // (see `Mapping`), so not `source` either.
        unsafe {
            copy(
                source.as_ptr(),
                self.base().as_ptr().add(offset),
                source.len(),
            )
        };
    }

    #[inline]
    fn holds(&self, offset: usize, length: usize) -> bool {
        offset <= self.length() && length <= self.length() - offset
    }

    /// Returns the bytes of a part that no other code changes.
    ///
    /// # Panics
    ///
    /// When the part does not lie in the mapping.
    ///
    /// # Safety
    ///
    /// While the slice exists, no other thread, process or device writes to that part.
    pub(crate) unsafe fn part(&self, start: usize, length: usize) -> &[u8] {
        assert!(self.holds(start, length));
        // SAFETY: the part lies in the mapping, is initialised (the kernel zeroes pages), and by the
        // caller's promise does not change.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr().add(start), length) }
    }

    /// Returns the bytes of a part that no other code accesses.
    ///
    /// # Panics
    ///
    /// When the part does not lie in the mapping.
    ///
    /// # Safety
    ///
    /// While the slice exists, no other thread, process or device reads or writes that part.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part_mut(&self, start: usize, length: usize) -> &mut [u8] {
        assert!(self.holds(start, length));
        // SAFETY: as in `part`, and the caller guarantees that there is no other reference.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr().add(start), length) }
    }

    /// Returns all bytes of a mapping that no other code changes.
    ///
    /// # Safety
    ///
    /// While the slice exists, no other thread, process or device writes to the mapping.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are mapped readable and initialised (the kernel zeroes pages), and by
        // the caller's promise they do not change.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.length()) }
    }

    /// Returns all bytes of a mapping that no other code accesses.
    ///
    /// # Safety
    ///
    /// While the slice exists, no other thread, process or device reads or writes the mapping.
    pub(crate) unsafe fn as_slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.length()) }
    }
}

/// Copies memory in blocks that memcpy() moves with vector registers. For longer copies memcpy()
/// may use one string instruction, which emulators execute byte by byte, and which on some
/// processors does not fill the write-combining buffers of the window.
///
/// # Safety
///
/// The requirements of [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    const BLOCK: usize = 2048;
    let mut done = 0;
    while done < length {
        let block = BLOCK.min(length - done);
        // SAFETY: the piece lies in both ranges, which the caller answers for.
        unsafe { std::ptr::copy_nonoverlapping(source.add(done), target.add(done), block) };
        done += block;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "offset % 8 == 0")]
    fn a_word_outside_of_the_mapping_is_refused() {
        let map = Mapping::anonymous(4096).unwrap();
        map.word(4096);
    }

    #[test]
    #[should_panic(expected = "holds")]
    fn a_copy_that_wraps_around_is_refused() {
        let map = Mapping::anonymous(4096).unwrap();
        map.read(usize::MAX, &mut [0; 2]);
    }

    #[test]
    fn copies_go_where_they_should() {
        let map = Mapping::anonymous(4096).unwrap();
        map.write(4090, b"abcdef");
        let mut back = [0; 6];
        map.read(4090, &mut back);
        assert_eq!(&back, b"abcdef");
    }
}
