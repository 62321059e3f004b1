// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the user interface that the decoders use.

/// `ULDMA_ACCESS_READ`
pub(crate) const ULDMA_ACCESS_READ: u32 = 1 << 0;
/// `ULDMA_ACCESS_WRITE`
pub(crate) const ULDMA_ACCESS_WRITE: u32 = 1 << 1;
/// `ULDMA_CONN_PRIVATE`
pub(crate) const ULDMA_CONN_PRIVATE: u32 = 128;

/// `struct uldma_conn_offer`
#[derive(Debug)]
#[allow(non_camel_case_types, dead_code)]
pub(crate) struct uldma_conn_offer {
    pub(crate) kind: u16,
    pub(crate) version: u16,
    pub(crate) private_length: u32,
    pub(crate) ring_length: u64,
    pub(crate) private_data: [u8; ULDMA_CONN_PRIVATE as usize],
}
