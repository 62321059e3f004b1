// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that this process has mapped: of a device, of a file, or anonymous.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{madvise, mmap, mmap_anonymous, munmap, MapFlags, MmapAdvise, ProtFlags};

use super::count_call;

/// Memory that this process has mapped, unmapped on drop.
///
/// There is no reference to its bytes: others (the device, the peer, the kernel) may change it
/// at any time. [`crate::mmio`] has the ways to touch it.
///
/// # Invariants
///
/// `length` is a multiple of eight, not zero, and `length` bytes from `base` stay mapped for as
/// long as the value lives, and no Rust reference to them exists other than those that
/// [`crate::mmio`] makes.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: NonZeroUsize,
}

// SAFETY: a mapping belongs to the process and not to a thread, and `&Mapping` gives access only
// through functions that treat the bytes as memory that others change.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a device file (or other file) at `offset`, shared.
    pub(crate) fn shared(
        fd: impl AsFd,
        offset: u64,
        length: u64,
        prot: ProtFlags,
    ) -> Result<Self, Errno> {
        let length = length_of(length)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        count_call();
        // SAFETY: without MAP_FIXED the kernel picks unused addresses, so nothing that exists
        // changes its meaning.
        let base = unsafe { mmap(None, length, prot, MapFlags::MAP_SHARED, fd, offset)? };
        Ok(Self::own(base, length))
    }

    /// Maps `length` bytes of fresh zeroed memory, not inherited by child processes.
    pub(crate) fn anonymous(length: u64) -> Result<Self, Errno> {
        let mapping = Self::fresh(length, MapFlags::MAP_PRIVATE)?;
        // A child would otherwise copy pinned pages at fork().
        mapping.advise(MmapAdvise::MADV_DONTFORK)?;
        Ok(mapping)
    }

    /// Maps `length` bytes of fresh zeroed memory that child processes share.
    pub(crate) fn anonymous_shared(length: u64) -> Result<Self, Errno> {
        Self::fresh(length, MapFlags::MAP_SHARED)
    }

    fn fresh(length: u64, flags: MapFlags) -> Result<Self, Errno> {
        let length = length_of(length)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        count_call();
        // SAFETY: as in `shared`.
        let base = unsafe { mmap_anonymous(None, length, prot, flags)? };
        Ok(Self::own(base, length))
    }

    /// Takes ownership of a new mapping.
    pub(super) fn own(base: NonNull<c_void>, length: NonZeroUsize) -> Self {
        Self {
            base: base.cast(),
            length,
        }
    }

    /// Has the kernel drop the pages; later accesses see other ones. For mappings of which no slice
    /// is ever made.
    pub(crate) fn discard(&self, shared: bool) -> Result<(), Errno> {
        self.advise(if shared {
            MmapAdvise::MADV_REMOVE
        } else {
            MmapAdvise::MADV_DONTNEED
        })
    }

    fn advise(&self, advice: MmapAdvise) -> Result<(), Errno> {
        count_call();
        // SAFETY: the range is our own mapping and stays mapped. What the advice changes are at most
        // its bytes, to which there is no reference: only memory that is never lent out as a slice
        // is discarded (see `discard`), and only fresh memory is kept from children.
        unsafe { madvise(self.base.cast(), self.length.get(), advice) }
    }

    /// Maps the same shared memory a second time, for tests that play the device.
    #[cfg(test)]
    pub(crate) fn again(&self) -> Result<Self, Errno> {
        // SAFETY: with an old length of zero, shared memory is mapped once more and the old mapping
        // stays; the kernel picks unused addresses.
        let base = unsafe {
            libc::mremap(
                self.base.as_ptr().cast(),
                0,
                self.length.get(),
                libc::MREMAP_MAYMOVE,
            )
        };
        Errno::result(base as isize)?;
        let base = NonNull::new(base).ok_or(Errno::EINVAL)?;
        Ok(Self::own(base, self.length))
    }

    /// First byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        count_call();
        // SAFETY: the range is owned by `self`, and no reference to it outlives `self`. It can only
        // fail for arguments that mmap() could not have returned.
        let _ = unsafe { munmap(self.base.cast(), self.length.get()) };
    }
}

/// Pages are mapped whole, so rounding up to words names no byte that is not there.
pub(super) fn length_of(length: u64) -> Result<NonZeroUsize, Errno> {
    let length = usize::try_from(length)
        .ok()
        .and_then(|length| length.checked_next_multiple_of(8));
    NonZeroUsize::new(length.ok_or(Errno::EOVERFLOW)?).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_needs_a_length() {
        assert_eq!(Mapping::anonymous(0).unwrap_err(), Errno::EINVAL);
        assert!(Mapping::anonymous(u64::MAX).is_err());
    }

    #[test]
    fn discarded_memory_is_zero_again() {
        for shared in [false, true] {
            let map = match shared {
                false => Mapping::anonymous(4096),
                true => Mapping::anonymous_shared(4096),
            };
            let map = map.unwrap();
            map.write(7, b"x");
            map.discard(shared).unwrap();
            let mut back = [1];
            map.read(7, &mut back);
            assert_eq!(back, [0]);
        }
    }
}
