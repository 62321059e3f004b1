// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four accesses: store the key to the destination's shadow address and to the source's, store the
//! size word to the context page, load from there (§3.1, fig. 3).
//!
//! Both addresses are passed by stores, so both regions have to be writable.

use crate::mmio::Register;

/// Starts a transfer. Returns the bytes still to move, or a negated status.
#[inline]
pub(crate) fn initiate<R: Register>(
    destination: R,
    source: R,
    page: R,
    key: u64,
    size_word: u64,
) -> i64 {
    destination.begin();
    destination.store(key);
    destination.barrier();
    source.store(key);
    source.barrier();
    page.store(size_word);
    page.barrier();
    page.load()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio::fake::{Access, Bus};

    #[test]
    fn the_key_goes_to_the_destination_first() {
        let bus = Bus::new(|_| 64);
        let left = initiate(bus.at(0xd), bus.at(0x5), bus.at(0xc), 0xa51, 0x1234);
        assert_eq!(left, 64);
        assert_eq!(
            *bus.seen.borrow(),
            [
                Access::Begin,
                Access::Store(0xd, 0xa51),
                Access::Barrier,
                Access::Store(0x5, 0xa51),
                Access::Barrier,
                Access::Store(0xc, 0x1234),
                Access::Barrier,
                Access::Load(0xc)
            ]
        );
    }
}
