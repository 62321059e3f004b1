// SPDX-License-Identifier: MIT OR Apache-2.0

//! What becomes of transfers that miss a page of optimistic memory.

use std::time::Duration;

use crate::sys::uapi;

/// What becomes of a transfer that misses a page of an optimistic region.
///
/// Limits are 1 µs to 8.4 s (`ULDMA_REGISTER_MAX_LIMIT_US`), to the next power of two in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Miss {
    /// It ends at once with [`crate::method::Refusal::NotResident`].
    #[default]
    Exception,
    /// It waits while the owner's kernel maps the page, if that needs no I/O; at most for this time.
    LookUp(Duration),
    /// It waits until the page is read from its file or from swap, or made; at most for this time.
    PageIn(Duration),
}

impl Miss {
    /// Returns the flags of a registration, and its limit in microseconds: 0, which a kernel refuses, for
    /// one that is too long.
    pub(crate) fn flags(self) -> (u32, u32) {
        let microseconds = |limit: Duration| u32::try_from(limit.as_micros()).unwrap_or(0);
        let (way, limit_us) = match self {
            Self::Exception => (0, 0),
            Self::LookUp(limit) => (uapi::ULDMA_REGISTER_LOOK_UP, microseconds(limit)),
            Self::PageIn(limit) => (uapi::ULDMA_REGISTER_PAGE_IN, microseconds(limit)),
        };
        (uapi::ULDMA_REGISTER_OPTIMISTIC | way, limit_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_microseconds() {
        const OPTIMISTIC: u32 = uapi::ULDMA_REGISTER_OPTIMISTIC;
        assert_eq!(Miss::Exception.flags(), (OPTIMISTIC, 0));
        let look_up = Miss::LookUp(Duration::from_millis(3));
        let flags = OPTIMISTIC | uapi::ULDMA_REGISTER_LOOK_UP;
        assert_eq!(look_up.flags(), (flags, 3000));
        let page_in = Miss::PageIn(Duration::MAX);
        let flags = OPTIMISTIC | uapi::ULDMA_REGISTER_PAGE_IN;
        assert_eq!(page_in.flags(), (flags, 0));
    }
}
