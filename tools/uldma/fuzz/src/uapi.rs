// SPDX-License-Identifier: MIT OR Apache-2.0

//! What of the user interface the decoders need.

/// `ULDMA_ACCESS_READ`
pub(crate) const ULDMA_ACCESS_READ: u32 = 1 << 0;
/// `ULDMA_ACCESS_WRITE`
pub(crate) const ULDMA_ACCESS_WRITE: u32 = 1 << 1;
