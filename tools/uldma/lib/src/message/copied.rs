// SPDX-License-Identifier: MIT OR Apache-2.0

//! The copies that messages take, which the techniques differ in.

/// Bytes of messages that a connection has copied, between memory of the program and slots or the
/// window. What neither of both has copied, the device has moved from or to the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// By the library.
    pub by_library: u64,
    /// By the driver, in a call for each piece of a message.
    pub by_driver: u64,
}

impl Copied {
    /// Returns what was copied in both.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            by_library: self.by_library + other.by_library,
            by_driver: self.by_driver + other.by_driver,
        }
    }
}
