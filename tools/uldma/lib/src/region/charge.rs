// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicts the charge of a registration.

use std::os::fd::AsFd;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::region::entry::Access;
use crate::sys;
use crate::sys::uapi;

/// The charge that registering a range would have, see [`Device::charge`]. All values are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge {
    /// Bytes that the registration would add to the pinned memory of the process.
    pub charge: u64,
    /// Bytes of the range's pages that are locked already and add nothing.
    pub locked: u64,
    /// Bytes that the process has pinned, by uldma and others (`VmPin`).
    pub pinned: u64,
    /// RLIMIT_MEMLOCK; none where it does not apply.
    pub limit: Option<u64>,
}

impl Charge {
    /// Returns true if the limit has room for the registration.
    pub fn fits(&self) -> bool {
        self.limit
            .is_none_or(|limit| self.pinned.saturating_add(self.charge) <= limit)
    }

    fn from_raw(raw: &uapi::uldma_region_charge) -> Self {
        Self {
            charge: raw.out_charge,
            locked: raw.out_locked,
            pinned: raw.out_pinned,
            limit: (raw.out_limit != u64::MAX).then_some(raw.out_limit),
        }
    }
}

impl Device {
    /// Returns the charge that registering `length` bytes at address `start` would have now.
    ///
    /// Nothing is pinned or faulted in. So the call does not determine whether the memory can be
    /// pinned, and another thread may map the memory anew or register it before the registration.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for no bytes, EOVERFLOW when the range wraps around, EPERM when
    /// another process opened the device.
    pub fn charge(&self, start: u64, length: u64, access: Access) -> Result<Charge> {
        let argument = uapi::uldma_region_charge {
            flags: access.flags(),
            addr: start,
            length,
            ..Default::default()
        };
        sys::region_charge(self.as_fd(), argument)
            .map(|raw| Charge::from_raw(&raw))
            .map_err(|errno| Error::system(format!("query the charge of {length} bytes"), errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(charge: u64, pinned: u64, limit: u64) -> Charge {
        Charge::from_raw(&uapi::uldma_region_charge {
            out_charge: charge,
            out_pinned: pinned,
            out_limit: limit,
            ..Default::default()
        })
    }

    #[test]
    fn a_limit_of_all_ones_is_none() {
        assert_eq!(charge(1, 2, u64::MAX).limit, None);
        assert!(charge(u64::MAX, 2, u64::MAX).fits());
    }

    #[test]
    fn what_is_pinned_counts() {
        assert!(charge(4096, 4096, 8192).fits());
        assert!(!charge(4097, 4096, 8192).fits());
        assert!(!charge(u64::MAX, 4096, 8192).fits());
    }
}
