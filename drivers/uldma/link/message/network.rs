// SPDX-License-Identifier: GPL-2.0

//! The messages about the network interface.

use kernel::prelude::*;

use super::Body;
use crate::{
    hw::layout::word::*,
    kernel_ext::errno::eproto, //
};

pub(super) const KIND: u8 = 14;
pub(super) const ENDPOINT_KIND: u8 = 15;

word! {
    /// Word 3 of the message.
    struct Receiver(u64);

    fields {
        /// Bytes of the longest frame.
        MAX_FRAME: u32 = 63, 32;
        /// Bit mask of what frames may leave to the receiver.
        ACCEPTS: u32 = 31, 0;
    }
}

/// A range of the sender's section, unchecked: offset and length in bytes, zero and zero for none.
pub(crate) type RawWindowRange = (u64, u64);

/// The range of the sender's section into which the receiver may write frames from now on; all zero
/// if there is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// Key of the ring, which its counters carry.
    pub(crate) key: u32,
    pub(crate) window: RawWindowRange,
    /// Bytes of the longest frame.
    pub(crate) max_frame: u32,
    /// Bit mask of what frames may leave to the sender of the message.
    pub(crate) accepts: u32,
}

impl Network {
    /// No range.
    pub(crate) const NONE: Self = Self {
        key: 0,
        window: (0, 0),
        max_frame: 0,
        accepts: 0,
    };

    /// Returns kind, number and words of the message.
    pub(super) fn encode(&self) -> (u8, u32, Body) {
        let receiver = Receiver::NONE
            .with(Receiver::MAX_FRAME, self.max_frame)
            .with(Receiver::ACCEPTS, self.accepts);
        let (offset, bytes) = self.window;
        (KIND, self.key, [offset, bytes, receiver.bits(), 0, 0])
    }

    /// Decodes a message of a peer.
    pub(super) fn decode(key: u32, [offset, bytes, receiver, ..]: Body) -> Self {
        let receiver = Receiver::from_bits(receiver);
        Self {
            key,
            window: (offset, bytes),
            max_frame: receiver.get(Receiver::MAX_FRAME),
            accepts: receiver.get(Receiver::ACCEPTS),
        }
    }
}

/// The endpoint of the sender that takes packets of the receiver, for the ring `key` that the next
/// [`Network`] message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkEndpoint {
    pub(crate) key: u32,
    pub(crate) index: u32,
    pub(crate) generation: u64,
    /// Bytes of the largest message.
    pub(crate) most_bytes: u32,
}

impl NetworkEndpoint {
    /// Returns kind, number and words of the message.
    pub(super) fn encode(&self) -> (u8, u32, Body) {
        let body = [
            self.index.into(),
            self.generation,
            self.most_bytes.into(),
            0,
            0,
        ];
        (ENDPOINT_KIND, self.key, body)
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    ///
    /// `EPROTO` for numbers that are too large.
    pub(super) fn decode(key: u32, [index, generation, most_bytes, ..]: Body) -> Result<Self> {
        Ok(Self {
            key,
            index: u32::try_from(index).map_err(|_| eproto())?,
            generation,
            most_bytes: u32::try_from(most_bytes).map_err(|_| eproto())?,
        })
    }
}
