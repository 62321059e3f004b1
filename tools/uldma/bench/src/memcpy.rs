// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory copies on this machine: the floor of what a device that copies memory can do.
//!
//! Between two shared mappings of memory files with pages of 4 KiB, as a guest's memory is for
//! an emulated device.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{madvise, mmap, munmap, MapFlags, MmapAdvise, ProtFlags};
use uldma::measure::Clock;

use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::{throughput, times};

const LENGTH: usize = 16 << 20;
const SMALL: usize = 1 << 20;
const ROUNDS: usize = 41;

/// A shared mapping of a memory file.
struct Shared(NonNull<u8>);

impl Shared {
    fn new() -> nix::Result<Self> {
        let file: OwnedFd = memfd_create("uldma-bench", MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&file, LENGTH as i64)?;
        let length = NonZeroUsize::new(LENGTH).ok_or(nix::errno::Errno::EINVAL)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses unused addresses.
        let base = unsafe { mmap(None, length, prot, MapFlags::MAP_SHARED, file, 0)? };
        let shared = Self(base.cast());
        // SAFETY: the range is ours. Where there are no huge pages, there is nothing to avoid.
        let _ = unsafe { madvise(base, LENGTH, MmapAdvise::MADV_NOHUGEPAGE) };
        // SAFETY: as above; nobody else has the range.
        unsafe { shared.0.as_ptr().write_bytes(1, LENGTH) };
        Ok(shared)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the range is ours and goes with us.
        let _ = unsafe { munmap(self.0.cast(), LENGTH) };
    }
}

/// Copies 16 MiB and 1 MiB, each the median of many.
pub(crate) fn run() -> Result<Figures, Failure> {
    let failed = |errno: nix::errno::Errno| Failure::Io("shared memory", errno.into());
    let (source, destination) = (
        Shared::new().map_err(failed)?,
        Shared::new().map_err(failed)?,
    );
    let clock = Clock::start();
    let mut figures = Figures::default();
    for (name, length) in [
        ("host.memcpy.16m.throughput", LENGTH),
        ("host.memcpy.1m.throughput", SMALL),
    ] {
        let mut samples = Vec::new();
        for round in 0..ROUNDS {
            // Small copies walk through the memory, so that caches help them no more than large ones.
            let offset = round * length % LENGTH;
            let before = clock.ticks();
            // SAFETY: both ranges lie in their mappings (the length divides what is mapped), and
            // are different memory.
            unsafe {
                let from = source.0.as_ptr().add(offset);
                let to = destination.0.as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(from, to, length);
            }
            std::hint::black_box(destination.0);
            samples.push(clock.ticks() - before);
        }
        let median = times(&clock, &samples, 1).median();
        figures.add(name, throughput(length as u64, median), "MB/s", None, None);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_can_be_copied() {
        let figures = run().unwrap();
        assert!(figures.get("host.memcpy.16m.throughput").unwrap() > 10.0);
        assert!(figures.get("host.memcpy.1m.throughput").unwrap() > 10.0);
    }
}
