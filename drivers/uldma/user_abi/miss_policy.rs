// SPDX-License-Identifier: GPL-2.0

//! What becomes of a transfer that misses a page of optimistic memory.

use kernel::prelude::*;

use crate::{
    hw::layout::RegionFlags,
    kernel_ext::hmm::Fault,
    uapi, //
};

/// What becomes of a transfer that misses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissPolicy {
    /// How far the driver goes to have the page mapped; without it, it enters what is mapped.
    pub(crate) fault: Option<Fault>,
    /// For how long a transfer waits for that, as flags of the region's entry.
    pub(crate) wait: RegionFlags,
}

impl MissPolicy {
    /// The `flags` of a registration that this decodes.
    pub(crate) const FLAGS: u32 = uapi::ULDMA_REGISTER_OPTIMISTIC
        | uapi::ULDMA_REGISTER_LOOK_UP
        | uapi::ULDMA_REGISTER_PAGE_IN;

    /// Decodes the flags of a registration, and the limit of waits in microseconds. Returns `None` for a
    /// region that is not optimistic.
    ///
    /// # Errors
    ///
    /// `EINVAL` for two ways, for one without `ULDMA_REGISTER_OPTIMISTIC`, and for a limit that is 0 with
    /// one, not 0 without, or greater than `ULDMA_REGISTER_MAX_LIMIT_US`.
    pub(crate) fn from_abi(flags: u32, limit_us: u32) -> Result<Option<Self>> {
        let fault = match flags & Self::FLAGS {
            0 => return limit_us.eq(&0).then_some(None).ok_or(EINVAL),
            uapi::ULDMA_REGISTER_OPTIMISTIC => None,
            flags if flags & uapi::ULDMA_REGISTER_OPTIMISTIC == 0 => return Err(EINVAL),
            flags if flags & uapi::ULDMA_REGISTER_PAGE_IN == 0 => Some(Fault::Minor),
            flags if flags & uapi::ULDMA_REGISTER_LOOK_UP == 0 => Some(Fault::Major),
            _ => return Err(EINVAL),
        };
        let wait = match (fault, limit_us) {
            (None, 0) => RegionFlags::NONE,
            (Some(_), 1..=uapi::ULDMA_REGISTER_MAX_LIMIT_US) => {
                // Not less, and not 0, which is no wait.
                let limit = limit_us.max(2).next_power_of_two().ilog2();
                let wait = RegionFlags::WAIT.try_with(RegionFlags::LIMIT, limit);
                wait.ok_or(EINVAL)?
            }
            _ => return Err(EINVAL),
        };
        Ok(Some(Self { fault, wait }))
    }
}

#[kunit_tests(uldma_miss_policy)]
mod tests {
    use super::*;

    const OPTIMISTIC: u32 = uapi::ULDMA_REGISTER_OPTIMISTIC;
    const LOOK_UP: u32 = OPTIMISTIC | uapi::ULDMA_REGISTER_LOOK_UP;
    const PAGE_IN: u32 = OPTIMISTIC | uapi::ULDMA_REGISTER_PAGE_IN;
    const MAX: u32 = uapi::ULDMA_REGISTER_MAX_LIMIT_US;

    fn limit_of(limit_us: u32) -> Option<u32> {
        let policy = MissPolicy::from_abi(PAGE_IN, limit_us).ok()??;
        Some(policy.wait.get(RegionFlags::LIMIT))
    }

    #[test]
    fn each_region_has_one_way() {
        let fault = |flags, limit_us| {
            let policy = MissPolicy::from_abi(flags, limit_us);
            policy.map(|it| it.map(|it| it.fault))
        };
        assert_eq!(fault(uapi::ULDMA_ACCESS_READ, 0), Ok(None));
        assert_eq!(fault(OPTIMISTIC, 0), Ok(Some(None)));
        assert_eq!(fault(LOOK_UP, 1), Ok(Some(Some(Fault::Minor))));
        assert_eq!(fault(PAGE_IN, MAX), Ok(Some(Some(Fault::Major))));
        for flags in [
            LOOK_UP ^ OPTIMISTIC,
            PAGE_IN ^ OPTIMISTIC,
            LOOK_UP | PAGE_IN,
        ] {
            assert_eq!(fault(flags, 1), Err(EINVAL));
        }
        for (flags, limit_us) in [(0, 1), (OPTIMISTIC, 1), (LOOK_UP, 0), (PAGE_IN, MAX + 1)] {
            assert_eq!(fault(flags, limit_us), Err(EINVAL));
        }
    }

    #[test]
    fn a_limit_is_not_shortened() {
        for (limit_us, log2) in [(1, 1), (2, 1), (3, 2), (1000, 10), (1024, 10), (MAX, 23)] {
            assert_eq!(limit_of(limit_us), Some(log2));
        }
    }
}
