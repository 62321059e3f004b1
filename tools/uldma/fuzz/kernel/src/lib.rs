// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subset of the kernel crate that the driver's decoders use, so that they can be compiled into
//! a program unchanged.

pub mod error;

/// The prelude that most files of the driver import.
pub mod prelude {
    pub use crate::error::{Error, Result, EBUSY, EINVAL, ENOTCONN};
    pub use uldma_fuzz_kunit::kunit_tests;
}

/// Devices, of which the decoders only pass references on.
pub mod device {
    use std::marker::PhantomData;

    /// State of a device that a driver is bound to.
    #[derive(Debug)]
    pub struct Bound;

    /// A device.
    #[derive(Debug, Default)]
    pub struct Device<State>(PhantomData<State>);

    impl Device<Bound> {
        /// Returns a device without state.
        pub fn new() -> Self {
            Self(PhantomData)
        }
    }
}
