// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory to register: whole pages that contain no other objects.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};

use crate::sys::Mapping;
use crate::{Error, Result};

/// Owned memory on its own pages, zeroed at first, never inherited by child processes.
///
/// It reads and writes like a byte slice until it is registered. The [`crate::Region`] then owns
/// it, and returns it when it is unregistered.
#[derive(Debug)]
pub struct Buffer {
    mapping: Mapping,
    length: usize,
}

impl Buffer {
    /// Memory of `length` zero bytes.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOMEM, or EINVAL for no bytes at all.
    pub fn new(length: usize) -> Result<Self> {
        let mapping = Mapping::anonymous(length as u64)
            .map_err(|errno| Error::system(format!("map {length} bytes"), errno))?;
        Ok(Self { mapping, length })
    }

    /// Memory of `length` bytes, read from `source`.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `UnexpectedEof` when it has fewer bytes.
    pub fn read_from(source: &mut impl Read, length: usize) -> io::Result<Self> {
        let mut buffer = Self::new(length).map_err(io::Error::other)?;
        source.read_exact(&mut buffer)?;
        Ok(buffer)
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: a buffer that is not part of a region is reached by its owner only, and a
        // region never hands out a reference to its buffer.
        let all = unsafe { self.mapping.as_slice() };
        &all[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        let all = unsafe { self.mapping.as_slice_mut() };
        &mut all[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_a_zeroed_slice_of_its_own_pages() {
        let mut buffer = Buffer::new(5000).unwrap();
        assert_eq!(buffer.len(), 5000);
        assert!(buffer.iter().all(|&byte| byte == 0));
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        buffer[4999] = 7;
        assert_eq!(buffer[4999], 7);
    }

    #[test]
    fn reading_needs_enough_bytes() {
        assert_eq!(&*Buffer::read_from(&mut &b"abc"[..], 3).unwrap(), b"abc");
        let error = Buffer::read_from(&mut &b"abc"[..], 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
