// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Why a message could not be passed on.

use core::fmt;

/// A violation of the rules by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A count went back, or beyond what was written.
    Count,
    /// A flag is set that does not exist.
    Flags,
    /// A message is longer than the ring can hold.
    Length,
    /// The peer's handshake record is invalid.
    Handshake,
    /// The peer names a place outside of the memory that it may write.
    Place,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "a count is out of range",
            Self::Flags => "an unknown flag is set",
            Self::Length => "the length of a message is out of range",
            Self::Handshake => "the handshake is not of this protocol",
            Self::Place => "a place is outside of the memory",
        })
    }
}

/// Reason for which a message could not be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The peer broke the rules; the ring stays unusable.
    Violation(Violation),
    /// The peer has closed its side.
    Closed,
    /// The message has more bytes than the ring or the buffer can hold.
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Largest number of bytes that fits.
        limit: usize,
    },
}
