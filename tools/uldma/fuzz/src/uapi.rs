// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the user interface that the decoders use.

/// `ULDMA_ACCESS_READ`
pub(crate) const ULDMA_ACCESS_READ: u32 = 1 << 0;
/// `ULDMA_ACCESS_WRITE`
pub(crate) const ULDMA_ACCESS_WRITE: u32 = 1 << 1;
