// SPDX-License-Identifier: GPL-2.0

//! The area at the start of a lane, which is the control channel: position and contents of each word.
//!
//! `Documentation/uldma/link.rst` has the same table.

use kernel::prelude::*;

use crate::{
    hw::layout::{
        register::*,
        word::*, //
    },
    ring::Geometry, //
};

/// Size of the area, with which each lane begins.
pub(crate) const AREA_SIZE: usize = 16 << 10;
/// Maximum number of messages in flight in a ring, a power of two.
pub(super) const MAX_SLOTS: u32 = 64;
/// Data lines for each message: private data of 128 bytes.
const LINES: u64 = 2;
/// Bytes for a ring.
const RING_BYTES: usize = 0x3080;

/// A word of an area.
pub(crate) type AreaWord<T> = Register<AreaRegister, T, ReadWrite>;

registers! {
    /// Words of an area.
    pub(crate) mod at;
    /// A word of an area, as a reader decodes it.
    enum AreaRegister in AREA_SIZE;

    /// "udmalink".
    MAGIC: u64 = 0x000, rw;
    /// Versions of the protocol that the writer supports.
    VERSIONS: Versions = 0x008, rw;
    /// Mask of the features that the writer supports.
    FEATURES: u64 = 0x010, rw;
    /// Bytes of a section.
    SECTION: u64 = 0x018, rw;
    /// Sizes that the writer uses.
    SHAPE: Shape = 0x020, rw;
    /// Random number of the writer's session, not all ones; 0 for no session.
    SESSION: u64 = 0x028, rw;
    /// Session of the reader that the writer has accepted, or 0.
    ECHO: u64 = 0x030, rw;
    /// Counter that the writer increments while it is alive.
    HEARTBEAT: u64 = 0x038, rw;
    /// The ring of messages from the writer to the reader, and the writer's word about the other one.
    RING[RING_BYTES / 8]: u64 = 0x100, rw;
}

word! {
    /// Value of [`at::VERSIONS`].
    pub(crate) struct Versions(u64);

    fields {
        /// The lowest version.
        LOWEST: u32 = 63, 32;
        /// The highest version.
        HIGHEST: u32 = 31, 0;
    }
}

word! {
    /// Value of [`at::SHAPE`].
    pub(crate) struct Shape(u64);

    fields {
        /// Number of nodes of the link.
        NODES: u32 = 63, 32;
        /// Number of messages of the ring that the writer reads: a power of two, up to
        /// [`MAX_SLOTS`].
        SLOTS: u32 = 31, 0;
    }
}

/// Returns the ring of `slots` messages.
///
/// # Errors
///
/// `EINVAL` unless that is a power of two, up to [`MAX_SLOTS`].
pub(super) fn ring_of(slots: u32) -> Result<Geometry> {
    let slots = u64::from(slots);
    let ring = Geometry::new(slots, slots * LINES).ok_or(EINVAL)?;
    let fits = ring.length() <= RING_BYTES as u64;
    fits.then_some(ring).ok_or(EINVAL)
}
