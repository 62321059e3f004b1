// SPDX-License-Identifier: MIT OR Apache-2.0

//! The locked memory of this process: its amount, the pin cache, and the clean-up.

use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;

/// The state of the locked memory manager for this process's address space, see
/// [`Device::locked_memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockedMemory {
    /// Locked memory areas: intervals of pages with one lock count each.
    pub areas: u32,
    /// Regions and imports that one open file can have.
    pub max_regions: u32,
    /// Bytes locked, each page counted once.
    pub locked: u64,
    /// Of these, bytes that only the pin cache holds.
    pub cached: u64,
    /// Ended regions whose pages the pin cache keeps.
    pub cached_regions: u32,
    /// Limit of ended regions in the cache.
    pub cache_max_regions: u64,
    /// Limit of bytes of ended regions in the cache.
    pub cache_max_bytes: u64,
    /// Registrations that pinned nothing.
    pub cache_hits: u64,
    /// Registrations that pinned at least one page.
    pub cache_misses: u64,
    /// Pages that registrations have pinned so far.
    pub pins: u64,
    /// Number of times that the driver checked if locked addresses still refer to the pinned pages.
    pub revalidations: u64,
}

impl LockedMemory {
    fn from_raw(raw: &uapi::uldma_lmm) -> Self {
        Self {
            areas: raw.out_areas,
            max_regions: raw.out_max_regions,
            locked: raw.out_locked,
            cached: raw.out_cached,
            cached_regions: raw.out_cached_regions,
            cache_max_regions: raw.out_cache_max_regions,
            cache_max_bytes: raw.out_cache_max_bytes,
            cache_hits: raw.out_cache_hits,
            cache_misses: raw.out_cache_misses,
            pins: raw.out_pins,
            revalidations: raw.out_revalidations,
        }
    }
}

impl Device {
    /// Returns the locked memory of this process's address space, through all of its open files.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM when another process opened the device, ENODEV when it has been
    /// removed.
    pub fn locked_memory(&self) -> Result<LockedMemory> {
        self.query_lmm(0, "query the locked memory")
    }

    /// Switches the pin cache on or off, which keeps the pins of regions that this open file ends.
    ///
    /// The cache is off at first. Its pages stay charged to RLIMIT_MEMLOCK; it shrinks when memory
    /// is short, when a registration would exceed a limit, and when the last open file of this
    /// process is closed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPERM when another process opened the device, ENODEV when it has been
    /// removed.
    pub fn set_pin_cache(&self, on: bool) -> Result<LockedMemory> {
        let flag = if on {
            uapi::ULDMA_LMM_CACHE_ON
        } else {
            uapi::ULDMA_LMM_CACHE_OFF
        };
        self.query_lmm(flag, "switch the pin cache")
    }

    fn query_lmm(&self, flags: u32, action: &str) -> Result<LockedMemory> {
        let argument = uapi::uldma_lmm {
            flags,
            ..Default::default()
        };
        sys::lmm(self.as_fd(), argument)
            .map(|raw| LockedMemory::from_raw(&raw))
            .map_err(|errno| Error::system(action, errno))
    }

    /// Ends all regions and imports of this open file, as closing it would.
    ///
    /// Values that refer to them ([`crate::Region`] and others) are dropped or unregistered as
    /// usual, and return their buffers. Transfers that name the regions fail, and accesses to their
    /// shadow pages raise SIGBUS.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EBUSY while there are buffers of exchangeable memory, or connections that
    /// receive into it, and nothing has ended; ETIMEDOUT when the device does not answer (the
    /// regions have ended, and their pages stay pinned), ENODEV when it has been removed.
    pub fn cleanup(&self) -> Result<()> {
        let failed = |errno| Error::system("end all regions", errno);
        let end = || sys::region_cleanup(self.as_fd(), sys::handle(0)).map_err(failed);
        let ended = self.heap().while_unused(self.as_fd(), end);
        ended.ok_or_else(|| failed(Errno::EBUSY))?.map(drop)
    }
}
