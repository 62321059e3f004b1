// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks: parts of a memory area that are moved into a connection and come back as other parts.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::region::entry::{Access, Entry};
use crate::sys::Mapping;

/// An exclusively owned part of a memory area: the unit in which memory is posted to a
/// [`crate::Connection`] and reaped from it.
///
/// Chunks of one area never overlap, so each can be read and written like a byte slice. Posting
/// moves the chunk into the connection, so a program cannot access memory that the kernel may be
/// reading or writing. The area is unmapped with its last chunk.
#[derive(Debug)]
pub struct Chunk {
    area: Arc<Area>,
    start: usize,
    length: usize,
}

/// The memory area of some chunks.
///
/// # Invariants
///
/// The mapping is accessed through chunks only, and no byte of it belongs to two of them.
#[derive(Debug)]
struct Area {
    // Fields drop in this order: the registration must end before the memory is unmapped.
    registration: Option<Entry>,
    mapping: Mapping,
}

impl Chunk {
    /// Maps a new area of `length` zero bytes, and returns it as one chunk.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM, or EINVAL for no bytes at all.
    pub fn new(length: usize) -> Result<Self> {
        Self::map(length).map(|mapping| Self::all(mapping, length, None))
    }

    /// Maps an area that stays pinned as long as a chunk of it exists, so that posting it to
    /// connections of this process pins nothing.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM when there is no memory or the limit of pinned memory would be
    /// exceeded ([`Error::hint`] names limit, use and need), EINVAL for no bytes, ENOSPC when the
    /// device's table is full, EDQUOT when this user's share of it is used up, EOPNOTSUPP when the
    /// device cannot pin.
    pub fn pinned(device: &Device, length: usize) -> Result<Self> {
        let mapping = Self::map(length)?;
        let address = mapping.base().as_ptr() as u64;
        let entry = Entry::register(device, address, length as u64, Access::ReadWrite)?;
        Ok(Self::all(mapping, length, Some(entry)))
    }

    fn map(length: usize) -> Result<Mapping> {
        Mapping::anonymous(length as u64)
            .map_err(|errno| Error::system(format!("map {length} bytes"), errno))
    }

    fn all(mapping: Mapping, length: usize, registration: Option<Entry>) -> Self {
        Self {
            area: Arc::new(Area {
                registration,
                mapping,
            }),
            start: 0,
            length,
        }
    }

    /// Splits off the first bytes, at most as many as there are; the rest stays.
    #[must_use]
    pub fn split_to(&mut self, length: usize) -> Self {
        let length = length.min(self.length);
        let first = Self {
            area: Arc::clone(&self.area),
            start: self.start,
            length,
        };
        self.start += length;
        self.length -= length;
        first
    }

    /// Appends a chunk that starts where this one ends.
    ///
    /// # Errors
    ///
    /// The chunk, when it does not start there.
    pub fn join(&mut self, next: Self) -> std::result::Result<(), Self> {
        if !self.is_before(&next) {
            return Err(next);
        }
        self.length += next.length;
        Ok(())
    }

    fn is_before(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.area, &next.area) && self.start + self.length == next.start
    }

    /// Returns index and offset of the region of `device` that it lies in, if its area is registered.
    pub(crate) fn region(&self, device: &Device) -> Option<(u32, u64)> {
        let entry = self.area.registration.as_ref();
        let entry = entry.filter(|entry| entry.device.path() == device.path())?;
        Some((entry.index, self.start as u64))
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.area.mapping.base().as_ptr() as u64 + self.start as u64
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant of `Area` these bytes belong to this chunk alone. A connection
        // that owns a chunk for the kernel to access makes no slice of it.
        unsafe { self.area.mapping.part(self.start, self.length) }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { self.area.mapping.part_mut(self.start, self.length) }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A queue of chunks, of which adjacent ones are joined.
#[derive(Debug, Default)]
pub(crate) struct Chunks(VecDeque<Chunk>);

impl Chunks {
    /// Appends a piece.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        let alone = match self.0.back_mut() {
            Some(last) => last.join(chunk).err(),
            None => Some(chunk),
        };
        self.0.extend(alone.filter(|chunk| !chunk.is_empty()));
    }

    /// Puts a chunk back at the front.
    pub(crate) fn push_front(&mut self, mut chunk: Chunk) {
        if let Some(first) = self.0.pop_front() {
            if let Err(first) = chunk.join(first) {
                self.0.push_front(first);
            }
        }
        self.0.push_front(chunk);
    }

    /// Returns the number of contiguous runs.
    pub(crate) fn runs(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of contiguous bytes at the front.
    pub(crate) fn run(&self) -> usize {
        self.0.front().map_or(0, |first| first.len())
    }

    /// Removes the first bytes, at most [`Chunks::run`] of them.
    pub(crate) fn pop(&mut self, most: usize) -> Option<Chunk> {
        let first = self.0.front_mut()?;
        let chunk = first.split_to(most);
        if first.is_empty() {
            self.0.pop_front();
        }
        Some(chunk)
    }

    /// Removes the first `length` bytes if they start at `address`.
    pub(crate) fn take(&mut self, address: u64, length: u64) -> Option<Chunk> {
        let first = self.0.front()?;
        let length = usize::try_from(length).ok()?;
        if first.address() != address || length > first.len() {
            return None;
        }
        self.pop(length)
    }

    /// Removes all chunks.
    pub(crate) fn drain(&mut self) -> Vec<Chunk> {
        self.0.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_split_and_joined() {
        let mut whole = Chunk::new(100).unwrap();
        whole.fill(1);
        let mut first = whole.split_to(60);
        first.fill(2);
        assert_eq!((first.len(), whole.len()), (60, 40));
        assert_eq!(first.address() + 60, whole.address());
        assert!(whole.iter().all(|&byte| byte == 1));
        // The wrong way round, and of another area.
        let first = whole.join(first).unwrap_err();
        let mut first = first.join_all(Chunk::new(8).unwrap());
        first.join(whole).unwrap();
        assert_eq!(first.len(), 100);
        assert_eq!((first[59], first[60]), (2, 1));
    }

    impl Chunk {
        /// Fails to append what lies elsewhere.
        fn join_all(mut self, elsewhere: Chunk) -> Self {
            assert!(self.join(elsewhere).is_err());
            self
        }
    }

    #[test]
    fn what_others_say_is_taken_only_if_it_is_the_front() {
        let mut chunks = Chunks::default();
        let mut whole = Chunk::new(4096).unwrap();
        let address = whole.address();
        chunks.push(whole.split_to(1000));
        chunks.push(whole.split_to(1000));
        assert_eq!(chunks.run(), 2000);
        assert!(chunks.take(address + 8, 8).is_none());
        assert!(chunks.take(address, 2001).is_none());
        assert!(chunks.take(address, u64::MAX).is_none());
        assert_eq!(chunks.take(address, 1500).unwrap().len(), 1500);
        assert_eq!(chunks.take(address + 1500, 500).unwrap().len(), 500);
        assert!(chunks.take(address + 2000, 0).is_none());
    }

    #[test]
    fn memory_of_different_areas_is_never_one() {
        let mut chunks = Chunks::default();
        // The kernel likes to map these next to each other.
        for _ in 0..4 {
            chunks.push(Chunk::new(4096).unwrap());
        }
        assert_eq!(chunks.run(), 4096);
        assert_eq!(chunks.drain().len(), 4);
    }

    proptest! {
        /// However memory goes around, each byte is there once.
        #[test]
        fn no_byte_is_lost(takes in prop::collection::vec(1usize..300, 1..60)) {
            let mut chunks = Chunks::default();
            let mut whole = Chunk::new(1000).unwrap();
            for (byte, number) in whole.iter_mut().zip(0u32..) {
                *byte = number as u8;
            }
            chunks.push(whole);
            for most in takes {
                let chunk = chunks.pop(most).unwrap();
                prop_assert!(!chunk.is_empty() && chunk.len() <= most);
                chunks.push(chunk);
            }
            let left = chunks.drain();
            let mut places: Vec<(usize, usize)> =
                left.iter().map(|chunk| (chunk.start, chunk.length)).collect();
            places.sort_unstable();
            let mut next = 0;
            for (start, length) in places {
                prop_assert_eq!(start, next);
                next += length;
            }
            prop_assert_eq!(next, 1000);
            for chunk in &left {
                for (byte, place) in chunk.iter().zip(chunk.start..) {
                    prop_assert_eq!(*byte, place as u8);
                }
            }
        }
    }
}
