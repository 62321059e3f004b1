// SPDX-License-Identifier: MIT OR Apache-2.0

//! The user interface as the kernel defines it: generated from `include/uapi/linux/uldma.h`.
//!
//! Read that header for the meaning of every item; the safe types of this crate wrap them all.
//!
//! ```no_run
//! # fn main() -> uldma::Result<()> {
//! use uldma::uapi;
//!
//! let query = uldma::Device::open(0)?.query()?;
//! assert_eq!(query.abi_version, uapi::ULDMA_ABI_VERSION);
//! # Ok(())
//! # }
//! ```

#![allow(
    missing_docs,
    non_camel_case_types,
    clippy::undocumented_unsafe_blocks,
    clippy::pedantic
)]

use nix::libc;

include!(concat!(env!("OUT_DIR"), "/uapi.rs"));

/// The ioctl request of a command: `_IO(ULDMA_TYPE, command)`, as nix computes it for this
/// architecture.
pub const fn request(command: uldma_cmd) -> libc::c_ulong {
    nix::request_code_none!(ULDMA_TYPE, command)
}
