// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! The words by which programs and the driver ask for operations: descriptors and size words.

use super::word::*;

word! {
    /// Operation and flags of a descriptor (`struct uldma_descriptor`), as one word.
    pub struct DescriptorHead(u64);

    fields {
        /// The flags.
        FLAGS: u32 = 63, 32;
        /// The operation.
        OP: u32 = 31, 0;
    }
}

word! {
    /// Regions of a descriptor (`struct uldma_descriptor`), as one word.
    pub struct DescriptorRegions(u64);

    fields {
        /// The destination's region.
        DST: u32 = 63, 32;
        /// The source's region.
        SRC: u32 = 31, 0;
    }
}

/// Operation of a descriptor of a privileged context: ends the transfers that use region `src`, as
/// [`Invalidation::REGION`](super::Invalidation::REGION) does. The descriptor ends when the invalidation has ended.
pub const OP_INVALIDATE: u32 = 0x100;
/// Operation of a descriptor of a privileged context: the device reads the answers that its node gave to
/// [`PageRequest`](super::PageRequest)s of the kind [`WAIT`](super::PageRequest::WAIT).
pub const OP_PAGED: u32 = 0x101;

word! {
    /// Flags of a copy (`struct uldma_descriptor`) that only a privileged context can have.
    pub struct DescriptorFlags(u32);

    flags {
        /// `src` is the index of a peer's region. `operand` is the region's generation, `compare` is a
        /// [`PeerLink`]. Not together with [`DST_OF_PEER`](Self::DST_OF_PEER).
        SRC_OF_PEER = 8;
        /// The same for `dst`.
        DST_OF_PEER = 9;
        /// Of a send, or of a receive descriptor of a
        /// [`PRIVILEGED`](super::EndpointFlags::PRIVILEGED) endpoint: the memory is no region but a list of
        /// [`Segment`](super::Segment). The bus address of the list is in place of the byte in the region,
        /// and their number in place of the region.
        LIST = 10;
    }
}

word! {
    /// The link to the peer that a descriptor names.
    pub struct PeerLink(u64);

    fields {
        /// Number of the node.
        NODE: u32 = 63, 32;
        /// Generation of the link to the node.
        GENERATION: u32 = 31, 0;
    }
}

word! {
    /// The size word of a user-level initiation; the same as `ULDMA_SIZE_WORD_*` of the user interface.
    pub struct SizeWord(u64);

    fields {
        /// Destination region, or 0.
        DST_REGION: u32 = 63, 50;
        /// Source region, or 0.
        SRC_REGION: u32 = 49, 36;
        /// Destination address modulo 8.
        DST_LOW: u32 = 35, 33;
        /// Source address modulo 8.
        SRC_LOW: u32 = 32, 30;
        /// Number of bytes to move.
        BYTES: u32 = 29, 0;
    }
}

/// Number of region slots that user-level initiations can name, including slot 0, which has no
/// region.
pub const REGION_SLOTS: u32 = 1 << 14;

const _: () = assert!(SizeWord::SRC_REGION.max() + 1 == REGION_SLOTS as u64);
const _: () = assert!(SizeWord::DST_REGION.max() + 1 == REGION_SLOTS as u64);
