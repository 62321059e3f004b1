// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic operations by shadow addresses ("user-level DMA" paper, note 3): a load adds one to the
//! word that its shadow address stands for.

use super::{Machine, Reply, Request, ShadowRef};
use crate::abi::Status;

/// Fetch and add; has no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FetchAdd;

impl Machine for FetchAdd {
    fn store(&mut self, _context: u32, _at: ShadowRef, _word: Option<u64>) -> Reply {
        Reply::Refused(Status::BadAccess)
    }

    fn load(&mut self, _context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        if well_formed {
            Reply::Start(Request::FetchAdd { at })
        } else {
            Reply::Refused(Status::BadAccess)
        }
    }

    fn forget(&mut self, _context: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loads_act() {
        let at = ShadowRef::of_entry(3, 16);
        let bad = Reply::Refused(Status::BadAccess);
        assert_eq!(
            FetchAdd.load(1, at, true),
            Reply::Start(Request::FetchAdd { at })
        );
        assert_eq!(FetchAdd.load(1, at, false), bad);
        assert_eq!(FetchAdd.store(1, at, Some(1)), bad);
    }
}
