// SPDX-License-Identifier: MIT OR Apache-2.0

//! The version of the output of `--json`.

/// Incremented when the meaning of a field changes; new fields may be added at any time.
pub(crate) const SCHEMA_VERSION: u32 = 2;
