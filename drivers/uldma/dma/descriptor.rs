// SPDX-License-Identifier: GPL-2.0

//! Descriptors that the driver writes to the rings of programs.

use core::mem::offset_of;

use kernel::prelude::*;
use zerocopy::IntoBytes;

use crate::{
    kernel_ext::dma::{
        self,
        SharedPage, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    }, //
};

/// Number of descriptors of a ring; the same as `ULDMA_STATUS_RECORDS`.
pub(super) const DEPTH: usize = uapi::ULDMA_STATUS_RECORDS as usize;

const WORD: usize = size_of::<u64>();

/// Returns the place of a ticket in a ring.
pub(super) fn place_of(ticket: u64) -> usize {
    // The remainder is less than the depth, which is a usize.
    (ticket % DEPTH as u64) as usize
}

/// Writes a descriptor to its place in a ring, the ticket last: the device takes it from then on,
/// but [polls for it](crate::user_abi::status_page::StatusPage::is_asleep) perhaps not.
pub(crate) fn write(ring: &SharedPage, descriptor: &uldma_descriptor) -> Result {
    let base = place_of(descriptor.ticket) * size_of::<uldma_descriptor>();
    let ticket = offset_of!(uldma_descriptor, ticket);
    let words = descriptor.as_bytes().chunks_exact(WORD);
    for (at, word) in (0..).step_by(WORD).zip(words) {
        if at != ticket {
            let word = u64::from_ne_bytes(word.try_into().map_err(|_| EINVAL)?);
            ring.write_u64(base + at, word)?;
        }
    }
    dma::wmb();
    ring.write_u64(base + ticket, descriptor.ticket)
}

/// Returns true if a ring has the descriptor of a ticket.
pub(crate) fn is_written(ring: &SharedPage, ticket: u64) -> bool {
    let base = place_of(ticket) * size_of::<uldma_descriptor>();
    let at = base + offset_of!(uldma_descriptor, ticket);
    ring.read_u64(at) == Ok(ticket)
}

#[kunit_tests(uldma_descriptor)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_at_its_place_and_nowhere_else() -> Result {
        let ring = SharedPage::new()?;
        let descriptor = uldma_descriptor {
            ticket: 66,
            op: uapi::ULDMA_OP_SEND,
            flags: uapi::ULDMA_DESC_MORE,
            src: 7,
            dst: 9,
            src_offset: 4096,
            length: 100,
            ..zerocopy::FromZeros::new_zeroed()
        };
        assert!(!is_written(&ring, 66));
        write(&ring, &descriptor)?;
        assert!(is_written(&ring, 66));
        assert!(!is_written(&ring, 2) && !is_written(&ring, 67));
        let at = |place: usize, offset| ring.read_u64(place * 64 + offset);
        assert_eq!(at(2, offset_of!(uldma_descriptor, ticket)), Ok(66));
        let head = u64::from(uapi::ULDMA_DESC_MORE) << 32 | u64::from(uapi::ULDMA_OP_SEND);
        assert_eq!(at(2, offset_of!(uldma_descriptor, op)), Ok(head));
        assert_eq!(at(2, offset_of!(uldma_descriptor, src)), Ok(9 << 32 | 7));
        assert_eq!(at(2, offset_of!(uldma_descriptor, src_offset)), Ok(4096));
        assert_eq!(at(2, offset_of!(uldma_descriptor, length)), Ok(100));
        for offset in (0..64).step_by(WORD) {
            assert_eq!(at(1, offset), Ok(0));
            assert_eq!(at(3, offset), Ok(0));
        }
        Ok(())
    }
}
