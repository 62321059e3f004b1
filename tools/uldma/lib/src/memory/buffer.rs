// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory to register: whole pages that contain no other objects.

use std::io::{self, ErrorKind, Read};
use std::ops::{Deref, DerefMut};

use crate::error::{Error, Result};
use crate::sys::Mapping;

/// Memory that a source of unknown length gets at first.
const LEAST: usize = 64 << 10;

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

    /// Memory of all bytes that `source` has, and their number: without any, the memory is one zero
    /// byte. `expected` is how many it will probably have, `limit` how many it may have.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `FileTooLarge` when it has more bytes than that, `OutOfMemory`.
    pub fn read_all(
        source: &mut impl Read,
        expected: usize,
        limit: usize,
    ) -> io::Result<(Self, usize)> {
        let new = |length| Self::new(length).map_err(|_| io::Error::from(ErrorKind::OutOfMemory));
        // One more, to find the end without more memory.
        let mut buffer = new(expected.min(limit).saturating_add(1))?;
        let mut length = 0;
        loop {
            if length > limit {
                return Err(ErrorKind::FileTooLarge.into());
            }
            if length == buffer.len() {
                let mut longer = new(length.max(LEAST).saturating_mul(2))?;
                longer[..length].copy_from_slice(&buffer);
                buffer = longer;
            }
            match source.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.length = length.max(1);
        Ok((buffer, length))
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
    fn all_is_read_whatever_was_expected() {
        let source: Vec<u8> = (0..100_000_u32).map(|byte| (byte / 7) as u8).collect();
        for expected in [0, 1, 4095, 99_999, 100_000, 100_001, 1 << 20] {
            let (buffer, length) = Buffer::read_all(&mut &source[..], expected, 1 << 20).unwrap();
            assert_eq!(length, source.len(), "{expected}");
            assert!(buffer[..] == source[..], "{expected}");
        }
        let (buffer, length) = Buffer::read_all(&mut io::empty(), 4096, 4096).unwrap();
        assert_eq!((&buffer[..], length), (&[0][..], 0));
    }

    #[test]
    fn reading_has_a_limit() {
        let read = |bytes: u64, limit| Buffer::read_all(&mut io::repeat(7).take(bytes), 0, limit);
        assert_eq!(read(5000, 5000).unwrap().1, 5000);
        for bytes in [5001, u64::MAX] {
            let error = read(bytes, 5000).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{bytes}");
        }
    }
}
