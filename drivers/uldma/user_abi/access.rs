// SPDX-License-Identifier: GPL-2.0

//! Access rights of a device to memory.

use kernel::prelude::*;

use crate::{
    hw::layout::{
        PageWord,
        RegionFlags, //
    },
    kernel_ext::errno::eopnotsupp,
    uapi, //
};

/// Rights to read or to write, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The memory may be a source.
    pub(crate) read: bool,
    /// The memory may be a destination.
    pub(crate) write: bool,
}

impl Access {
    /// All rights.
    pub(crate) const ALL: Self = Self {
        read: true,
        write: true,
    };

    /// Decodes `ULDMA_ACCESS_*`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for unknown bits, `EINVAL` for no right.
    pub(crate) fn from_flags(flags: u32) -> Result<Self> {
        if flags & !(uapi::ULDMA_ACCESS_READ | uapi::ULDMA_ACCESS_WRITE) != 0 {
            return Err(eopnotsupp());
        }
        if flags == 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            read: flags & uapi::ULDMA_ACCESS_READ != 0,
            write: flags & uapi::ULDMA_ACCESS_WRITE != 0,
        })
    }

    /// Encodes as `ULDMA_ACCESS_*`.
    pub(crate) fn to_flags(self) -> u32 {
        pick(self.read, uapi::ULDMA_ACCESS_READ) | pick(self.write, uapi::ULDMA_ACCESS_WRITE)
    }

    /// Returns true if `self` includes all rights of `other`.
    pub(crate) fn covers(self, other: Self) -> bool {
        (self.read || !other.read) && (self.write || !other.write)
    }

    /// Returns the flags of a region entry.
    pub(crate) fn region_flags(self) -> RegionFlags {
        RegionFlags::READ.when(self.read) | RegionFlags::WRITE.when(self.write)
    }

    /// Returns the flags of a region entry for the rights of peers.
    pub(crate) fn export_flags(self) -> RegionFlags {
        RegionFlags::EXPORT_READ.when(self.read) | RegionFlags::EXPORT_WRITE.when(self.write)
    }

    /// Returns the flags of a page entry.
    pub(crate) fn page_flags(self) -> PageWord {
        PageWord::READ.when(self.read) | PageWord::WRITE.when(self.write)
    }
}

fn pick(condition: bool, bit: u32) -> u32 {
    if condition {
        bit
    } else {
        0
    }
}
