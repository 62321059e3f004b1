// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two accesses: store the size word to the destination's shadow address, load from the source's
//! (§2.5, fig. 2, and §3.2, fig. 4).
//!
//! The device keeps the arguments of different processes apart: by shadow addresses that name the
//! context, by registers that a context switch clears or hands over, or not at all.

use crate::mmio::Register;

/// Starts a transfer. Returns the ticket, or a negated status.
#[inline]
pub(crate) fn initiate<R: Register>(destination: R, source: R, size_word: u64) -> i64 {
    destination.begin();
    destination.store(size_word);
    destination.barrier();
    source.load()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio::fake::{Access, Bus};

    #[test]
    fn an_initiation_stores_then_loads() {
        let bus = Bus::new(|_| 77);
        assert_eq!(initiate(bus.at(0xd), bus.at(0x5), 0x1234), 77);
        assert_eq!(
            *bus.seen.borrow(),
            [
                Access::Begin,
                Access::Store(0xd, 0x1234),
                Access::Barrier,
                Access::Load(0x5)
            ]
        );
    }
}
