// SPDX-License-Identifier: MIT OR Apache-2.0

//! mlock() and munlock(), by address.

use std::ffi::c_void;

use nix::errno::Errno;
use nix::libc;

use uldma::measure::count_call;

/// Keeps the pages of a range in memory; the kernel rounds it out to whole pages.
pub(super) fn mlock(start: u64, length: u64) -> Result<(), Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EOVERFLOW)?;
    count_call();
    // SAFETY: the call reads and writes no memory of ours, whatever is mapped there; it changes
    // only where the kernel keeps it.
    Errno::result(unsafe { libc::mlock(address(start)?, length) }).map(drop)
}

/// Ends that, for a range that need not be locked.
pub(super) fn munlock(start: u64, length: u64) -> Result<(), Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::EOVERFLOW)?;
    count_call();
    // SAFETY: as above.
    Errno::result(unsafe { libc::munlock(address(start)?, length) }).map(drop)
}

fn address(start: u64) -> Result<*const c_void, Errno> {
    let start = usize::try_from(start).map_err(|_| Errno::EOVERFLOW)?;
    Ok(std::ptr::without_provenance(start))
}

#[cfg(test)]
mod tests {
    use uldma::memory::Kind;
    use uldma::Memory;

    use super::*;

    #[test]
    fn only_mapped_memory_can_be_locked() {
        let map = Memory::new(Kind::Private, 4096).unwrap();
        let start = map.address();
        mlock(start + 100, 8).unwrap();
        munlock(start, 4096).unwrap();
        drop(map);
        assert_eq!(mlock(1 << 46, 8), Err(Errno::ENOMEM));
    }
}
