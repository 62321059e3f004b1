// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the kernel crate that the driver's decoders use, so that they can be compiled into
//! a program unchanged.

pub mod error;

/// The prelude that most files of the driver import.
pub mod prelude {
    pub use crate::error::{Error, Result, EBUSY, EINVAL, ENOTCONN};
    pub use uldma_fuzz_kunit::kunit_tests;
}
