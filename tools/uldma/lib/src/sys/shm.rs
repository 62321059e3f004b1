// SPDX-License-Identifier: MIT OR Apache-2.0

//! System V shared memory: segments that are named by a number.

use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc;

use super::count_call;
use super::mapping::{length_of, Mapping};

/// The number of a segment, *shmid*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmId(pub(crate) i32);

impl ShmId {
    /// Creates a segment that only processes of this user can attach.
    pub(crate) fn create(length: u64) -> Result<Self, Errno> {
        let length = length_of(length)?;
        count_call();
        // SAFETY: the call takes numbers only.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, length.get(), libc::IPC_CREAT | 0o600) };
        Errno::result(id).map(Self)
    }

    /// Maps the whole segment.
    pub(crate) fn attach(self, writable: bool) -> Result<Mapping, Errno> {
        let length = length_of(self.length()?)?;
        let flags = if writable { 0 } else { libc::SHM_RDONLY };
        count_call();
        // SAFETY: without an address the kernel picks unused ones, so nothing that exists changes
        // its meaning.
        let base = unsafe { libc::shmat(self.0, std::ptr::null(), flags) };
        // The answer of failure is all ones.
        Errno::result(base as isize)?;
        let base = NonNull::new(base).ok_or(Errno::EINVAL)?;
        Ok(Mapping::own(base, length))
    }

    /// Has the segment end with its last mapping.
    pub(crate) fn remove(self) -> Result<(), Errno> {
        count_call();
        // SAFETY: the command takes no third argument.
        let result = unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
        Errno::result(result).map(drop)
    }

    /// Returns the bytes of the segment.
    pub(crate) fn length(self) -> Result<u64, Errno> {
        let mut stat = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
        count_call();
        // SAFETY: the command writes one `shmid_ds`, for which there is room.
        Errno::result(unsafe { libc::shmctl(self.0, libc::IPC_STAT, stat.as_mut_ptr()) })?;
        // SAFETY: the structure consists of numbers, which were zeroed and then written.
        let stat = unsafe { stat.assume_init() };
        Ok(stat.shm_segsz as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_segment_lives_until_its_last_mapping_goes() {
        let id = ShmId::create(5000).unwrap();
        let first = id.attach(true).unwrap();
        id.remove().unwrap();
        let second = id.attach(false).unwrap();
        assert_eq!(id.length().unwrap(), 5000);
        first.write(4999, b"x");
        let mut back = [0];
        second.read(4999, &mut back);
        assert_eq!(&back, b"x");
        drop((first, second));
        assert_eq!(id.attach(true).unwrap_err(), Errno::EINVAL);
    }
}
