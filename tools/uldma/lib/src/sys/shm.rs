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

/// The kernel's state of a segment.
pub(crate) struct ShmStat {
    /// Bytes.
    pub(crate) length: u64,
    /// Mappings of it, in all processes.
    pub(crate) mappings: u64,
}

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
        let length = length_of(self.stat()?.length)?;
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
        self.control(libc::IPC_RMID)
    }

    /// Keeps the segment's pages in memory, for all processes that map it.
    pub(crate) fn lock(self) -> Result<(), Errno> {
        self.control(libc::SHM_LOCK)
    }

    /// Ends that.
    pub(crate) fn unlock(self) -> Result<(), Errno> {
        self.control(libc::SHM_UNLOCK)
    }

    fn control(self, command: libc::c_int) -> Result<(), Errno> {
        count_call();
        // SAFETY: the commands above take no third argument.
        Errno::result(unsafe { libc::shmctl(self.0, command, std::ptr::null_mut()) }).map(drop)
    }

    /// Queries the kernel.
    pub(crate) fn stat(self) -> Result<ShmStat, Errno> {
        let mut stat = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
        count_call();
        // SAFETY: the command writes one `shmid_ds`, for which there is room.
        Errno::result(unsafe { libc::shmctl(self.0, libc::IPC_STAT, stat.as_mut_ptr()) })?;
        // SAFETY: the structure consists of numbers, which were zeroed and then written.
        let stat = unsafe { stat.assume_init() };
        Ok(ShmStat {
            length: stat.shm_segsz as u64,
            mappings: stat.shm_nattch,
        })
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
        assert_eq!(id.stat().unwrap().mappings, 2);
        first.write(4999, b"x");
        let mut back = [0];
        second.read(4999, &mut back);
        assert_eq!(&back, b"x");
        drop((first, second));
        assert_eq!(id.attach(true).unwrap_err(), Errno::EINVAL);
    }
}
