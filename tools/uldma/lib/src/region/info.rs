// SPDX-License-Identifier: MIT OR Apache-2.0

//! The current state of a region, as the kernel reports it.

use std::os::fd::AsFd;

use crate::error::{Error, Result};
use crate::region::entry::{Access, Entry};
use crate::sys;
use crate::sys::uapi;

/// The kernel's state of a region or an import, see [`crate::region::Registered::query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// Rights of transfers.
    pub access: Option<Access>,
    /// True for an import of a peer's region.
    pub import: bool,
    /// True if it is exported to a peer.
    pub exported: bool,
    /// True if it pins nothing.
    pub optimistic: bool,
    /// Address of its first byte, as registered; zero for an import.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Pages that it touches.
    pub pages: u64,
    /// Bytes of these pages whose addresses now refer to other memory: they were unmapped, moved,
    /// discarded or mapped anew. The region still refers to its original pages.
    pub stale: u64,
    /// Number of its locked memory areas; zero for an import.
    pub areas: u32,
}

impl RegionInfo {
    pub(crate) fn query(entry: &Entry) -> Result<Self> {
        let argument = uapi::uldma_region_query {
            handle: entry.handle,
            ..Default::default()
        };
        sys::region_query(entry.device.as_fd(), argument)
            .map(|raw| Self::from_raw(&raw))
            .map_err(|errno| Error::system("query a region", errno))
    }

    fn from_raw(raw: &uapi::uldma_region_query) -> Self {
        Self {
            access: Access::from_flags(raw.out_flags),
            import: raw.out_flags & uapi::ULDMA_REGION_IMPORT != 0,
            exported: raw.out_flags & uapi::ULDMA_REGION_EXPORTED != 0,
            optimistic: raw.out_flags & uapi::ULDMA_REGION_OPTIMISTIC != 0,
            address: raw.out_addr,
            length: raw.out_length,
            pages: raw.out_pages,
            stale: raw.out_stale,
            areas: raw.out_areas,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_words() {
        let info = RegionInfo::from_raw(&uapi::uldma_region_query {
            out_flags: uapi::ULDMA_ACCESS_WRITE | uapi::ULDMA_REGION_EXPORTED,
            out_pages: 3,
            ..Default::default()
        });
        assert_eq!(info.access, Some(Access::Write));
        assert!(info.exported && !info.import);
        assert_eq!(info.pages, 3);
    }
}
