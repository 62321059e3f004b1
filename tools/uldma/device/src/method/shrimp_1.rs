// SPDX-License-Identifier: MIT OR Apache-2.0

//! SHRIMP-1 ("user-level DMA" paper, section 2.4): the operating system has mapped each page out to
//! one other, so one access names both sides. The paper's access is an atomic exchange that carries
//! the size, which no emulated bus delivers as one access; here the size is in the address of a
//! load: byte N of a page stands for its first N + 8 bytes.

use super::{Machine, Reply, Request, ShadowRef};
use crate::abi::Status;

/// SHRIMP-1; has no state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shrimp1;

impl Machine for Shrimp1 {
    fn store(&mut self, _context: u32, _at: ShadowRef, _word: Option<u64>) -> Reply {
        Reply::Refused(Status::BadAccess)
    }

    fn load(&mut self, _context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        if !well_formed {
            return Reply::Refused(Status::BadAccess);
        }
        Reply::Start(Request::MappedOut {
            source: ShadowRef {
                offset: 0,
                address: at.address.wrapping_sub(at.offset.into()),
                ..at
            },
            bytes: at.offset.saturating_add(8),
        })
    }

    fn forget(&mut self, _context: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_the_size() {
        for (offset, bytes) in [(0, 8), (8, 16), (4088, 4096)] {
            let reply = Shrimp1.load(1, ShadowRef::of_page(3, offset, 0x5000), true);
            let source = ShadowRef::of_page(3, 0, 0x5000);
            assert_eq!(reply, Reply::Start(Request::MappedOut { source, bytes }));
        }
        let bad = Reply::Refused(Status::BadAccess);
        assert_eq!(Shrimp1.load(1, ShadowRef::of_entry(3, 0), false), bad);
        assert_eq!(Shrimp1.store(1, ShadowRef::of_entry(3, 0), Some(8)), bad);
    }
}
