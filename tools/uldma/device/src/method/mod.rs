// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation methods: the ways in which plain loads and stores pass the arguments of a transfer to
//! the engine.
//!
//! Each method is a state machine that maps accesses to replies. It has no access to memory, tables
//! or rights: its caller checks what it starts. Machines are plain values that can be compared and
//! cloned, so that tests can try every interleaving of a few accesses.

mod announced;
mod fetch_add;
mod key;
mod latch;
mod repeated;
mod shared;
mod shrimp_1;
mod single_store;

pub use announced::{Flash, FlashSingle, Shrimp2Abort};
pub use fetch_add::FetchAdd;
pub use key::KeyBased;
pub use latch::ExtendedShadow;
pub use repeated::{Compare, Operand, Repeated, Signal};
pub use shared::{ExtendedShadowShared, Shrimp2};
pub use shrimp_1::Shrimp1;
pub use single_store::{PutWord, SingleStore};

use crate::abi::Status;
use crate::shadow::SizeWord;

/// One side of a transfer, as named by a shadow access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShadowRef {
    /// Index in the page table.
    pub entry: u32,
    /// Byte in the page; a multiple of 8.
    pub offset: u32,
    /// The address that machines compare: the bus address that the papers' engines see behind a
    /// shadow address. It is the same for two entries of one page.
    pub address: u64,
}

impl ShadowRef {
    /// Names a byte of a page by an address that differs from all other entries'.
    pub fn of_entry(entry: u32, offset: u32) -> Self {
        /// Above all bus addresses.
        const NO_BUS_ADDRESS: u64 = 1 << 63;
        Self {
            entry,
            offset,
            address: NO_BUS_ADDRESS | (u64::from(entry) << 16) | u64::from(offset),
        }
    }

    /// Names a byte of a page whose bus address is known.
    pub fn of_page(entry: u32, offset: u32, page: u64) -> Self {
        Self {
            entry,
            offset,
            address: page.wrapping_add(offset.into()),
        }
    }
}

/// Arguments with both addresses named by shadow accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arguments {
    /// The memory to read.
    pub source: ShadowRef,
    /// The memory to write.
    pub destination: ShadowRef,
    /// The size, and the low bits and regions of both addresses.
    pub word: SizeWord,
}

/// An operation that a machine requests; nothing in it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Move bytes from one named place to the other.
    Copy(Arguments),
    /// Move the first bytes of a page to the page that it is mapped out to.
    MappedOut {
        /// First byte of the page.
        source: ShadowRef,
        /// Number of bytes.
        bytes: u32,
    },
    /// Move bytes from a region to the named place.
    Put {
        /// The memory to write.
        destination: ShadowRef,
        /// The rest.
        word: PutWord,
    },
    /// Add one to the named word, and return its old value.
    FetchAdd {
        /// The word.
        at: ShadowRef,
    },
}

/// Reply of a machine to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// No effect. A load returns the device's default value.
    Nothing,
    /// A load returns this number; no other effect.
    Code(u64),
    /// The access is refused.
    Refused(Status),
    /// The arguments are complete: start a transfer in the context of this access.
    Start(Request),
}

/// An initiation method.
///
/// `context` is the context through whose pages the access was made, which the MMU guarantees. A
/// method trusts it only if its paper does.
pub trait Machine {
    /// Handles a store of `word` to a shadow address; `None` if the access is malformed.
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply;

    /// Handles a load from a shadow address.
    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply;

    /// Handles a store to the context's own page; `None` if the access is malformed.
    fn page_store(&mut self, _context: u32, _word: Option<u64>) -> Reply {
        Reply::Nothing
    }

    /// Handles a load from the context's own page, of the bytes still to move.
    fn page_load(&mut self, _context: u32) -> Reply {
        Reply::Nothing
    }

    /// Notes that `context` runs on `cpu` from now on; `None` if no context does.
    fn running(&mut self, _cpu: u32, _context: Option<u32>) {}

    /// Drops the arguments that the context has passed. For a context that is disabled.
    fn forget(&mut self, context: u32);

    /// Returns the value of the load that starts a transfer, from the transfer's ticket.
    fn started(&self, ticket: u64) -> u64 {
        ticket
    }
}

/// Returns true if an access to shadow space or to a context page has a form that passes arguments.
pub fn well_formed(address: u64, width: usize) -> bool {
    matches!(width, 4 | 8) && address % 8 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_access() {
        assert!(well_formed(0x1000, 8) && well_formed(0x1008, 4));
        for (address, width) in [(0x1004, 4), (0x1004, 8), (0x1000, 2), (0x1000, 1), (0, 16)] {
            assert!(!well_formed(address, width), "{address:#x}/{width}");
        }
    }

    #[test]
    fn entries_of_one_page_are_the_same_address() {
        let ours = ShadowRef::of_page(1, 8, 0x5000);
        let theirs = ShadowRef::of_page(2, 8, 0x5000);
        assert_eq!((ours.address, theirs.address), (0x5008, 0x5008));
        assert_ne!(
            ShadowRef::of_entry(1, 8).address,
            ShadowRef::of_entry(2, 8).address
        );
        assert_ne!(
            ShadowRef::of_entry(1, 8).address,
            ShadowRef::of_entry(1, 0).address
        );
    }
}
